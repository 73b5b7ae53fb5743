//! Inspects one ELF file: a program, a shared object, a relocatable object.

use crate::bytes::printable;
use crate::elf::{ET_DYN, ET_EXEC, ET_REL, Elf};
use crate::error::InspectError;
use crate::evidence::constants::{Constants, Origin};
use crate::evidence::symbols::{Marks, Verdict};
use crate::note::{self, GraftNote, Subject};
use crate::report::{Allocator, Evidence, Kind, Libc, Link, Report, Source, Strings, name};

pub(crate) fn inspect(bytes: &[u8]) -> Result<Report, InspectError> {
    let elf = Elf::parse(bytes).map_err(|problem| InspectError::Elf { problem })?;
    let (kind, link) = kind_and_link(&elf)?;
    if let Some(damage) = elf.damage.as_ref().filter(|_| kind == Kind::Object || elf.segments.is_empty()) {
        return Err(InspectError::Elf { problem: damage.clone() });
    }
    if let Some(cut) = elf.segments.iter().position(|segment| segment.data.is_none()) {
        let problem = format!("segment {cut} goes beyond the end of the file");
        return Err(InspectError::Elf { problem });
    }
    let image = Image {
        marks: Marks::of(elf.symbols.iter().chain(&elf.dynamic_symbols)),
        constants: Constants::of(&elf.loaded()),
        notes: note::of_graft(&elf, Subject::Malloc),
        strings: note::of_graft(&elf, Subject::Strings),
        kind,
        link,
        elf: &elf,
    };
    Ok(image.report())
}

/// A position-independent program says so in its dynamic section, or asks for a loader; a library has a name.
fn kind_and_link(elf: &Elf<'_>) -> Result<(Kind, Option<Link>), InspectError> {
    let loader = elf.interpreter().is_some();
    Ok(match elf.file_type {
        ET_REL => (Kind::Object, None),
        ET_EXEC if loader || !elf.dynamic.needed.is_empty() => (Kind::Executable, Some(Link::Dynamic)),
        ET_EXEC => (Kind::Executable, Some(Link::Static)),
        ET_DYN if elf.dynamic.soname.is_some() && !elf.dynamic.pie => (Kind::Shared, None),
        ET_DYN if loader => (Kind::Executable, Some(Link::Dynamic)),
        ET_DYN if elf.dynamic.pie && elf.dynamic.needed.is_empty() => (Kind::Executable, Some(Link::StaticPie)),
        ET_DYN => (Kind::Shared, None),
        4 => return Err(InspectError::Kind { found: "a core dump".to_owned() }),
        other => return Err(InspectError::Kind { found: format!("of type {other}") }),
    })
}

struct Image<'e, 'a> {
    elf: &'e Elf<'a>,
    kind: Kind,
    link: Option<Link>,
    marks: Marks<'a>,
    constants: Constants,
    notes: Vec<Result<GraftNote, String>>,
    /// Those on string functions.
    strings: Vec<Result<GraftNote, String>>,
}

impl Image<'_, '_> {
    fn report(&self) -> Report {
        Report {
            kind: self.kind,
            arch: self.elf.arch,
            link: self.link,
            libc: self.libc(),
            malloc: self.malloc(),
            language_allocator: self.language(),
            strings: self.strings(),
        }
    }

    fn note(&self) -> Option<&GraftNote> {
        match self.notes.as_slice() {
            [Ok(note)] => Some(note),
            _ => None,
        }
    }

    fn libc(&self) -> Libc {
        if self.link == Some(Link::Dynamic) || self.kind == Kind::Shared {
            return self.libc_asked_for();
        }
        if self.kind == Kind::Object {
            return Libc::None;
        }
        let musl = self.note().is_some()
            || matches!(self.strings.as_slice(), [Ok(_)])
            || self.marks.has_musl_parts()
            || [Origin::Mallocng, Origin::Oldmalloc, Origin::MuslMessages].iter().any(|&mark| self.constants.has(mark));
        // glibc's start files carry the note of the least kernel that they want (csu/abi-note.c).
        let abi_note = note::all(self.elf)
            .iter()
            .any(|note| note.owner == b"GNU\0" && note.kind == 1 && note.description.get(..4) == Some(&[0; 4]));
        let glibc = self.marks.has_glibc_parts() || abi_note || self.constants.has(Origin::Glibc);
        match (musl, glibc) {
            (true, false) => Libc::Musl,
            (false, true) => Libc::Glibc,
            (true, true) => Libc::Unknown,
            (false, false) if self.marks.has_program_without_libc() => Libc::None,
            (false, false) => Libc::Unknown,
        }
    }

    /// By the loader, else by the libraries.
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
        } else if self.constants.has(Origin::MuslMessages) && self.constants.has(Origin::Mallocng) {
            Libc::Musl
        } else {
            Libc::Unknown
        }
    }

    fn malloc(&self) -> Allocator {
        match self.notes.as_slice() {
            [] => self.malloc_without_note(),
            [Ok(note)] => self.malloc_by_note(note),
            [Err(problem)] => self.unknown(vec![Evidence::new(
                Source::Note,
                format!("there is a note `.note.allograft`, but {problem}"),
            )]),
            several => {
                let said = several.iter().map(|note| match note {
                    Ok(note) => Evidence::new(Source::Note, note.summary(Subject::Malloc)),
                    Err(problem) => Evidence::new(Source::Note, format!("a note `.note.allograft`, but {problem}")),
                });
                self.unknown(said.collect())
            }
        }
    }

    fn malloc_by_note(&self, note: &GraftNote) -> Allocator {
        let mut evidence = vec![Evidence::new(Source::Note, note.summary(Subject::Malloc))];
        match self.marks.malloc_is_libcs() {
            // A graft's `malloc` is a weak alias of `__libc_malloc`: a program that brings its own has another.
            Some(false) => {
                let detail = "`malloc` is not `__libc_malloc`: the program brings its own, and the graft serves libc's own blocks";
                evidence.push(Evidence::new(Source::Symbols, detail));
                let mut allocator = self.malloc_by_symbols();
                evidence.append(&mut allocator.evidence);
                return Allocator { evidence, ..allocator };
            }
            Some(true) => {
                evidence.push(Evidence::new(Source::Symbols, "`malloc` and `__libc_malloc` are the same function"));
            }
            None => {}
        }
        Allocator {
            name: note.donor.clone(),
            version: Some(note.version.clone()).filter(|text| !text.is_empty()),
            evidence,
        }
    }

    fn malloc_without_note(&self) -> Allocator {
        let dynamic = self.link == Some(Link::Dynamic) || self.kind == Kind::Shared;
        match self.kind {
            Kind::Object if !self.marks.has("malloc") => {
                let detail = if self.marks.needs("malloc") {
                    "`malloc` is asked of other files"
                } else {
                    "`malloc` is not defined"
                };
                Allocator::named(name::NONE, vec![Evidence::new(Source::Symbols, detail)])
            }
            _ if dynamic && !self.marks.has("malloc") => self.malloc_from_libraries(),
            _ => self.malloc_by_symbols(),
        }
    }

    /// What the symbols say, or the constants where there are none.
    fn malloc_by_symbols(&self) -> Allocator {
        match self.marks.verdict() {
            Verdict::Is(name, detail) => {
                let mut allocator = Allocator::named(name, vec![Evidence::new(Source::Symbols, detail)]);
                self.add_constants_of(&mut allocator);
                allocator
            }
            Verdict::Unnamed(detail) => self.unknown(vec![Evidence::new(Source::Symbols, detail)]),
            Verdict::Silent => self.malloc_by_constants(),
        }
    }

    /// Only where musl's own table is the one mark there is does a constant name what serves `malloc`: every other
    /// allocator may be there for a language, or for a caller that names it.
    fn malloc_by_constants(&self) -> Allocator {
        let candidates = self.constants.candidates();
        if let [(origin @ (Origin::Mallocng | Origin::Oldmalloc | Origin::Glibc), detail)] = candidates.as_slice() {
            return Allocator::named(origin.name(), vec![Evidence::new(Source::Constants, detail.clone())]);
        }
        if candidates.is_empty() {
            if self.constants.has(Origin::Go) {
                let mut allocator = Allocator::named(
                    name::GO,
                    vec![Evidence::new(Source::Constants, "Go's build information, and no mark of another allocator")],
                );
                allocator.version.clone_from(&self.constants.go_version);
                return allocator;
            }
            if self.marks.has_program_without_libc() {
                return Allocator::named(
                    name::NONE,
                    vec![Evidence::new(
                        Source::Symbols,
                        "there are symbols, and neither `malloc` nor a libc among them",
                    )],
                );
            }
        }
        self.unknown(Vec::new())
    }

    /// A dynamic program has its `malloc` from the first library that has one.
    fn malloc_from_libraries(&self) -> Allocator {
        let say = |detail: String| vec![Evidence::new(Source::Symbols, detail)];
        if self.kind == Kind::Shared {
            if self.marks.needs("malloc") || self.elf.dynamic_symbols.iter().any(|symbol| symbol.is_needed()) {
                return Allocator::named(
                    name::NONE,
                    say("`malloc` is not defined here: it comes from whatever loads this".to_owned()),
                );
            }
            return self.malloc_by_symbols();
        }
        let known = [
            ("libmimalloc", "mimalloc"),
            ("libjemalloc", "jemalloc"),
            ("libtcmalloc", "tcmalloc"),
            ("libsnmallocshim", "snmalloc"),
            ("librpmalloc", "rpmalloc"),
            ("libhardened_malloc", "hardened"),
            ("libscudo", "scudo"),
        ];
        for needed in &self.elf.dynamic.needed {
            for (library, allocator) in known {
                if needed.starts_with(library.as_bytes()) {
                    return Allocator::named(allocator, say(format!("from {} at run time", printable(needed))));
                }
            }
        }
        let loader = printable(self.elf.interpreter().unwrap_or_default());
        match self.libc() {
            Libc::Glibc => {
                Allocator::named(name::GLIBC, say(format!("from libc.so.6 at run time (the loader is {loader})")))
            }
            Libc::Musl => self.unknown(say(format!(
                "dynamic: from whichever musl is installed at run time (the loader is {loader})"
            ))),
            _ => self.unknown(say(format!("dynamic: from a library at run time (the loader is {loader})"))),
        }
    }

    fn language(&self) -> Option<Allocator> {
        if let Some((name, detail)) = self.marks.language() {
            let mut allocator = Allocator::named(name, vec![Evidence::new(Source::Symbols, detail)]);
            self.add_constants_of(&mut allocator);
            return Some(allocator);
        }
        let prefixed = self.constants.found().find(|(origin, _)| *origin == Origin::JemallocPrefixed);
        if let (Some((_, detail)), false) = (prefixed, self.marks.has_program()) {
            let mut allocator = Allocator::named("jemalloc", vec![Evidence::new(Source::Constants, detail)]);
            allocator.version.clone_from(&self.constants.jemalloc_version);
            return Some(allocator);
        }
        self.constants.has(Origin::Go).then(|| Allocator {
            name: name::GO.to_owned(),
            version: self.constants.go_version.clone(),
            evidence: vec![Evidence::new(Source::Constants, "Go's build information")],
        })
    }

    /// By their note. A program from a graft without one has musl's own, since every program has some string function; and
    /// so has one that shows what musl's share among themselves.
    fn strings(&self) -> Strings {
        let program = self.kind == Kind::Executable && self.link != Some(Link::Dynamic);
        match self.strings.as_slice() {
            [Ok(_)] => Strings::Grafted,
            [] if self.note().is_some() && self.kind != Kind::Object => Strings::Stock,
            [] if program && self.libc() == Libc::Musl && self.marks.musl_strings() > 0 => Strings::Stock,
            _ => Strings::Unknown,
        }
    }

    /// Adds the constants that confirm `allocator`, with the version that they carry.
    fn add_constants_of(&self, allocator: &mut Allocator) {
        for (origin, detail) in self.constants.found().filter(|(origin, _)| origin.name() == allocator.name) {
            allocator.evidence.push(Evidence::new(Source::Constants, detail));
            match origin {
                Origin::Jemalloc | Origin::JemallocPrefixed => {
                    allocator.version.clone_from(&self.constants.jemalloc_version)
                }
                Origin::Go => allocator.version.clone_from(&self.constants.go_version),
                _ => {}
            }
        }
    }

    /// "unknown", with everything that was seen.
    fn unknown(&self, mut evidence: Vec<Evidence>) -> Allocator {
        for (origin, detail) in self.constants.candidates() {
            let detail =
                format!("{} is in the file, which does not show that it serves `malloc`: {detail}", origin.name());
            evidence.push(Evidence::new(Source::Constants, detail));
        }
        Allocator::named(name::UNKNOWN, evidence)
    }
}
