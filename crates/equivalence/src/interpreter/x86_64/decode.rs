//! The instructions that can be executed, and the module that executes each.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::{Processor, general, repeated, vector};
use crate::interpreter::body::{Decoded, Flow};
use crate::interpreter::processor;
use crate::{Program, Unproven};

/// Executes an instruction.
pub(in crate::interpreter) type Execution = fn(&mut Processor<'_>, &Instruction) -> Result<(), Unproven>;

/// An instruction that can be executed.
#[derive(Debug, Clone, Copy)]
pub(in crate::interpreter) struct X64Instruction {
    pub(super) instruction: Instruction,
    pub(super) execution: Execution,
}

impl processor::Instruction for X64Instruction {
    fn decode(program: &dyn Program, address: u64) -> Result<Decoded<X64Instruction>, Unproven> {
        let bytes = program.code(address);
        let bytes = &bytes[..bytes.len().min(15)];
        let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        let execution =
            execution(&instruction).filter(|_| !instruction.is_invalid()).ok_or(Unproven::Unknown(address))?;
        let flow = flow(&instruction).ok_or(Unproven::Indirect(address))?;
        Ok(Decoded { instruction: X64Instruction { instruction, execution }, flow, behind: instruction.next_ip() })
    }

    fn number(&self) -> Option<u64> {
        let instruction = &self.instruction;
        match instruction.mnemonic() {
            Mnemonic::Cmp | Mnemonic::Sub | Mnemonic::Add | Mnemonic::Test => {
                instruction.try_immediate(1).ok().map(|number| (number as i64).unsigned_abs())
            }
            Mnemonic::Lea => Some((instruction.memory_displacement64() as i64).unsigned_abs()),
            _ => None,
        }
    }

    fn touches_memory(&self) -> bool {
        let instruction = &self.instruction;
        instruction.mnemonic() != Mnemonic::Lea
            && instruction.mnemonic() != Mnemonic::Nop
            && (instruction.is_string_instruction()
                || (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory)
                    && !matches!(instruction.memory_base(), Register::RSP | Register::RIP | Register::None))
    }
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

/// Returns the execution of an instruction; `None` if it cannot be executed. This alone rejects most functions of a
/// program.
fn execution(instruction: &Instruction) -> Option<Execution> {
    let plain = !instruction.has_lock_prefix()
        && matches!(instruction.segment_prefix(), Register::None | Register::DS | Register::CS);
    let writes_fixed = instruction.is_ip_rel_memory_operand()
        && instruction.op0_kind() == OpKind::Memory
        && !matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push);
    match () {
        () if !plain || writes_fixed => None,
        // The flow is its whole effect.
        () if instruction.flow_control() != FlowControl::Next => Some(|_, _| Ok(())),
        // Some SSE2 instructions have these names too.
        () if instruction.is_string_instruction() => {
            // By registers of 64 bits, not by their lower halves.
            let whole = |kind| matches!(kind, OpKind::MemoryESRDI | OpKind::MemorySegRSI | OpKind::Register);
            let known = repeated::knows(instruction.mnemonic()) && instruction.op_kinds().all(whole);
            known.then_some(repeated::execute)
        }
        () => general::execution(instruction).or_else(|| vector::execution(instruction.mnemonic())),
    }
}

/// The error of an instruction that cannot be executed.
pub(super) fn unknown(instruction: &Instruction) -> Unproven {
    Unproven::Unknown(instruction.ip())
}

/// The error of an instruction that uses an unset value.
pub(super) fn unset(instruction: &Instruction) -> Unproven {
    Unproven::Unset(instruction.ip())
}
