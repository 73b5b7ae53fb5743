//! The string functions in a program: those that are proven, and those that stay the program's own.
//!
//! In a program with symbols, only functions with a string function's name are examined. Without symbols, every
//! function that starts where a call leads is examined, and only its behaviour shows what it is. Then more is required,
//! since one of the program's own functions may behave like this for other reasons:
//!
//! - A comparison has to give the difference of the bytes, as musl's does, and not only its sign.
//! - A function that takes as long for an early hit as for a late one stays: comparisons of secrets are written so.
//!   (With symbols, too.)
//! - memcpy is accepted only if musl's allocator calls it. A program's own copy function may repeat bytes on purpose
//!   where blocks overlap.
//! - memcmp has to be placed among musl's functions: another comparison may be given a size that is larger than the
//!   blocks.
//! - bcmp has no result that tells it from other comparisons, and stays.

mod entrance;

use std::collections::{BTreeMap, BTreeSet};

use equivalence::{Prover, Strictness, Unproven};
use format::StringFunction;

use crate::code::Code;
use crate::family::Family;
use crate::image::{STT_FUNC, STT_NOTYPE};

/// A function of the program that is a string function by its name or by its behaviour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StringEntry {
    /// Which string function.
    pub function: StringFunction,
    /// The address of its start, before any base is added.
    pub address: u64,
    /// Why it stays the program's own; `None` if it is redirected.
    pub kept: Option<KeptReason>,
}

/// Why a string function stays the program's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeptReason {
    /// Its code is not proven to be the function.
    #[error(transparent)]
    Unproven(#[from] Unproven),
    /// It behaves the same, and nothing shows that it is musl's.
    #[error("nothing shows that it is musl's own, and not one that is meant to do more than its like in musl")]
    Unattached,
    /// There is no room for a jump.
    #[error("it has no room for a jump")]
    NoRoom,
    /// A branch targets bytes that would be overwritten.
    #[error("code at {site:#x} jumps into its beginning")]
    JumpedInto {
        /// The branch.
        site: u64,
    },
    /// The note on entry points is full.
    #[error("there are more entry points than a graft has room for")]
    Crowded,
}

/// Why a string function is neither redirected nor kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Absence {
    /// The donor has no replacement for it.
    #[error("allograft has none for this architecture")]
    NotDonated,
    /// No symbol of the program names it.
    #[error("the program has no function of this name")]
    NotNamed,
    /// The program has no symbols. Its function may differ from musl's in code, or not exist.
    #[error("no function without a name was recognised as it")]
    NotRecognised,
}

/// Returns every string function that is not in `found`, with the reason.
pub(crate) fn absent(
    found: &[StringEntry],
    others: &BTreeSet<StringFunction>,
    symbols: bool,
) -> Vec<(StringFunction, Absence)> {
    let listed: BTreeSet<StringFunction> = found.iter().map(|entry| entry.function).collect();
    let why = |function: &StringFunction| match (others.contains(function), symbols) {
        (false, _) => Absence::NotDonated,
        (true, true) => Absence::NotNamed,
        (true, false) => Absence::NotRecognised,
    };
    StringFunction::all().filter(|function| !listed.contains(function)).map(|one| (one, why(&one))).collect()
}

/// Finds those string functions of a program that `others` contains, in order of their addresses. `taken` are the
/// places that already have a jump; `room` is how many more jumps there may be.
pub(crate) fn find(
    code: &mut Code<'_>,
    family: &Family,
    others: &BTreeSet<StringFunction>,
    taken: &[u64],
    room: usize,
) -> Vec<StringEntry> {
    let mut found = match code.symbols.is_empty() {
        true => by_behaviour(code, family, others),
        false => by_name(code, others),
    };
    found.sort_unstable_by_key(|entry| (entry.address, entry.function));
    entrance::check(code, &mut found, taken);
    let redirected = found.iter_mut().filter(|entry| entry.kept.is_none());
    redirected.skip(room).for_each(|entry| entry.kept = Some(KeptReason::Crowded));
    found
}

/// The functions that symbols name.
fn by_name(code: &Code<'_>, others: &BTreeSet<StringFunction>) -> Vec<StringEntry> {
    let mut named: BTreeMap<u64, BTreeSet<StringFunction>> = BTreeMap::new();
    for symbol in code.symbols.iter().filter(|symbol| matches!(symbol.kind, STT_FUNC | STT_NOTYPE)) {
        let function = StringFunction::named(symbol.name).filter(|function| others.contains(function));
        if let Some(function) = function.filter(|_| code.image.is_executable(symbol.value)) {
            named.entry(symbol.value).or_default().insert(function);
        }
    }
    let Some(mut prover) = Prover::new(code.image, Strictness::Sign) else { return Vec::new() };
    let entry = |(address, functions): (u64, BTreeSet<StringFunction>)| {
        let kept = functions.iter().find_map(|function| prove_named(&mut prover, address, *function).err());
        let function = wider(&functions).or(functions.first().copied())?;
        Some(StringEntry { function, address, kept: kept.map(KeptReason::Unproven) })
    };
    named.into_iter().filter_map(entry).collect()
}

/// The name with the stronger contract, if one function has several.
fn wider(functions: &BTreeSet<StringFunction>) -> Option<StringFunction> {
    [StringFunction::Memmove, StringFunction::Memcmp].into_iter().find(|function| functions.contains(function))
}

/// Proves a named function. It may do more than its name says: memcpy may be memmove, and bcmp may be memcmp.
fn prove_named(prover: &mut Prover<'_>, address: u64, function: StringFunction) -> Result<(), Unproven> {
    prover.read(address)?;
    let wider = match function {
        StringFunction::Memcpy => Some(StringFunction::Memmove),
        StringFunction::Bcmp => Some(StringFunction::Memcmp),
        _ => None,
    };
    match wider.map(|wider| prover.prove(wider)) {
        Some(Ok(())) => Ok(()),
        _ => prover.prove(function),
    }
}

/// Every string function that is proven among the functions that something calls.
fn by_behaviour(code: &Code<'_>, family: &Family, others: &BTreeSet<StringFunction>) -> Vec<StringEntry> {
    let own: BTreeSet<u64> =
        family.core.values().chain(family.wrappers.iter().map(|(_, start)| start)).copied().collect();
    let mut found = Vec::new();
    let Some(mut prover) = Prover::new(code.image, Strictness::Difference) else { return found };
    for start in code.led_to() {
        // Jumps also go into the middle of functions.
        let begins = code.is_start(start) || code.machine.follows_an_end(code.image, start);
        if own.contains(&start) || !begins {
            continue;
        }
        if prover.read(start).is_err() || !prover.touches_memory() {
            continue;
        }
        if let Some(entry) = recognised(&mut prover, start, others, family) {
            found.push(entry);
        }
    }
    found
}

/// Recognises a function without a name; `None` if it is not a string function.
fn recognised(
    prover: &mut Prover<'_>,
    address: u64,
    others: &BTreeSet<StringFunction>,
    family: &Family,
) -> Option<StringEntry> {
    // memmove is memcpy too. bcmp's contract is too weak to recognise it by.
    const ORDER: [StringFunction; 1] = [StringFunction::Memmove];
    let rest =
        StringFunction::all().filter(|function| !matches!(function, StringFunction::Memmove | StringFunction::Bcmp));
    for function in ORDER.into_iter().chain(rest).filter(|function| others.contains(function)) {
        let kept = match prover.prove(function) {
            Ok(()) if !is_musls(family, function, address) => Some(KeptReason::Unattached),
            Ok(()) => None,
            // It gives the right results, but is still uncertain.
            Err(reason @ (Unproven::ConstantTime | Unproven::Untested { .. } | Unproven::ShortLength)) => {
                // A memcpy leaves a memmove's branches out.
                if function == StringFunction::Memcpy { continue } else { Some(KeptReason::Unproven(reason)) }
            }
            Err(_) => continue,
        };
        return Some(StringEntry { function, address, kept });
    }
    None
}

/// Whether a function is musl's. This matters where a function of the program's own with the same behaviour may be
/// meant to do more: copies of overlapping blocks, comparisons of blocks that are shorter than the given size. musl's
/// allocator calls its own: realloc copies by memcpy, calloc clears by memset. The linked members of libc.a lie side by
/// side, so a function between two of musl's functions is musl's.
fn is_musls(family: &Family, function: StringFunction, address: u64) -> bool {
    let mut known = family.functions.keys();
    match function {
        StringFunction::Memcpy => family.functions.contains_key(&address),
        StringFunction::Memcmp => {
            known.next().is_some_and(|first| *first < address) && known.next_back().is_some_and(|last| address < *last)
        }
        _ => true,
    }
}
