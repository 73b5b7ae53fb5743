//! Starts and ends of x86_64's functions, by their instructions.

use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::instruction_at;
use crate::image::Image;

/// Whether the bytes before an address end a function: a return, a jump or a trap, and padding after it.
pub(super) fn follows_an_end(image: &Image<'_>, address: u64) -> bool {
    let Some(mut before) = address.checked_sub(40).and_then(|from| image.read(from, 40)) else { return true };
    const PADDING: [u8; 5] = [0x90, 0xcc, 0, 0x66, 0x2e];
    const NOPS: [&[u8]; 5] = [b"\x0f\x1f\x84", b"\x0f\x1f\x80", b"\x0f\x1f\x44", b"\x0f\x1f\x40", b"\x0f\x1f"];
    loop {
        // Checked at every step: the last bytes of a jump forward are zeros, as those of padding may be.
        if before.is_empty() || is_end(before) {
            return true;
        }
        before = match (NOPS.iter().find_map(|nop| before.strip_suffix(*nop)), before) {
            (Some(rest), _) => rest,
            (None, [rest @ .., last]) if PADDING.contains(last) => rest,
            _ => return false,
        };
    }
}

/// Whether these bytes end with an instruction that control does not pass.
fn is_end(bytes: &[u8]) -> bool {
    let byte = |back: usize| bytes.len().checked_sub(back).map(|at| bytes[at]);
    matches!(byte(1), Some(0xc3 | 0xcc | 0xf4))
        || byte(5) == Some(0xe9)
        || byte(2) == Some(0xeb)
        // jmp register
        || (byte(2) == Some(0xff) && byte(1).is_some_and(|last| last & 0xf8 == 0xe0))
        || bytes.ends_with(b"\x0f\x0b")
}

/// Whether an instruction saves one of the caller's registers on the stack. gcc 15 does so without a push, behind the
/// first condition of a function.
fn saves(instruction: &Instruction) -> bool {
    use Register as R;
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op0_kind() == OpKind::Memory
        && instruction.memory_base() == R::RSP
        && instruction.memory_index() == R::None
        && [R::RBX, R::RBP, R::R12, R::R13, R::R14, R::R15].contains(&instruction.op1_register())
}

/// Whether an instruction asks how many vector registers have arguments, as functions with a variable number of
/// arguments do: `test al, al` (System V ABI, 3.5.7).
fn counts_vectors(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Test
        && [instruction.op0_register(), instruction.op1_register()] == [Register::AL; 2]
}

/// Whether the code reads only its arguments before it writes registers (System V ABI, 3.2.3), as a function's first
/// instructions do.
pub(super) fn reads_as_entry(image: &Image<'_>, start: u64) -> bool {
    use Register as R;
    let mut known = vec![R::RSP, R::RDI, R::RSI, R::RDX, R::RCX, R::R8, R::R9, R::RIP];
    let mut factory = InstructionInfoFactory::new();
    let mut address = start;
    for _ in 0..14 {
        let Some(instruction) = instruction_at(image, address) else { return false };
        address = instruction.next_ip();
        if instruction.mnemonic() == Mnemonic::Push || saves(&instruction) || counts_vectors(&instruction) {
            continue;
        }
        let cleared = matches!(
            instruction.mnemonic(),
            Mnemonic::Xor | Mnemonic::Pxor | Mnemonic::Xorps | Mnemonic::Sub | Mnemonic::Vpxor | Mnemonic::Vxorps
        ) && instruction.op0_kind() == OpKind::Register
            && (1..instruction.op_count()).all(|op| {
                instruction.op_kind(op) == OpKind::Register && instruction.op_register(op) == instruction.op_register(1)
            })
            && instruction.op_register(1) == instruction.op_register(instruction.op_count() - 1);
        let info = factory.info(&instruction);
        let general = |register: Register| register.full_register().is_gpr();
        for used in info.used_registers() {
            let register = used.register().full_register();
            let reads = matches!(
                used.access(),
                OpAccess::Read | OpAccess::ReadWrite | OpAccess::CondRead | OpAccess::ReadCondWrite
            );
            if general(register) && reads && !cleared && !known.contains(&register) {
                return false;
            }
        }
        for used in info.used_registers() {
            let register = used.register().full_register();
            if general(register)
                && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
            {
                known.push(register);
            }
        }
        if matches!(instruction.mnemonic(), Mnemonic::Ret | Mnemonic::Jmp | Mnemonic::Call | Mnemonic::Hlt) {
            return true;
        }
    }
    true
}
