//! Recognises aarch64's musl, as far as the graft needs it: errno, fork, the end of threads, the start.

use std::collections::BTreeSet;
use std::ops::Range;

use super::fields::Word;

use super::super::{Code, Edit, Flow, Function, MainCall, Musl};
use super::values::{self, State, Value};
use super::word::{FRAME, Operation, ZERO, flow, is_landing_pad, operation, reads, writes};
use super::{Aarch64, all, keys, word_at, words};
use crate::image::Image;

const ENOMEM: u64 = 12;
/// Numbers of system calls (asm-generic/unistd.h).
const RT_SIGPROCMASK: u64 = 135;
const CLONE: u64 = 220;
const EXIT_GROUP: u64 = 94;
const SIGCHLD: u64 = 17;

/// The register with the number of a system call.
const NUMBER: u32 = 8;

/// Whether the function around a system call does nothing else: constants before it, and after it at most a call of the
/// function that sets errno.
fn is_all_there_is(code: &Code<'_>, call: u64) -> bool {
    const MOST: u64 = 8;
    let frame = |word: Word| match operation(word) {
        Operation::Constant { .. } | Operation::Move { .. } => true,
        Operation::Memory(access) => access.base == ZERO,
        Operation::Add { to: Some(FRAME), from: ZERO, .. } => true,
        _ => is_landing_pad(word),
    };
    let at = |address: u64| word_at(code.image, address);
    let before = (1..=MOST).take_while(|back| at(call.wrapping_sub(4 * back)).is_some_and(&frame));
    let begins = before.map(|back| call - 4 * back).any(|start| code.machine.follows_an_end(code.image, start));
    let mut calls = 0;
    for word in (1..=MOST).map_while(|ahead| at(call + 4 * ahead)) {
        match flow(word) {
            Flow::Return | Flow::Jump(Some(_)) => return begins && calls <= 1,
            Flow::Call(Some(_)) => calls += 1,
            Flow::Next if frame(word) => {}
            _ => return false,
        }
    }
    false
}

fn system_calls(code: &Code<'_>, number: u64) -> Vec<u64> {
    let calls = words(code.image).filter(|word| operation(*word) == Operation::SystemCall);
    let numbered = calls.filter(|word| values::before(code, word.address, 16).known(NUMBER) == Some(number));
    numbered.map(|word| word.address).collect()
}

/// The system calls that have an instruction of this kind at most `reach` words before them.
fn calls_behind(code: &Code<'_>, reach: u64, is: impl Fn(Word) -> bool) -> Vec<u64> {
    let calls = words(code.image).filter(|word| operation(*word) == Operation::SystemCall);
    let has = |call: &Word| {
        let before = (1..=reach).filter_map(|back| word_at(code.image, call.address.checked_sub(4 * back)?));
        before.into_iter().any(&is)
    };
    calls.filter(has).map(|word| word.address).collect()
}

/// `mov x8, 215; svc 0; mov x8, 93; svc 0`
const UNMAP_SELF: &[u8] = b"\xe8\x1a\x80\xd2\x01\0\0\xd4\xa8\x0b\x80\xd2\x01\0\0\xd4";

impl Musl for Aarch64 {
    fn resets_lock(&self, code: &Code<'_>, function: &Function, lock: u64) -> bool {
        let writes_zero = |(address, state): (&u64, &State)| {
            let Some(Operation::Memory(access)) = word_at(code.image, *address).map(operation) else {
                return false;
            };
            let zero = access.register.and_then(|register| state.known(register)) == Some(0);
            access.stores && access.size == 4 && zero && state.place(&access) == Some(Value::Known(lock))
        };
        // TBZ, TBNZ, CBZ, CBNZ, or a comparison with 0, of the first argument.
        let asks_who = |word: Word| match (flow(word), operation(word)) {
            (Flow::Conditional(_), _) => reads(word) == 1,
            (_, Operation::Add { to: None, from: 0, value: 0, .. }) => true,
            _ => false,
        };
        values::of_function(code, function).iter().any(writes_zero) && all(code.image, function).take(8).any(asks_who)
    }

    fn no_memory_stores(&self, code: &Code<'_>, function: &Function) -> BTreeSet<i64> {
        let mut found = BTreeSet::new();
        for (address, state) in values::of_function(code, function) {
            let Some(Operation::Memory(access)) = word_at(code.image, address).map(operation) else { continue };
            let value = access.register.and_then(|register| state.known(register));
            if !access.stores
                || access.size != 4
                || access.second.is_some()
                || value != Some(ENOMEM)
                || access.base == ZERO
            {
                continue;
            }
            found.extend(match state.get(access.base) {
                Some(Value::Thread(distance)) => Some(distance + access.offset),
                Some(Value::Result(of)) if access.offset == 0 => self.errno_location(code, of),
                _ => None,
            });
        }
        found
    }

    fn errno_location(&self, code: &Code<'_>, start: u64) -> Option<i64> {
        let mut state = State::default();
        for address in (0..8).map(|index| start + 4 * index) {
            let word = word_at(code.image, address)?;
            match (flow(word), state.get(0)) {
                (Flow::Return, Some(Value::Thread(distance))) if distance != 0 => return Some(distance),
                (Flow::Next, _) => {}
                _ => return None,
            }
            // It writes only to its own frame.
            if matches!(operation(word), Operation::Memory(access) if access.stores && access.base != ZERO) {
                return None;
            }
            state.step(code, word);
        }
        None
    }

    /// `struct pthread` ends at the thread pointer.
    fn errno_range(&self) -> Range<i64> {
        -1024..-3
    }

    /// musl forks by clone with SIGCHLD alone; threads and posix_spawn have more flags. Its vfork makes the same system
    /// call (src/process/vfork.c), and nothing else, while fork blocks signals around it. vfork needs no hook, as its
    /// child must not take locks.
    fn forks(&self, code: &Code<'_>) -> Vec<u64> {
        let calls = words(code.image).filter(|word| operation(*word) == Operation::SystemCall);
        let forks = |address: &u64| {
            let state = values::before(code, *address, 16);
            state.known(NUMBER) == Some(CLONE) && state.known(0) == Some(SIGCHLD) && !is_all_there_is(code, *address)
        };
        calls.map(|word| word.address).filter(forks).collect()
    }

    /// The number may be loaded far before the call.
    fn clones(&self, code: &Code<'_>) -> Vec<u64> {
        const FAR: u64 = 128;
        let loads = |word: Word| operation(word) == Operation::Constant { to: NUMBER, value: CLONE };
        calls_behind(code, FAR, loads)
    }

    fn passed_calls(&self, code: &Code<'_>) -> Vec<u64> {
        const NEAR: u64 = 32;
        calls_behind(code, NEAR, |word| operation(word) == Operation::Move { to: NUMBER, from: 0 })
    }

    fn clone_number(&self) -> u64 {
        CLONE
    }

    fn number_register(&self) -> u32 {
        NUMBER
    }

    fn ends(&self, code: &Code<'_>) -> Vec<u64> {
        system_calls(code, EXIT_GROUP)
    }

    fn unmapself_functions(&self, code: &Code<'_>) -> Vec<u64> {
        let found = code.places(UNMAP_SELF);
        found.into_iter().filter(|address| address.is_multiple_of(4)).collect()
    }

    fn blocks_signals(&self, code: &Code<'_>, function: &Function) -> bool {
        let states = values::of_function(code, function);
        let mut calls = 0;
        for (address, state) in states {
            if word_at(code.image, address).map(operation) != Some(Operation::SystemCall) {
                continue;
            }
            calls += 1;
            if [NUMBER, 0, 3].map(|register| state.known(register)) != [Some(RT_SIGPROCMASK), Some(0), Some(8)] {
                return false;
            }
        }
        calls == 1 && function.calls.is_empty() && function.instructions.len() < 24
    }

    fn indirect_jumps(&self, image: &Image<'_>) -> Vec<(u64, u64)> {
        keys::indirect_jumps(image)
    }

    fn key_values(&self, code: &Code<'_>, start: u64) -> Option<i64> {
        keys::values(code, start)
    }

    fn stored_addresses(&self, code: &Code<'_>, function: &Function, offset: i64) -> BTreeSet<u64> {
        keys::stored(code, function, offset)
    }

    fn main_calls(&self, code: &Code<'_>, function: &Function) -> (Vec<MainCall>, Vec<u64>) {
        let (mut found, mut taken) = (Vec::new(), BTreeSet::new());
        for (address, state) in values::of_function(code, function) {
            let Some(word) = word_at(code.image, address) else { continue };
            let functions = [0, 3, 4].map(|register| {
                state.address(register).filter(|value| value.is_multiple_of(4) && code.image.is_executable(*value))
            });
            let (target, is_call) = match flow(word) {
                Flow::Call(target) => (target, true),
                Flow::Jump(target) => (target, false),
                _ => (None, false),
            };
            if let ([Some(main), Some(_), Some(_)], Some(target)) = (functions, target) {
                found.push(MainCall { main, edit: Edit::Branch { site: address, target, is_call } });
            }
            let mut after = state;
            after.step(code, word);
            let loaded = (0..31).filter(|register| writes(word) >> register & 1 == 1);
            taken.extend(
                loaded.filter_map(|register| after.address(register)).filter(|value| code.image.is_executable(*value)),
            );
        }
        (found, taken.into_iter().collect())
    }
}
