//! Inspects a file of Windows for a donor. The note and the imports from the C library decide whose `malloc` serves.

use crate::error::InspectError;
use crate::note::{self, GraftNote, Subject};
use crate::pe::{FileKind, Pe};
use crate::report::{
    Allocator, Evidence, Facts, Graft, GraftMethod, Hook, Kind, Libc, Link, Report, Source, Strings, name,
};

/// The section with the note. Names of sections have eight bytes there.
const NOTE_SECTION: &str = ".allogrf";
/// The functions that take or return blocks of the C library's heap.
const FAMILY: [&[u8]; 4] = [b"malloc", b"calloc", b"realloc", b"free"];

/// Inspects a program, a DLL or an object.
///
/// # Errors
/// Its headers are damaged.
pub(crate) fn inspect(bytes: &[u8]) -> Result<Report, InspectError> {
    let pe = Pe::parse(bytes).map_err(InspectError::Pe)?;
    let libc = libc(&pe);
    let malloc = malloc(&pe, libc);
    let kind = match pe.form {
        FileKind::Program => Kind::Executable,
        FileKind::Library => Kind::Shared,
        FileKind::Object => Kind::Object,
    };
    Ok(Report {
        kind,
        arch: pe.arch,
        link: (kind == Kind::Executable).then_some(Link::Dynamic),
        libc,
        graft: graft(kind, &malloc.name),
        malloc,
        language_allocator: None,
        strings: Strings::Unknown,
        strings_evidence: Vec::new(),
        libc_version: None,
        libc_allocator: None,
        facts: Facts {
            thread_stack: None,
            malloc_atfork: Hook::Unknown,
            relro: None,
            position_independent: pe.movable,
            executable_stack: None,
            symbols: pe.symbols,
            sections: true,
        },
    })
}

/// Returns the texts of the notes on an allocator, each once.
pub(crate) fn texts(pe: &Pe<'_>) -> Vec<String> {
    let mut found = Vec::new();
    // A file may name the same bytes in thousands of sections.
    for section in pe.sections.iter().filter(|section| section.name == NOTE_SECTION.as_bytes()).take(16) {
        for note in note::split(&pe.bytes.over(section.data), 4) {
            let text = note.text();
            if note.is_on(Subject::Malloc) && !found.contains(&text) {
                found.push(text);
            }
        }
    }
    found
}

/// Returns the C library whose DLL is imported.
fn libc(pe: &Pe<'_>) -> Libc {
    let is = |library: &[u8], wanted: &[u8]| library.to_ascii_lowercase().starts_with(wanted);
    let imports = pe.imports();
    let any = |wanted: &[u8]| imports.iter().any(|import| is(import.library, wanted));
    match (any(b"api-ms-win-crt-") || any(b"ucrtbase"), any(b"msvcrt.dll")) {
        (true, false) => Libc::Ucrt,
        (false, true) => Libc::Msvcrt,
        _ => Libc::Unknown,
    }
}

fn malloc(pe: &Pe<'_>, libc: Libc) -> Allocator {
    let mut evidence = Vec::new();
    let mut notes = Vec::new();
    for text in texts(pe) {
        match GraftNote::parse(text.as_bytes()) {
            Ok(note) => {
                let summary = note.summary(NOTE_SECTION);
                evidence.push(Evidence::new(Source::Note, summary));
                notes.push(note);
            }
            Err(problem) => {
                evidence.push(Evidence::new(Source::Note, format!("the note `{NOTE_SECTION}` is damaged: {problem}")));
            }
        }
    }
    let imports = pe.imports();
    let of_library: Vec<_> = imports
        .iter()
        .filter(|import| import.function.is_some_and(|function| FAMILY.contains(&function)))
        .map(|import| {
            let (function, library) = (import.function.unwrap_or_default(), import.library);
            format!("`{}` of `{}`", function.escape_ascii(), library.escape_ascii())
        })
        .collect();
    let imported = format!("the file imports {}", of_library.join(", "));
    match (notes.as_slice(), pe.form, of_library.is_empty()) {
        ([note], FileKind::Object, _) => note.allocator(evidence),
        ([note], _, true) => {
            let detail = "the file imports no `malloc`, `calloc`, `realloc` or `free`: the donor's serve";
            evidence.push(Evidence::new(Source::Symbols, detail));
            note.allocator(evidence)
        }
        // Code that calls the C library's functions and code that calls the donor's would exchange blocks.
        (_, _, false) => {
            evidence.push(Evidence::new(Source::Symbols, imported));
            let serves = match (evidence.len(), libc) {
                (1, Libc::Ucrt) => name::UCRT,
                (1, Libc::Msvcrt) => name::MSVCRT,
                _ => name::UNKNOWN,
            };
            Allocator::named(serves, evidence)
        }
        _ => Allocator::named(name::UNKNOWN, evidence),
    }
}

fn graft(kind: Kind, malloc: &str) -> Graft {
    let (way, detail) = match (kind, malloc) {
        (Kind::Object, _) => (GraftMethod::None, "an object: put it on the link line before every library"),
        (_, name::UCRT | name::MSVCRT | name::UNKNOWN) => (
            GraftMethod::Relink,
            "a file of Windows has to be linked again: `allograft emit --target x86_64-pc-windows-gnu`",
        ),
        _ => (GraftMethod::None, "a donor is in it already; to change it, link again"),
    };
    Graft { way, detail: detail.to_owned() }
}
