//! Frames in the stack: they tell a function from a part of one.

use std::collections::HashSet;

use super::values::follows;
use super::word::{FRAME, LINK, Operation, ZERO, operation};
use super::word_at;
use crate::code::Code;

/// Whether the code at `start` loads the return address from a frame that exists already, and saves none itself on any
/// path. No function does that: the code is a part of the function that made the frame.
pub(super) fn is_anothers(code: &Code<'_>, start: u64) -> bool {
    const MOST_INSTRUCTIONS: usize = 1500;
    let (mut seen, mut open) = (HashSet::new(), vec![(start, 0)]);
    let mut found = false;
    // How far the stack pointer is below its value at the start.
    while let Some((address, mut below)) = open.pop() {
        let Some(word) = word_at(code.image, address) else { continue };
        if !seen.insert(address) {
            continue;
        }
        if seen.len() > MOST_INSTRUCTIONS {
            return false;
        }
        match operation(word) {
            Operation::Memory(access) if matches!(access.base, ZERO | FRAME) && access.literal.is_none() => {
                let held = match (access.register, access.second) {
                    (Some(LINK), _) => Some(access.offset),
                    (_, Some(LINK)) => Some(access.offset + i64::from(access.size)),
                    _ => None,
                };
                match held {
                    Some(_) if access.stores => return false,
                    Some(held) if access.base == ZERO && access.index.is_none() => {
                        found |= held >= below;
                        // The frame is gone: a return or another function follows.
                        continue;
                    }
                    _ => {}
                }
                if let (ZERO, Some(step)) = (access.base, access.step) {
                    below -= step;
                }
            }
            Operation::Add { to: Some(ZERO), from: ZERO, value, .. } => below -= value,
            Operation::Add { to: Some(ZERO), .. }
            | Operation::Logic { to: Some(ZERO), .. }
            | Operation::Sum { to: Some(ZERO), .. } => continue,
            _ => {}
        }
        open.extend(follows(code, word).into_iter().flatten().map(|next| (next, below)));
    }
    found
}
