//! Follows a page that ADRP loads, from register to register, to the stack and back, and the addresses that are made
//! from it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::fields::Word;
use super::values::{SCRATCH, State, Value, calls, each, follows};

use super::word::{Access, FRAME, Operation, ZERO, operation, reads, selects, writes};
use super::word_at;
use crate::code::Code;

/// Returns each address that is made from what the ADRP or ADR at `start` loads, on every path from there, with the
/// instruction that makes it. `None` if it cannot be followed everywhere.
pub(super) fn follow(code: &Code<'_>, start: u64) -> Option<Vec<(u64, u64)>> {
    let first = word_at(code.image, start)?;
    let Operation::Address { to, value } = operation(first) else { return None };
    let mut made = Trace::default();
    // Bytes that are not an instruction may read as one.
    if to == ZERO {
        return Some(made.found);
    }
    let next = start + 4;
    if first.bits >> 31 == 1 {
        follow_page(code, value, (next, PageHolders { registers: 1 << to, ..PageHolders::default() }), &mut made)?;
    } else {
        // ADR loads a whole address.
        let mut state = State::default();
        state.set(to, Some(Value::Known(value)));
        made.follow(code, next, state)?;
    }
    Some(made.found)
}

/// A place in the stack: the stack pointer or the frame pointer, and the distance from it. The same place counts as two
/// if it is reached from both registers: compilers choose one for each.
type Slot = (u32, i64);

/// The places that may hold the page itself, with nothing added. gcc puts pages on the stack when registers run out. A
/// page stored in other memory is not a page: it is a register without a value, stored as a part of something.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct PageHolders {
    /// As bits.
    registers: u32,
    slots: BTreeSet<Slot>,
    /// Whether it may be anywhere in the stack, so that any load from there may load it.
    anywhere: bool,
}

impl PageHolders {
    /// Adds the places of a second path. Returns whether there are more now.
    fn join(&mut self, other: &PageHolders) -> bool {
        let before = (self.registers, self.slots.len(), self.anywhere);
        self.registers |= other.registers;
        self.slots.extend(&other.slots);
        self.anywhere |= other.anywhere;
        self.bound();
        before != (self.registers, self.slots.len(), self.anywhere)
    }

    /// Stops keeping places in the stack apart if there are more than functions have. A stack pointer that a loop moves
    /// gives new places each time around. Code reads like that if another function follows a call that does not return,
    /// and jumps back.
    fn bound(&mut self) {
        const MOST_SLOTS: usize = 64;
        if self.anywhere || self.slots.len() > MOST_SLOTS {
            self.anywhere = true;
            self.slots.clear();
        }
    }

    /// Whether no place holds the page any more.
    fn is_gone(&self) -> bool {
        self.registers == 0 && self.slots.is_empty() && !self.anywhere
    }

    fn holds(&self, register: u32) -> bool {
        register != ZERO && self.registers >> register & 1 == 1
    }

    /// Updates the places by an instruction that is not the start of something else.
    fn step(&mut self, word: Word) {
        let (mut registers, writes) = (self.registers & !writes(word), writes(word));
        match operation(word) {
            Operation::Move { to, from } if self.holds(from) && to != ZERO => registers |= 1 << to,
            Operation::Memory(access) => {
                registers |= self.access(&access);
                if let Some(step) = access.step {
                    self.moved(access.base, Some(step));
                }
            }
            Operation::Add { to: Some(to @ (ZERO | FRAME)), from, value, .. } => {
                self.moved(to, (to == from).then_some(value));
            }
            Operation::Logic { to: Some(ZERO), .. } | Operation::Sum { to: Some(ZERO), .. } => self.moved(ZERO, None),
            _ if selects(word) && reads(word) & self.registers != 0 => registers |= writes,
            _ if calls(word) => registers &= !SCRATCH,
            _ if writes >> FRAME & 1 == 1 => self.moved(FRAME, None),
            _ => {}
        }
        self.registers = registers;
    }

    /// Updates the places by a load or a store. Returns the registers that the page is loaded into, as bits.
    fn access(&mut self, access: &Access) -> u32 {
        let in_stack = matches!(access.base, ZERO | FRAME) && access.index.is_none() && access.literal.is_none();
        let mut loaded = 0;
        for (register, behind) in [(access.register, 0), (access.second, i64::from(access.size))] {
            let Some(register) = register else { continue };
            let at = access.offset + behind;
            if in_stack && access.stores {
                self.slots
                    .retain(|slot| slot.0 != access.base || slot.1 >= at + i64::from(access.size) || at >= slot.1 + 8);
                if self.holds(register) && access.size == 8 {
                    self.slots.insert((access.base, at));
                }
            } else if in_stack
                && register != ZERO
                && access.size == 8
                && (self.anywhere || self.slots.contains(&(access.base, at)))
            {
                loaded |= 1 << register;
            }
        }
        if access.loads && !access.stores && [access.register, access.second].contains(&Some(FRAME)) {
            self.moved(FRAME, None);
        }
        loaded
    }

    /// Updates the slots after a change of the stack pointer or frame pointer: by a number, or to an unknown value.
    fn moved(&mut self, register: u32, by: Option<i64>) {
        let moved = |(base, at): Slot| match by {
            _ if base != register => Some((base, at)),
            Some(by) => Some((base, at - by)),
            None => None,
        };
        self.slots = std::mem::take(&mut self.slots).into_iter().filter_map(moved).collect();
    }
}

/// Follows the page until no place holds it any more, and the addresses made from it.
fn follow_page(code: &Code<'_>, page: u64, start: (u64, PageHolders), made: &mut Trace) -> Option<()> {
    let mut open = vec![start.0];
    let mut places: BTreeMap<u64, PageHolders> = BTreeMap::from([start]);
    while let Some(address) = open.pop() {
        let (Some(word), Some(mut holders)) = (word_at(code.image, address), places.get(&address).cloned()) else {
            continue;
        };
        code.steps_left.set(code.steps_left.get().checked_sub(1)?);
        let read = reads(word) & holders.registers;
        let following = follows(code, word);
        holders.step(word);
        if read != 0 {
            let mut state = State::default();
            each(read).for_each(|register| state.set(register, Some(Value::Known(page))));
            made.step(code, &mut state, word);
            state.forget(holders.registers);
            // An object at the beginning of the page: the value is its address, no longer a page.
            for register in each(state.held()) {
                if state.address(register) == Some(page) {
                    state.set(register, Some(Value::Near(page)));
                }
            }
            for next in following.into_iter().flatten() {
                made.follow(code, next, state)?;
            }
        }
        holders.bound();
        if holders.is_gone() {
            continue;
        }
        for next in following.into_iter().flatten() {
            let more = match places.get_mut(&next) {
                Some(before) => before.join(&holders),
                None => {
                    places.insert(next, holders.clone());
                    true
                }
            };
            if more {
                open.push(next);
            }
        }
    }
    Some(())
}

/// The addresses that were made, and where they were followed already.
#[derive(Debug, Default)]
struct Trace {
    found: Vec<(u64, u64)>,
    seen: HashMap<u64, Vec<State>>,
}

impl Trace {
    /// Updates the state by an instruction that reads values of registers.
    fn step(&mut self, code: &Code<'_>, state: &mut State, word: Word) {
        self.found.extend(state.step(code, word).map(|made| (made, word.address)));
        // Loaded from a table of addresses.
        let loaded = each(writes(word)).filter_map(|register| state.address(register));
        self.found.extend(loaded.map(|loaded| (loaded, word.address)));
        for register in each(state.held()) {
            if matches!(state.get(register), Some(Value::Result(_) | Value::Thread(_))) {
                state.set(register, None);
            }
        }
    }

    /// Follows addresses until no register holds a value derived from them. `None` if that takes too long.
    fn follow(&mut self, code: &Code<'_>, start: u64, state: State) -> Option<()> {
        let mut open = Vec::new();
        self.go_on(start, state, &mut open);
        while let Some((address, mut state)) = open.pop() {
            let Some(word) = word_at(code.image, address) else { continue };
            code.steps_left.set(code.steps_left.get().checked_sub(1)?);
            if reads(word) & state.held() == 0 {
                // Other numbers and addresses do not matter.
                state.forget(if calls(word) { writes(word) | SCRATCH } else { writes(word) });
            } else {
                self.step(code, &mut state, word);
            }
            for next in follows(code, word).into_iter().flatten() {
                self.go_on(next, state, &mut open);
            }
        }
        Some(())
    }

    fn go_on(&mut self, next: u64, state: State, open: &mut Vec<(u64, State)>) {
        /// A pointer that goes through an array is another value each time around.
        const MOST_STATES: usize = 8;
        let states = self.seen.entry(next).or_default();
        if state.held() != 0 && states.len() < MOST_STATES && !states.contains(&state) {
            states.push(state);
            open.push((next, state));
        }
    }
}
