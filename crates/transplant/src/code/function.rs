//! A function: its instructions, found by following the flow of control from its start.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::{Code, Flow, Instruction};

/// A function, as far as direct branches reach.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) start: u64,
    pub(crate) instructions: BTreeMap<u64, Instruction>,
    /// Direct calls: site and target.
    pub(crate) calls: Vec<(u64, u64)>,
    /// Jumps that leave it: site and target.
    pub(crate) tails: Vec<(u64, u64)>,
    /// The addresses that it takes, reads or writes, each with the address of the instruction.
    pub(crate) refers: BTreeSet<(u64, u64)>,
}

/// A limit on instructions. No function of the family has as many.
const MOST_INSTRUCTIONS: usize = 1500;
/// Jumps farther than this leave the function.
const SPAN: u64 = 6000;

impl Function {
    /// Follows the flow of control; `None` if it runs into bytes that are not code, or does not end.
    pub(super) fn walk(code: &Code<'_>, start: u64) -> Option<Function> {
        let mut function = Function {
            start,
            instructions: BTreeMap::new(),
            calls: Vec::new(),
            tails: Vec::new(),
            refers: BTreeSet::new(),
        };
        let mut open = vec![start];
        while let Some(mut at) = open.pop() {
            while !function.instructions.contains_key(&at) {
                let instruction = code.instruction(at)?;
                function.instructions.insert(at, instruction);
                if function.instructions.len() > MOST_INSTRUCTIONS {
                    return None;
                }
                match instruction.flow {
                    Flow::Call(Some(target)) => {
                        function.calls.push((at, target));
                        // Compilers put nothing behind a call that does not return. There is nowhere to return to for
                        // `_start` (arch/ARCH/crt_arch.h).
                        if code.is_last_call(target, instruction.next) || start == code.image.entry {
                            break;
                        }
                    }
                    Flow::Jump(Some(target)) => {
                        if function.leaves(code, target) {
                            function.tails.push((at, target));
                            break;
                        }
                        at = target;
                        continue;
                    }
                    Flow::Conditional(target) => {
                        if function.leaves_by_condition(code, target) {
                            function.tails.push((at, target));
                        } else {
                            open.push(target);
                        }
                    }
                    Flow::Return | Flow::Jump(None) | Flow::Trap => break,
                    Flow::Next | Flow::Call(None) if code.machine.is_last_system_call(code.image, at) => break,
                    Flow::Next | Flow::Call(None) => {}
                }
                at = instruction.next;
            }
        }
        function.forget_own_tails(code);
        function.refers = code.machine.refers(code, &function);
        Some(function)
    }

    /// Forgets jumps to places of its own that control also reaches from the instruction in front of them. Only bytes
    /// that read as a call of such a place made it look like another function's start.
    fn forget_own_tails(&mut self, code: &Code<'_>) {
        let mut tails = std::mem::take(&mut self.tails);
        tails.retain(|(_, to)| code.is_named(*to) || !self.falls_into(code, *to));
        self.tails = tails;
    }

    /// Whether the target is another function's start, or too far away to be a part of this one.
    fn leaves(&self, code: &Code<'_>, target: u64) -> bool {
        target != self.start && (code.is_start(target) || target.abs_diff(self.start) > SPAN)
    }

    /// Whether a conditional branch leaves the function. Bytes that read as a call of its target may be something else.
    fn leaves_by_condition(&self, code: &Code<'_>, target: u64) -> bool {
        match code.machine.leaves_by_condition() || code.is_named(target) {
            true => self.leaves(code, target),
            false => target.abs_diff(self.start) > SPAN,
        }
    }

    /// Whether control reaches a place of this function from the instruction in front of it, or by a conditional
    /// branch. Then no function begins there.
    fn flows_into(&self, code: &Code<'_>, place: u64) -> bool {
        let leads =
            |instruction: &Instruction| matches!(instruction.flow, Flow::Conditional(target) if target == place);
        self.falls_into(code, place) || place != self.start && self.instructions.values().any(leads)
    }

    /// Whether control reaches a place of this function from the instruction in front of it. A call does not count: it
    /// may not return, and padding may follow it.
    fn falls_into(&self, code: &Code<'_>, place: u64) -> bool {
        let falls = |instruction: &Instruction| match instruction.flow {
            Flow::Next => !code.machine.is_padding(code.image, instruction),
            Flow::Conditional(_) => true,
            _ => false,
        };
        let mut before = self.instructions.values().filter(|instruction| instruction.next == place);
        place != self.start && before.any(falls)
    }

    /// Whether a place is a part of this function only, even if bytes outside read as a branch to it.
    pub(crate) fn takes_in(&self, code: &Code<'_>, place: u64) -> bool {
        self.flows_into(code, place) && !self.runs_into(code, place)
    }

    /// Whether control reaches a place of this function only past a call in front of it (padding left out), and a
    /// branch from outside targets it. Then the call does not return, and another function begins there. musl's
    /// `__stack_chk_fail` is such a call: it ends in a trap, but the compiler assumes that it returns
    /// (src/env/__stack_chk_fail.c).
    pub(crate) fn runs_into(&self, code: &Code<'_>, place: u64) -> bool {
        let leads = |flow: Flow| matches!(flow, Flow::Jump(Some(to)) | Flow::Conditional(to) if to == place);
        if place == self.start
            || !self.instructions.contains_key(&place)
            || self.instructions.values().any(|instruction| leads(instruction.flow))
            || code.branches_to(place).iter().all(|branch| self.covers(branch.site))
            || code.is_part(place)
        {
            return false;
        }
        let mut at = place;
        for (_, before) in self.instructions.range(..place).rev() {
            if before.next != at {
                return false;
            }
            match before.flow {
                Flow::Call(target) => return target.is_none_or(|target| !code.returns_at_once(target)),
                Flow::Next if code.machine.is_padding(code.image, before) => at = before.address,
                _ => return false,
            }
        }
        false
    }

    /// Whether the byte at an address is part of an instruction of this function.
    pub(crate) fn covers(&self, address: u64) -> bool {
        self.instruction_over(address).is_some()
    }

    /// The instruction that the byte at an address is part of.
    pub(crate) fn instruction_over(&self, address: u64) -> Option<&Instruction> {
        let (_, instruction) = self.instructions.range(..=address).next_back()?;
        (address < instruction.next).then_some(instruction)
    }

    /// The address behind its last instruction.
    pub(crate) fn end(&self) -> u64 {
        self.instructions.values().map(|instruction| instruction.next).max().unwrap_or(self.start)
    }

    /// Whether it returns, or goes on to another function.
    pub(super) fn may_return(&self) -> bool {
        let ends = |instruction: &Instruction| matches!(instruction.flow, Flow::Return | Flow::Jump(None));
        !self.tails.is_empty() || self.instructions.values().any(ends)
    }

    /// The end of its first piece: behind it lies padding and another function, or code that control does not reach.
    pub(super) fn first_end(&self, code: &Code<'_>) -> u64 {
        let mut end = self.start;
        loop {
            let at = if self.instructions.contains_key(&end) { end } else { code.behind_padding(end) };
            match self.instructions.get(&at) {
                Some(instruction) => end = instruction.next,
                None => return end,
            }
        }
    }

    pub(crate) fn refers_into(&self, range: Range<u64>) -> bool {
        self.refers.range((range.start, 0)..(range.end, 0)).next().is_some()
    }

    /// The addresses that it takes, reads or writes.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = u64> + '_ {
        self.refers.iter().map(|(address, _)| *address)
    }

    /// Functions that it calls or jumps to.
    pub(crate) fn leads_to(&self) -> impl Iterator<Item = u64> + '_ {
        self.calls.iter().chain(&self.tails).map(|(_, target)| *target)
    }

    /// Whether its instructions from `from` on, without a gap, take this many bytes.
    pub(crate) fn has_room(&self, from: u64, bytes: u64) -> bool {
        let mut at = from;
        while at < from + bytes {
            match self.instructions.get(&at) {
                Some(instruction) => at = instruction.next,
                None => return false,
            }
        }
        true
    }
}
