//! Inspects one ELF file: a program, a shared object, a relocatable object.

use std::collections::HashSet;

use crate::bytes::printable;
use crate::elf::{ET_DYN, ET_EXEC, ET_REL, Elf, PT_DYNAMIC, PT_INTERP, SHT_NOTE};
use crate::entry_points::EntryPoints;
use crate::error::InspectError;
use crate::evidence::constants::Constants;
use crate::evidence::symbols::Marks;
use crate::facts;
use crate::note::{self, Binding, GraftNote, Subject};
use crate::report::{Arch, Evidence, Graft, GraftMethod, Kind, Libc, Link, Report, Source, Strings, name};
use crate::verify::{has_merged_note, is_loader};

pub(crate) fn inspect(bytes: &[u8]) -> Result<Report, InspectError> {
    Ok(examine(bytes)?.0)
}

/// Inspects a file. Also returns the loader of a program whose `malloc` comes from a library.
pub(crate) fn examine(bytes: &[u8]) -> Result<(Report, Option<Vec<u8>>), InspectError> {
    let elf = Elf::parse(bytes).map_err(InspectError::Elf)?;
    let (kind, link) = kind_and_link(&elf)?;
    if let Some(damage) = elf.damage.as_ref().filter(|_| kind == Kind::Object || elf.segments.is_empty()) {
        return Err(InspectError::Elf(damage.clone()));
    }
    if let Some(cut) = elf.segments.iter().position(|segment| segment.data.is_none()) {
        return Err(InspectError::Elf(format!("segment {cut} goes beyond the end of the file")));
    }
    let image = Image {
        packed_by_upx: is_packed_by_upx(&elf),
        marks: Marks::new(elf.symbols.iter().chain(&elf.dynamic_symbols)),
        constants: Constants::search(&elf.loaded()),
        notes: note::of_graft(&elf, Subject::Malloc),
        binding: note::binding(&elf),
        strings: note::of_graft(&elf, Subject::Strings),
        kind,
        link,
        elf: &elf,
    };
    let asks = kind == Kind::Executable && image.asks_libraries();
    let interpreter = elf.interpreter().filter(|path| asks && !path.is_empty());
    Ok((image.report(), interpreter.map(<[u8]>::to_owned)))
}

/// Describes a library that only its name connects with an allocator.
pub(crate) fn named_only(allocator: &str) -> String {
    format!("a library named like {allocator}: any file may have that name")
}

/// Returns the file's kind, and how it is linked. A position-independent program has a flag in its dynamic section or
/// an interpreter; a library has a name.
fn kind_and_link(elf: &Elf<'_>) -> Result<(Kind, Option<Link>), InspectError> {
    let loader = elf.interpreter().is_some();
    Ok(match elf.file_type {
        ET_REL => (Kind::Object, None),
        // UPX has packed the information on how the program was linked, too.
        ET_EXEC | ET_DYN if is_packed_by_upx(elf) => (Kind::Executable, None),
        ET_EXEC if loader || !elf.dynamic.needed.is_empty() => (Kind::Executable, Some(Link::Dynamic)),
        ET_EXEC => (Kind::Executable, Some(Link::Static)),
        ET_DYN if elf.dynamic.soname.is_some() && !elf.dynamic.pie => (Kind::Shared, None),
        ET_DYN if loader => (Kind::Executable, Some(Link::Dynamic)),
        ET_DYN if elf.dynamic.pie && elf.dynamic.needed.is_empty() => (Kind::Executable, Some(Link::StaticPie)),
        ET_DYN => (Kind::Shared, None),
        4 => return Err(InspectError::Kind("a core dump".to_owned())),
        other => return Err(InspectError::Kind(format!("of type {other}"))),
    })
}

/// Whether UPX has packed the program: it has only segments to load, with UPX's mark after the headers (UPX 4
/// src/p_lx_elf.h, l_info). Libraries keep their dynamic section.
fn is_packed_by_upx(elf: &Elf<'_>) -> bool {
    let start = elf.bytes.data.get(..4096).unwrap_or(elf.bytes.data);
    elf.sections.is_empty()
        && !elf.segments.iter().any(|segment| matches!(segment.kind, PT_DYNAMIC | PT_INTERP))
        && memchr::memmem::find(start, b"UPX!").is_some()
}

pub(super) struct Image<'e, 'a> {
    pub(super) packed_by_upx: bool,
    pub(super) elf: &'e Elf<'a>,
    pub(super) kind: Kind,
    pub(super) link: Option<Link>,
    pub(super) marks: Marks<'a>,
    pub(super) constants: Constants,
    pub(super) notes: Vec<Result<GraftNote, String>>,
    /// The owner of the `malloc` that the linker took, by the graft's note of type 3.
    pub(super) binding: Option<Binding>,
    /// The notes on string functions.
    strings: Vec<Result<GraftNote, String>>,
}

impl Image<'_, '_> {
    fn report(&self) -> Report {
        let allocators = self.allocators();
        let libc = self.libc();
        let is_graft = self.note().is_some() && self.kind != Kind::Object;
        Report {
            kind: self.kind,
            arch: self.elf.arch,
            link: self.link,
            libc,
            language_allocator: self.language(&allocators.malloc),
            strings: self.strings(),
            strings_evidence: self.strings_evidence(),
            libc_version: self.libc_version(libc),
            libc_allocator: allocators.libc,
            facts: facts::of_image(self.elf, self.kind, libc, is_graft),
            graft: self.graft(&allocators.malloc.name),
            malloc: allocators.malloc,
        }
    }

    pub(super) fn note(&self) -> Option<&GraftNote> {
        match self.notes.as_slice() {
            [Ok(note)] => Some(note),
            _ => None,
        }
    }

    /// Whether it is loaded by itself, and contains all of its code.
    pub(super) fn is_static(&self) -> bool {
        matches!(self.link, Some(Link::Static | Link::StaticPie))
    }

    pub(super) fn libc(&self) -> Libc {
        if self.link == Some(Link::Dynamic) || self.kind == Kind::Shared {
            return self.libc_asked_for();
        }
        if self.kind == Kind::Object {
            return Libc::None;
        }
        let musl = self.note().is_some()
            || matches!(self.strings.as_slice(), [Ok(_)])
            || self.marks.has_musl_parts()
            || [name::MALLOCNG, name::OLDMALLOC, "musl"].iter().any(|mark| self.constants.has(mark));
        // glibc's start files carry a note with the oldest kernel that they support (csu/abi-note.c).
        let abi_note = note::all(self.elf)
            .iter()
            .any(|note| note.owner == b"GNU\0" && note.kind == 1 && note.description.get(..4) == Some(&[0; 4]));
        let glibc = self.marks.has_glibc_parts() || abi_note || self.constants.has(name::GLIBC);
        match (musl, glibc) {
            (true, false) => Libc::Musl,
            (false, true) => Libc::Glibc,
            (true, true) => Libc::Unknown,
            (false, false) if self.marks.has_program_without_libc() || self.is_pure_go() => Libc::None,
            (false, false) => Libc::Unknown,
        }
    }

    /// Returns the libc that the interpreter names, else the one that the libraries name.
    fn libc_asked_for(&self) -> Libc {
        let loader = self.elf.interpreter().unwrap_or_default();
        let named = |text: &[u8], part: &[u8]| memchr::memmem::find(text, part).is_some();
        let needs = |part: &[u8]| self.elf.dynamic.needed.iter().any(|needed| named(needed, part));
        if named(loader, b"ld-musl-") || needs(b"libc.musl-") {
            Libc::Musl
        } else if named(loader, b"/ld-linux")
            || named(loader, b"/ld64.so")
            || needs(b"libc.so.6")
            || self.elf.dynamic.soname == Some(b"libc.so.6")
        {
            Libc::Glibc
        } else if self.constants.has("musl") && self.constants.has(name::MALLOCNG) {
            Libc::Musl
        } else {
            Libc::Unknown
        }
    }

    /// Returns libc's release. musl leaves none in a program; a dynamic program for glibc names the oldest release that
    /// it works with.
    fn libc_version(&self, libc: Libc) -> Option<String> {
        let dynamic = self.link == Some(Link::Dynamic) || self.kind == Kind::Shared;
        let strings = self.elf.bytes.over(self.elf.dynamic.strings);
        (libc == Libc::Glibc && dynamic).then(|| facts::glibc_version(&strings)).flatten()
    }

    /// Whether it is a Go program that Go's own linker made from Go code alone: it has the function table that stack
    /// traces need, and none of C's start files.
    pub(super) fn is_pure_go(&self) -> bool {
        let section = |name: &[u8]| self.elf.sections.iter().any(|section| section.name == name);
        let of_c: [&[u8]; 5] = [b".init", b".init_array", b".fini", b".ctors", b".eh_frame"];
        // Go's own linker names glibc's loader in position-independent programs, even if they need no library.
        let alone = self.is_static() || self.link == Some(Link::Dynamic) && self.elf.dynamic.needed.is_empty();
        self.constants.has(name::GO)
            && alone
            // The second name is that in position-independent programs (Go src/cmd/link/internal/ld/data.go).
            && (section(b".gopclntab") || section(b".data.rel.ro.gopclntab"))
            && section(b".text")
            && !of_c.into_iter().any(section)
    }

    /// Whether it contains one of musl's allocators, or a graft.
    fn has_malloc_of_musl(&self) -> bool {
        self.note().is_some() || [name::MALLOCNG, name::OLDMALLOC].iter().any(|mark| self.constants.has(mark))
    }

    /// Whether it has sections of Go's linker, even if C's linker followed. `graft` refuses such programs by the same
    /// marks.
    fn has_go_sections(&self) -> bool {
        self.elf.sections.iter().any(|section| {
            let note = section.kind == SHT_NOTE
                && section.data.is_some_and(|data| memchr::memmem::find(data, b"Go\0").is_some());
            note || section.name == b".go.buildinfo"
        })
    }

    /// Returns the owner of the string functions, by their note. Without one, a program from a graft has musl's own,
    /// since every program has some string function; so has a program with the names that musl's share among
    /// themselves.
    ///
    /// In an executable that was grafted after linking, entry points of the program must also jump to them.
    fn strings(&self) -> Strings {
        match self.strings.as_slice() {
            [Ok(_)] => match EntryPoints::parse(self.elf) {
                None => Strings::Grafted,
                Some(Ok(entry_points))
                    if entry_points.is_confirmed(self.elf) && entry_points.strings().next().is_some() =>
                {
                    Strings::Grafted
                }
                Some(_) => Strings::Unknown,
            },
            [] if self.note().is_some() && self.kind != Kind::Object => Strings::Stock,
            [] if self.is_static() && self.libc() == Libc::Musl && self.marks.musl_strings() > 0 => Strings::Stock,
            _ => Strings::Unknown,
        }
    }

    /// Returns the evidence: the note, and the functions that jump to allograft's.
    fn strings_evidence(&self) -> Vec<Evidence> {
        let ([Ok(note)], Strings::Grafted) = (self.strings.as_slice(), self.strings()) else { return Vec::new() };
        let mut evidence = vec![Evidence::new(Source::Note, note.summary(Subject::Strings.section()))];
        if let Some(Ok(entry_points)) = EntryPoints::parse(self.elf) {
            let mut names: Vec<&str> = entry_points.strings().map(|(_, name)| name).collect();
            let count = names.len();
            // A program may have several entry points of one function.
            let mut seen = HashSet::new();
            names.retain(|name| seen.insert(*name));
            let detail = format!("{count} string functions jump to the donor: {}", names.join(", "));
            evidence.push(Evidence::new(Source::Code, detail));
        }
        evidence
    }

    /// Returns whether another allocator can be put in, and how.
    fn graft(&self, malloc: &str) -> Graft {
        let (way, detail) = match (self.kind, self.link) {
            (Kind::Object, _) => (GraftMethod::None, "an object has whatever malloc it is linked with".to_owned()),
            (Kind::Shared, _) if malloc == name::NONE => {
                (GraftMethod::None, "a library has the malloc of the program that loads it".to_owned())
            }
            // A grafted loader is also musl's loader: a new graft replaces the old one.
            (Kind::Shared, _)
                if is_loader(self.elf)
                    && (malloc == name::MALLOCNG || self.note().is_some())
                    && matches!(self.elf.arch, Arch::X86_64 | Arch::Aarch64) =>
            {
                (
                    GraftMethod::Graft,
                    "musl's dynamic loader: `allograft graft` takes it if all that it has to find is there, and every \
                     dynamic program that it starts has the donor"
                        .to_owned(),
                )
            }
            (Kind::Shared, _) => (GraftMethod::Unknown, "a library with a malloc of its own".to_owned()),
            (_, Some(Link::Dynamic)) if self.note().is_some() && has_merged_note(self.elf) => (
                GraftMethod::Graft,
                "a donor was merged into it, whose malloc comes before that of every library, LD_PRELOAD's too: \
                 `allograft graft` puts another donor in its place, from the stock file"
                    .to_owned(),
            ),
            (_, Some(Link::Dynamic)) if !self.is_pure_go() => {
                let loader = printable(self.elf.interpreter().unwrap_or_default());
                let looked_up = format!("{loader} looks malloc up when the program starts");
                let of_libc = [name::GLIBC, name::MALLOCNG, name::UNKNOWN].contains(&malloc);
                if matches!(self.elf.arch, Arch::X86_64 | Arch::Aarch64) && of_libc && matches!(self.libc(), Libc::Glibc | Libc::Musl) {
                    let how = "`allograft graft` merges a donor into the program, whose malloc is found first then; it \
                               refuses if a library brings an allocator. LD_PRELOAD does the same for one start";
                    (GraftMethod::Graft, format!("{looked_up}. {how}"))
                } else {
                    (GraftMethod::Preload, format!("{looked_up}: LD_PRELOAD comes first"))
                }
            }
            _ if self.packed_by_upx => (GraftMethod::None, "unpack it first: `upx -d`".to_owned()),
            _ if malloc == name::NONE => (GraftMethod::None, "there is no malloc to replace".to_owned()),
            _ if self.is_pure_go() => {
                (GraftMethod::None, "Go's runtime has an allocator of its own, and no malloc".to_owned())
            }
            _ if malloc == name::MALLOCNG && self.has_go_sections() => (
                GraftMethod::Relink,
                "`allograft graft` leaves Go programs alone; the malloc of the C code in it is that of the libc.a that it \
                 is linked with: graft that, and link it again"
                    .to_owned(),
            ),
            _ if malloc == name::MALLOCNG && self.is_static() && matches!(self.elf.arch, Arch::X86_64 | Arch::Aarch64) => (
                GraftMethod::Graft,
                "`allograft graft` takes it if all that it has to find is there; else graft the libc.a that it is linked \
                 with, and link it again"
                    .to_owned(),
            ),
            _ if malloc == name::ZIG => (
                GraftMethod::Relink,
                "no libc.a that zig links has a malloc: link the object that `allograft emit --as object` writes"
                    .to_owned(),
            ),
            _ if self.libc() == Libc::Musl && !self.has_malloc_of_musl() => (
                GraftMethod::Relink,
                "graft the libc.a that it is linked with, and link it again; that of zig 0.16 and later has no malloc: \
                 link the object that `allograft emit --as object` writes"
                    .to_owned(),
            ),
            _ if self.libc() == Libc::Musl && self.note().is_some() => (
                GraftMethod::Relink,
                "another donor takes another graft of the libc.a that it is linked with, or of the stock program"
                    .to_owned(),
            ),
            _ if self.libc() == Libc::Musl => {
                (GraftMethod::Relink, "graft the libc.a that it is linked with, and link it again".to_owned())
            }
            _ if self.libc() == Libc::Glibc => {
                (GraftMethod::Relink, "link it with musl and a grafted libc.a, or dynamically and preload".to_owned())
            }
            _ => (GraftMethod::Unknown, "it is not known which C library it was linked with".to_owned()),
        };
        Graft { way, detail }
    }
}
