//! The values of registers, as far as the code determines them. Addresses are made by two or three instructions,
//! sometimes far from each other, so they are followed from one to the next.

use std::collections::BTreeMap;

use super::super::{Flow, Function};
use super::fields::Word;

use super::word::{Access, Operation, ZERO, flow, operation, writes};
use super::word_at;
use crate::code::Code;

/// The value of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Value {
    /// A number that the code contains.
    Number(u64),
    /// An address.
    Known(u64),
    /// An address plus an unknown number: a place in the object that begins there.
    Near(u64),
    /// A distance from the thread pointer.
    Thread(i64),
    /// The result of the function at an address.
    Result(u64),
}

impl Value {
    fn plus(self, by: i64) -> Value {
        match self {
            Value::Number(value) => Value::Number(value.wrapping_add_signed(by)),
            Value::Known(value) => Value::Known(value.wrapping_add_signed(by)),
            Value::Near(value) => Value::Near(value.wrapping_add_signed(by)),
            Value::Thread(distance) => Value::Thread(distance.wrapping_add(by)),
            Value::Result(_) if by == 0 => self,
            Value::Result(of) => Value::Near(of),
        }
    }

    fn address(self) -> Option<u64> {
        match self {
            Value::Known(value) | Value::Near(value) => Some(value),
            _ => None,
        }
    }
}

/// The values of all registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(super) struct State {
    registers: [Option<Value>; 31],
    /// The registers with a value, as bits.
    held: u32,
}

/// The registers whose bits are set.
pub(super) fn each(registers: u32) -> impl Iterator<Item = u32> {
    (0..31).filter(move |register| registers >> register & 1 == 1)
}

/// The registers that a function may change: x0 to x18 and x30 (Procedure Call Standard for the Arm 64-bit
/// Architecture, 6.1.1).
pub(super) const SCRATCH: u32 = 0x4007_ffff;

impl State {
    pub(super) fn get(&self, register: u32) -> Option<Value> {
        if register == ZERO { Some(Value::Number(0)) } else { self.registers[register as usize] }
    }

    /// The number or the address that a register holds.
    pub(super) fn known(&self, register: u32) -> Option<u64> {
        match self.get(register) {
            Some(Value::Number(value) | Value::Known(value)) => Some(value),
            _ => None,
        }
    }

    /// The address that a register holds.
    pub(super) fn address(&self, register: u32) -> Option<u64> {
        match self.get(register) {
            Some(Value::Known(value)) => Some(value),
            _ => None,
        }
    }

    pub(super) fn set(&mut self, register: u32, value: Option<Value>) {
        if let Some(place) = self.registers.get_mut(register as usize) {
            *place = value;
            self.held = self.held & !(1 << register) | u32::from(value.is_some()) << register;
        }
    }

    pub(super) fn forget(&mut self, registers: u32) {
        each(registers & self.held).for_each(|register| self.set(register, None));
    }

    /// The registers with a value, as bits.
    pub(super) fn held(&self) -> u32 {
        self.held
    }

    /// Keeps the values that hold on both paths to a place. Returns whether some were dropped.
    fn meet(&mut self, other: &State) -> bool {
        let differ = |register: &u32| self.registers[*register as usize] != other.registers[*register as usize];
        let less = each(self.held).filter(differ).fold(0, |registers, register| registers | 1 << register);
        self.forget(less);
        less != 0
    }

    /// The address of a load or a store. Values on the stack are not known here.
    pub(super) fn place(&self, access: &Access) -> Option<Value> {
        if let Some(literal) = access.literal {
            return Some(Value::Known(literal));
        }
        let base = if access.base == ZERO { None } else { self.get(access.base) }?.plus(access.offset);
        match (access.index, base) {
            (Some(_), Value::Known(value)) => Some(Value::Near(value)),
            (Some(_), Value::Number(_)) => None,
            _ => Some(base),
        }
    }

    /// Updates the state by an instruction. Returns the address that the instruction makes or uses, unless it is only
    /// part of one.
    pub(super) fn step(&mut self, code: &Code<'_>, word: Word) -> Option<u64> {
        let known = |state: &State, register: u32| if register == ZERO { None } else { state.get(register) };
        match operation(word) {
            Operation::Address { to, value } => {
                self.set(to, Some(Value::Known(value)));
                // ADRP alone only gives a page.
                (word.bits >> 31 == 0).then_some(value)
            }
            Operation::Constant { to, value } => {
                self.set(to, Some(Value::Number(value)));
                None
            }
            Operation::Keep { to, value, mask } => {
                let kept = self.known(to).map(|before| Value::Number(before & mask | value));
                self.set(to, kept);
                None
            }
            Operation::Move { to, from } => {
                self.set(to, self.get(from));
                None
            }
            Operation::Add { to, from, value, wide, .. } => {
                // The stack pointer's value is unknown.
                let sum = known(self, from).map(|before| before.plus(value));
                let sum = match sum {
                    Some(Value::Number(sum)) if !wide => Some(Value::Number(sum & 0xffff_ffff)),
                    _ if !wide => None,
                    _ => sum,
                };
                if let Some(to) = to {
                    self.set(to, sum);
                }
                sum.and_then(Value::address)
            }
            Operation::Sum { to, one, other, subtract, plain } => {
                let sum = match (self.get(one), self.get(other)) {
                    (Some(one), Some(Value::Number(other))) if plain => {
                        let other = other.cast_signed();
                        Some(one.plus(if subtract { other.wrapping_neg() } else { other }))
                    }
                    (Some(Value::Number(one)), Some(other)) if plain && !subtract => {
                        Some(other.plus(one.cast_signed()))
                    }
                    (one, other) => {
                        let other = if subtract { None } else { other };
                        let addresses = [one, other].map(|value| value.and_then(Value::address));
                        addresses.into_iter().flatten().max().map(Value::Near)
                    }
                };
                if let Some(to) = to {
                    self.set(to, sum);
                }
                sum.and_then(Value::address)
            }
            Operation::Logic { to, from, value, and } => {
                let result = self.get(from).and_then(|before| match before {
                    Value::Number(before) if and => Some(Value::Number(before & value)),
                    Value::Known(before) if and => Some(Value::Known(before & value)),
                    Value::Near(before) if and => Some(Value::Near(before & value)),
                    _ => None,
                });
                if let Some(to) = to {
                    self.set(to, result);
                }
                None
            }
            Operation::ThreadPointer { to } => {
                self.set(to, Some(Value::Thread(0)));
                None
            }
            Operation::Memory(access) => {
                let place = self.place(&access);
                let stepped = access.step.and_then(|step| known(self, access.base)?.plus(step).into());
                let loaded = match place {
                    Some(Value::Known(place)) if access.size == 8 && access.second.is_none() => pointer_at(code, place),
                    _ => None,
                };
                self.forget(writes(word));
                if access.step.is_some() {
                    self.set(access.base, stepped);
                }
                if let (true, Some(register)) = (access.loads && !access.stores, access.register) {
                    self.set(register, loaded.map(Value::Known));
                }
                place.and_then(Value::address)
            }
            _ => {
                self.forget(writes(word));
                if let Flow::Call(target) = flow(word)
                    && calls(word)
                {
                    self.forget(SCRATCH);
                    self.set(0, target.map(Value::Result));
                }
                None
            }
        }
    }
}

/// The address that a word of the program's data holds, such as an entry of the global offset table.
fn pointer_at(code: &Code<'_>, place: u64) -> Option<u64> {
    if let Some(value) = code.relocations.value_at(place) {
        return Some(value);
    }
    let value = crate::image::u64_at(code.image.read(place, 8)?, 0)?;
    let inside = code.image.loads().any(|load| load.memory().contains(&value));
    (!code.image.position_independent && inside).then_some(value)
}

/// The values of registers before each instruction of a function, on every path to it. All are unknown at the start.
pub(super) fn of_function(code: &Code<'_>, function: &Function) -> BTreeMap<u64, State> {
    let mut states: BTreeMap<u64, State> = BTreeMap::from([(function.start, State::default())]);
    let mut open = vec![function.start];
    while let Some(address) = open.pop() {
        let (Some(mut state), Some(word)) = (states.get(&address).copied(), word_at(code.image, address)) else {
            continue;
        };
        state.step(code, word);
        for next in follows(code, word).into_iter().flatten().filter(|next| function.instructions.contains_key(next)) {
            let less = match states.get_mut(&next) {
                Some(before) => before.meet(&state),
                None => {
                    states.insert(next, state);
                    true
                }
            };
            if less {
                open.push(next);
            }
        }
    }
    states
}

/// The instructions that may be executed next. Other code may follow a call that does not return.
pub(super) fn follows(code: &Code<'_>, word: Word) -> [Option<u64>; 2] {
    let next = Some(word.address + 4);
    match flow(word) {
        Flow::Call(Some(target)) if !code.returns(target) => [None, None],
        Flow::Next | Flow::Call(_) => [next, None],
        Flow::Conditional(target) => [next, Some(target)],
        Flow::Jump(target) => [target, None],
        Flow::Return | Flow::Trap => [None, None],
    }
}

/// Whether the instruction is a call of a function. A system call does not count.
pub(super) fn calls(word: Word) -> bool {
    matches!(flow(word), Flow::Call(_)) && operation(word) != Operation::SystemCall
}

/// Steps through this many instructions before an address, in order, and returns the values of registers then.
pub(super) fn before(code: &Code<'_>, address: u64, instructions: u64) -> State {
    let mut state = State::default();
    for place in (1..=instructions).rev().filter_map(|back| address.checked_sub(4 * back)) {
        match word_at(code.image, place) {
            Some(word) => drop(state.step(code, word)),
            None => state = State::default(),
        }
    }
    state
}
