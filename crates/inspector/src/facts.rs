//! The facts about a program, beside its allocators, that matter for a graft.

use crate::bytes::Bytes;
use crate::elf::{ET_DYN, ET_REL, Elf, PF_X, PT_DYNAMIC, PT_GNU_RELRO, PT_GNU_STACK, STB_WEAK, Symbol};
use crate::report::{Facts, Hook, Kind, Libc, Relro};

/// musl src/internal/pthread_impl.h, `DEFAULT_STACK_SIZE` and `DEFAULT_STACK_MAX`.
const MUSL_STACK: u64 = 131_072;
const MUSL_STACK_MAX: u64 = 8 << 20;
/// Code that is shorter cannot take and release a lock.
pub(crate) const LEAST_HOOK: u64 = 9;

/// Reads the facts from the headers and the symbols. `is_graft`: a graft's note is there, and nothing contradicts it.
pub(crate) fn of_image(elf: &Elf<'_>, kind: Kind, libc: Libc, is_graft: bool) -> Facts {
    let stack = elf.segments.iter().find(|segment| segment.kind == PT_GNU_STACK);
    let program = matches!(kind, Kind::Executable | Kind::Shared);
    let musl = kind == Kind::Executable && libc == Libc::Musl;
    // musl src/env/__init_tls.c: PT_GNU_STACK raises a thread's stack size, up to a maximum.
    let size = |memory: u64| memory.clamp(MUSL_STACK, MUSL_STACK_MAX);
    Facts {
        thread_stack: musl.then(|| size(stack.map_or(0, |stack| stack.memory))),
        malloc_atfork: if is_graft { Hook::Real } else { hook(elf, kind) },
        relro: program.then(|| relro(elf)),
        position_independent: match elf.file_type {
            ET_REL => None,
            file_type => Some(file_type == ET_DYN),
        },
        // Without the header, Linux uses the architecture's old default: executable on x86.
        executable_stack: program.then(|| stack.is_none_or(|stack| stack.flags & PF_X != 0)),
        symbols: !elf.symbols.is_empty(),
        sections: !elf.sections.is_empty(),
    }
}

/// Returns the facts of an archive, whose members are not linked yet.
pub(crate) fn of_archive(hook: Hook) -> Facts {
    Facts {
        thread_stack: None,
        malloc_atfork: hook,
        relro: None,
        position_independent: None,
        executable_stack: None,
        symbols: true,
        sections: true,
    }
}

fn relro(elf: &Elf<'_>) -> Relro {
    let dynamic = elf.segments.iter().any(|segment| segment.kind == PT_DYNAMIC);
    match elf.segments.iter().any(|segment| segment.kind == PT_GNU_RELRO) {
        false => Relro::None,
        // Without a loader nothing is bound lazily.
        true if elf.dynamic.bind_now || elf.dynamic.needed.is_empty() || !dynamic => Relro::Full,
        true => Relro::Partial,
    }
}

/// Returns the fork hook of a file. musl's fork.lo has a weak one that does nothing, for programs whose allocator needs
/// none.
fn hook(elf: &Elf<'_>, kind: Kind) -> Hook {
    let named = |symbol: &&Symbol<'_>| symbol.name == b"__malloc_atfork" && symbol.is_defined();
    match elf.symbols.iter().find(named) {
        Some(symbol) => strength(symbol),
        None if elf.symbols.is_empty() || kind == Kind::Shared => Hook::Unknown,
        None => Hook::None,
    }
}

/// Returns the kind of hook that one definition is.
pub(crate) fn strength(symbol: &Symbol<'_>) -> Hook {
    if symbol.binding != STB_WEAK && symbol.size >= LEAST_HOOK { Hook::Real } else { Hook::Empty }
}

/// Returns the newest release of glibc whose symbols a dynamic file needs: `GLIBC_2.34` in its string table.
pub(crate) fn glibc_version(strings: &Bytes<'_>) -> Option<String> {
    let finder = memchr::memmem::Finder::new(b"GLIBC_2.");
    let newest = finder
        .find_iter(strings.data)
        .filter_map(|at| {
            let rest = strings.data.get(at + 8..)?;
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            std::str::from_utf8(&rest[..digits]).ok()?.parse::<u32>().ok()
        })
        .max()?;
    Some(format!(">=2.{newest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_release_that_is_asked_for_counts() {
        let text = |data: &'static [u8]| glibc_version(&Bytes { data, little: true, wide: true });
        assert_eq!(text(b"\0GLIBC_2.4\0GLIBC_2.34\0GLIBC_2.2.5\0").as_deref(), Some(">=2.34"));
        assert_eq!(text(b"\0GLIBC_PRIVATE\0"), None);
    }
}
