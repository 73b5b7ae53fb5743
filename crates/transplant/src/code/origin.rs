//! Where the value of an argument comes from: followed backwards through a function, from the instruction that uses it
//! to constants, to the function's own arguments, or to something unknown. Reading the bytes before a call is not
//! enough: a compiler may put any code between.

use std::collections::{BTreeMap, HashSet};

use super::{Code, Flow, Function};

/// A place that holds a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Location {
    /// A register, by its number in instructions.
    Register(u32),
    /// The memory at a distance from the address in a register.
    Memory(u32, i64),
}

/// The effect of an instruction on the value in a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Definition {
    /// It leaves it alone. Before the instruction the location has this name.
    Same(Location),
    /// It copies one of these values, keeps the bits in `and` and sets those in `or`.
    Copy {
        from: Vec<Location>,
        and: u64,
        or: u64,
    },
    /// It merges these values: every bit that one of them has is set.
    Merge(Vec<Location>),
    /// It loads this number.
    Number(u64),
    Unknown,
}

impl Definition {
    pub(crate) fn copy(from: Location) -> Definition {
        Definition::Copy { from: vec![from], and: u64::MAX, or: 0 }
    }
}

/// A possible origin of a value: `(source & and) | or`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Origin {
    /// The number of the function's argument that is the source; `None` if the source is unknown, or a constant.
    pub(crate) argument: Option<u32>,
    and: u64,
    /// The bits that are set in any case.
    pub(crate) or: u64,
    /// Whether the value has no other bits than those of the source and of `or`.
    exact: bool,
}

impl Origin {
    /// A number.
    pub(crate) fn number(value: u64) -> Origin {
        Origin { argument: None, and: 0, or: value & WORD, exact: true }
    }

    /// The number, if it is one.
    pub(crate) fn value(&self) -> Option<u64> {
        (self.argument.is_none() && self.exact && self.and & WORD == 0).then_some(self.or)
    }

    /// Whether it is one of the function's arguments, unchanged.
    pub(crate) fn passes(&self) -> Option<u32> {
        self.argument.filter(|_| self.exact && self.and & WORD == WORD && self.or == 0)
    }

    /// The origin of this value if the argument has the origin `of` in the function's caller.
    pub(crate) fn with(&self, of: &Origin) -> Origin {
        Origin {
            argument: of.argument,
            and: self.and & of.and,
            or: self.or | of.or & self.and,
            exact: self.exact && of.exact,
        }
    }
}

/// Flags have 32 bits.
const WORD: u64 = 0xffff_ffff;
/// The most steps back through a function.
const MOST_STEPS: usize = 20_000;

/// Returns the possible origins of the value that a location has before the instruction at `site` of a function.
pub(crate) fn origins(code: &Code<'_>, function: &Function, site: u64, location: Location) -> Vec<Origin> {
    let before = predecessors(function);
    let mut found = HashSet::new();
    let mut seen = HashSet::new();
    let mut open = vec![(site, location, Origin { argument: None, and: u64::MAX, or: 0, exact: true })];
    while let Some(item) = open.pop() {
        if !seen.insert(item) {
            continue;
        }
        let (at, location, so_far) = item;
        if seen.len() > MOST_STEPS {
            found.insert(so_far);
            break;
        }
        let previous = before.get(&at).map(Vec::as_slice).unwrap_or_default();
        if at == function.start {
            let argument = match location {
                Location::Register(register) => code.machine.argument_of(register),
                Location::Memory(..) => None,
            };
            found.insert(Origin { argument, ..so_far });
        } else if previous.is_empty() {
            found.insert(so_far);
        }
        for address in previous {
            match code.machine.define(code, *address, location) {
                Definition::Same(location) => open.push((*address, location, so_far)),
                Definition::Copy { from, and, or } => {
                    let now = so_far.with(&Origin { argument: None, and, or, exact: true });
                    open.extend(from.into_iter().map(|from| (*address, from, now)));
                }
                Definition::Merge(from) => {
                    let now = Origin { exact: false, ..so_far };
                    open.extend(from.into_iter().map(|from| (*address, from, now)));
                }
                Definition::Number(value) => drop(found.insert(so_far.with(&Origin::number(value)))),
                Definition::Unknown => drop(found.insert(so_far)),
            }
        }
    }
    let mut found: Vec<Origin> = found.into_iter().collect();
    found.sort_unstable();
    found
}

/// The instructions that may come directly before each one, by its address.
fn predecessors(function: &Function) -> BTreeMap<u64, Vec<u64>> {
    let mut before: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (address, instruction) in &function.instructions {
        let (next, other) = match instruction.flow {
            Flow::Next | Flow::Call(_) => (Some(instruction.next), None),
            Flow::Conditional(target) => (Some(instruction.next), Some(target)),
            Flow::Jump(target) => (None, target),
            Flow::Return | Flow::Trap => (None, None),
        };
        for to in next.into_iter().chain(other) {
            before.entry(to).or_default().push(*address);
        }
    }
    before
}
