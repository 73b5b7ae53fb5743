//! The instructions that can be executed, and the module that executes each.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::{general, repeated, vector};
use crate::Program;
use crate::interpreter::Stop;
use crate::interpreter::body::{Decoded, Flow};

/// Whether an operand of an x86_64 instruction is an immediate.
pub fn is_immediate(kind: OpKind) -> bool {
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

/// The module that executes an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::interpreter) enum Unit {
    General,
    Repeated,
    Vector,
}

/// An instruction that can be executed.
#[derive(Debug, Clone, Copy)]
pub(in crate::interpreter) struct Step {
    pub(super) instruction: Instruction,
    pub(super) unit: Unit,
}

pub(super) fn decode(program: &dyn Program, address: u64) -> Result<Decoded<Step>, Stop> {
    let bytes = program.code(address);
    let bytes = &bytes[..bytes.len().min(15)];
    let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    let unit = unit(&instruction).filter(|_| !instruction.is_invalid());
    let unit = unit.ok_or(Stop::Unknown { address })?;
    let flow = flow(&instruction).ok_or(Stop::Indirect { address })?;
    Ok(Decoded { instruction: Step { instruction, unit }, flow, behind: instruction.next_ip() })
}

pub(super) fn number(instruction: &Instruction) -> Option<u64> {
    let last = instruction.op_count().saturating_sub(1);
    match instruction.mnemonic() {
        Mnemonic::Cmp | Mnemonic::Sub | Mnemonic::Add | Mnemonic::Test
            if last == 1 && is_immediate(instruction.op_kind(last)) =>
        {
            Some((instruction.immediate(last) as i64).unsigned_abs())
        }
        Mnemonic::Lea => Some((instruction.memory_displacement64() as i64).unsigned_abs()),
        _ => None,
    }
}

pub(super) fn touches_memory(instruction: &Instruction) -> bool {
    instruction.mnemonic() != Mnemonic::Lea
        && instruction.mnemonic() != Mnemonic::Nop
        && (instruction.is_string_instruction()
            || (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory)
                && !matches!(instruction.memory_base(), Register::RSP | Register::RIP | Register::None))
}

/// `None` for an indirect branch.
fn flow(instruction: &Instruction) -> Option<Flow> {
    let direct = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::NearBranch64;
    match instruction.flow_control() {
        FlowControl::Next => Some(Flow::Next),
        FlowControl::Return if instruction.op_count() == 0 => Some(Flow::Return),
        FlowControl::UnconditionalBranch if direct => Some(Flow::Jump(instruction.near_branch_target())),
        FlowControl::ConditionalBranch if direct => Some(Flow::Conditional(instruction.near_branch_target())),
        FlowControl::Call if direct => Some(Flow::Call(instruction.near_branch_target())),
        _ => None,
    }
}

/// The unit that executes an instruction; `None` if there is none. This alone rejects most functions of a program.
fn unit(instruction: &Instruction) -> Option<Unit> {
    let mnemonic = instruction.mnemonic();
    let plain = !instruction.has_lock_prefix()
        && matches!(instruction.segment_prefix(), Register::None | Register::DS | Register::CS);
    let writes_fixed = instruction.is_ip_rel_memory_operand()
        && instruction.op0_kind() == OpKind::Memory
        && !matches!(mnemonic, Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push);
    match () {
        () if !plain || writes_fixed => None,
        // The flow is its whole effect.
        () if instruction.flow_control() != FlowControl::Next => Some(Unit::General),
        // Some names are also those of SSE2 instructions.
        () if instruction.is_string_instruction() => {
            // By registers of 64 bits, not by their lower halves.
            let whole = |kind| matches!(kind, OpKind::MemoryESRDI | OpKind::MemorySegRSI | OpKind::Register);
            let known = repeated::knows(mnemonic) && instruction.op_kinds().all(whole);
            known.then_some(Unit::Repeated)
        }
        () if general::knows(mnemonic) => Some(Unit::General),
        () => vector::knows(mnemonic).then_some(Unit::Vector),
    }
}
