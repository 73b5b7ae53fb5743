//! The dynamic symbols of the program and of the donor in one table, and the hash tables, versions and names that go
//! with it. Every look-up of the process finds the donor's symbols first, since look-ups begin with the program.

use std::collections::{HashMap, HashSet};

use format::family;

use super::dynamic::{Dynamic, GNU_HASH, HASH, Symbol};
use super::hashes;
use crate::image::{STT_FUNC, SYMBOL};

/// VER_NDX_GLOBAL: a definition of it serves references to any version, or to no version (glibc elf/dl-lookup.c).
const OF_ANY_VERSION: u16 = 1;
const STB_GLOBAL: u8 = 1;
/// The prefix of the symbol for a donor's function whose public name already denotes a stub in the program.
const ALIAS: &[u8] = b"allograft.";

/// The tables, as they will be in memory.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) strings: Vec<u8>,
    pub(super) symbols: Vec<u8>,
    /// The number of local symbols, which come first.
    pub(super) locals: u32,
    /// As many as symbols; `None` if the program has no versions.
    pub(super) versions: Option<Vec<u8>>,
    /// `None` if the program has no such table.
    pub(super) gnu_hash: Option<Vec<u8>>,
    pub(super) hash: Option<Vec<u8>>,
    /// The new numbers of the program's symbols, and of the donor's symbols.
    pub(super) programs: Vec<u32>,
    pub(super) donors: Vec<u32>,
    /// The program's own undefined symbols of the family whose address the program takes as that of its stub: the
    /// number of the symbol that sends the stub's slot on to the donor.
    pub(super) aliases: HashMap<u32, u32>,
    /// The names that the donor defines now.
    pub(super) defined: usize,
}

/// One symbol on its way into the table.
struct Entry<'a> {
    name: &'a [u8],
    symbol: Symbol,
    version: u16,
    hashed: bool,
    from: Origin,
}

#[derive(Clone, Copy)]
enum Origin {
    Program(usize),
    Donor(usize),
    /// Points this symbol's slot at the donor.
    Alias(usize),
}

/// Makes the tables. The donor's first byte will be at `base`; the program's thread-local storage begins `front` bytes
/// later than before. The donor's symbols are in the section `section`.
pub(super) fn merged<'a>(program: &Dynamic<'a>, donor: &Dynamic<'a>, base: u64, front: u64, section: u16) -> Names {
    let is_family = |name: &[u8]| family::exported().any(|own| own.as_bytes() == name);
    let mut entries: Vec<Entry<'a>> = Vec::new();
    // The stubs whose address is the function's address in the whole process.
    let mut stubs: HashMap<&[u8], (usize, u64)> = HashMap::new();
    let with_slot: Vec<u32> = program.slots.iter().map(|slot| slot.symbol).collect();
    for (index, symbol) in program.symbols.iter().enumerate() {
        let (mut symbol, name) = (*symbol, program.name(symbol));
        let asked = !symbol.is_defined() && index != 0 && is_family(name);
        if asked && symbol.value != 0 && with_slot.contains(&(index as u32)) {
            stubs.insert(name, (index, symbol.value));
        }
        if asked {
            // Only a definition may be found by this name.
            symbol.value = 0;
        }
        if symbol.is_thread_local() && symbol.is_defined() {
            symbol.value = symbol.value.wrapping_add(front);
        }
        let version = program.versions.get(index).copied().unwrap_or(OF_ANY_VERSION);
        let hashed = index >= program.first_hashed && !asked;
        entries.push(Entry { name, symbol, version, hashed, from: Origin::Program(index) });
    }
    for (index, symbol) in donor.symbols.iter().enumerate().skip(1) {
        let (name, from) = (donor.name(symbol), Origin::Donor(index));
        let mut symbol = Symbol { other: 0, ..*symbol };
        if !symbol.is_defined() {
            symbol = Symbol { value: 0, size: 0, ..symbol };
            entries.push(Entry { name, symbol, version: OF_ANY_VERSION, hashed: false, from });
            continue;
        }
        symbol = Symbol { info: (STB_GLOBAL << 4) | STT_FUNC, section, value: base + symbol.value, ..symbol };
        let mut public = Entry { name, symbol, version: OF_ANY_VERSION, hashed: true, from };
        if let Some((index, stub)) = stubs.get(name) {
            let from = Origin::Alias(*index);
            entries.push(Entry { name, symbol, version: OF_ANY_VERSION, hashed: true, from });
            public.symbol = Symbol { value: *stub, size: 0, ..symbol };
        }
        entries.push(public);
    }
    table(program, donor, entries)
}

/// Sorts the entries as the hash tables need them, and writes all tables.
fn table(program: &Dynamic<'_>, donor: &Dynamic<'_>, entries: Vec<Entry<'_>>) -> Names {
    let mut strings = program.strings.to_vec();
    let (mut fixed, mut hashed): (Vec<Entry<'_>>, Vec<Entry<'_>>) = entries.into_iter().partition(|one| !one.hashed);
    // Local symbols come first (gABI, "Symbol Table"); the others keep the program's order.
    fixed.sort_by_key(|entry| !entry.symbol.is_local());
    let full_name = |entry: &Entry<'_>| match entry.from {
        Origin::Alias(_) => [ALIAS, entry.name].concat(),
        _ => entry.name.to_vec(),
    };
    let buckets = hashes::buckets(hashed.len());
    hashed.sort_by_cached_key(|entry| hashes::gnu_hash(&full_name(entry)) % buckets);
    let first_hashed = fixed.len();
    let (mut programs, mut donors) = (vec![0; program.symbols.len()], vec![0; donor.symbols.len()]);
    let (mut aliases, mut defined, mut locals) = (HashMap::new(), 0, 0);
    let mut symbols = Vec::with_capacity((fixed.len() + hashed.len()) * SYMBOL);
    let (mut versions, mut names) = (Vec::new(), Vec::new());
    for (number, entry) in fixed.iter().chain(&hashed).enumerate() {
        let (mut symbol, name) = (entry.symbol, full_name(entry));
        match entry.from {
            Origin::Program(index) => programs[index] = number as u32,
            Origin::Donor(index) => donors[index] = number as u32,
            Origin::Alias(index) => drop(aliases.insert(index as u32, number as u32)),
        }
        if !matches!(entry.from, Origin::Program(_)) {
            defined += usize::from(symbol.is_defined() && matches!(entry.from, Origin::Donor(_)));
            symbol.name = strings.len() as u32;
            strings.extend(&name);
            strings.push(0);
        }
        locals += u32::from(symbol.is_local());
        symbols.extend(symbol.encode());
        versions.extend(entry.version.to_le_bytes());
        names.push(name);
    }
    let gnu = || hashes::gnu_table(names[first_hashed..].iter().map(Vec::as_slice), first_hashed);
    let replaced: HashSet<&[u8]> = hashed.iter().map(|entry| entry.name).collect();
    // All names but those that a definition replaces: musl takes the first of a name, defined or not.
    let is_found = |number: usize| {
        fixed.get(number).is_none_or(|entry| number != 0 && !entry.symbol.is_local() && !replaced.contains(entry.name))
    };
    let sysv = || {
        let names = names.iter().enumerate().map(|(number, name)| is_found(number).then_some(name.as_slice()));
        hashes::sysv_table(&names.collect::<Vec<_>>())
    };
    Names {
        locals,
        gnu_hash: program.value(GNU_HASH).map(|_| gnu()),
        hash: program.value(HASH).map(|_| sysv()),
        versions: (!program.versions.is_empty()).then_some(versions),
        strings,
        symbols,
        programs,
        donors,
        aliases,
        defined,
    }
}
