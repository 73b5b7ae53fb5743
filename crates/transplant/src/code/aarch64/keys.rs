//! How aarch64's musl keeps a thread's values of pthread keys, and how libc.so calls its own malloc through slots.

use std::collections::BTreeSet;

use super::fields::Word;

use super::super::{Code, Flow, Function};
use super::values::{self, State, Value};
use super::word::{Operation, ZERO, flow, is_landing_pad, operation};
use super::{all, word_at, words};
use crate::image::Image;

/// The registers that a linker's jump uses (Procedure Call Standard for the Arm 64-bit Architecture, 6.1.1).
const PAGE: u32 = 16;
const TARGET: u32 = 17;
/// `br x17`
const BRANCH: u32 = 0xd61f_0220;

/// `adrp x16, page; ldr x17, [x16, distance]; add x16, x16, distance; br x17`, as GNU ld and lld write it.
pub(super) fn indirect_jumps(image: &Image<'_>) -> Vec<(u64, u64)> {
    let slot = |first: Word| {
        let next = |index: u64| word_at(image, first.address + 4 * index);
        let (Operation::Address { to: PAGE, value }, true) = (operation(first), first.bits >> 31 == 1) else {
            return None;
        };
        let Operation::Memory(load) = operation(next(1)?) else { return None };
        let loads = load.loads && !load.stores && load.size == 8 && load.second.is_none() && load.index.is_none();
        if !loads || load.step.is_some() || (load.base, load.register) != (PAGE, Some(TARGET)) {
            return None;
        }
        let added = operation(next(2)?);
        let is_added =
            added == Operation::Add { to: Some(PAGE), from: PAGE, value: load.offset, flags: false, wide: true };
        (is_added && next(3)?.bits == BRANCH).then(|| (first.address, value.wrapping_add_signed(load.offset)))
    };
    words(image).filter_map(slot).collect()
}

/// `mrs a, tpidr_el0; ldr b, [a + offset]; ldr x0, [b, key, 8]; ret`, in any order that works.
pub(super) fn values(code: &Code<'_>, start: u64) -> Option<i64> {
    /// For loads that add a register: the register counts as 32 bits without a sign, or as 64 bits; and it is
    /// multiplied by the size of the element.
    const UNSIGNED: u32 = 2;
    const WHOLE: u32 = 3;
    let mut state = State::default();
    // The register with the values' address, those with the key, of 32 bits, and with the key of 64 bits.
    let (mut values, mut keys, mut whole): (Option<(u32, i64)>, u32, u32) = (None, 1, 0);
    let mut done = false;
    for address in (0..12).map(|index| start + 4 * index) {
        let word = word_at(code.image, address)?;
        match (flow(word), operation(word)) {
            (Flow::Return, _) if done => return values.map(|(_, offset)| offset),
            _ if done => return None,
            (Flow::Next, Operation::ThreadPointer { .. }) => {}
            (Flow::Next, Operation::Add { to: Some(to), flags: false, wide: true, .. }) if to != ZERO => {}
            (Flow::Next, Operation::Move { to, from }) if to != ZERO && keys >> from & 1 == 1 => {
                // The upper half is cleared.
                keys |= 1 << to;
                whole |= u32::from(word.bits >> 31 == 0) << to;
                state.step(code, word);
                continue;
            }
            (Flow::Next, Operation::Memory(load)) => {
                let plain = load.loads && !load.stores && load.size == 8 && load.second.is_none();
                let to = load.register.filter(|to| plain && load.step.is_none() && *to != ZERO)?;
                match (load.index, values) {
                    (None, None) => {
                        let Some(Value::Thread(offset)) = state.place(&load) else { return None };
                        values = Some((to, offset));
                    }
                    (Some(index), Some((base, _))) if load.base == base && to == 0 && index != ZERO => {
                        let (option, scaled) = (word.bits >> 13 & 7, word.bits >> 12 & 1 == 1);
                        let is_key = option == UNSIGNED && keys >> index & 1 == 1;
                        let is_whole = option == WHOLE && whole >> index & 1 == 1;
                        if !scaled || !(is_key || is_whole) {
                            return None;
                        }
                        done = true;
                    }
                    _ => return None,
                }
            }
            _ if is_landing_pad(word) => {}
            _ => return None,
        }
        let written = super::writes(word);
        (keys, whole) = (keys & !written, whole & !written);
        if values.is_some_and(|(base, _)| written >> base & 1 == 1 && !matches!(operation(word), Operation::Memory(_)))
        {
            return None;
        }
        state.step(code, word);
    }
    None
}

/// Addresses that a function stores at this distance from the thread pointer.
pub(super) fn stored(code: &Code<'_>, function: &Function, offset: i64) -> BTreeSet<u64> {
    let states = values::of_function(code, function);
    let stored = |word: Word| {
        let state = states.get(&word.address)?;
        let Operation::Memory(store) = operation(word) else { return None };
        let here = store.stores && !store.loads && store.size == 8 && store.second.is_none();
        let place = (here && store.index.is_none()).then(|| state.place(&store)).flatten();
        (place == Some(Value::Thread(offset))).then(|| state.address(store.register?)).flatten()
    };
    all(code.image, function).filter_map(stored).collect()
}
