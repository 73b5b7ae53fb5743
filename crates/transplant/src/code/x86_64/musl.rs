//! Recognises x86_64's musl, as far as the graft needs it: errno, fork, the end of threads, the start.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Code as Opcode, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::super::{Code, Edit, Function, MainCall, Musl};
use super::{X86_64, all, definition, instruction_at, keys, references};
use crate::image::{Image, u64_at};

const ENOMEM: u64 = 12;

/// The register of `mov dword [register + n], ENOMEM`.
fn stores_no_memory(instruction: &Instruction) -> Option<Register> {
    let stores = instruction.code() == Opcode::Mov_rm32_imm32
        && instruction.op0_kind() == OpKind::Memory
        && instruction.memory_index() == Register::None
        && instruction.immediate(1) == ENOMEM;
    stores.then(|| instruction.memory_base()).filter(|base| base.is_gpr64())
}

/// The place of such a store from the thread pointer, by the instruction that set its register.
fn errno_of(code: &Code<'_>, before: &[Instruction], base: Register, displacement: i64) -> Option<i64> {
    for instruction in before.iter().rev().take(6) {
        if instruction.flow_control() == FlowControl::Call {
            let called = instruction.op0_kind() == OpKind::NearBranch64 && base == Register::RAX && displacement == 0;
            return if called { X86_64.errno_location(code, instruction.near_branch_target()) } else { None };
        }
        if instruction.op0_register() == base && instruction.op0_kind() == OpKind::Register {
            return loads_thread_pointer(instruction).then_some(displacement);
        }
    }
    None
}

/// `mov register, fs:0`
pub(super) fn loads_thread_pointer(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op1_kind() == OpKind::Memory
        && instruction.segment_prefix() == Register::FS
        && instruction.memory_base() == Register::None
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == 0
}

pub(super) fn near_argument(code: &Code<'_>, site: u64, index: u32) -> Vec<u64> {
    const BEFORE: usize = 96;
    // mov edi, n; mov edx, n. Behind a prefix (REX.B) the same bytes name other registers.
    let load = if index == 0 { 0xbf } else { 0xba };
    let before = |(start, bytes): (u64, &'_ [u8])| {
        let end = usize::try_from(site.checked_sub(start)?).ok()?;
        bytes.get(end.saturating_sub(BEFORE)..end).map(<[u8]>::to_vec)
    };
    let bytes = code.image.executable().find_map(before).unwrap_or_default();
    let loads = bytes.windows(6).filter(|six| six[0] & 0xf9 != 0x41 && six[1] == load);
    loads.map(|six| u64::from(u32::from_le_bytes([six[2], six[3], six[4], six[5]]))).collect()
}

const SYSTEM_CALL: &[u8] = b"\x0f\x05";

/// The first system call behind each of these instructions, which load a number, if it is near.
fn system_calls(code: &Code<'_>, loads: &[&[u8]]) -> Vec<u64> {
    let near = |at: u64| {
        let bytes = code.image.bytes_from(at);
        let bytes = &bytes[..bytes.len().min(48)];
        memchr::memmem::find(bytes, SYSTEM_CALL).map(|distance| at + distance as u64)
    };
    loads.iter().flat_map(|load| code.places(load)).filter_map(near).collect()
}

/// All system calls within some hundred bytes behind these instructions, in order. Most are others.
fn system_calls_behind(code: &Code<'_>, loads: &[&[u8]]) -> Vec<u64> {
    const FAR: usize = 512;
    let mut found = BTreeSet::new();
    // A program has few system calls, and many of the loads.
    for (address, bytes) in code.image.executable() {
        for at in memchr::memmem::find_iter(bytes, SYSTEM_CALL) {
            let from = (at + SYSTEM_CALL.len()).saturating_sub(FAR);
            let is_before = |load: &&[u8]| {
                let near = &bytes[from..bytes.len().min(at + load.len())];
                memchr::memmem::find(near, load).is_some()
            };
            if loads.iter().any(is_before) {
                found.insert(address + at as u64);
            }
        }
    }
    found.into_iter().collect()
}

/// `mov eax, 11; syscall; xor rdi, rdi; mov eax, 60; syscall`
const UNMAP_SELF: &[u8] = b"\xb8\x0b\0\0\0\x0f\x05\x48\x31\xff\xb8\x3c\0\0\0\x0f\x05";

/// The function whose address an instruction loads into a register, and the edit of the operand.
fn function_loaded(code: &Code<'_>, instruction: &Instruction) -> Option<(u64, Edit)> {
    const MAIN: &str = "transplant_main";
    let (field, next) = (instruction.next_ip() - 4, Some(instruction.next_ip()));
    let (address, from, to) = match instruction.code() {
        Opcode::Lea_r64_m if instruction.is_ip_rel_memory_operand() => {
            (instruction.ip_rel_memory_address(), next, MAIN)
        }
        Opcode::Mov_r32_imm32 | Opcode::Mov_rm64_imm32 if !code.image.position_independent => {
            (instruction.immediate(1), None, MAIN)
        }
        // Loaded from the global offset table, unless a linker has relaxed it to one of the others.
        Opcode::Mov_r64_rm64 if instruction.is_ip_rel_memory_operand() => {
            let slot = instruction.ip_rel_memory_address();
            let value = match code.image.position_independent {
                true => code.relocations.value_at(slot)?,
                false => u64_at(code.image.read(slot, 8)?, 0)?,
            };
            (value, next, "transplant_main_slot")
        }
        _ => return None,
    };
    (instruction.op0_kind() == OpKind::Register && code.image.is_executable(address))
        .then_some((address, Edit::Operand { field, from, to }))
}

impl Musl for X86_64 {
    fn resets_lock(&self, code: &Code<'_>, function: &Function, lock: u64) -> bool {
        let writes_zero = |instruction: &Instruction| {
            let to_lock = instruction.op0_kind() == OpKind::Memory && references::refers_to(code, instruction, lock);
            let zero = match instruction.op_count() {
                2 if instruction.op1_kind() == OpKind::Register => {
                    // At -Os: a register that the previous instruction has set to 0.
                    let before = function.instructions.range(..instruction.ip()).next_back();
                    before.and_then(|(address, _)| instruction_at(code.image, *address)).is_some_and(|before| {
                        before.mnemonic() == Mnemonic::Xor
                            && before.next_ip() == instruction.ip()
                            && [before.op0_register(), before.op1_register()] == [instruction.op1_register(); 2]
                    })
                }
                2 => {
                    matches!(instruction.op1_kind(), OpKind::Immediate32 | OpKind::Immediate8)
                        && instruction.immediate(1) == 0
                }
                _ => false,
            };
            instruction.mnemonic() == Mnemonic::Mov && to_lock && zero
        };
        let asks_who = |instruction: &Instruction| {
            let argument =
                |op: u32| instruction.op_kind(op) == OpKind::Register && instruction.op_register(op) == Register::EDI;
            match instruction.mnemonic() {
                Mnemonic::Test => argument(0) && argument(1),
                Mnemonic::Cmp => {
                    argument(0)
                        && matches!(instruction.op1_kind(), OpKind::Immediate8to32)
                        && instruction.immediate(1) == 0
                }
                _ => false,
            }
        };
        all(code.image, function).any(|instruction| writes_zero(&instruction))
            && all(code.image, function).take(6).any(|instruction| asks_who(&instruction))
    }

    fn no_memory_stores(&self, code: &Code<'_>, function: &Function) -> BTreeSet<i64> {
        let instructions: Vec<Instruction> = all(code.image, function).collect();
        let mut found = BTreeSet::new();
        for (at, instruction) in instructions.iter().enumerate() {
            if let Some(base) = stores_no_memory(instruction) {
                found.extend(errno_of(code, &instructions[..at], base, instruction.memory_displacement64() as i64));
            }
        }
        found
    }

    /// The number that `__errno_location` adds to the thread pointer; `None` if the function is not exactly that.
    fn errno_location(&self, code: &Code<'_>, start: u64) -> Option<i64> {
        let (mut address, mut loaded, mut offset) = (code.behind_landing_pad(start), false, None);
        for _ in 0..8 {
            let instruction = instruction_at(code.image, address)?;
            address = instruction.next_ip();
            let to_rax = instruction.op0_register() == Register::RAX;
            match instruction.mnemonic() {
                Mnemonic::Push | Mnemonic::Pop => {}
                Mnemonic::Mov if instruction.op0_register() == Register::RBP => {}
                Mnemonic::Mov if to_rax && !loaded && loads_thread_pointer(&instruction) => loaded = true,
                Mnemonic::Add if to_rax && loaded && offset.is_none() && instruction.op1_kind() != OpKind::Register => {
                    offset = Some(instruction.immediate(1) as i64);
                }
                Mnemonic::Lea if to_rax && loaded && offset.is_none() && instruction.memory_base() == Register::RAX => {
                    offset = Some(instruction.memory_displacement64() as i64);
                }
                Mnemonic::Ret if loaded => return offset,
                _ => return None,
            }
        }
        None
    }

    /// `struct pthread` begins at the thread pointer.
    fn errno_range(&self) -> Range<i64> {
        8..1024
    }

    fn forks(&self, code: &Code<'_>) -> Vec<u64> {
        // mov eax, 57; push 57, pop rax
        let loads: [&[u8]; 2] = [b"\xb8\x39\0\0\0", b"\x6a\x39\x58"];
        let calls = |at: &u64| {
            let near = code.image.read(*at, 24).unwrap_or_default();
            near.windows(2).any(|two| two == b"\x0f\x05")
        };
        loads.iter().flat_map(|load| code.places(load)).filter(calls).collect()
    }

    fn clones(&self, code: &Code<'_>) -> Vec<u64> {
        // mov eax, 56; push 56, pop rax; and xor eax, eax, mov al, 56 (src/thread/x86_64/clone.s).
        system_calls_behind(code, &[b"\xb8\x38\0\0\0", b"\x6a\x38\x58", b"\x31\xc0\xb0\x38"])
    }

    fn passed_calls(&self, code: &Code<'_>) -> Vec<u64> {
        // mov rax, rdi; mov eax, edi, as gcc and as LLVM write them.
        system_calls_behind(code, &[b"\x48\x89\xf8", b"\x48\x8b\xc7", b"\x89\xf8"])
    }

    fn clone_number(&self) -> u64 {
        56
    }

    fn number_register(&self) -> u32 {
        definition::RAX
    }

    fn ends(&self, code: &Code<'_>) -> Vec<u64> {
        // mov eax, 231; push 231, pop rax.
        system_calls(code, &[b"\xb8\xe7\0\0\0", b"\x68\xe7\0\0\0\x58"])
    }

    fn unmapself_functions(&self, code: &Code<'_>) -> Vec<u64> {
        code.places(UNMAP_SELF)
    }

    fn blocks_signals(&self, code: &Code<'_>, function: &Function) -> bool {
        let mut registers = [None; 3];
        let mut calls = 0;
        for instruction in all(code.image, function) {
            let slot = match instruction.op0_register().full_register() {
                Register::RAX => 0,
                Register::RDI => 1,
                Register::R10 => 2,
                _ => 3,
            };
            let value = match instruction.mnemonic() {
                Mnemonic::Mov if !matches!(instruction.op1_kind(), OpKind::Register | OpKind::Memory) => {
                    instruction.immediate(1)
                }
                Mnemonic::Xor if instruction.op0_register() == instruction.op1_register() => 0,
                Mnemonic::Pop => {
                    let pushed = function.instructions.range(..instruction.ip()).next_back();
                    let pushed = pushed
                        .and_then(|(address, _)| instruction_at(code.image, *address))
                        .filter(|before| before.mnemonic() == Mnemonic::Push && before.op0_kind() != OpKind::Register);
                    let Some(pushed) = pushed else { continue };
                    pushed.immediate(0)
                }
                Mnemonic::Syscall if registers == [Some(14), Some(0), Some(8)] => {
                    calls += 1;
                    continue;
                }
                Mnemonic::Syscall => return false,
                _ => continue,
            };
            if let Some(register) = registers.get_mut(slot) {
                *register = Some(value);
            }
        }
        calls == 1 && function.calls.is_empty() && function.instructions.len() < 24
    }

    fn indirect_jumps(&self, image: &Image<'_>) -> Vec<(u64, u64)> {
        keys::indirect_jumps(image)
    }

    fn key_values(&self, code: &Code<'_>, start: u64) -> Option<i64> {
        keys::values(code, start)
    }

    fn stored_addresses(&self, code: &Code<'_>, function: &Function, offset: i64) -> BTreeSet<u64> {
        keys::stored(code, function, offset)
    }

    fn main_calls(&self, code: &Code<'_>, function: &Function) -> (Vec<MainCall>, Vec<u64>) {
        const ARGUMENTS: [Register; 3] = [Register::RDI, Register::RCX, Register::R8];
        let (mut found, mut taken) = (Vec::new(), Vec::new());
        let mut loaded: [Option<(u64, Edit)>; 3] = [None; 3];
        for instruction in all(code.image, function) {
            let target = function_loaded(code, &instruction);
            taken.extend(target.map(|(address, _)| address));
            let slot = ARGUMENTS.iter().position(|register| instruction.op0_register().full_register() == *register);
            match (slot, instruction.flow_control()) {
                (Some(slot), FlowControl::Next) if instruction.op0_kind() == OpKind::Register => loaded[slot] = target,
                (_, FlowControl::Call | FlowControl::UnconditionalBranch) => {
                    if let ([Some((main, edit)), Some(_), Some(_)], OpKind::NearBranch64) =
                        (loaded, instruction.op0_kind())
                    {
                        found.push(MainCall { main, edit });
                    }
                    loaded = [None; 3];
                }
                _ => {}
            }
        }
        (found, taken)
    }
}
