//! A function's instructions, decoded once, and a record of those that have been executed.

use std::collections::HashMap;

use crate::Unproven;

/// A limit on instructions. No string function has as many, with those that it calls.
const MOST: usize = 400;
/// The index in place of a missing instruction.
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
pub(super) struct Linked<I> {
    address: u64,
    behind: u64,
    pub(super) instruction: I,
    pub(super) flow: Flow,
    /// The index of the instruction behind it.
    pub(super) next: usize,
    /// The index of its target.
    pub(super) target: usize,
    record: Record,
}

/// The record of all runs on one instruction.
#[derive(Debug, Clone, Copy, Default)]
struct Record {
    executed: bool,
    /// For conditional branches: both ways, and whether a condition ever depended on more than the alignment of the
    /// arguments.
    taken: bool,
    not_taken: bool,
    of_more: bool,
}

/// A function, as far as direct branches and calls reach.
#[derive(Debug)]
pub(super) struct Body<I> {
    pub(super) steps: Vec<Linked<I>>,
}

impl<I> Body<I> {
    /// Follows the flow of control from `start` on. The first instruction has the index 0.
    pub(super) fn read(start: u64, decode: impl Fn(u64) -> Result<Decoded<I>, Unproven>) -> Result<Body<I>, Unproven> {
        let mut steps: Vec<Linked<I>> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        let mut open = vec![start];
        while let Some(mut at) = open.pop() {
            while !places.contains_key(&at) {
                if steps.len() == MOST {
                    return Err(Unproven::Large);
                }
                let Decoded { instruction, flow, behind } = decode(at)?;
                places.insert(at, steps.len());
                let (next, target, record) = (NOWHERE, NOWHERE, Record::default());
                steps.push(Linked { address: at, behind, instruction, flow, next, target, record });
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
        Ok(Body { steps })
    }

    /// Clears the record of what has been executed.
    pub(super) fn forget(&mut self) {
        self.steps.iter_mut().for_each(|step| step.record = Record::default());
    }

    pub(super) fn note(&mut self, index: usize) {
        self.steps[index].record.executed = true;
    }

    pub(super) fn note_way(&mut self, index: usize, taken: bool, of_alignment: bool) {
        let record = &mut self.steps[index].record;
        *(if taken { &mut record.taken } else { &mut record.not_taken }) = true;
        record.of_more |= !of_alignment;
    }

    /// The first instruction that has not been executed, or branch that always went the same way.
    ///
    /// A branch that only tests the alignment of arguments may always go the same way, since all alignments have been
    /// tried: unrolled loops up to an aligned address end like that. Code behind the direction that is never taken is
    /// not required to run.
    pub(super) fn untested(&self) -> Option<u64> {
        let (mut open, mut seen) = (vec![0], vec![false; self.steps.len()]);
        let mut untested: Option<u64> = None;
        while let Some(index) = open.pop() {
            let Some(step) = self.steps.get(index).filter(|_| !std::mem::replace(&mut seen[index], true)) else {
                continue;
            };
            let Record { executed, taken, not_taken, of_more } = step.record;
            let conditional = matches!(step.flow, Flow::Conditional(_));
            let one_way = conditional && taken != not_taken && !of_more;
            if !executed || conditional && !one_way && !(taken && not_taken) {
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
