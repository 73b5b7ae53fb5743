//! Reads a grafted executable again: checks that the donor is there, that each entry point jumps to it, and that all
//! other bytes are the program's own.

use super::check::{Check, parse};
use super::edits::{self, Edit, Permitted};
use super::file::{self, PF_W, PT_PHDR};
use super::loader;
use super::section_headers::section_of_headers;
use crate::elf::{Elf, PF_X, PT_LOAD, PT_NOTE, PT_TLS, Symbol};
use crate::entry_points::{EntryPoints, loads};
use crate::error::InspectError;
use crate::note::{self, Subject};

/// The donor's segments and the sections that a graft adds, beside that of the donor's probes.
const NEW_LOADS: usize = 3;
const NEW_SECTIONS: usize = 7;
/// The calls at the ends of a thread and of the process, and the operand that names main or the branch to
/// __libc_start_main.
const MOST_EDITS: usize = 3;

/// Returns static checks of an executable that was grafted after linking; with its stock file, also that nothing else
/// changed.
///
/// # Errors
/// A file is not an ELF file, or too damaged to be read.
pub fn executable(graft: &[u8], stock: Option<&[u8]>) -> Result<Vec<Check>, InspectError> {
    let stock = stock.map(parse).transpose()?;
    Ok(checks(&parse(graft)?, stock.as_ref()))
}

pub(super) fn checks(elf: &Elf<'_>, stock: Option<&Elf<'_>>) -> Vec<Check> {
    let entry_points = match EntryPoints::required(elf) {
        Ok(entry_points) => entry_points,
        Err(problem) => return vec![writable_code(elf, None), Check::new("entries", false, problem)],
    };
    let mut checks = vec![writable_code(elf, Some(&entry_points))];
    let of_family = || entry_points.entries.iter().filter(|entry| entry.is_family());
    let mut complaints: Vec<String> =
        of_family().filter_map(|entry| entry_points.leads_to(elf, entry.address).err()).collect();
    complaints.extend(
        entry_points.unknown().map(|entry| format!("the entry point {:#x} has an unknown role", entry.address)),
    );
    checks.push(Check::unless("entries", complaints, || {
        format!("{} functions of musl's malloc family jump into the donor's segment", of_family().count())
    }));
    let noted = !note::of_graft(elf, Subject::Strings).is_empty();
    if noted || entry_points.strings().next().is_some() {
        checks.push(string_entries(elf, &entry_points, noted));
    }
    if let Some(stock) = stock {
        let unchanged = if loader::is_loader(elf) { loader::unchanged } else { unchanged };
        checks.push(unchanged(elf, stock, &entry_points));
    }
    checks
}

/// Checks that the string functions jump to the donor's, and that symbols, where there are any, agree on their names.
fn string_entries(elf: &Elf<'_>, entry_points: &EntryPoints, noted: bool) -> Check {
    let mut complaints: Vec<String> =
        entry_points.strings().filter_map(|(address, _)| entry_points.leads_to(elf, address).err()).collect();
    if !noted {
        complaints.push("string functions are redirected without a note on them".to_owned());
    }
    if entry_points.strings().next().is_none() {
        complaints.push("there is a note on string functions, and none is redirected".to_owned());
    }
    for (address, name) in entry_points.strings().filter(|_| !elf.symbols.is_empty()) {
        // A landing pad may precede the jump.
        let at = |symbol: &&Symbol<'_>| symbol.value == address || symbol.value.checked_add(4) == Some(address);
        // Some have an internal name in musl, with two underscores in front.
        let names_it = |symbol: &Symbol<'_>| symbol.name.strip_prefix(b"__").unwrap_or(symbol.name) == name.as_bytes();
        if !elf.symbols.iter().filter(at).any(|symbol| symbol.is_defined() && names_it(symbol)) {
            complaints.push(format!("no symbol says that the function at {address:#x} is {name}"));
        }
    }
    Check::unless("string-entries", complaints, || {
        let names: Vec<&str> = entry_points.strings().map(|(_, name)| name).collect();
        format!("{} string functions jump into the donor's segment: {}", names.len(), names.join(" "))
    })
}

/// Checks that no segment of the donor can be both written and executed, and that the section of the program headers,
/// if there is one, covers them. A graft leaves the permissions of the program's own segments unchanged.
fn writable_code(elf: &Elf<'_>, entry_points: Option<&EntryPoints>) -> Check {
    let both: Vec<u64> =
        loads(elf).filter(|load| load.flags & PF_X != 0 && load.flags & PF_W != 0).map(|load| load.address).collect();
    let is_own = |address: &&u64| entry_points.is_some_and(|entry_points| entry_points.donor() > **address);
    let (own, others): (Vec<u64>, Vec<u64>) = both.iter().partition(|address| is_own(address));
    let complaints = others.iter().map(|address| format!("the segment at {address:#x} can be written and executed"));
    let headers = section_of_headers(elf).and_then(Result::err);
    Check::unless("segments", complaints.chain(headers).collect(), || match own.first() {
        None => "no segment can be both written and executed".to_owned(),
        Some(address) => format!("only the program's own segment at {address:#x} can be both written and executed"),
    })
}

/// Checks that everything that stock loads is loaded at the same addresses with the same bytes, except for the jumps,
/// and for at most three operands that now name a place in the donor.
fn unchanged(graft: &Elf<'_>, stock: &Elf<'_>, entry_points: &EntryPoints) -> Check {
    let (jumps, added) = (edits::jumps(graft, entry_points), edits::added(graft, entry_points));
    let is_edit = |edit: &Edit| added.contains(&edit.after);
    let permitted = Permitted::new(graft, stock, &jumps, (MOST_EDITS, &is_edit));
    let (complaints, others) = permitted.compare(graft, stock, loads(stock));
    Check::unless("program", complaints, || {
        format!("the program is stock's but for {} jumps and {others} other edits", jumps.len())
    })
}

/// Checks that the file `elf`, as a graft writes it, is the file `stock` followed by a donor, or a loader's file.
pub(super) fn file(elf: &Elf<'_>, stock: &Elf<'_>) -> Check {
    let compare = if loader::is_loader(stock) { loader::compare_files } else { compare_files };
    file::check(elf, stock, compare(elf, stock))
}

/// All thread-local storage is one, behind the program.
fn compare_files(elf: &Elf<'_>, stock: &Elf<'_>) -> Result<(), String> {
    let storage = usize::from(stock.segments.iter().all(|segment| segment.kind != PT_TLS));
    let changes = file::FileChanges {
        start: EntryPoints::required(elf)?.donor(),
        kept: &|segment, header| (![PT_TLS, PT_PHDR].contains(&segment.kind)).then(|| header.to_vec()),
        new: &[(PT_LOAD, NEW_LOADS..=NEW_LOADS), (PT_NOTE, 1..=1), (PT_TLS, storage..=storage)],
        demand: &|_| true,
        copied: None,
        sections: Some(NEW_SECTIONS),
        section: &|_, wanted, index| wanted[index].without_storage(),
    };
    file::compare(elf, stock, &changes)
}
