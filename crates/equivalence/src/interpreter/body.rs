//! A function's instructions, decoded once, and a record of those that have been executed.

use std::collections::HashMap;

use crate::Unproven;

/// A limit on instructions. No string function has as many, with those that it calls.
const MOST: usize = 400;
/// The index of no instruction.
const NOWHERE: usize = usize::MAX;

/// The effect of an instruction on the flow of control, with its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Jump(u64),
    Conditional(u64),
    Call(u64),
    Return,
}

impl Flow {
    fn target(self) -> Option<u64> {
        match self {
            Flow::Jump(target) | Flow::Conditional(target) | Flow::Call(target) => Some(target),
            Flow::Next | Flow::Return => None,
        }
    }

    fn goes_on(self) -> bool {
        !matches!(self, Flow::Jump(_) | Flow::Return)
    }
}

/// An instruction, and the address of the one behind it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decoded<I> {
    pub(super) instruction: I,
    pub(super) flow: Flow,
    pub(super) behind: u64,
}

#[derive(Debug)]
pub(super) struct Step<I> {
    address: u64,
    behind: u64,
    pub(super) instruction: I,
    pub(super) flow: Flow,
    /// The index of the instruction behind it.
    pub(super) next: usize,
    /// The index of its target.
    pub(super) target: usize,
}

/// A function, as far as direct branches and calls lead.
#[derive(Debug)]
pub(super) struct Body<I> {
    pub(super) steps: Vec<Step<I>>,
    executed: Vec<bool>,
    /// For conditional branches: bit 0 if it was taken, bit 1 if it was not.
    ways: Vec<u8>,
    /// For conditional branches: whether every time the condition depended only on the alignment of the arguments.
    of_alignment: Vec<bool>,
}

impl<I> Default for Body<I> {
    fn default() -> Body<I> {
        Body { steps: Vec::new(), executed: Vec::new(), ways: Vec::new(), of_alignment: Vec::new() }
    }
}

impl<I> Body<I> {
    /// Follows the flow of control from `start` on. The first instruction has the index 0.
    pub(super) fn read(start: u64, decode: impl Fn(u64) -> Result<Decoded<I>, Unproven>) -> Result<Body<I>, Unproven> {
        let mut steps: Vec<Step<I>> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        let mut open = vec![start];
        while let Some(mut at) = open.pop() {
            while !places.contains_key(&at) {
                if steps.len() == MOST {
                    return Err(Unproven::Large);
                }
                let Decoded { instruction, flow, behind } = decode(at)?;
                places.insert(at, steps.len());
                steps.push(Step { address: at, behind, instruction, flow, next: NOWHERE, target: NOWHERE });
                match (flow.target(), flow.goes_on()) {
                    (None, false) => break,
                    (Some(target), false) => at = target,
                    (target, true) => {
                        open.extend(target);
                        at = behind;
                    }
                }
            }
        }
        for step in &mut steps {
            let place = |address: u64| places.get(&address).copied().unwrap_or(NOWHERE);
            if step.flow.goes_on() {
                step.next = place(step.behind);
            }
            step.target = step.flow.target().map_or(NOWHERE, place);
        }
        let count = steps.len();
        Ok(Body { steps, executed: vec![false; count], ways: vec![0; count], of_alignment: vec![true; count] })
    }

    /// Clears the record of what has been executed.
    pub(super) fn forget(&mut self) {
        self.executed.fill(false);
        self.ways.fill(0);
        self.of_alignment.fill(true);
    }

    pub(super) fn note(&mut self, index: usize) {
        self.executed[index] = true;
    }

    pub(super) fn note_way(&mut self, index: usize, taken: bool, of_alignment: bool) {
        self.ways[index] |= if taken { 1 } else { 2 };
        self.of_alignment[index] &= of_alignment;
    }

    /// The first instruction that has not been executed, or branch that always went the same way.
    ///
    /// A branch that only tests the alignment of arguments may always go the same way, since all alignments have been
    /// tried: unrolled loops up to an aligned address end like that. Code that only the other way leads to is not
    /// required to run.
    pub(super) fn untested(&self) -> Option<u64> {
        let (mut open, mut seen) = (vec![0], vec![false; self.steps.len()]);
        let mut untested: Option<u64> = None;
        while let Some(index) = open.pop() {
            let Some(step) = self.steps.get(index).filter(|_| !std::mem::replace(&mut seen[index], true)) else {
                continue;
            };
            let (taken, not_taken) = (self.ways[index] & 1 != 0, self.ways[index] & 2 != 0);
            let conditional = matches!(step.flow, Flow::Conditional(_));
            let one_way = conditional && taken != not_taken && self.of_alignment[index];
            if !self.executed[index] || conditional && !one_way && !(taken && not_taken) {
                untested = Some(untested.map_or(step.address, |before| before.min(step.address)));
                continue;
            }
            open.extend(
                [(step.target, not_taken && one_way), (step.next, taken && one_way)]
                    .into_iter()
                    .filter_map(|(to, never)| (to != NOWHERE && !never).then_some(to)),
            );
        }
        untested
    }
}
