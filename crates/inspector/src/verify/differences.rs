//! The symbols that differ between a graft and stock, with the reasons. Every difference has to have one: an
//! unexplained difference fails the check.

use std::collections::{BTreeMap, BTreeSet};

use foldhash::HashSet;
use serde::Serialize;

use super::check::Check;
use super::donor::Donor;
use super::names::{BESIDE_MUSL, HOOKS, INTERNAL, PUBLIC, STRINGS};
use crate::bytes::printable;
use crate::elf::{STB_WEAK, STV_HIDDEN, Symbol};
use crate::library::{Library, Part};
use crate::note::Subject;

/// A symbol whose definition in the graft differs from stock's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Its name.
    pub symbol: String,
    /// Its definition in stock. `None` if stock has none.
    pub before: Option<Definition>,
    /// Its definition in the graft. `None` if the graft has none.
    pub after: Option<Definition>,
    /// The reason. `None` if the difference is unexplained.
    pub why: Option<&'static str>,
}

/// The definition of a symbol in an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Definition {
    /// The first member that defines it: its ordinal and name.
    pub member: String,
    /// Whether a program's own definition replaces it without an error.
    pub weak: bool,
    /// Whether only libc sees it.
    pub hidden: bool,
    /// The size in bytes.
    pub size: u64,
}

impl Definition {
    fn new(library: &Library<'_>, part: &Part<'_>, symbol: &Symbol<'_>) -> Self {
        Definition {
            member: library.label(part),
            weak: symbol.binding == STB_WEAK,
            hidden: symbol.visibility == STV_HIDDEN,
            size: symbol.size,
        }
    }
}

/// Each name with the first member that defines it, and the strongest definition there.
type Definitions<'l, 'a> = BTreeMap<&'a [u8], (&'l Part<'a>, &'l Symbol<'a>)>;

fn definitions<'l, 'a>(library: &'l Library<'a>) -> Definitions<'l, 'a> {
    let mut found: Definitions<'l, 'a> = BTreeMap::new();
    for part in &library.parts {
        for symbol in part.exports() {
            let known = found.entry(symbol.name).or_insert((part, symbol));
            // A linker takes the first member; it has a strong symbol where a weak one is only a default.
            if known.1.binding == STB_WEAK && symbol.binding != STB_WEAK && known.0.place != part.place {
                *known = (part, symbol);
            }
        }
    }
    found
}

/// Returns every difference, ordered by name.
pub(super) fn between(graft: &Library<'_>, donors: &[Donor], stock: &Library<'_>) -> Vec<Difference> {
    let (before, after) = (definitions(stock), definitions(graft));
    let asked = asked_for(graft);
    let names: BTreeSet<&[u8]> = before.keys().chain(after.keys()).copied().collect();
    let mut differences = Vec::new();
    for name in names {
        let (was, is) = (before.get(name), after.get(name));
        let same = |(was, is): (&(&Part<'_>, &Symbol<'_>), &(&Part<'_>, &Symbol<'_>))| {
            stock.member(was.0).data == graft.member(is.0).data
        };
        if was.zip(is).is_some_and(same) {
            continue;
        }
        let donor = is.and_then(|(part, _)| {
            donors.iter().find(|donor| donor.part(graft).place == part.place).map(|donor| donor.subject)
        });
        let hidden = is.is_some_and(|(_, symbol)| symbol.visibility == STV_HIDDEN);
        let why = match (donor, is) {
            (Some(subject), _) => reason(subject, name, was.is_some(), hidden),
            // A missing symbol was internal to the old allocator: hidden, and no member needs it any more.
            (None, None) => (was.is_some_and(|(_, symbol)| symbol.visibility == STV_HIDDEN) && !asked.contains(name))
                .then_some("an inside of the old one: only members that went with it asked for it"),
            (None, Some((_, symbol))) => (symbol.binding == STB_WEAK)
                .then_some("the strong definition went with the old allocator; the weak default was there before"),
        };
        differences.push(Difference {
            symbol: printable(name),
            before: was.map(|(part, symbol)| Definition::new(stock, part, symbol)),
            after: is.map(|(part, symbol)| Definition::new(graft, part, symbol)),
            why,
        });
    }
    differences
}

fn asked_for<'a>(library: &Library<'a>) -> HashSet<&'a [u8]> {
    let symbols = library.parts.iter().flat_map(|part| &part.elf.symbols);
    symbols.filter(|symbol| symbol.is_needed()).map(|symbol| symbol.name).collect()
}

/// Returns the reason why a donor defines a name.
fn reason(subject: Subject, name: &[u8], was_there: bool, hidden: bool) -> Option<&'static str> {
    let is = |names: &[&str]| names.iter().any(|known| known.as_bytes() == name);
    match subject {
        Subject::Malloc if is(&PUBLIC) && was_there => {
            Some("the donor's; weak, so that a program may still bring its own")
        }
        Subject::Malloc if is(&PUBLIC) || is(&BESIDE_MUSL) => {
            Some("glibc has it and musl does not: programs that ask for it link")
        }
        Subject::Malloc if is(&INTERNAL) => Some("libc's own blocks come from the donor too"),
        Subject::Malloc if name == b"__malloc_atfork" => Some("fork calls it to keep the donor whole in the child"),
        Subject::Malloc if is(&HOOKS) => Some("libc calls it, and the donor ignores the memory"),
        Subject::Strings if is(&STRINGS) && was_there => {
            Some("the donor's string function; weak, so that a program may still bring its own")
        }
        Subject::Strings if is(&STRINGS) => Some("a string function that stock has not"),
        // musl's assembly has some local names: `__memcpy_fwd_alias_1` (src/string/x86_64/memmove.s).
        Subject::Strings if hidden && name.starts_with(b"__") => Some("libc's own name of the donor's string function"),
        _ => None,
    }
}

/// Passes when every difference has a reason.
pub(super) fn check(differences: &[Difference]) -> Check {
    let unexplained = differences.iter().filter(|difference| difference.why.is_none());
    let complaints = unexplained.map(|difference| {
        let what = match (&difference.before, &difference.after) {
            (Some(before), None) => format!("was in member {} and is gone", before.member),
            (None, Some(after)) => format!("is new, in member {}", after.member),
            (Some(before), Some(after)) => format!("was in member {} and is in {}", before.member, after.member),
            (None, None) => "is nowhere".to_owned(),
        };
        format!("`{}` {what}, for no reason that a graft has", difference.symbol)
    });
    Check::unless("differences", complaints.collect(), || {
        let count = |wanted: fn(&Difference) -> bool| differences.iter().filter(|one| wanted(one)).count();
        format!(
            "{} symbols are others than in stock: {} replaced, {} new, {} gone; each for a reason",
            differences.len(),
            count(|one| one.before.is_some() && one.after.is_some()),
            count(|one| one.before.is_none()),
            count(|one| one.after.is_none()),
        )
    })
}
