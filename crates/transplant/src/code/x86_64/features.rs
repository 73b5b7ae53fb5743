//! Features of x86_64's code.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::super::{Feature, Features, Function};
use super::all;
use crate::image::Image;

pub(super) fn find(image: &Image<'_>, function: &Function) -> Features {
    let mut features = Features::default();
    for instruction in all(image, function) {
        note_memory(&mut features, &instruction);
        note_numbers(&mut features, &instruction);
    }
    features
}

fn note_memory(features: &mut Features, instruction: &Instruction) {
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
        features.stores += 1;
    }
    if matches!(base, Register::None | Register::RIP | Register::EIP | Register::RSP) {
        return;
    }
    let displacement = instruction.memory_displacement64() as i64;
    let freed = || instruction.try_immediate(1).is_ok_and(|value| value & 0xff == 0xff);
    let feature = match (instruction.memory_size().size(), displacement, mnemonic) {
        (1, -3, Mnemonic::Movzx | Mnemonic::Cmp | Mnemonic::Test) => Feature::ReadsIndexByte,
        (1, -3, Mnemonic::Mov | Mnemonic::And) if !first => Feature::ReadsIndexByte,
        (2, -2, Mnemonic::Movzx | Mnemonic::Mov) if !first => Feature::ReadsOffset,
        (1, -3, Mnemonic::Mov) if freed() => Feature::WritesFreed,
        _ => return,
    };
    features.set.insert(feature);
}

fn note_numbers(features: &mut Features, instruction: &Instruction) {
    let mnemonic = instruction.mnemonic();
    let value = instruction.op_count().checked_sub(1).and_then(|last| instruction.try_immediate(last).ok());
    let feature = match (mnemonic, value) {
        (Mnemonic::Cmp | Mnemonic::Mov, Some(0x1ffeb | 0x1ffec)) => Feature::Threshold,
        (Mnemonic::Cmp, Some(0x2f | 0x30)) => Feature::CountsClasses,
        (Mnemonic::Cmp, Some(4..=6)) => Feature::Reserved,
        (Mnemonic::Cmp, Some(value)) if matches!(value & 0xff, 0x9f | 0xa0 | 0xbf | 0xc0) && is_byte_sized(value) => {
            Feature::Reserved
        }
        (Mnemonic::Test, Some(0xf)) => Feature::TestsAlignment,
        (Mnemonic::Shr, Some(35)) | (_, Some(0x7_ffff_ffff)) => Feature::GreatestAlignment,
        (Mnemonic::Syscall, _) => Feature::SystemCall,
        (Mnemonic::Mul | Mnemonic::Mulx | Mnemonic::Imul | Mnemonic::Div, _) => Feature::Multiplies,
        _ => return,
    };
    features.set.insert(feature);
}

/// Whether the value is a byte, or a byte with its sign extended.
fn is_byte_sized(value: u64) -> bool {
    value <= 0xff || value >= 0xffff_ff00
}
