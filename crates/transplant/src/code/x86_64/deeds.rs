//! Features of x86_64's code.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::super::{Deed, Deeds, Function};
use super::all;
use crate::image::Image;

pub(super) fn of(image: &Image<'_>, function: &Function) -> Deeds {
    let mut deeds = Deeds::default();
    for instruction in all(image, function) {
        note_memory(&mut deeds, &instruction);
        note_numbers(&mut deeds, &instruction);
    }
    deeds
}

fn note_memory(deeds: &mut Deeds, instruction: &Instruction) {
    let mnemonic = instruction.mnemonic();
    let first = instruction.op0_kind() == OpKind::Memory;
    let any = (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory);
    if !any {
        return;
    }
    let base = instruction.memory_base();
    use Mnemonic as M;
    let writes =
        matches!(mnemonic, M::Mov | M::Add | M::Sub | M::Or | M::And | M::Xor | M::Inc | M::Dec | M::Xchg | M::Cmpxchg);
    if first && writes && !matches!(base, Register::RSP | Register::RBP) {
        deeds.stores += 1;
    }
    if matches!(base, Register::None | Register::RIP | Register::EIP | Register::RSP) {
        return;
    }
    let displacement = instruction.memory_displacement64() as i64;
    let freed = || instruction.try_immediate(1).is_ok_and(|value| value & 0xff == 0xff);
    let deed = match (instruction.memory_size().size(), displacement, mnemonic) {
        (1, -3, Mnemonic::Movzx | Mnemonic::Cmp | Mnemonic::Test) => Deed::ReadsIndexByte,
        (1, -3, Mnemonic::Mov | Mnemonic::And) if !first => Deed::ReadsIndexByte,
        (2, -2, Mnemonic::Movzx | Mnemonic::Mov) if !first => Deed::ReadsOffset,
        (1, -3, Mnemonic::Mov) if freed() => Deed::WritesFreed,
        _ => return,
    };
    deeds.set.insert(deed);
}

fn note_numbers(deeds: &mut Deeds, instruction: &Instruction) {
    let mnemonic = instruction.mnemonic();
    let value = instruction.op_count().checked_sub(1).and_then(|last| instruction.try_immediate(last).ok());
    let deed = match (mnemonic, value) {
        (Mnemonic::Cmp | Mnemonic::Mov, Some(0x1ffeb | 0x1ffec)) => Deed::Threshold,
        (Mnemonic::Cmp, Some(0x2f | 0x30)) => Deed::CountsClasses,
        (Mnemonic::Cmp, Some(4..=6)) => Deed::Reserved,
        (Mnemonic::Cmp, Some(value)) if matches!(value & 0xff, 0x9f | 0xa0 | 0xbf | 0xc0) && is_byte_sized(value) => {
            Deed::Reserved
        }
        (Mnemonic::Test, Some(0xf)) => Deed::TestsAlignment,
        (Mnemonic::Shr, Some(35)) | (_, Some(0x7_ffff_ffff)) => Deed::GreatestAlignment,
        (Mnemonic::Syscall, _) => Deed::SystemCall,
        (Mnemonic::Mul | Mnemonic::Mulx | Mnemonic::Imul | Mnemonic::Div, _) => Deed::Multiplies,
        _ => return,
    };
    deeds.set.insert(deed);
}

/// Whether the value is a byte, or a byte with its sign extended.
fn is_byte_sized(value: u64) -> bool {
    value <= 0xff || value >= 0xffff_ff00
}
