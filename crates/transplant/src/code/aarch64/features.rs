//! Features of aarch64's code.

use super::super::{Code, Feature, Features, Flow, Function};
use super::fields::Word;
use super::values::{self, State};

use super::word::{FRAME, Operation, ZERO, flow, operation};
use super::word_at;

pub(super) fn find(code: &Code<'_>, function: &Function) -> Features {
    let mut features = Features::default();
    for (address, state) in values::of_function(code, function) {
        if let Some(word) = word_at(code.image, address) {
            note(&mut features, code, word, state);
        }
    }
    features
}

fn note(features: &mut Features, code: &Code<'_>, word: Word, state: State) {
    let feature = match operation(word) {
        Operation::Memory(access) => {
            // musl's a_crash is a store to address 0. Some compilers know that control ends there.
            let ends = || word_at(code.image, word.address + 4).is_some_and(|next| flow(next) == Flow::Trap);
            let to_stack = matches!(access.base, ZERO | FRAME);
            if access.stores && !to_stack && state.known(access.base) != Some(0) && !ends() {
                features.stores += 1;
            }
            let freed = || access.register.and_then(|register| state.known(register)).map(|value| value & 0xff);
            match (access.size, access.offset) {
                _ if to_stack || access.register.is_none() || access.index.is_some() => return,
                (1, -3) if access.loads => Feature::ReadsIndexByte,
                (2, -2) if access.loads => Feature::ReadsOffset,
                (1, -3) if freed() == Some(0xff) => Feature::WritesFreed,
                _ => return,
            }
        }
        Operation::SystemCall => Feature::SystemCall,
        Operation::Multiply { .. } => Feature::Multiplies,
        Operation::Constant { to, .. } | Operation::Keep { to, .. } => {
            let mut after = state;
            after.step(code, word);
            match after.known(to) {
                Some(0x1_ffeb | 0x1_ffec) => Feature::Threshold,
                Some(0x7_ffff_ffff) => Feature::GreatestAlignment,
                _ => return,
            }
        }
        Operation::Add { flags: true, value, .. } => match -value {
            47 | 48 => Feature::CountsClasses,
            4..=6 | 0x9f | 0xa0 | 0xbf | 0xc0 => Feature::Reserved,
            _ => return,
        },
        Operation::Logic { value: 0xf, and: true, .. } => Feature::TestsAlignment,
        Operation::Logic { value: 0xffff_fff8_0000_0000, and: true, .. } => Feature::GreatestAlignment,
        // LSR by 35
        Operation::Field { rotate: 35, last: 63, wide: true, .. } => Feature::GreatestAlignment,
        _ => return,
    };
    features.set.insert(feature);
}

/// Whether the word is the lower half of the threshold, or stores a byte before a block's last two.
pub(super) fn is_mark(word: Word) -> bool {
    match operation(word) {
        Operation::Constant { value, .. } => matches!(value, 0xffeb | 0xffec),
        Operation::Memory(access) => access.stores && (access.size, access.offset) == (1, -3) && access.base != ZERO,
        _ => false,
    }
}
