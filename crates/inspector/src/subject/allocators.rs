//! Finds the allocators that serve `malloc`, the language's own blocks, and libc's own blocks in an ELF file.

use known::Row;

use crate::bytes::printable;
use crate::code::{Code, oldmalloc};
use crate::elf::STB_GLOBAL;
use crate::entry_points::EntryPoints;
use crate::evidence::families::{self, Reach};
use crate::evidence::symbols::{UNTIED, Verdict};
use crate::note::{BINDING_SECTION, Binding, GraftNote, Subject};
use crate::report::{Allocator, Evidence, Kind, Libc, Link, Source, name};
use crate::subject::image::{Image, named_only};

/// Shared objects of glibc and of gcc that define no malloc for others, except glibc's libc. A program that has only
/// these gets glibc's malloc, unless it names folders of its own, where anything may have these names.
const WITHOUT_MALLOC: &[&str] = &[
    "libc.so.6",
    "libm.so.6",
    "libpthread.so.0",
    "libdl.so.2",
    "librt.so.1",
    "libutil.so.1",
    "libresolv.so.2",
    "libanl.so.1",
    "libcrypt.so.1",
    "libmvec.so.1",
    "libnsl.so.1",
    "libgcc_s.so.1",
    "libstdc++.so.6",
    "libatomic.so.1",
    "libgomp.so.1",
];

/// The allocator of each kind of block.
pub(super) struct Allocators {
    pub(super) malloc: Allocator,
    /// The allocator of libc's own blocks, if it differs from `malloc`'s.
    pub(super) libc: Option<Allocator>,
}

impl From<Allocator> for Allocators {
    fn from(malloc: Allocator) -> Allocators {
        Allocators { malloc, libc: None }
    }
}

fn evidence_of(source: Source, detail: impl Into<String>) -> Vec<Evidence> {
    vec![Evidence::new(source, detail)]
}

impl Image<'_, '_> {
    pub(super) fn allocators(&self) -> Allocators {
        if self.packed_by_upx {
            return self.unknown(evidence_of(Source::Constants, "packed by UPX, its malloc with it")).into();
        }
        match self.notes.as_slice() {
            [] => self.without_note(),
            [Ok(note)] => match EntryPoints::parse(self.elf) {
                Some(entry_points) => self.by_jumps(note, entry_points),
                None if !self.has_donor() => {
                    let mut evidence = evidence_of(Source::Note, note.summary(Subject::Malloc.section()));
                    evidence.push(Evidence::new(Source::Note, "that donor is not in the file: the note was copied"));
                    self.unknown(evidence).into()
                }
                None => self.by_note(note),
            },
            [Err(problem)] => self
                .unknown(evidence_of(Source::Note, format!("there is a note `.note.allograft`, but {problem}")))
                .into(),
            several => {
                let said = several.iter().map(|note| match note {
                    Ok(note) => Evidence::new(Source::Note, note.summary(Subject::Malloc.section())),
                    Err(problem) => Evidence::new(Source::Note, format!("a note `.note.allograft`, but {problem}")),
                });
                self.unknown(said.collect()).into()
            }
        }
    }

    /// Reads an executable that was grafted after linking: the entry points of musl's allocator jump to the donor. The
    /// program's own blocks come from the donor too, if its public names resolve to musl's.
    fn by_jumps(&self, note: &GraftNote, entry_points: Result<EntryPoints, String>) -> Allocators {
        let mut evidence = evidence_of(Source::Note, note.summary(Subject::Malloc.section()));
        let entry_points = match entry_points {
            Ok(entry_points) if entry_points.is_confirmed(self.elf) => entry_points,
            other => {
                let unconfirmed = "not all entry points that the note names jump to the donor";
                evidence.push(other.map_or_else(
                    |problem| Evidence::new(Source::Note, problem),
                    |_| Evidence::new(Source::Code, unconfirmed),
                ));
                return self.unknown(evidence).into();
            }
        };
        let count = entry_points.entries.iter().filter(|entry| entry.is_family()).count();
        evidence
            .push(Evidence::new(Source::Code, format!("{count} functions of musl's malloc family jump to the donor")));
        let donor = note.allocator(evidence);
        let public = match (self.marks.symbol("malloc"), self.marks.symbol("free")) {
            (Some(malloc), Some(free)) => {
                [malloc, free].into_iter().all(|symbol| entry_points.is_reached_from(self.elf, symbol.value))
            }
            (None, None) => entry_points.has_public_free(),
            _ => false,
        };
        if public {
            return donor.into();
        }
        Allocators { malloc: self.unknown(donor.evidence.clone()), libc: Some(donor) }
    }

    /// Reads a graft's note, which names the allocator of libc's own blocks. The linker has decided whether `malloc` is
    /// the same.
    fn by_note(&self, note: &GraftNote) -> Allocators {
        let mut evidence = evidence_of(Source::Note, note.summary(Subject::Malloc.section()));
        let symbols = self.marks.malloc_is_libcs();
        match symbols {
            Some(true) => {
                evidence.push(Evidence::new(Source::Symbols, "`malloc` and `__libc_malloc` are the same function"));
            }
            Some(false) => evidence.push(Evidence::new(
                Source::Symbols,
                "`malloc` is not `__libc_malloc`: the program brings its own, and the graft serves libc's own blocks",
            )),
            None => {}
        }
        // In an object the distances are not filled in yet: the linker does that.
        let binding = self.binding.filter(|_| self.kind != Kind::Object);
        match binding {
            Some(Binding::ToGraft) => evidence.push(Evidence::new(
                Source::Note,
                format!("the note `{BINDING_SECTION}` says that `malloc` and `free` are the graft's"),
            )),
            Some(Binding::ToProgram) => evidence.push(Evidence::new(
                Source::Note,
                format!("the note `{BINDING_SECTION}` says that the program brings its own `malloc`"),
            )),
            None if symbols.is_none() => evidence.push(Evidence::new(
                Source::Note,
                "there is neither a symbol nor a second note that tells whether the program brings its own `malloc`",
            )),
            None => {}
        }
        let donor = note.allocator(evidence);
        let kept = match (symbols, binding) {
            (Some(true), None | Some(Binding::ToGraft)) | (None, Some(Binding::ToGraft)) => true,
            // A donor's object or a library of donors, whose names are not bound yet.
            (None, None) => self.kind == Kind::Object,
            _ => false,
        };
        if kept {
            return donor.into();
        }
        let mut malloc = match symbols {
            Some(false) => self.by_symbols().malloc,
            _ => self.unknown(Vec::new()),
        };
        malloc.evidence.splice(..0, donor.evidence.iter().cloned());
        Allocators { malloc, libc: Some(donor) }
    }

    /// Whether the libraries that the file needs are its only evidence on `malloc`.
    pub(super) fn asks_libraries(&self) -> bool {
        let dynamic = self.link == Some(Link::Dynamic) || self.kind == Kind::Shared;
        !self.packed_by_upx && self.notes.is_empty() && dynamic && !self.marks.has("malloc") && !self.is_pure_go()
    }

    fn without_note(&self) -> Allocators {
        match self.kind {
            Kind::Object if !self.marks.has("malloc") => {
                let asked = self.marks.needs("malloc");
                let detail = if asked { "`malloc` is asked of other files" } else { "`malloc` is not defined" };
                Allocator::named(name::NONE, evidence_of(Source::Symbols, detail)).into()
            }
            _ if self.asks_libraries() => self.libraries().into(),
            _ => self.by_symbols(),
        }
    }

    /// Decides by the symbols, or by the rest of the file if it is stripped.
    fn by_symbols(&self) -> Allocators {
        match self.marks.verdict() {
            Verdict::Is(name @ (name::MALLOCNG | name::OLDMALLOC), detail) if !self.malloc_is_musls() => Allocators {
                malloc: self.by_callees("`malloc` is weak, and does not do what musl's does".to_owned()),
                libc: self.is_confirmed(name).then(|| self.named(name, evidence_of(Source::Symbols, detail))),
            },
            Verdict::Is(name, detail) if !self.is_confirmed(name) => {
                let mut evidence = evidence_of(Source::Symbols, detail);
                evidence.push(Evidence::new(Source::Constants, format!("nothing else of {name} is in the file")));
                self.unknown(evidence).into()
            }
            Verdict::Is(name, detail) => self.named(name, evidence_of(Source::Symbols, detail)).into(),
            Verdict::Unnamed(detail) => self.by_callees(detail).into(),
            Verdict::Beside { malloc, libc, detail } => Allocators {
                malloc: self.by_callees(malloc),
                libc: self.is_confirmed(libc).then(|| self.named(libc, evidence_of(Source::Symbols, detail))),
            },
            Verdict::Silent => self.without_symbols().into(),
        }
    }

    /// Whether a weak `malloc` is musl's, which only calls `__libc_malloc_impl` (musl src/malloc/lite_malloc.c). A
    /// program's own `malloc` may be weak too.
    fn malloc_is_musls(&self) -> bool {
        let (Some(malloc), Some(inside)) = (self.marks.symbol("malloc"), self.marks.symbol("__libc_malloc_impl"))
        else {
            // Before musl 1.2.2 `malloc` is a strong symbol of the allocator's own file.
            return self.marks.symbol("malloc").is_some_and(|malloc| malloc.binding == STB_GLOBAL);
        };
        match Code::new(self.elf).filter(|_| self.kind != Kind::Object) {
            Some(code) => {
                let called = code.callees(malloc.value, malloc.size);
                malloc.value == inside.value || malloc.size <= 32 && called == [inside.value]
            }
            None => self.marks.same("malloc", "default_malloc") || malloc.size <= 32,
        }
    }

    /// Returns the allocator behind a `malloc` without another name, by the functions that it calls.
    fn by_callees(&self, detail: String) -> Allocator {
        let reached = self.marks.symbol("malloc").and_then(|malloc| families::reached(self.elf, malloc));
        // Any allocator may call libc functions that need a block of libc's own, such as atexit.
        let reached =
            reached.filter(|(whose, _)| ![name::MALLOCNG, name::GLIBC].contains(whose) && self.is_confirmed(whose));
        let called = reached.map(|(whose, function)| (whose, Source::Code, format!("`malloc` calls `{function}`")));
        let Some((whose, source, found)) = called.or_else(|| self.by_exports()) else {
            return self.unknown(evidence_of(Source::Symbols, detail));
        };
        let mut evidence = evidence_of(source, found);
        // The description of an untied `malloc` would contradict the finding.
        if detail != UNTIED {
            evidence.push(Evidence::new(Source::Symbols, detail));
        }
        self.named(whose, evidence)
    }

    /// Decides by the allocator's own functions beside `malloc`, and by its constants. A library that has only the
    /// symbols that it exports shows no more.
    fn by_exports(&self) -> Option<(&'static str, Source, String)> {
        let all = |names: &[&str]| names.iter().all(|name| self.marks.has(name));
        let others = self.constants.others();
        let only = |row: &Row| matches!(others.as_slice(), [(found, _)] if found.id == row.id);
        if let Some(row) = known::ROWS.iter().find(|row| !row.exports.is_empty() && all(row.exports) && only(row)) {
            let names: Vec<String> = row.exports.iter().map(|name| format!("`{name}`")).collect();
            return Some((row.name, Source::Symbols, format!("`malloc` beside {}", names.join(", "))));
        }
        let soname = self.elf.dynamic.soname.unwrap_or_default();
        let alias = self.marks.malloc_is_libcs() == Some(true);
        if soname == b"libc.so.6" && alias && self.constants.has(name::GLIBC) && others.is_empty() {
            return Some((name::GLIBC, Source::Symbols, "`malloc` is `__libc_malloc` in libc.so.6".to_owned()));
        }
        // A library that wraps the allocator would have a name of its own.
        let called = known::of_library(soname).filter(|_| self.kind == Kind::Shared);
        if let (Some(called), [(row, detail)]) = (called, others.as_slice())
            && row.name == called
        {
            let detail = format!("{}, a library of that name with `malloc`, has {detail}", printable(soname));
            return Some((row.name, Source::Constants, detail));
        }
        // musl's libc.so exports `free`.
        if self.kind == Kind::Shared && self.constants.has(name::MALLOCNG) && self.constants.has("musl") {
            return self.free_of_mallocng().map(|detail| (name::MALLOCNG, Source::Code, detail));
        }
        None
    }

    /// Decides by code that is proof and by constants that are nowhere else. Any other allocator in the file may serve
    /// only a language, or only callers that name it.
    fn without_symbols(&self) -> Allocator {
        if let Some(detail) = self.constants.details(name::MALLOCNG)
            && let Some(free) = self.free_of_mallocng()
        {
            let mut evidence = evidence_of(Source::Constants, detail);
            evidence.push(Evidence::new(Source::Code, free));
            return Allocator::named(name::MALLOCNG, evidence);
        }
        // glibc's malloc is a strong symbol of the file that has these texts (malloc/malloc.c). Therefore a program
        // with its own malloc cannot contain that file. The texts alone may be anywhere.
        if let Some(detail) = self.constants.details(name::GLIBC).filter(|_| self.is_static())
            && self.uses_messages_of_glibc()
        {
            let mut evidence = evidence_of(Source::Constants, detail);
            evidence
                .push(Evidence::new(Source::Code, "one function is called with these messages, as in glibc's malloc"));
            return Allocator::named(name::GLIBC, evidence);
        }
        if let Some(lock) = self.lock_of_oldmalloc() {
            return self.named(name::OLDMALLOC, evidence_of(Source::Code, lock));
        }
        if self.is_pure_go() {
            let detail = "a Go program without C: Go's runtime, and no `malloc`";
            return self.named(name::GO, evidence_of(Source::Constants, detail));
        }
        let nothing = self.constants.found().all(|(row, _)| !row.serves_malloc && row.id != name::GO);
        if nothing && self.is_static() && self.marks.has_program() && self.marks.has_no_malloc() {
            let detail = "there are symbols, `_start` among them, and none of the malloc family";
            return Allocator::named(name::NONE, evidence_of(Source::Symbols, detail));
        }
        self.unknown(Vec::new())
    }

    /// Returns the evidence in the code that oldmalloc is that of musl 1.2.0 or older, whose `malloc` is strong.
    fn lock_of_oldmalloc(&self) -> Option<String> {
        let row = known::ROWS.iter().find(|row| row.id == name::OLDMALLOC)?;
        if !self.is_static() || !self.constants.has(row.id) {
            return None;
        }
        let word = oldmalloc::count_of_threads(self.elf, &row.marks.first()?.bytes())?;
        Some(format!(
            "the code that reads oldmalloc's table of bins locks if the word at {word:#x} is not zero, as musl's does \
             until 1.2.0: there it is in the file of a strong `malloc`"
        ))
    }

    /// Returns the evidence in the code that the program calls musl's `free`.
    fn free_of_mallocng(&self) -> Option<String> {
        let code = Code::new(self.elf)?;
        let loaded = self.elf.loaded();
        let named = |address: u64| {
            let pointer = address.to_le_bytes();
            let finder = memchr::memmem::Finder::new(&pointer[..if self.elf.bytes.wide { 8 } else { 4 }]);
            self.marks.symbol("free").is_some_and(|free| free.value == address)
                || loaded.iter().any(|part| finder.find(part).is_some())
        };
        let free = code.free_of_mallocng(named)?;
        Some(format!(
            "`free` at {:#x} does nothing but jump to mallocng's at {:#x}, as musl's does, and is called",
            free.public, free.internal
        ))
    }

    /// Whether the program names folders in which its libraries are searched (`DT_RPATH`, `DT_RUNPATH`).
    fn has_folders(&self) -> bool {
        self.elf.dynamic_entries().any(|(tag, _)| [15, 29].contains(&tag))
    }

    /// Returns the allocator of a dynamic program: its `malloc` comes from the first library that has one.
    fn libraries(&self) -> Allocator {
        if self.kind == Kind::Shared {
            if self.marks.needs("malloc") || self.elf.dynamic_symbols.iter().any(|symbol| symbol.is_needed()) {
                let detail = "`malloc` is not defined here: it comes from whatever loads this";
                return Allocator::named(name::NONE, evidence_of(Source::Symbols, detail));
            }
            return self.by_symbols().malloc;
        }
        let needed = &self.elf.dynamic.needed;
        let is_plain = |library: &[u8]| {
            let is_known = WITHOUT_MALLOC.iter().any(|known| known.as_bytes() == library);
            (is_known && !self.has_folders() || library == b"libc.so.6") || library.starts_with(b"ld-linux")
        };
        let loader = printable(self.elf.interpreter().unwrap_or_default());
        let stranger = needed.iter().find(|library| !is_plain(library));
        let named = stranger.and_then(|library| known::of_library(library)).map(named_only);
        let mut malloc = match (self.libc(), stranger) {
            (Libc::Glibc, None) => {
                let detail = format!("from libc.so.6 at run time (the loader is {loader})");
                Allocator::named(name::GLIBC, evidence_of(Source::Symbols, detail))
            }
            (Libc::Glibc, Some(stranger)) => self.unknown(evidence_of(
                Source::Symbols,
                format!(
                    "dynamic: from libc.so.6 at run time, unless {} or what that needs has a malloc (the loader is {loader})",
                    printable(stranger)
                ),
            )),
            (Libc::Musl, _) => self.unknown(evidence_of(
                Source::Symbols,
                format!("dynamic: from whichever musl is installed at run time (the loader is {loader})"),
            )),
            _ => self.unknown(evidence_of(
                Source::Symbols,
                format!("dynamic: from a library at run time (the loader is {loader})"),
            )),
        };
        malloc.evidence.extend(named.map(|detail| Evidence::new(Source::Symbols, detail)));
        malloc
    }

    /// Returns the allocator of the language's own blocks, if that is not `malloc`.
    pub(super) fn language(&self, malloc: &Allocator) -> Option<Allocator> {
        if self.has_go_tables() {
            let go = match self.marks.is_go() {
                true => evidence_of(Source::Symbols, "`runtime.mallocgc`"),
                false => Vec::new(),
            };
            return Some(self.named(name::GO, go));
        }
        if self.marks.is_rust() {
            return self.language_of_rust(malloc);
        }
        if self.marks.has_program() || !self.constants.has("rust") {
            return None;
        }
        if self.constants.has("jemalloc-of-rust") {
            let mut allocator = self.named("jemalloc", Vec::new());
            let rust = self.constants.details("rust").unwrap_or_default();
            allocator.evidence.push(Evidence::new(Source::Constants, rust));
            return Some(allocator);
        }
        self.another_for_rust(malloc)
    }

    /// Returns "unknown" for a Rust program that contains an allocator that it may use.
    fn another_for_rust(&self, malloc: &Allocator) -> Option<Allocator> {
        let (row, detail) =
            self.constants.others().into_iter().find(|(row, _)| !name::is_variant(&malloc.name, row.name))?;
        let detail = format!("a Rust program with {} in it, which does not show that it uses it: {detail}", row.name);
        Some(Allocator::named(name::UNKNOWN, evidence_of(Source::Constants, detail)))
    }

    /// Returns the allocator of a Rust program. Rust calls it through `__rust_alloc`. If the compiler has removed
    /// `__rust_alloc`, the prefix of the crate's jemalloc is the evidence.
    fn language_of_rust(&self, malloc: &Allocator) -> Option<Allocator> {
        if self.marks.has_rust_default() && self.constants.others().is_empty() {
            return None;
        }
        let entry = |name: &[u8]| {
            let is = |ending: &[u8]| name == ending || (name.starts_with(b"_R") && name.ends_with(ending));
            is(b"__rust_alloc") || is(b"__rg_alloc")
        };
        let entries = || self.elf.symbols.iter().filter(|symbol| symbol.is_defined() && entry(symbol.name)).take(8);
        for symbol in entries() {
            let Some((whose, function)) = families::reached(self.elf, symbol) else { continue };
            if name::is_variant(&malloc.name, whose) && !self.marks.has_rust_global() {
                return None;
            }
            if [name::MALLOCNG, name::GLIBC].contains(&whose) || !self.is_confirmed(whose) {
                continue;
            }
            let detail = format!("`{}` calls `{function}`", families::readable(symbol.name));
            return Some(self.named(whose, evidence_of(Source::Code, detail)));
        }
        if let Some(function) = self.marks.prefixed_jemalloc() {
            let detail = format!("a Rust program with `{function}`, which is not its `malloc`");
            return Some(self.named("jemalloc", evidence_of(Source::Symbols, detail)));
        }
        let detail = match (self.marks.other_allocator(), self.marks.has_rust_global()) {
            (Some((symbol, whose)), _) => format!("a Rust program with `{symbol}`: it may be {whose} that it uses"),
            (None, true) => "`__rg_alloc`: a global allocator that is not known".to_owned(),
            (None, false) => {
                let seen = entries().find_map(|symbol| match families::reach_of_malloc(self.elf, symbol) {
                    Reach::No => Some((symbol, "calls no `malloc`")),
                    Reach::Nameless if self.is_static() => {
                        Some((symbol, "calls functions without names, which may take blocks elsewhere"))
                    }
                    Reach::Possible | Reach::Nameless => None,
                });
                let Some((symbol, what)) = seen else { return self.another_for_rust(malloc) };
                format!("`{}` {what}", families::readable(symbol.name))
            }
        };
        Some(Allocator::named(name::UNKNOWN, evidence_of(Source::Symbols, detail)))
    }

    /// Returns a known allocator, with the constants that confirm it and the version that they state.
    fn named(&self, name: &str, evidence: Vec<Evidence>) -> Allocator {
        let mut allocator = Allocator::named(name, evidence);
        let confirming = self.constants.found().filter(|(row, _)| row.name == name);
        allocator.evidence.extend(confirming.map(|(_, detail)| Evidence::new(Source::Constants, detail)));
        allocator.version = self.constants.version(name);
        allocator
    }

    /// Returns "unknown", with all observations.
    fn unknown(&self, mut evidence: Vec<Evidence>) -> Allocator {
        for (row, detail) in self.constants.found().filter(|(row, _)| row.serves_malloc) {
            let detail = format!("{} is in the file, which does not show that it serves `malloc`: {detail}", row.name);
            evidence.push(Evidence::new(Source::Constants, detail));
        }
        if evidence.is_empty() {
            let detail = match self.elf.symbols.is_empty() {
                true => {
                    "there are no symbols, and no marks of a known allocator: zig's, and musl's bump allocator, leave none"
                }
                false => "there is no `malloc` among the symbols, and no mark of a known allocator",
            };
            evidence.push(Evidence::new(Source::Constants, detail));
        }
        Allocator::named(name::UNKNOWN, evidence)
    }
}
