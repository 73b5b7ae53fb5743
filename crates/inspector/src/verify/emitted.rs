//! Verifies a file that holds donors and no host: an object, an archive of one, or a shared object. The caller knows
//! only what it wanted; so the file's own symbols and options are asked, and not the notes alone, which the caller
//! wrote.

use std::collections::BTreeSet;

use super::check::{Check, parse};
use super::donor::options_of;
use super::names::{
    BESIDE_MUSL, HOOKS, INTERNAL, PUBLIC, REPORTS_OF_GLIBC, STRINGS, STRINGS_INTERNAL, STRINGS_OF_MUSL,
};
use super::whole;
use crate::bytes::printable;
use crate::elf::{ET_DYN, Elf, STV_HIDDEN, Symbol};
use crate::error::InspectError;
use crate::library::Library;
use crate::note::{self, GraftNote};
use crate::report::Arch;
use crate::{archive, pe};

/// Returns the checks of a file. `notes` are the texts of the notes that it must carry, of an allocator and of string
/// functions.
///
/// # Errors
/// The file cannot be read.
pub(super) fn checks(file: &[u8], notes: [Option<&str>; 2]) -> Result<Vec<Check>, InspectError> {
    let kinds = ["note", "strings-note"];
    let mut checks: Vec<Check> = kinds
        .into_iter()
        .zip(notes)
        .zip(note::texts(file)?)
        .map(|((name, wanted), found)| {
            let detail = if found.is_empty() { "there is no note".to_owned() } else { found.join("; ") };
            Check::new(name, found.iter().eq(wanted), detail)
        })
        .collect();
    if archive::is_archive(file) {
        let library = Library::read(file)?;
        checks.extend([whole::index(&library), whole::architecture(&library)]);
        match library.parts.as_slice() {
            [one] => checks.extend(of_object(&one.elf, notes)),
            parts => checks.push(Check::new("members", false, format!("{} members, expected 1", parts.len()))),
        }
    } else if !pe::is_pe(file) {
        checks.extend(of_object(&parse(file)?, notes));
    }
    Ok(checks)
}

fn of_object(elf: &Elf<'_>, notes: [Option<&str>; 2]) -> [Check; 2] {
    let note = notes[0].and_then(|text| GraftNote::parse(text.as_bytes()).ok());
    [symbols(elf, notes.map(|note| note.is_some())), options_of(elf, note.as_ref().map_or("", |note| &note.options))]
}

/// Checks that the file defines the functions of the donors that it has notes on, and nothing else.
fn symbols(elf: &Elf<'_>, [malloc, strings]: [bool; 2]) -> Check {
    let is_shared = elf.file_type == ET_DYN;
    let symbols = if is_shared { &elf.dynamic_symbols } else { &elf.symbols };
    // musl's assembly has some local names: `__memcpy_fwd_alias_1` (src/string/x86_64/memmove.s).
    let is_inner =
        |symbol: &Symbol<'_>| strings && symbol.visibility == STV_HIDDEN && symbol.name.starts_with(b"__memcpy_");
    let exported = symbols.iter().filter(|symbol| symbol.is_exported() && !is_inner(symbol));
    let defined: BTreeSet<&[u8]> = exported.map(|symbol| symbol.name).collect();
    let mut required: Vec<&str> = Vec::new();
    let mut others: Vec<&str> = Vec::new();
    if malloc {
        required.extend(PUBLIC);
        others.extend(BESIDE_MUSL.into_iter().chain(REPORTS_OF_GLIBC));
        // Only libc itself calls these.
        if !is_shared {
            required.extend(INTERNAL.into_iter().chain(HOOKS));
        }
    }
    if strings {
        let all = STRINGS.into_iter().chain(STRINGS_INTERNAL);
        let is_required = |name: &&str| elf.arch != Arch::Aarch64 || !STRINGS_OF_MUSL.contains(name);
        required.extend(all.filter(is_required));
        others.extend(STRINGS_OF_MUSL);
    }
    let missing = required.iter().filter(|name| !defined.contains(name.as_bytes()));
    let mut complaints: Vec<String> = missing.map(|name| format!("`{name}` is not defined")).collect();
    let is_known = |name: &[u8]| required.iter().chain(&others).any(|known| known.as_bytes() == name);
    let unknown = defined.iter().filter(|name| !is_known(name));
    complaints.extend(unknown.map(|name| format!("`{}` is defined too", printable(name))));
    Check::unless("exports", complaints, || format!("{} names, no other", defined.len()))
}
