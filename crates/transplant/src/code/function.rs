//! One function: its instructions, found by following the flow of control from its start.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::Code;

/// A function as far as direct branches lead.
#[derive(Debug, Clone)]
pub(crate) struct Function {
    pub(crate) start: u64,
    pub(crate) instructions: BTreeMap<u64, Instruction>,
    /// Direct calls: site and target.
    pub(crate) calls: Vec<(u64, u64)>,
    /// Jumps that leave it: site and target.
    pub(crate) tails: Vec<(u64, u64)>,
    /// Addresses that it takes or reads or writes.
    pub(crate) refers: BTreeSet<u64>,
}

/// More than any function of the family has.
const MOST_INSTRUCTIONS: usize = 1500;
/// Jumps farther than this leave the function.
const SPAN: u64 = 6000;

impl Function {
    /// Follows the flow of control; nothing if it runs into what is no code, or does not end.
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
                function.note_references(&instruction, code.image.position_independent);
                let next = instruction.next_ip();
                match instruction.flow_control() {
                    FlowControl::Call if instruction.op0_kind() == OpKind::NearBranch64 => {
                        function.calls.push((at, instruction.near_branch_target()));
                    }
                    FlowControl::UnconditionalBranch => {
                        let target = instruction.near_branch_target();
                        if function.leaves(code, target) {
                            function.tails.push((at, target));
                            break;
                        }
                        at = target;
                        continue;
                    }
                    FlowControl::ConditionalBranch => {
                        let target = instruction.near_branch_target();
                        if function.leaves(code, target) {
                            function.tails.push((at, target));
                        } else {
                            open.push(target);
                        }
                    }
                    FlowControl::Return | FlowControl::IndirectBranch => break,
                    // musl's a_crash is a `hlt` that the compiler takes to return; what it knows not to return is `ud2`.
                    _ if matches!(instruction.mnemonic(), Mnemonic::Ud2 | Mnemonic::Int3) => break,
                    _ => {}
                }
                at = next;
            }
        }
        Some(function)
    }

    /// Another function's start, or too far to be a part of this one.
    fn leaves(&self, code: &Code<'_>, target: u64) -> bool {
        target != self.start && (code.is_start(target) || target.abs_diff(self.start) > SPAN)
    }

    fn note_references(&mut self, instruction: &Instruction, position_independent: bool) {
        if let Some(target) = memory_target(instruction)
            && (instruction.is_ip_rel_memory_operand() || !position_independent)
        {
            self.refers.insert(target);
        }
        for op in (0..instruction.op_count()).filter(|_| !position_independent) {
            if is_immediate(instruction.op_kind(op)) && instruction.mnemonic() == Mnemonic::Mov {
                let value = instruction.immediate(op);
                if value > 0x1_0000 {
                    self.refers.insert(value);
                }
            }
        }
    }

    /// Whether the byte at an address is part of an instruction of this function.
    pub(crate) fn covers(&self, address: u64) -> bool {
        self.instruction_over(address).is_some()
    }

    /// The instruction that the byte at an address is part of.
    pub(crate) fn instruction_over(&self, address: u64) -> Option<&Instruction> {
        let (_, instruction) = self.instructions.range(..=address).next_back()?;
        (address < instruction.next_ip()).then_some(instruction)
    }

    /// Behind its last instruction.
    pub(crate) fn end(&self) -> u64 {
        self.instructions.values().map(Instruction::next_ip).max().unwrap_or(self.start)
    }

    pub(crate) fn refers_into(&self, range: Range<u64>) -> bool {
        self.refers.range(range).next().is_some()
    }

    /// Functions that it calls or jumps to.
    pub(crate) fn leads_to(&self) -> impl Iterator<Item = u64> + '_ {
        self.calls.iter().chain(&self.tails).map(|(_, target)| *target)
    }

    /// Whether its instructions from the start on, without a gap, take so many bytes.
    pub(crate) fn has_room(&self, from: u64, bytes: u64) -> bool {
        let mut at = from;
        while at < from + bytes {
            match self.instructions.get(&at) {
                Some(instruction) => at = instruction.next_ip(),
                None => return false,
            }
        }
        true
    }
}

/// The address that a memory operand names by distance, or by itself with or without an index.
fn memory_target(instruction: &Instruction) -> Option<u64> {
    let has_memory = (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory);
    if !has_memory {
        return None;
    }
    if instruction.is_ip_rel_memory_operand() {
        return Some(instruction.ip_rel_memory_address());
    }
    let displacement = instruction.memory_displacement64();
    let segment = instruction.segment_prefix();
    (displacement > 0x1000 && (displacement as i64) > 0 && segment == Register::None).then_some(displacement)
}

pub(crate) fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate8to16
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate32to64
            | OpKind::Immediate64
    )
}
