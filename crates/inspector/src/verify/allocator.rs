//! Checks that the archive has one allocator and no part of the old one, and that fork has a hook.

use std::collections::BTreeMap;

use foldhash::HashMap;

use super::check::Check;
use super::donor::Donor;
use super::names::{BESIDE_MUSL, INTERNAL, PUBLIC};
use crate::bytes::printable;
use crate::elf::{SHT_REL, SHT_RELA, STB_GLOBAL, Symbol};
use crate::facts::LEAST_HOOK;
use crate::library::{Library, Part};
use crate::report::Arch;

/// Internals of musl's allocators: mallocng, oldmalloc, lite_malloc. `__bump_lockptr` is not among them: fork's member
/// has a weak one of its own.
const INTERNALS: [&str; 11] = [
    "__malloc_context",
    "__malloc_size_classes",
    "__malloc_alloc_meta",
    "__malloc_allzerop",
    "__malloc_lock",
    "__libc_malloc_impl",
    "__bin_chunk",
    "__simple_malloc",
    "__expand_heap",
    "__malloc0",
    "__memalign_impl",
];

/// Checks that each function of the family comes from one member.
pub(super) fn one_provider(graft: &Library<'_>) -> Check {
    let definitions = graft.definitions();
    let mut complaints = Vec::new();
    for name in PUBLIC.iter().chain(&BESIDE_MUSL).chain(&INTERNAL) {
        let providers = definitions.get(name.as_bytes()).map_or(&[][..], Vec::as_slice);
        let wanted = usize::from(!BESIDE_MUSL.contains(name));
        if !(wanted..=1).contains(&providers.len()) {
            let members: Vec<String> = providers.iter().map(|&number| graft.label(&graft.parts[number])).collect();
            let members =
                if members.is_empty() { "no member".to_owned() } else { format!("members {}", members.join(", ")) };
            complaints.push(format!("`{name}` is defined by {members}; one is expected"));
        }
    }
    Check::unless("one-provider", complaints, || {
        format!("{} functions, each defined by one member", PUBLIC.len() + INTERNAL.len())
    })
}

/// Checks that no member defines internals of the old allocator, and that none needs what was removed.
pub(super) fn no_trace(graft: &Library<'_>, stock: Option<&Library<'_>>) -> Check {
    let definitions = graft.definitions();
    let mut complaints = Vec::new();
    for inside in INTERNALS {
        for &number in definitions.get(inside.as_bytes()).map_or(&[][..], Vec::as_slice) {
            complaints.push(format!("member {} still defines `{inside}`", graft.label(&graft.parts[number])));
        }
    }
    let known_by_stock: HashMap<&[u8], bool> = stock.map(known_names).unwrap_or_default();
    for (name, part) in unresolved(graft, &definitions) {
        let text = printable(name);
        let gone = match known_by_stock.get(name) {
            Some(&defined) => defined,
            // Stock does not have the name. A separate check covers the donor's own needs.
            None => INTERNALS.iter().any(|inside| inside.as_bytes() == name) || text.starts_with("__malloc_"),
        };
        if gone {
            complaints.push(format!("member {} needs `{text}`, which is no longer defined", graft.label(part)));
        }
    }
    Check::unless("no-trace", complaints, || "nothing of the old allocator is left, and no member needs it".to_owned())
}

/// Returns the names that members need and no member defines, each with the first member that needs it.
pub(super) fn unresolved<'l, 'a>(
    library: &'l Library<'a>,
    definitions: &HashMap<&'a [u8], Vec<usize>>,
) -> BTreeMap<&'a [u8], &'l Part<'a>> {
    let mut found = BTreeMap::new();
    for part in &library.parts {
        let needed = part.elf.symbols.iter().filter(|symbol| symbol.is_needed());
        for symbol in needed.filter(|symbol| !definitions.contains_key(symbol.name)) {
            found.entry(symbol.name).or_insert(part);
        }
    }
    found
}

/// Returns every global name of an archive, and whether a member defines it.
pub(super) fn known_names<'a>(library: &Library<'a>) -> HashMap<&'a [u8], bool> {
    let mut names = HashMap::default();
    for symbol in library.parts.iter().flat_map(|part| &part.elf.symbols) {
        if symbol.is_exported() {
            names.insert(symbol.name, true);
        } else if symbol.is_needed() {
            names.entry(symbol.name).or_insert(false);
        }
    }
    names
}

/// Checks that the donor has a fork hook that does something, and that fork calls it.
pub(super) fn fork_hook(graft: &Library<'_>, donor: &Donor) -> Check {
    let fails = |detail: &str| Check::new("fork-hook", false, detail);
    let part = donor.part(graft);
    let Some(hook) = part.exported(b"__malloc_atfork") else {
        return fails("the donor does not define `__malloc_atfork`: a child of a program with threads may hang");
    };
    if hook.binding != STB_GLOBAL {
        return fails(
            "the donor's `__malloc_atfork` is weak, as fork's own do-nothing is: which one is taken is chance",
        );
    }
    if hook.size < LEAST_HOOK || only_returns(part.elf.arch, part.elf.contents_of(hook, 16)) {
        return fails("the donor's `__malloc_atfork` does nothing: a child of a program with threads may hang");
    }
    let mut callers = graft.parts.iter().filter(|part| part.exported(b"fork").is_some());
    let Some(fork) = callers.next() else { return fails("no member defines `fork`") };
    let Some((index, _)) = fork.elf.symbols.iter().enumerate().find(|(_, symbol)| is_hook(symbol)) else {
        return fails("fork's member does not know `__malloc_atfork`");
    };
    if !is_used(fork, index) {
        return fails("fork's member names `__malloc_atfork` and never calls it");
    }
    let detail =
        format!("`__malloc_atfork` has {} bytes of code, and member {} calls it", hook.size, graft.label(fork));
    Check::new("fork-hook", true, detail)
}

fn is_hook(symbol: &Symbol<'_>) -> bool {
    symbol.name == b"__malloc_atfork" && symbol.binding != 0
}

/// Whether the function consists of a return, after a landing pad at most.
fn only_returns(arch: Arch, code: &[u8]) -> bool {
    let (pads, returns): (&[&[u8]], &[&[u8]]) = match arch {
        Arch::X86_64 => (&[b"\xf3\x0f\x1e\xfa"], &[b"\xc3", b"\xf3\xc3"]),
        Arch::Aarch64 => (&[b"\x5f\x24\x03\xd5", b"\x3f\x23\x03\xd5"], &[b"\xc0\x03\x5f\xd6"]),
        Arch::I686 => (&[b"\xf3\x0f\x1e\xfb"], &[b"\xc3", b"\xf3\xc3"]),
        // `bx lr`, in ARM code and in Thumb code.
        Arch::Arm => (&[], &[b"\x1e\xff\x2f\xe1", b"\x70\x47"]),
        Arch::Riscv64 => (&[], &[b"\x82\x80", b"\x67\x80\x00\x00"]),
        _ => return false,
    };
    let code = pads.iter().find_map(|pad| code.strip_prefix(*pad)).unwrap_or(code);
    returns.iter().any(|instruction| code.starts_with(instruction))
}

/// Whether a relocation of the member refers to its symbol number `index`.
fn is_used(part: &Part<'_>, index: usize) -> bool {
    let tables = part.elf.sections.iter().filter(|section| [SHT_RELA, SHT_REL].contains(&section.kind));
    let mut tables = tables.map(|section| (section.kind, part.elf.bytes.over(section.data.unwrap_or_default())));
    tables.any(|(kind, table)| {
        // r_offset, r_info and, in SHT_RELA, r_addend. The symbol is the upper half of r_info, in ELF32 its upper 24
        // bits.
        let (word, shift) = if table.wide { (8, 32) } else { (4, 8) };
        let size = if kind == SHT_RELA { 3 * word } else { 2 * word };
        let mut entries = (0..table.data.len() / size).filter_map(|entry| table.word(entry * size + word));
        entries.any(|info| (info >> shift) as usize == index)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_return_is_seen_behind_a_landing_pad() {
        assert!(only_returns(Arch::X86_64, b"\xc3\x90\x90"));
        assert!(only_returns(Arch::X86_64, b"\xf3\x0f\x1e\xfa\xc3"));
        assert!(!only_returns(Arch::X86_64, b"\x55\x48\x89\xe5"));
        assert!(only_returns(Arch::Aarch64, b"\x5f\x24\x03\xd5\xc0\x03\x5f\xd6"));
        assert!(!only_returns(Arch::Aarch64, b"\xfd\x7b\xbf\xa9"));
        assert!(only_returns(Arch::Riscv64, b"\x82\x80"));
        assert!(only_returns(Arch::I686, b"\xf3\x0f\x1e\xfb\xc3"));
        assert!(only_returns(Arch::Arm, b"\x1e\xff\x2f\xe1") && only_returns(Arch::Arm, b"\x70\x47\x00\xbf"));
        assert!(!only_returns(Arch::Arm, b"\x10\xb5\x04\x46"));
        assert!(!only_returns(Arch::Riscv64, b"\x41\x11\x06\xe4"));
    }
}
