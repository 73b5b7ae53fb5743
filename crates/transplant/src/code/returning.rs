//! Whether a function returns: behind a call of one that does not, other code may follow.

use std::collections::HashSet;

use super::{Code, Flow};

const MOST_INSTRUCTIONS: usize = 400;
/// How many calls deep a function is followed. One that is deeper counts as returning.
const DEEPEST: usize = 4;

impl Code<'_> {
    /// Whether a function may return: a return, or a jump through a register, can be reached. musl's `__stack_chk_fail`
    /// does not, though the compiler takes it to (src/env/__stack_chk_fail.c).
    pub(crate) fn returns(&self, start: u64) -> bool {
        self.returns_within(start, 0)
    }

    /// Whether a function may return without a call on the way, so that no other function decides that.
    pub(super) fn returns_at_once(&self, start: u64) -> bool {
        const MOST: usize = 60;
        let (mut seen, mut open) = (HashSet::new(), vec![start]);
        while let Some(address) = open.pop() {
            let is_end = |at| self.machine.crashes(self.image, at) || self.machine.is_last_system_call(self.image, at);
            if !seen.insert(address) || seen.len() > MOST || is_end(address) {
                continue;
            }
            let Some(instruction) = self.instruction(address) else { continue };
            match instruction.flow {
                Flow::Return => return true,
                Flow::Next => open.push(instruction.next),
                Flow::Jump(Some(target)) => open.push(target),
                Flow::Conditional(target) => open.extend([target, instruction.next]),
                Flow::Jump(None) | Flow::Trap | Flow::Call(_) => {}
            }
        }
        false
    }

    fn returns_within(&self, start: u64, depth: usize) -> bool {
        if depth > DEEPEST {
            return true;
        }
        if let Some(known) = self.returning.borrow().get(&start) {
            return *known;
        }
        let (mut seen, mut open) = (HashSet::new(), vec![start]);
        let mut found = false;
        while let (false, Some(address)) = (found, open.pop()) {
            if !seen.insert(address) {
                continue;
            }
            let Some(instruction) = self.instruction(address) else {
                found = true;
                continue;
            };
            found = seen.len() > MOST_INSTRUCTIONS
                || match instruction.flow {
                    _ if self.machine.crashes(self.image, address) => false,
                    _ if self.machine.is_last_system_call(self.image, address) => false,
                    Flow::Return | Flow::Jump(None) => true,
                    Flow::Trap => false,
                    Flow::Call(Some(target)) if target != start && !self.returns_within(target, depth + 1) => false,
                    Flow::Next | Flow::Call(_) => {
                        open.push(instruction.next);
                        false
                    }
                    Flow::Jump(Some(target)) => {
                        open.push(target);
                        false
                    }
                    Flow::Conditional(target) => {
                        open.extend([target, instruction.next]);
                        false
                    }
                };
        }
        self.returning.borrow_mut().insert(start, found);
        found
    }
}
