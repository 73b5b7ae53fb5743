//! Inspects a static archive: finds the members that a linker takes `malloc` from.

use std::collections::HashSet;

use crate::elf::STB_GLOBAL;
use crate::error::InspectError;
use crate::evidence::symbols::{Marks, Verdict};
use crate::facts;
use crate::library::{Library, Part};
use crate::note::{self, Subject};
use crate::report::{Allocator, Evidence, Graft, GraftMethod, Hook, Kind, Libc, Report, Source, Strings, name};

pub(crate) fn inspect(bytes: &[u8]) -> Result<Report, InspectError> {
    let library = Library::read(bytes)?;
    let all = Marks::new(library.parts.iter().flat_map(Part::exports));
    let malloc = malloc(&library);
    let libc = match (all.has_musl_parts(), all.has_glibc_parts()) {
        (true, false) => Libc::Musl,
        (false, true) => Libc::Glibc,
        (false, false) if !all.has("__libc_start_main") => Libc::None,
        _ => Libc::Unknown,
    };
    Ok(Report {
        kind: Kind::Archive,
        arch: library.arch(),
        link: None,
        libc,
        language_allocator: None,
        strings: strings(&library, libc, &all),
        strings_evidence: Vec::new(),
        libc_version: None,
        libc_allocator: None,
        facts: facts::of_archive(hook(&library)),
        graft: graft(&library, libc, &malloc.name),
        malloc,
    })
}

/// Returns the owner of the string functions: allograft, if the member that a linker takes has its note; musl, if no
/// member has one and all names that musl's share among themselves are there.
fn strings(library: &Library<'_>, libc: Libc, all: &Marks<'_>) -> Strings {
    let noted: Vec<_> = library
        .parts
        .iter()
        .map(|part| (part.place, note::of_graft(&part.elf, Subject::Strings)))
        .filter(|(_, notes)| !notes.is_empty())
        .collect();
    let taken = library.providers(b"memchr").first().map(|part| part.place);
    match noted.as_slice() {
        [(place, notes)] if matches!(notes.as_slice(), [Ok(_)]) && Some(*place) == taken => Strings::Grafted,
        [] if libc == Libc::Musl && taken.is_some() && all.has_all_musl_strings() => Strings::Stock,
        _ => Strings::Unknown,
    }
}

/// Returns the allocator of a program that is linked against the archive.
fn malloc(library: &Library<'_>) -> Allocator {
    let providers = library.providers(b"malloc");
    let Some(first) = providers.first() else {
        let detail = format!("none of {} members defines `malloc`", library.archive.members.len());
        return Allocator::named(name::NONE, vec![Evidence::new(Source::Symbols, detail)]);
    };
    let notes = note::of_graft(&first.elf, Subject::Malloc);
    if let [Ok(note)] = notes.as_slice() {
        let evidence = vec![
            Evidence::new(Source::Note, note.summary(Subject::Malloc.section())),
            Evidence::new(Source::Symbols, format!("member {} defines `malloc`", library.label(first))),
        ];
        return note.allocator(evidence);
    }
    let mut evidence = Vec::new();
    for problem in notes.iter().filter_map(|note| note.as_ref().err()) {
        evidence
            .push(Evidence::new(Source::Note, format!("member {} has a note, but {problem}", library.label(first))));
    }
    let mut allocator = match Marks::new(&first.elf.symbols).verdict() {
        Verdict::Is(name, detail) if evidence.is_empty() => {
            let detail = format!("member {} defines `malloc`: {detail}", library.label(first));
            Allocator::named(name, vec![Evidence::new(Source::Symbols, detail)])
        }
        _ => malloc_of_musl(library, first),
    };
    evidence.append(&mut allocator.evidence);
    for other in providers.iter().skip(1) {
        let detail = format!("member {} defines `malloc` too, and is not taken", library.label(other));
        evidence.push(Evidence::new(Source::Symbols, detail));
    }
    Allocator { evidence, ..allocator }
}

/// Returns the allocator behind musl's weak `malloc`, which is in lite_malloc. The members that `free` and `realloc`
/// pull in show which one it is.
fn malloc_of_musl(library: &Library<'_>, lite: &Part<'_>) -> Allocator {
    let provides = format!("member {} defines `malloc`", library.label(lite));
    let unknown = |detail: &str| {
        Allocator::named(name::UNKNOWN, vec![Evidence::new(Source::Symbols, format!("{provides}{detail}"))])
    };
    if lite.exported(b"__libc_malloc_impl").is_none() || lite.exported(b"__libc_malloc").is_none() {
        return unknown(", and no known allocator's insides are tied to it");
    }
    // Every function has to come with one allocator: take the first provider of each.
    let functions = ["__libc_free", "__libc_realloc", "__malloc_allzerop", "__malloc_atfork"];
    let strong = |part: &&Part<'_>, function: &str| {
        part.exported(function.as_bytes()).is_some_and(|symbol| symbol.binding == STB_GLOBAL)
    };
    let taken: Vec<(&str, &Part<'_>)> = functions
        .into_iter()
        .filter_map(|function| {
            let providers = library.providers(function.as_bytes());
            Some((function, providers.into_iter().find(|part| strong(part, function))?))
        })
        .collect();
    let kinds: HashSet<&'static str> =
        taken.iter().filter_map(|(_, part)| internals(|name| part.mentions(name))).collect();
    let others: Vec<String> = library
        .parts
        .iter()
        .filter(|part| !taken.iter().any(|(_, taken)| taken.place == part.place))
        .filter_map(|part| Some((part, internals(|name| part.exported(name).is_some())?)))
        .filter(|(_, kind)| !kinds.contains(kind))
        .map(|(part, kind)| format!("{kind} is in member {}, which is not taken", library.label(part)))
        .collect();
    let mut kinds = kinds.into_iter();
    let (Some(kind), None, Some((function, part))) = (kinds.next(), kinds.next(), taken.first()) else {
        return unknown(" as musl does, but what frees is not one of musl's allocators");
    };
    let detail =
        format!("{provides} as musl does, and member {} `{function}`, with {kind}'s insides", library.label(part));
    let mut allocator = Allocator::named(kind, vec![Evidence::new(Source::Symbols, detail)]);
    allocator.evidence.extend(others.into_iter().map(|detail| Evidence::new(Source::Symbols, detail)));
    allocator
}

/// Returns the `__malloc_atfork` of a program that is linked against the archive: the strong one, if there is one.
fn hook(library: &Library<'_>) -> Hook {
    let hooks: Vec<Hook> =
        library.parts.iter().filter_map(|part| part.exported(b"__malloc_atfork")).map(facts::strength).collect();
    match hooks.as_slice() {
        [] => Hook::None,
        some if some.contains(&Hook::Real) => Hook::Real,
        _ => Hook::Empty,
    }
}

/// Returns whether `allograft graft` takes the archive. Its own rules are stricter, and give the reason.
fn graft(library: &Library<'_>, libc: Libc, malloc: &str) -> Graft {
    let tied = library.parts.iter().any(|part| part.mentions(b"__malloc_tls_default"));
    let (way, detail) = match libc {
        _ if malloc == name::NONE => (GraftMethod::None, "there is no malloc to replace"),
        Libc::Musl if tied => (GraftMethod::None, "its pthread_create is tied to its allocator"),
        Libc::Musl if malloc == name::UNKNOWN => (GraftMethod::Unknown, "it is not known what would be replaced"),
        Libc::Musl => (GraftMethod::Graft, "`allograft graft` replaces its allocator"),
        _ => (GraftMethod::None, "it is no musl"),
    };
    Graft { way, detail: detail.to_owned() }
}

/// Returns which of musl's allocators a member defines or uses internals of; `has` says whether it has a name.
fn internals(has: impl Fn(&[u8]) -> bool) -> Option<&'static str> {
    let kinds = [(name::MALLOCNG, &b"__malloc_context"[..]), (name::OLDMALLOC, b"__bin_chunk")];
    kinds.into_iter().find(|(_, inside)| has(inside)).map(|(kind, _)| kind)
}
