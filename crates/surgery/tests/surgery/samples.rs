//! Objects and archives made up for a test, and the real ones.

use std::path::PathBuf;

use fixtures::objects::{object, unwritten};
use object::write::Object;
use object::{Architecture, Endianness, SectionKind};

/// A real musl: its name, its architecture, its `libc.a`.
pub(crate) type Musl = (String, format::Arch, PathBuf);

/// Real archives with names for messages.
pub(crate) fn real_archives() -> Vec<(String, PathBuf)> {
    let debian = real_musl().into_iter().map(|(name, _, libc)| (name, libc));
    [("glibc".to_owned(), fixtures::glibc())].into_iter().chain(debian).collect()
}

/// Archives that zig makes.
pub(crate) fn zig_archives() -> Vec<(String, PathBuf)> {
    let mut archives = Vec::new();
    for arch in fixtures::ZIG {
        let zig = fixtures::zig_musl(arch);
        archives.push((format!("zig's compiler-rt {}", arch.name()), zig.with_file_name("libcompiler_rt.a")));
        archives.push((format!("zig {}", arch.name()), zig));
    }
    archives
}

/// Debian's musl `libc.a`s.
pub(crate) fn real_musl() -> Vec<Musl> {
    fixtures::DEBIAN.map(|arch| (format!("Debian {}", arch.name()), arch, fixtures::debian_musl(arch).libc)).into()
}

/// zig's `libc.a`s.
pub(crate) fn zig_musl() -> Vec<Musl> {
    fixtures::ZIG.map(|arch| (format!("zig {}", arch.name()), arch, fixtures::zig_musl(arch))).into()
}

pub(crate) fn bytes(path: &std::path::Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The symbols that a donor defines and refers to.
pub(crate) const DONOR: &str = "weak:malloc weak:calloc weak:realloc weak:free weak:aligned_alloc weak:memalign \
     weak:posix_memalign weak:valloc weak:pvalloc weak:reallocarray weak:malloc_usable_size hidden:__libc_malloc \
     hidden:__libc_calloc hidden:__libc_realloc hidden:__libc_free hidden:__malloc_donate hidden:__malloc_atfork \
     needs:memset";

/// The symbols that a donor of string functions defines.
pub(crate) const STRINGS: &str = "weak:memcpy weak:memmove weak:memset weak:memcmp weak:bcmp weak:memchr weak:memrchr \
     weak:strlen weak:strnlen weak:strchr weak:strchrnul weak:strrchr weak:strcmp weak:strncmp weak:stpcpy weak:strcpy \
     weak:stpncpy weak:strncpy weak:strcat weak:strncat weak:hidden:__memrchr weak:hidden:__strchrnul \
     weak:hidden:__stpcpy weak:hidden:__stpncpy weak:hidden:__strcasecmp_l weak:hidden:__strncasecmp_l weak:memccpy \
     weak:strcspn weak:strspn weak:strpbrk weak:strcasecmp weak:strncasecmp weak:strcasecmp_l weak:strncasecmp_l \
     weak:strcasestr weak:wcslen weak:wcsnlen weak:wcschr weak:wcscmp weak:wmemchr weak:wmemcmp weak:wmemcpy \
     weak:wmemmove weak:wmemset weak:hidden:__memcpy_fwd weak:hidden:__memcpy_fwd_alias_1";

/// An allocator's note before a graft.
pub(crate) fn note(donor: &str, version: &str) -> Vec<u8> {
    note_of(1, donor, version)
}

fn note_of(kind: u32, donor: &str, version: &str) -> Vec<u8> {
    let mut note = Vec::new();
    for number in [10_u32, 512, kind] {
        note.extend_from_slice(&number.to_le_bytes());
    }
    note.extend_from_slice(b"allograft\0\0\0");
    note.extend_from_slice(
        format!("donor={donor}\nversion={version}\noptions=\nobject=\nallograft=0.1.0\n").as_bytes(),
    );
    note.resize(24 + 512, 0);
    note
}

/// A table of options: name, value, least and greatest.
pub(crate) fn options(options: &[(&str, i64, i64, i64)]) -> Vec<u8> {
    let mut table = b"ARGO".to_vec();
    for number in [1, options.len() as u32, 64] {
        table.extend_from_slice(&number.to_le_bytes());
    }
    for (name, value, min, max) in options {
        let mut entry = name.as_bytes().to_vec();
        entry.resize(32, 0);
        for number in [value, min, max] {
            entry.extend_from_slice(&number.to_le_bytes());
        }
        entry.resize(64, 0);
        table.extend(entry);
    }
    table
}

fn architecture(arch: format::Arch) -> Architecture {
    match arch {
        format::Arch::X86_64 => Architecture::X86_64,
        format::Arch::Aarch64 => Architecture::Aarch64,
        format::Arch::Riscv64 => Architecture::Riscv64,
        format::Arch::I686 => Architecture::I386,
        format::Arch::Arm => Architecture::Arm,
    }
}

/// A donor of these symbols, with this note and these options.
pub(crate) fn donor_of(arch: format::Arch, words: &str, note: &[u8], options: &[u8]) -> Vec<u8> {
    let object = unwritten(architecture(arch), Endianness::Little, words);
    with_sections(object, ".note.allograft", note, options)
}

/// A valid donor of string functions, tuned.
pub(crate) fn strings(arch: format::Arch, name: &str) -> Vec<u8> {
    tuned(&strings_of(arch, STRINGS, name))
}

/// A donor that defines these string functions.
pub(crate) fn strings_of(arch: format::Arch, words: &str, name: &str) -> Vec<u8> {
    let object = unwritten(architecture(arch), Endianness::Little, words);
    with_sections(object, ".note.allograft.strings", &note_of(2, name, "0.1"), &[])
}

fn with_sections(mut object: Object<'static>, note_section: &str, note: &[u8], options: &[u8]) -> Vec<u8> {
    for (name, kind, content) in
        [(note_section, SectionKind::Note, note), (".rodata.allograft.options", SectionKind::ReadOnlyData, options)]
    {
        if content.is_empty() {
            continue;
        }
        let section = object.add_section(Vec::new(), name.as_bytes().to_vec(), kind);
        object.append_section_data(section, content, 4);
        if kind == SectionKind::Note {
            object.section_mut(section).flags =
                object::SectionFlags::Elf { sh_type: object::elf::SHT_NOTE, sh_flags: object::elf::SHF_ALLOC };
        }
    }
    object.write().expect("a donor")
}

/// A valid donor, tuned.
pub(crate) fn donor(arch: format::Arch, name: &str) -> Vec<u8> {
    let object = donor_of(arch, DONOR, &note(name, "1.2"), &options(&[("purge_delay", 10, -1, 100_000)]));
    tuned(&object)
}

pub(crate) fn tuned(object: &[u8]) -> Vec<u8> {
    surgery::donor::DonorObject::parse(object).expect("a donor").tuned(&[], "0.1.0").expect("no options")
}

/// An archive of these members, with an index of their definitions if `index`. Written without the crate under test.
pub(crate) fn archive(members: &[(&str, Vec<u8>)], index: bool) -> Vec<u8> {
    let mut names = String::new();
    let (mut bodies, mut starts) = (Vec::new(), Vec::new());
    for (name, data) in members {
        let field = if name.len() < 16 && !name.contains('/') {
            format!("{name}/")
        } else {
            let reference = names.len();
            names.push_str(name);
            names.push_str("/\n");
            format!("/{reference}")
        };
        starts.push(bodies.len());
        bodies.extend(member(&field, data));
    }
    let table = if names.is_empty() { Vec::new() } else { member("//", names.as_bytes()) };
    let symbols: Vec<(usize, Vec<u8>)> = members
        .iter()
        .enumerate()
        .flat_map(|(position, (_, data))| {
            let symbols = relocatable::symbols(data).unwrap_or_default();
            symbols
                .into_iter()
                .filter(|symbol| symbol.defined && symbol.is_shared())
                .map(move |symbol| (position, symbol.name.to_vec()))
                .collect::<Vec<_>>()
        })
        .collect();
    let mut out = b"!<arch>\n".to_vec();
    if index {
        let mut content = (symbols.len() as u32).to_be_bytes().to_vec();
        let strings: usize = symbols.iter().map(|(_, name)| name.len() + 1).sum();
        let size = (4 + 4 * symbols.len() + strings).next_multiple_of(2);
        let front = 8 + 60 + size + table.len();
        for (position, _) in &symbols {
            content.extend_from_slice(&((front + starts[*position]) as u32).to_be_bytes());
        }
        for (_, name) in &symbols {
            content.extend_from_slice(name);
            content.push(0);
        }
        content.resize(size, 0);
        out.extend(member("/", &content));
    }
    out.extend(table);
    out.extend(bodies);
    out
}

/// Header, content and padding of a member.
pub(crate) fn member(field: &str, data: &[u8]) -> Vec<u8> {
    let mut out = format!("{field:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, data.len()).into_bytes();
    out.extend_from_slice(data);
    if !out.len().is_multiple_of(2) {
        out.push(b'\n');
    }
    out
}

/// A musl in small, as lists of words: the members by which musl is recognised, users of the allocator, and mallocng's
/// members.
pub(crate) const MUSL: [(&str, &str); 14] = [
    ("start.lo", "hidden:__init_libc __libc_start_main needs:__libc"),
    ("libc.lo", "hidden:__libc"),
    ("tls.lo", "hidden:__init_tp hidden:__copy_tls"),
    ("ret.lo", "hidden:__syscall_ret"),
    ("strdup.lo", "strdup needs:malloc needs:memset"),
    ("lite_malloc.lo", "hidden:__libc_malloc weak:malloc weak:hidden:__libc_malloc_impl hidden:__bump_lockptr"),
    ("free.lo", "free needs:__libc_free"),
    ("memset.lo", "memset"),
    ("free.lo", "hidden:__libc_free needs:__malloc_context"),
    ("fork.lo", "fork weak:hidden:__malloc_atfork weak:hidden:__bump_lockptr"),
    ("realloc.lo", "realloc needs:__libc_realloc"),
    ("malloc.lo", "hidden:__libc_malloc_impl hidden:__malloc_context __malloc_atfork hidden:__libc_realloc"),
    ("replaced.lo", "hidden:__malloc_replaced hidden:__aligned_alloc_replaced"),
    ("calloc.lo", "calloc weak:hidden:__malloc_allzerop needs:__malloc_replaced needs:malloc"),
];

/// The small musl with these members in place of those of the same name, or behind the last one.
pub(crate) fn musl_with(changes: &[(&'static str, &'static str)]) -> Vec<u8> {
    let mut members: Vec<(&str, &str)> = MUSL.to_vec();
    for change in changes {
        match members.iter_mut().find(|(name, _)| *name == change.0) {
            Some(member) => *member = *change,
            None => members.push(*change),
        }
    }
    archive(&members.iter().map(|(name, words)| (*name, object(words))).collect::<Vec<_>>(), true)
}
