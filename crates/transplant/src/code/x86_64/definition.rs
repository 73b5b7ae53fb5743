//! The effect of an x86_64 instruction on the value in a register or on the stack.

use iced_x86::{FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpKind, Register};

use super::super::Code;
use super::super::origin::{Definition, Location};
use super::instruction_at;

/// The registers of a function's arguments, in order (System V ABI, x86-64, 3.2.3), by their numbers in instructions.
pub(super) const ARGUMENTS: [u32; 6] = [7, 6, 2, 1, 8, 9];
pub(super) const RAX: u32 = 0;
const RSP: u32 = 4;
const RBP: u32 = 5;
/// The registers that a function may change: all but rbx, rsp, rbp and r12 to r15.
const SCRATCH: [u32; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];
/// The registers that a system call changes: the result, rcx and r11.
const BY_THE_KERNEL: [u32; 3] = [0, 1, 11];

fn number(register: Register) -> u32 {
    register.full_register().number() as u32
}

/// The general register that is an operand, if it has at least 32 bits.
fn register(instruction: &Instruction, operand: u32) -> Option<u32> {
    let register = instruction.op_register(operand);
    let is_register = instruction.op_kind(operand) == OpKind::Register;
    (is_register && (register.is_gpr32() || register.is_gpr64())).then(|| number(register))
}

/// The place of the instruction's memory operand, if it is a register and a distance.
fn memory(instruction: &Instruction) -> Option<(u32, i64)> {
    let (base, plain) = (instruction.memory_base(), instruction.memory_index() == Register::None);
    let own = !matches!(instruction.segment_prefix(), Register::FS | Register::GS);
    (plain && own && base.is_gpr64()).then(|| (number(base), instruction.memory_displacement64().cast_signed()))
}

fn is_immediate(instruction: &Instruction, operand: u32) -> bool {
    !matches!(instruction.op_kind(operand), OpKind::Register | OpKind::Memory)
}

/// The value of an operand that is read.
fn read(instruction: &Instruction, operand: u32) -> Definition {
    match instruction.op_kind(operand) {
        OpKind::Register => match register(instruction, operand) {
            Some(register) => Definition::copy(Location::Register(register)),
            None => Definition::Unknown,
        },
        OpKind::Memory => match memory(instruction) {
            Some((base, distance)) => Definition::copy(Location::Memory(base, distance)),
            None => Definition::Unknown,
        },
        _ => Definition::Number(instruction.immediate(operand)),
    }
}

pub(super) fn define(code: &Code<'_>, address: u64, location: Location) -> Definition {
    let Some(instruction) = instruction_at(code.image, address) else { return Definition::Unknown };
    match location {
        Location::Register(wanted) => of_register(&instruction, wanted),
        Location::Memory(base, distance) => of_memory(&instruction, base, distance),
    }
}

/// Whether the instruction writes the general register with that number.
fn writes(instruction: &Instruction, wanted: u32) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    info.used_registers().iter().any(|used| {
        use iced_x86::OpAccess::{CondWrite, ReadCondWrite, ReadWrite, Write};
        used.register().is_gpr()
            && number(used.register()) == wanted
            && matches!(used.access(), Write | ReadWrite | CondWrite | ReadCondWrite)
    })
}

/// The distance in bits of the first operand's byte in the general register `wanted`; `None` if the operand is not a
/// byte of it.
fn byte_of(instruction: &Instruction, wanted: u32) -> Option<u32> {
    let byte = instruction.op0_register();
    let high = [Register::AH, Register::CH, Register::DH, Register::BH].iter().position(|high| *high == byte);
    match high {
        _ if instruction.op0_kind() != OpKind::Register || !byte.is_gpr8() => None,
        // They are the second bytes of the registers 0 to 3.
        Some(index) => (index as u32 == wanted).then_some(8),
        None => (number(byte) == wanted).then_some(0),
    }
}

fn of_register(instruction: &Instruction, wanted: u32) -> Definition {
    let same = Definition::Same(Location::Register(wanted));
    let unless = |changed: &[u32]| if changed.contains(&wanted) { Definition::Unknown } else { same.clone() };
    match (instruction.mnemonic(), instruction.flow_control()) {
        (Mnemonic::Syscall, _) => return unless(&BY_THE_KERNEL),
        (_, FlowControl::Call | FlowControl::IndirectCall) => return unless(&SCRATCH),
        _ => {}
    }
    if let Some(shift) = byte_of(instruction, wanted)
        && is_immediate(instruction, 1)
    {
        let value = (instruction.immediate(1) & 0xff) << shift;
        let (and, or) = match instruction.mnemonic() {
            Mnemonic::Mov => (!(0xff << shift), value),
            Mnemonic::Or => (u64::MAX, value),
            Mnemonic::And => (!(0xff << shift) | value, 0),
            _ => (0, 0),
        };
        if (and, or) != (0, 0) {
            return Definition::Copy { from: vec![Location::Register(wanted)], and, or };
        }
    }
    if register(instruction, 0) != Some(wanted) {
        return if writes(instruction, wanted) { Definition::Unknown } else { same };
    }
    let own = Location::Register(wanted);
    let other = || register(instruction, 1).map(Location::Register);
    match instruction.mnemonic() {
        Mnemonic::Mov | Mnemonic::Movsxd => read(instruction, 1),
        Mnemonic::Xor | Mnemonic::Sub if other() == Some(own) => Definition::Number(0),
        Mnemonic::Or if is_immediate(instruction, 1) => {
            Definition::Copy { from: vec![own], and: u64::MAX, or: instruction.immediate(1) }
        }
        Mnemonic::Or => Definition::Merge([Some(own), other()].into_iter().flatten().collect()),
        Mnemonic::And if is_immediate(instruction, 1) => {
            Definition::Copy { from: vec![own], and: instruction.immediate(1), or: 0 }
        }
        Mnemonic::Lea => match memory(instruction) {
            Some((base, 0)) => Definition::copy(Location::Register(base)),
            _ => Definition::Unknown,
        },
        Mnemonic::Pop => Definition::copy(Location::Memory(RSP, 0)),
        mnemonic if format!("{mnemonic:?}").starts_with("Cmov") => {
            let from = memory(instruction).map(|(base, distance)| Location::Memory(base, distance));
            match other().or(from) {
                Some(other) => Definition::Copy { from: vec![own, other], and: u64::MAX, or: 0 },
                None => Definition::Unknown,
            }
        }
        // Comparisons only read it.
        _ if !writes(instruction, wanted) => same,
        _ => Definition::Unknown,
    }
}

/// The value that is in memory after the instruction at a distance from the value that `base` has then.
fn of_memory(instruction: &Instruction, base: u32, distance: i64) -> Definition {
    let before = |base: u32, distance: i64| Definition::Same(Location::Memory(base, distance));
    let constant = || instruction.immediate(1).cast_signed();
    match instruction.mnemonic() {
        Mnemonic::Push if base == RSP => {
            return if distance == 0 { read(instruction, 0) } else { before(RSP, distance - 8) };
        }
        Mnemonic::Pop if base == RSP && register(instruction, 0) != Some(RSP) => return before(RSP, distance + 8),
        // rsp becomes rbp + 8.
        Mnemonic::Leave if base == RSP => return before(RBP, distance + 8),
        Mnemonic::Syscall if base == RAX => return Definition::Unknown,
        _ => {}
    }
    if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
        return if SCRATCH.contains(&base) { Definition::Unknown } else { before(base, distance) };
    }
    if register(instruction, 0) == Some(base) && writes(instruction, base) {
        return match (instruction.mnemonic(), memory(instruction)) {
            (Mnemonic::Mov, _) if register(instruction, 1).is_some() => {
                register(instruction, 1).map_or(Definition::Unknown, |from| before(from, distance))
            }
            (Mnemonic::Lea, Some((from, by))) => before(from, distance.wrapping_add(by)),
            (Mnemonic::Add, _) if is_immediate(instruction, 1) => before(base, distance.wrapping_add(constant())),
            (Mnemonic::Sub, _) if is_immediate(instruction, 1) => before(base, distance.wrapping_sub(constant())),
            _ => Definition::Unknown,
        };
    }
    if writes(instruction, base) {
        return Definition::Unknown;
    }
    if instruction.op0_kind() != OpKind::Memory || memory(instruction) != Some((base, distance)) {
        return before(base, distance);
    }
    let own = Location::Memory(base, distance);
    match instruction.mnemonic() {
        Mnemonic::Mov if instruction.memory_size().size() >= 4 => read(instruction, 1),
        Mnemonic::Or if is_immediate(instruction, 1) => {
            Definition::Copy { from: vec![own], and: u64::MAX, or: instruction.immediate(1) }
        }
        Mnemonic::And if is_immediate(instruction, 1) => {
            Definition::Copy { from: vec![own], and: instruction.immediate(1), or: 0 }
        }
        Mnemonic::Cmp | Mnemonic::Test => before(base, distance),
        _ => Definition::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode;
    use super::*;

    const RDX: u32 = 2;

    fn instruction(bytes: &[u8]) -> Instruction {
        decode(0x1000, bytes).unwrap()
    }

    fn copy(from: &[u32], and: u64, or: u64) -> Definition {
        Definition::Copy { from: from.iter().copied().map(Location::Register).collect(), and, or }
    }

    #[test]
    fn flags_are_put_together_and_passed_on() {
        let defined = |bytes: &[u8], register| of_register(&instruction(bytes), register);
        let same = |register| Definition::Same(Location::Register(register));
        assert_eq!(defined(b"\xba\x11\x07\x08\x80", RDX), Definition::Number(0x8008_0711), "mov edx, 0x80080711");
        assert_eq!(defined(b"\xba\x11\x07\x08\0", RAX), same(RAX));
        assert_eq!(defined(b"\x81\xca\0\x01\0\0", RDX), copy(&[RDX], u64::MAX, 0x100), "or edx, 0x100");
        assert_eq!(defined(b"\x80\xce\x01", RDX), copy(&[RDX], u64::MAX, 0x100), "or dh, 1");
        assert_eq!(defined(b"\xb0\x38", RAX), copy(&[RAX], !0xff, 0x38), "mov al, 56");
        assert_eq!(defined(b"\x0f\x44\xd0", RDX), copy(&[RDX, RAX], u64::MAX, 0), "cmove edx, eax");
        assert_eq!(defined(b"\x31\xd2", RDX), Definition::Number(0), "xor edx, edx");
        assert_eq!(defined(b"\x85\xd2", RDX), same(RDX), "test edx, edx");
        assert_eq!(defined(b"\x0f\x05", RDX), same(RDX), "syscall");
        assert_eq!(defined(b"\xe8\0\0\0\0", RDX), Definition::Unknown, "call");
        assert_eq!(defined(b"\x01\xc2", RDX), Definition::Unknown, "add edx, eax");
        assert_eq!(defined(b"\xf7\xe1", RDX), Definition::Unknown, "mul ecx");
        assert_eq!(defined(b"\x5a", RDX), Definition::copy(Location::Memory(RSP, 0)), "pop rdx");
    }

    #[test]
    fn the_stack_is_followed() {
        let defined = |bytes: &[u8], base, distance| of_memory(&instruction(bytes), base, distance);
        let same = |base, distance| Definition::Same(Location::Memory(base, distance));
        assert_eq!(defined(b"\x89\x55\xec", RBP, -20), copy(&[RDX], u64::MAX, 0), "mov [rbp - 20], edx");
        assert_eq!(defined(b"\x89\x55\xec", RBP, -16), same(RBP, -16), "mov [rbp - 20], edx");
        assert_eq!(defined(b"\x48\x83\xec\x58", RSP, 0x28), same(RSP, -0x30), "sub rsp, 0x58");
        assert_eq!(defined(b"\x6a\x38", RSP, 0), Definition::Number(56), "push 56");
        assert_eq!(defined(b"\x6a\x38", RSP, 8), same(RSP, 0), "push 56");
        assert_eq!(defined(b"\x48\x8d\x54\x24\x20", RDX, 8), same(RSP, 0x28), "lea rdx, [rsp + 0x20]");
        assert_eq!(defined(b"\x48\x89\xe5", RBP, -20), same(RSP, -20), "mov rbp, rsp");
    }
}
