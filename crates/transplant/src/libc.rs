//! What the graft needs of the rest of musl: where errno is, whether the program forks, where its threads end.

use std::collections::BTreeSet;

use iced_x86::{Code as Opcode, FlowControl, Instruction, Mnemonic, OpKind, Register};

use crate::code::{Code, Function};
use crate::family::{Family, Role};
use crate::image::u64_at;
use crate::layout::Operand;
use crate::refusal::Refusal;

const ENOMEM: u64 = 12;

/// The distance of errno from the thread pointer. The family stores ENOMEM there when there is no memory: through
/// `__errno_location`, or where a compiler has put that in line, by itself. All such stores have to agree.
pub(crate) fn errno_offset(code: &Code<'_>, family: &Family) -> Result<i64, Refusal> {
    let mut found = BTreeSet::new();
    for function in family.functions.values() {
        let instructions: Vec<&Instruction> = function.instructions.values().collect();
        for (at, instruction) in instructions.iter().enumerate() {
            if let Some(base) = stores_no_memory(instruction) {
                found.extend(errno_of(code, &instructions[..at], base, instruction.memory_displacement64() as i64));
            }
        }
    }
    for name in [b"__errno_location".as_slice(), b"___errno_location"] {
        found.extend(code.named(name).into_iter().filter_map(|start| location(code, start)));
    }
    match found.iter().copied().collect::<Vec<_>>().as_slice() {
        // Inside struct pthread, which begins at the thread pointer (src/internal/pthread_impl.h).
        [offset] if (8..1024).contains(offset) => Ok(*offset),
        other => Err(Refusal::Errno { found: other.len() }),
    }
}

/// The register of `mov dword [register + n], ENOMEM`.
fn stores_no_memory(instruction: &Instruction) -> Option<Register> {
    let stores = instruction.code() == Opcode::Mov_rm32_imm32
        && instruction.op0_kind() == OpKind::Memory
        && instruction.memory_index() == Register::None
        && instruction.immediate(1) == ENOMEM;
    stores.then(|| instruction.memory_base()).filter(|base| base.is_gpr64())
}

/// Where such a store leads, by what set its register.
fn errno_of(code: &Code<'_>, before: &[&Instruction], base: Register, displacement: i64) -> Option<i64> {
    for instruction in before.iter().rev().take(6) {
        if instruction.flow_control() == FlowControl::Call {
            let called = instruction.op0_kind() == OpKind::NearBranch64 && base == Register::RAX && displacement == 0;
            return if called { location(code, instruction.near_branch_target()) } else { None };
        }
        if instruction.op0_register() == base && instruction.op0_kind() == OpKind::Register {
            return loads_thread_pointer(instruction).then_some(displacement);
        }
    }
    None
}

/// `mov register, fs:0`
fn loads_thread_pointer(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op1_kind() == OpKind::Memory
        && instruction.segment_prefix() == Register::FS
        && instruction.memory_base() == Register::None
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == 0
}

/// What `__errno_location` adds to the thread pointer, if the function is that and does nothing else.
fn location(code: &Code<'_>, start: u64) -> Option<i64> {
    let (mut at, mut loaded, mut offset) = (code.behind_landing_pad(start), false, None);
    for _ in 0..8 {
        let instruction = code.instruction(at)?;
        at = instruction.next_ip();
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

/// A program that forks has to tell the allocator, or a child may wait forever for a lock that a thread held. Programs into
/// which fork is not linked have no such system call (src/process/_Fork.c).
pub(crate) fn check_fork(code: &Code<'_>, family: &Family) -> Result<(), Refusal> {
    if family.core.contains_key(&Role::ForkHook) {
        return Ok(());
    }
    // mov eax, 57; push 57, pop rax
    let loads: [&[u8]; 2] = [b"\xb8\x39\0\0\0", b"\x6a\x39\x58"];
    let forks = loads.iter().flat_map(|load| code.places(load)).any(|at| {
        let near = code.image.read(at, 24).unwrap_or_default();
        near.windows(2).any(|two| two == b"\x0f\x05")
    });
    let named = [b"fork".as_slice(), b"_Fork"].iter().any(|name| !code.named(name).is_empty());
    if forks || named { Err(Refusal::ForkHook) } else { Ok(()) }
}

/// The call at the end of a thread that is to be redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadEnd {
    /// The call.
    pub(crate) site: u64,
    /// What it calls: `__pthread_tsd_run_dtors`, or in a program without keys a function that does nothing.
    pub(crate) destructors: u64,
}

/// `__unmapself` (src/thread/x86_64/__unmapself.s), by which a detached thread gives its stack back and ends.
const UNMAP_SELF: &[u8] = b"\xb8\x0b\0\0\0\x0f\x05\x48\x31\xff\xb8\x3c\0\0\0\x0f\x05";

/// Where a thread ends: nothing in a program that cannot start any.
///
/// pthread_exit (src/thread/pthread_create.c) is the function that calls `__unmapself`. It runs the destructors of the
/// thread's keys and then, at once, blocks signals: so the call wanted is the one directly before the call of a function
/// that makes the system call rt_sigprocmask. There has to be exactly one such pair.
pub(crate) fn thread_end(code: &mut Code<'_>) -> Result<Option<ThreadEnd>, Refusal> {
    let missing = |found| Err(Refusal::ThreadEnd { found });
    let unmap = code.places(UNMAP_SELF);
    let unmap = match unmap.as_slice() {
        [] if [b"pthread_create".as_slice(), b"__pthread_create"].iter().all(|name| code.named(name).is_empty()) => {
            return Ok(None);
        }
        [] => return missing("there is no __unmapself"),
        [one] => *one,
        _ => return missing("there are several functions like __unmapself"),
    };
    let sites: Vec<u64> = code.branches_to(unmap).iter().map(|branch| branch.site).collect();
    let mut exits = BTreeSet::new();
    for site in sites {
        if let Some(start) = code.enclosing(site, &BTreeSet::new())
            && code.function(start).is_some_and(|function| function.instructions.contains_key(&site))
        {
            exits.insert(start);
        }
    }
    let exits: Vec<u64> = exits.into_iter().collect();
    let [exit] = exits.as_slice() else { return missing("not exactly one function calls __unmapself") };
    let named: BTreeSet<u64> =
        [b"pthread_exit".as_slice(), b"__pthread_exit"].iter().flat_map(|name| code.named(name)).collect();
    if !named.is_empty() && !named.contains(exit) {
        return missing("the function that calls __unmapself is not pthread_exit");
    }
    let Some(function) = code.function(*exit).cloned() else { return missing("pthread_exit cannot be followed") };
    let pairs: Vec<ThreadEnd> = adjacent_calls(&function)
        .filter(|(_, _, second)| blocks_signals(code, *second))
        .map(|(site, first, _)| ThreadEnd { site, destructors: first })
        .collect();
    let [end] = pairs.as_slice() else { return missing("pthread_exit does not call the destructors as musl's does") };
    let named = code.named(b"__pthread_tsd_run_dtors");
    if !named.is_empty() && !named.contains(&end.destructors) {
        return missing("pthread_exit does not call __pthread_tsd_run_dtors before it blocks signals");
    }
    Ok(Some(*end))
}

/// Direct calls that follow each other without a branch or another call between: site and target of the first, and target of
/// the second.
fn adjacent_calls(function: &Function) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
    let direct = |instruction: &Instruction| {
        let call = instruction.flow_control() == FlowControl::Call && instruction.op0_kind() == OpKind::NearBranch64;
        call.then(|| instruction.near_branch_target())
    };
    function.instructions.iter().filter_map(move |(site, instruction)| {
        let first = direct(instruction)?;
        let mut at = instruction.next_ip();
        for _ in 0..8 {
            let next = function.instructions.get(&at)?;
            if let Some(second) = direct(next) {
                return Some((*site, first, second));
            }
            if next.flow_control() != FlowControl::Next {
                return None;
            }
            at = next.next_ip();
        }
        None
    })
}

/// `__block_app_sigs` (src/signal/block.c): the system call rt_sigprocmask, number 14, to block (how is 0), 8 bytes of mask.
fn blocks_signals(code: &mut Code<'_>, start: u64) -> bool {
    let Some(function) = code.function(start) else { return false };
    let mut registers = [None; 3];
    let mut calls = 0;
    for instruction in function.instructions.values() {
        let slot = match instruction.op0_register().full_register() {
            Register::RAX => 0,
            Register::RDI => 1,
            Register::R10 => 2,
            _ => 3,
        };
        match instruction.mnemonic() {
            Mnemonic::Mov if instruction.op1_kind() != OpKind::Register && instruction.op1_kind() != OpKind::Memory => {
                if let Some(register) = registers.get_mut(slot) {
                    *register = Some(instruction.immediate(1));
                }
            }
            Mnemonic::Xor if instruction.op0_register() == instruction.op1_register() => {
                if let Some(register) = registers.get_mut(slot) {
                    *register = Some(0);
                }
            }
            Mnemonic::Pop => {
                let pushed = function.instructions.range(..instruction.ip()).next_back().map(|(_, before)| before);
                let value = pushed
                    .filter(|before| before.mnemonic() == Mnemonic::Push && before.op0_kind() != OpKind::Register);
                if let (Some(register), Some(value)) = (registers.get_mut(slot), value) {
                    *register = Some(value.immediate(0));
                }
            }
            Mnemonic::Syscall => {
                calls += 1;
                if registers != [Some(14), Some(0), Some(8)] {
                    return false;
                }
            }
            _ => {}
        }
    }
    calls == 1 && function.calls.is_empty() && function.instructions.len() < 24
}

/// main, and the operand of the instruction that hands it to `__libc_start_main`.
///
/// `_start_c` (crt/crt1.c), and in static-pie programs what `_dlstart_c` goes on to (crt/rcrt1.c), load three functions: main
/// into the first argument, `_init` into the fourth and `_fini` into the fifth, and branch. There is one such place within
/// what the entry point leads to.
pub(crate) fn main(code: &Code<'_>) -> Result<(u64, Operand), Refusal> {
    const ARGUMENTS: [Register; 3] = [Register::RDI, Register::RCX, Register::R8];
    let mut open = vec![(code.image.entry, 0)];
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    while let Some((start, depth)) = open.pop() {
        if !seen.insert(start) {
            continue;
        }
        let Some(function) = code.walk(start) else { continue };
        let mut loaded: [Option<(u64, Operand)>; 3] = [None; 3];
        for instruction in function.instructions.values() {
            let target = function_loaded(code, instruction);
            let slot = ARGUMENTS.iter().position(|register| instruction.op0_register().full_register() == *register);
            if let (Some((address, _)), true) = (target, depth < 3) {
                open.push((address, depth + 1));
            }
            match (slot, instruction.flow_control()) {
                (Some(slot), FlowControl::Next) if instruction.op0_kind() == OpKind::Register => loaded[slot] = target,
                (_, FlowControl::Call | FlowControl::UnconditionalBranch) => {
                    if let ([Some(main), Some(_), Some(_)], OpKind::NearBranch64) = (loaded, instruction.op0_kind()) {
                        found.push(main);
                    }
                    loaded = [None; 3];
                }
                _ => {}
            }
        }
        if depth < 3 {
            open.extend(function.leads_to().map(|to| (to, depth + 1)));
        }
    }
    // What does not return is walked past, so that one place may be seen from several starts.
    found.sort_unstable_by_key(|(main, operand)| (operand.field, *main));
    found.dedup_by_key(|(main, operand)| (operand.field, *main));
    let named = code.named(b"main");
    match found.as_slice() {
        [(main, operand)] if named.is_empty() || named.contains(main) => Ok((*main, *operand)),
        other => Err(Refusal::Main { found: other.len() }),
    }
}

/// The code whose address an instruction loads into a register, and the operand that says so.
fn function_loaded(code: &Code<'_>, instruction: &Instruction) -> Option<(u64, Operand)> {
    const MAIN: &str = "transplant_main";
    let (field, next) = (instruction.next_ip() - 4, Some(instruction.next_ip()));
    let (address, from, to) = match instruction.code() {
        Opcode::Lea_r64_m if instruction.is_ip_rel_memory_operand() => {
            (instruction.ip_rel_memory_address(), next, MAIN)
        }
        Opcode::Mov_r32_imm32 | Opcode::Mov_rm64_imm32 if !code.image.position_independent => {
            (instruction.immediate(1), None, MAIN)
        }
        // Out of the global offset table, where a linker has not made it one of the others.
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
        .then_some((address, Operand { field, from, to }))
}
