//! A function's instructions, decoded once, and which of them have been executed.

use std::collections::HashMap;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::Stop;
use crate::code::is_immediate;
use crate::image::Image;

/// More than any string function has, with what it calls.
const MOST: usize = 400;
/// Where nothing follows.
pub(super) const NOWHERE: usize = usize::MAX;

/// What an instruction does to the flow of control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Jump,
    Conditional,
    Call,
    Return,
}

/// What executes an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    General,
    Repeated,
    Vector,
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) instruction: Instruction,
    pub(super) unit: Unit,
    pub(super) flow: Flow,
    /// The index of the instruction behind it.
    pub(super) next: usize,
    /// The index of the one that it leads to.
    pub(super) target: usize,
}

/// A function as far as direct branches and calls lead.
#[derive(Debug)]
pub(crate) struct Body {
    pub(super) steps: Vec<Step>,
    executed: Vec<bool>,
    /// Of conditional branches: bit 0, it was taken; bit 1, it was not.
    ways: Vec<u8>,
    /// Of conditional branches: whether each time it asked for nothing but how the arguments are aligned.
    of_alignment: Vec<bool>,
}

impl Body {
    /// Follows the flow of control from `start` on. The first instruction has the index 0.
    pub(crate) fn read(image: &Image<'_>, start: u64) -> Result<Body, Stop> {
        let mut steps: Vec<Step> = Vec::new();
        let mut places: HashMap<u64, usize> = HashMap::new();
        let mut open = vec![start];
        while let Some(address) = open.pop() {
            let mut at = address;
            while !places.contains_key(&at) {
                if steps.len() == MOST {
                    return Err(Stop::Large);
                }
                let bytes = image.from(at);
                let bytes = if image.is_executable(at) { &bytes[..bytes.len().min(15)] } else { &[] };
                let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
                let unit = unit(&instruction).filter(|_| !instruction.is_invalid());
                let unit = unit.ok_or(Stop::Unknown { address: at })?;
                let flow = flow(&instruction).ok_or(Stop::Indirect { address: at })?;
                places.insert(at, steps.len());
                steps.push(Step { instruction, unit, flow, next: NOWHERE, target: NOWHERE });
                match flow {
                    Flow::Return => break,
                    Flow::Jump => at = instruction.near_branch_target(),
                    Flow::Conditional | Flow::Call => {
                        open.push(instruction.near_branch_target());
                        at = instruction.next_ip();
                    }
                    Flow::Next => at = instruction.next_ip(),
                }
            }
        }
        for step in &mut steps {
            let place = |address: u64| places.get(&address).copied().unwrap_or(NOWHERE);
            if !matches!(step.flow, Flow::Return | Flow::Jump) {
                step.next = place(step.instruction.next_ip());
            }
            if !matches!(step.flow, Flow::Return | Flow::Next) {
                step.target = place(step.instruction.near_branch_target());
            }
        }
        let count = steps.len();
        Ok(Body { steps, executed: vec![false; count], ways: vec![0; count], of_alignment: vec![true; count] })
    }

    /// Forgets what has been executed.
    pub(crate) fn forget(&mut self) {
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
    /// A branch that asks for the alignment of arguments alone may have one way only, where all alignments have been tried: loops
    /// up to an aligned address that compilers have unrolled end so. What only the other way leads to is left out.
    pub(crate) fn untested(&self) -> Option<u64> {
        let (mut open, mut seen) = (vec![0], vec![false; self.steps.len()]);
        let mut untested: Option<u64> = None;
        while let Some(index) = open.pop() {
            let Some(step) = self.steps.get(index).filter(|_| !std::mem::replace(&mut seen[index], true)) else {
                continue;
            };
            let (taken, not_taken) = (self.ways[index] & 1 != 0, self.ways[index] & 2 != 0);
            let conditional = step.flow == Flow::Conditional;
            let one_way = conditional && taken != not_taken && self.of_alignment[index];
            if !self.executed[index] || conditional && !one_way && !(taken && not_taken) {
                let address = step.instruction.ip();
                untested = Some(untested.map_or(address, |before| before.min(address)));
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

    /// Numbers that its instructions compare with, or subtract: where it may treat longer blocks in another way.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        let mut found: Vec<u64> = Vec::new();
        for Step { instruction, .. } in &self.steps {
            let last = instruction.op_count().saturating_sub(1);
            let compares =
                matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Sub | Mnemonic::Add | Mnemonic::Test);
            if compares && last == 1 && is_immediate(instruction.op_kind(last)) {
                found.push((instruction.immediate(last) as i64).unsigned_abs());
            }
            if instruction.mnemonic() == Mnemonic::Lea {
                found.push((instruction.memory_displacement64() as i64).unsigned_abs());
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Whether it touches memory other than the stack, as every string function does.
    pub(crate) fn touches_memory(&self) -> bool {
        self.steps.iter().any(|Step { instruction, .. }| {
            instruction.mnemonic() != Mnemonic::Lea
                && instruction.mnemonic() != Mnemonic::Nop
                && (instruction.is_string_instruction()
                    || (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory)
                        && !matches!(instruction.memory_base(), Register::RSP | Register::RIP | Register::None))
        })
    }
}

/// Nothing for what leads nobody knows where.
fn flow(instruction: &Instruction) -> Option<Flow> {
    let direct = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
    match instruction.flow_control() {
        FlowControl::Next => Some(Flow::Next),
        FlowControl::Return if instruction.op_count() == 0 => Some(Flow::Return),
        FlowControl::UnconditionalBranch if direct => Some(Flow::Jump),
        FlowControl::ConditionalBranch if direct => Some(Flow::Conditional),
        FlowControl::Call if direct => Some(Flow::Call),
        _ => None,
    }
}

/// What executes an instruction; nothing if none can. Most of a program is told apart by this.
fn unit(instruction: &Instruction) -> Option<Unit> {
    let mnemonic = instruction.mnemonic();
    let plain = !instruction.has_lock_prefix()
        && matches!(instruction.segment_prefix(), Register::None | Register::DS | Register::CS);
    let writes_fixed = instruction.is_ip_rel_memory_operand()
        && instruction.op0_kind() == OpKind::Memory
        && !matches!(mnemonic, Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push);
    match () {
        () if !plain || writes_fixed => None,
        // What it does is in its flow.
        () if instruction.flow_control() != FlowControl::Next => Some(Unit::General),
        // Some names are those of instructions of SSE2, too.
        () if instruction.is_string_instruction() => {
            // By registers of 64 bits, and not by their lower halves.
            let whole = |kind| matches!(kind, OpKind::MemoryESRDI | OpKind::MemorySegRSI | OpKind::Register);
            let known = super::repeated::knows(mnemonic) && instruction.op_kinds().all(whole);
            known.then_some(Unit::Repeated)
        }
        () if super::general::knows(mnemonic) => Some(Unit::General),
        () => super::vector::knows(mnemonic).then_some(Unit::Vector),
    }
}
