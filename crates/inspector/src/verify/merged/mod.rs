//! Verifies a dynamic program that a donor was merged into: every look-up of the malloc family finds the donor, the
//! program is otherwise unchanged, and the donor is the one that was linked.

mod donor;
mod file;
mod machine;

use std::collections::HashMap;
use std::ops::Range;

use super::edits::Permitted;
use super::file::PF_W;
use super::filled_in;
use super::section_headers::section_of_headers;
use crate::bytes::printable;
use crate::elf::{Elf, PF_X, PT_NOTE, PT_TLS};
use crate::entry_points::loads;
use crate::error::InspectError;
use crate::note;
use crate::tables::{ALIAS, Relocation, Symbol, Tables};
use crate::verify::check::{Check, parse};
use crate::verify::names::{BESIDE_MUSL, PUBLIC, REPORTS_OF_GLIBC};
use machine::Machine;

pub(super) use file::check as file;

/// The note's type (docs/note.md).
const KIND: u32 = 5;
/// The tags whose values a merge changes: DT_HASH, STRTAB, SYMTAB, RELA, RELASZ, RELAENT, STRSZ; the lists of
/// functions; GNU_HASH, VERSYM, RELACOUNT.
const CHANGED: [u64; 16] = [4, 5, 6, 7, 8, 9, 10, 25, 26, 27, 28, 32, 33, 0x6fff_fef5, 0x6fff_fff0, 0x6fff_fff9];
const STRTAB: u64 = 5;
const STRSZ: u64 = 10;
const TLS: u8 = 6;
const FUNCTION: u8 = 2;
/// The bindings of symbols (gABI, "Symbol Table").
const GLOBAL: u8 = 0x10;
const WEAK: u8 = 0x20;
/// VER_NDX_GLOBAL.
const ANY_VERSION: u16 = 1;
/// The lists of functions that are called at the start and at the end, each with its size.
const LISTS: [(u64, u64); 3] = [(25, 27), (32, 33), (26, 28)];
/// The contents of the note, with addresses.
struct Merged {
    donor: Range<u64>,
    /// The bytes in front of the program's storage, and the place of the donor's storage.
    front: u64,
    own: u64,
    constructors: u64,
    preinit: bool,
    /// Where the new parts begin: at the note.
    start: u64,
}

impl Merged {
    /// Reads the note. `None` if the program has none.
    fn parse(elf: &Elf<'_>) -> Option<Result<Merged, String>> {
        elf.interpreter()?;
        let (address, description) = elf.segments.iter().filter(|it| it.kind == PT_NOTE).find_map(|segment| {
            let notes = note::split(&elf.bytes.over(segment.data?), segment.align);
            let first = notes.first().filter(|note| note.owner == note::OWNER && note.kind == KIND)?;
            Some((segment.address, first.description))
        })?;
        let words = elf.bytes.over(description);
        let word = |index: usize| words.u64(8 * index).unwrap_or(0);
        if description.len() != 56 || word(0) != 1 || word(6) > 1 {
            return Some(Err("the note on the merge has another format".to_owned()));
        }
        // No donor, and no thread-local storage, is as large.
        const MOST: u64 = 1 << 26;
        if [2, 3, 4].into_iter().any(|index| word(index) > MOST) || address.saturating_add(word(1)) > 1 << 47 {
            return Some(Err("the note on the merge has impossible values".to_owned()));
        }
        let donor = address.wrapping_add(word(1));
        Some(Ok(Merged {
            donor: donor..donor.wrapping_add(word(2)),
            front: word(3),
            own: word(4),
            constructors: word(5),
            preinit: word(6) == 1,
            start: address,
        }))
    }
}

/// Whether it has the note on a merge, well formed or not.
pub(crate) fn has_merged_note(elf: &Elf<'_>) -> bool {
    Merged::parse(elf).is_some()
}

/// Returns the static checks of a dynamic program that a donor was merged into; with its stock file also that nothing
/// else changed.
///
/// # Errors
/// A file is not an ELF file, or too damaged to be read.
pub fn merged(graft: &[u8], stock: Option<&[u8]>) -> Result<Vec<Check>, InspectError> {
    let (elf, stock) = (parse(graft)?, stock.map(parse).transpose()?);
    Ok(checks(&elf, stock.as_ref()))
}

/// Returns all checks of a merge before it was stripped or changed: those of [`merged`], that the file contains the
/// linked donor with these notes, and that the rest of the file is stock's.
pub(super) fn complete(elf: &Elf<'_>, stock: &Elf<'_>, linked: &Elf<'_>, notes: [Option<&str>; 2]) -> Vec<Check> {
    let mut checks = checks(elf, Some(stock));
    if let Ok(merged) = found(elf) {
        checks.push(donor::check(&Tables::new(elf), &Tables::new(linked), &merged, Some(stock)));
        checks.push(filled_in::check(elf, linked, merged.donor.start, notes));
        checks.push(file(elf, stock, Some(linked), merged.start));
    }
    checks
}

/// Returns the contents of the note on a merge, or its fault.
fn found(elf: &Elf<'_>) -> Result<Merged, String> {
    Merged::parse(elf).unwrap_or_else(|| Err("there is no note on a merge".to_owned()))
}

/// Returns the check whether the donor in a merged program is this one, given as a linked shared object.
///
/// # Errors
/// As for [`merged`].
pub fn merged_donor(graft: &[u8], linked: &[u8], stock: Option<&[u8]>) -> Result<Check, InspectError> {
    let (elf, linked, stock) = (parse(graft)?, parse(linked)?, stock.map(parse).transpose()?);
    match found(&elf) {
        Ok(merged) => Ok(donor::check(&Tables::new(&elf), &Tables::new(&linked), &merged, stock.as_ref())),
        Err(problem) => Ok(Check::new("donor", false, problem)),
    }
}

/// Returns the static checks; with the stock file, also that the program is stock's.
fn checks(elf: &Elf<'_>, stock: Option<&Elf<'_>>) -> Vec<Check> {
    let merged = match found(elf) {
        Ok(merged) => merged,
        Err(problem) => return vec![Check::new("merged", false, problem)],
    };
    let tables = Tables::new(elf);
    let mut checks = vec![segments(elf, merged.start, &merged.donor), lookup(&tables, &merged)];
    if let Some(stock) = stock {
        let stock = Tables::new(stock);
        checks.push(unchanged(elf, stock.elf, merged.start, &stock.slots()));
        checks.push(symbols(&tables, &stock, &merged));
        checks.push(relocations(&tables, &stock, &merged));
        checks.push(dynamic(&tables, &stock, &merged));
    }
    checks
}

/// Checks the new segments, which are at `start` and behind: only the donor's may be executed, and not written then.
pub(super) fn segments(elf: &Elf<'_>, start: u64, donor: &Range<u64>) -> Check {
    let new = loads(elf).filter(|load| load.address >= start && load.flags & PF_X != 0);
    let wrong = new.filter(|load| load.flags & PF_W != 0 || !donor.contains(&load.address));
    let complaints = wrong.map(|load| match load.flags & PF_W {
        0 => format!("the segment at {:#x}, which has no code, can be executed", load.address),
        _ => format!("the segment at {:#x} can be written and executed", load.address),
    });
    let table = section_of_headers(elf).and_then(Result::err);
    Check::unless("segments", complaints.chain(elf.damage.clone()).chain(table).collect(), || {
        "no new segment can be both written and executed".to_owned()
    })
}

/// Whether a merge defines that name: a function of malloc's family.
fn is_family(name: &[u8]) -> bool {
    PUBLIC.iter().chain(&BESIDE_MUSL).chain(&REPORTS_OF_GLIBC).any(|own| own.as_bytes() == name)
}

/// Checks that every look-up of a function of the family, for any version, finds the donor's.
fn lookup(tables: &Tables<'_, '_>, merged: &Merged) -> Check {
    let mut complaints = Vec::new();
    let code = |address: u64| {
        let mut loads = loads(tables.elf);
        merged.donor.contains(&address)
            && loads.any(|load| load.flags & PF_X != 0 && address.wrapping_sub(load.address) < load.memory)
    };
    let (relocations, machine) = (tables.relocations().unwrap_or_default(), Machine::for_file(tables.elf));
    let mut count = 0;
    for name in PUBLIC.into_iter().chain(BESIDE_MUSL).chain(REPORTS_OF_GLIBC) {
        let symbol = match tables.found(name.as_bytes()) {
            Ok(Some(symbol)) if symbol.section != 0 && symbol.version == 1 && symbol.info >> 4 != 0 => symbol,
            Ok(None) if !PUBLIC.contains(&name) => continue,
            Ok(_) => {
                complaints.push(format!("`{name}` is not defined for every version"));
                continue;
            }
            Err(()) => {
                complaints.push(format!("the two hash tables find two of `{name}`"));
                continue;
            }
        };
        // One of the program's stubs, whose slot is bound to the donor.
        let alias = [ALIAS, name.as_bytes()].concat();
        let through_slot = || {
            let leads = tables.found(&alias).ok().flatten().is_some_and(|symbol| code(symbol.value));
            leads && relocations.iter().any(|slot| slot.kind == machine.jump_slot && slot.symbol == alias)
        };
        let leads = code(symbol.value) || symbol.value < merged.start && through_slot();
        count += 1;
        if !leads {
            complaints.push(format!("`{name}` is at {:#x}, which is not the donor's code", symbol.value));
        }
    }
    Check::unless("lookup", complaints, || format!("{count} functions are found in the donor first"))
}

/// Checks that everything that stock loads is loaded at the same addresses with the same bytes, in front of the new
/// parts at `start`. Not compared are its slots' relocations, in which symbols have other numbers.
pub(super) fn unchanged(graft: &Elf<'_>, stock: &Elf<'_>, start: u64, slots: &Range<u64>) -> Check {
    let elsewhere = [slots.clone()];
    let permitted = Permitted::new(graft, stock, &elsewhere, (0, &|_| false));
    let (mut complaints, _) = permitted.compare(graft, stock, loads(stock));
    if loads(stock).any(|load| load.address.saturating_add(load.memory) > start) {
        complaints.push("the new parts overlap the program".to_owned());
    }
    if graft.interpreter() != stock.interpreter() || graft.bytes.word(24) != stock.bytes.word(24) {
        complaints.push("its loader or its entry point differs".to_owned());
    }
    Check::unless("program", complaints, || match slots.is_empty() {
        true => "every byte of the program is stock's".to_owned(),
        false => "the program is stock's but for the numbers of its symbols".to_owned(),
    })
}

/// Checks that each name that is found in stock is found in the graft, with the same meaning.
fn symbols(graft: &Tables<'_, '_>, stock: &Tables<'_, '_>, merged: &Merged) -> Check {
    let (mut complaints, mut count) = (Vec::new(), 0);
    // Programs have tens of thousands of them.
    let mut every: HashMap<&[u8], Vec<Symbol<'_>>> = HashMap::new();
    for symbol in stock.all() {
        every.entry(symbol.name).or_default().push(symbol);
    }
    let named = |name: &[u8]| every.get(name).map(Vec::as_slice).unwrap_or_default();
    let hashed = stock.hashed();
    let mut times: HashMap<&[u8], usize> = HashMap::new();
    for symbol in &hashed {
        *times.entry(symbol.name).or_default() += 1;
    }
    for symbol in hashed {
        // Look-ups in stock do not find these either: undefined, and not the address of a stub.
        if symbol.section == 0 && (symbol.value == 0 || is_family(symbol.name)) || symbol.info >> 4 == 0 {
            continue;
        }
        count += 1;
        let front = if symbol.info & 15 == TLS { merged.front } else { 0 };
        let wanted = Symbol { value: symbol.value.wrapping_add(front), ..symbol };
        // Several versions of one name are several symbols: any of them may be found first.
        let found = graft.found(symbol.name);
        if !matches!(found, Ok(Some(found)) if found == wanted) && times[symbol.name] == 1 {
            complaints.push(format!("`{}` has changed", printable(symbol.name)));
        }
    }
    // Symbols that no look-up finds, for relocations: stock's, and undefined names.
    let asked = |symbol: &Symbol<'_>| (symbol.section, symbol.value, symbol.size) == (0, 0, 0);
    for symbol in graft.unhashed() {
        // The donor's undefined functions, which libc defines.
        let known = [GLOBAL, GLOBAL | FUNCTION, WEAK, WEAK | FUNCTION].contains(&symbol.info);
        if asked(&symbol) && known && symbol.version == ANY_VERSION {
            continue;
        }
        // A library's variable has no place here.
        let front = if symbol.info & 15 == TLS && symbol.section != 0 { merged.front } else { 0 };
        let was = Symbol { value: symbol.value.wrapping_sub(front), ..symbol };
        // A stub's address is that of the definition now.
        let is_it = |other: &Symbol<'_>| *other == was || asked(&was) && Symbol { value: 0, ..*other } == was;
        if !named(symbol.name).iter().any(is_it) {
            complaints.push(format!("`{}` has changed", printable(symbol.name)));
        }
    }
    // The donor's definitions, under public names and its own.
    for symbol in
        graft.hashed().into_iter().filter(|symbol| symbol.section != 0 && !named(symbol.name).contains(symbol))
    {
        let is_donors = is_family(symbol.name) || merged.donor.contains(&symbol.value);
        if is_donors && (symbol.info, symbol.version) != (GLOBAL | FUNCTION, ANY_VERSION) {
            complaints.push(format!("`{}` is not a function for every version", printable(symbol.name)));
        }
    }
    Check::unless("symbols", complaints, || format!("{count} of the program's names are unchanged"))
}

/// Checks that the relocations outside of the donor are stock's, with their names, and those of thread-local storage
/// at its new place.
fn relocations(graft: &Tables<'_, '_>, stock: &Tables<'_, '_>, merged: &Merged) -> Check {
    let fails = |what: &str| Check::new("relocations", false, what);
    let (Some(found), Some(before)) = (graft.relocations(), stock.relocations()) else {
        return fails("a table of relocations is outside the file");
    };
    let storage = |elf: &Elf<'_>| {
        let segment = elf.segments.iter().find(|segment| segment.kind == PT_TLS)?;
        Some(segment.address..segment.address.saturating_add(segment.data.map_or(0, <[u8]>::len) as u64))
    };
    let (old, new, machine) = (storage(stock.elf), storage(graft.elf), Machine::for_file(stock.elf));
    let start = new.as_ref().map_or(0, |new| new.start.wrapping_add(merged.front));
    let in_old = |place: u64| old.as_ref().is_some_and(|old| old.contains(&place));
    let moved = |place: u64| match &old {
        Some(old) if old.contains(&place) => start.wrapping_add(place - old.start),
        _ => place,
    };
    let mut wanted: Vec<Relocation<'_>> = before
        .iter()
        .map(|relocation| {
            let storage = machine.of_storage.contains(&relocation.kind) && relocation.symbol.is_empty();
            let addend = relocation.addend.wrapping_add(if storage { merged.front as i64 } else { 0 });
            Relocation { place: moved(relocation.place), addend, ..*relocation }
        })
        .collect();
    // Words that are packed, in the initial storage.
    for place in stock.packed().into_iter().filter(|place| in_old(*place)) {
        let addend = stock.u64_at(place).unwrap_or(0).cast_signed();
        wanted.push(Relocation { place: moved(place), kind: machine.relative, symbol: &[], version: 0, addend });
    }
    let part = start..start.wrapping_add(old.as_ref().map_or(0, |old| old.end - old.start));
    let is_programs = |place: u64| place < merged.start || part.contains(&place);
    let lists = LISTS.map(|(at, size)| {
        let (at, size) = graft.value(at).zip(graft.value(size)).unwrap_or_default();
        at..at.saturating_add(size)
    });
    let is_new = |place: u64| {
        let storage = new.as_ref().is_some_and(|new| new.contains(&place));
        merged.donor.contains(&place) || storage || lists.iter().any(|list| list.contains(&place))
    };
    if let Some(stray) = found.iter().find(|it| !is_programs(it.place) && !is_new(it.place)) {
        return fails(&format!("there is a relocation of {:#x}, where there is nothing to relocate", stray.place));
    }
    let mut found: Vec<Relocation<'_>> = found
        .into_iter()
        .filter(|relocation| is_programs(relocation.place))
        .map(|relocation| match relocation.symbol.strip_prefix(ALIAS) {
            // A stub's slot: `lookup` has checked its target.
            Some(name) if relocation.kind == machine.jump_slot && is_family(name) => {
                let version = before.iter().find(|it| it.place == relocation.place).map_or(0, |it| it.version);
                Relocation { symbol: name, version, ..relocation }
            }
            _ => relocation,
        })
        .collect();
    wanted.sort_unstable();
    found.sort_unstable();
    if let Some((one, other)) = found.iter().zip(&wanted).find(|(one, other)| one != other) {
        return fails(&format!("there is a relocation of {:#x}, expected {:#x}", one.place, other.place));
    }
    Check::new(
        "relocations",
        found.len() == wanted.len(),
        format!("{} of the program's {} relocations are kept", found.len(), wanted.len()),
    )
}

/// Checks that the dynamic section has the same entries as stock's, except for the tables, and that the lists of
/// functions are the donor's followed by the program's.
fn dynamic(graft: &Tables<'_, '_>, stock: &Tables<'_, '_>, merged: &Merged) -> Check {
    let kept = |tables: &Tables<'_, '_>| -> Vec<(u64, u64)> {
        tables.entries.iter().filter(|(tag, _)| !CHANGED.contains(tag)).copied().collect()
    };
    let (mut complaints, machine) = (Vec::new(), Machine::for_file(stock.elf));
    if kept(graft) != kept(stock) {
        complaints.push("the dynamic section differs from stock's".to_owned());
    }
    // The names of libraries and of versions are found by the same numbers.
    let strings = |tables: &Tables<'_, '_>| {
        let size = usize::try_from(tables.value(STRSZ)?).ok()?;
        tables.bytes_at(tables.value(STRTAB)?, size).map(<[u8]>::to_vec)
    };
    if !strings(graft).zip(strings(stock)).is_some_and(|(now, before)| now.starts_with(&before)) {
        complaints.push("the names of the dynamic section do not begin with stock's".to_owned());
    }
    // DT_INIT_ARRAY, DT_FINI_ARRAY, DT_PREINIT_ARRAY with their sizes.
    for ((at, size), is_start) in LISTS.into_iter().zip([!merged.preinit, merged.preinit, false]) {
        let words = |tables: &Tables<'_, '_>| -> Option<Vec<u64>> {
            let Some((at, size)) = tables.value(at).zip(tables.value(size)) else { return Some(Vec::new()) };
            let relocations = tables.relocations()?;
            (at..at.checked_add(size)?)
                .step_by(8)
                .map(|place| {
                    let relative = relocations.iter().find(|it| it.place == place && it.kind == machine.relative);
                    relative.map(|it| it.addend as u64).or_else(|| tables.u64_at(place))
                })
                .collect()
        };
        let (Some(now), Some(before)) = (words(graft), words(stock)) else {
            complaints.push(format!("the list of functions of the dynamic tag {at} is not in the file"));
            continue;
        };
        let own = now.len().saturating_sub(before.len());
        let right = now.ends_with(&before) && now[..own].iter().all(|function| merged.donor.contains(function));
        if !right || (is_start && own as u64 != merged.constructors) {
            complaints.push(format!("the functions of the dynamic tag {at} are not the donor's and then stock's"));
        }
    }
    Check::unless("dynamic", complaints, || "the dynamic section is stock's, and starts the donor first".to_owned())
}
