//! Proves that oldmalloc serves `malloc` in a program without symbols, for x86_64.
//!
//! Until musl 1.2.1, oldmalloc's table of bins is in the file that defines `malloc`, `calloc`, `realloc` and
//! `free`, all strong (src/malloc/malloc.c). A program with a `malloc` of its own cannot link that file. Since
//! 1.2.2 it can: the public names are weak, in files of their own. The lock tells the two apart. Until 1.2.0 it is
//! taken if `libc.threads_minus_1` is not zero, an `int`; later if `libc.need_locks` is not, a `signed char`
//! (`lock` in malloc.c, src/internal/libc.h).

use std::collections::{BTreeSet, HashSet};

use iced_x86::{Code as Opcode, FlowControl, Instruction, OpKind, Register};

use super::{Code, x86};
use crate::elf::{Elf, PT_LOAD};
use crate::report::Arch;

/// The most places that read as a reference to the table: ten in fact.
const MOST_REFERENCES: usize = 64;
/// The most instructions that are followed from such a place to the lock of the bin: some ten in fact.
const MOST_STEPS: usize = 200;
/// The deepest call that is followed: `lock_bin` calls `lock`, unless both are inlined.
const DEPTH: usize = 2;
/// The most instructions between a load and its test, and between the test and the exchange.
const BETWEEN: usize = 8;

/// The size of the variable that says whether to lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Size {
    Byte,
    Word,
}

/// Returns the address of the word that code using the table of bins tests before it locks. All references that lock
/// must test this word, and at least two must lock.
pub(crate) fn count_of_threads(elf: &Elf<'_>, table: &[u8]) -> Option<u64> {
    if elf.arch != Arch::X86_64 {
        return None;
    }
    let code = Code::new(elf)?;
    let loaded = elf.segments.iter().filter(|segment| segment.kind == PT_LOAD);
    let mut tables = loaded.flat_map(|segment| {
        let places = memchr::memmem::find_iter(segment.data.unwrap_or_default(), table);
        places.map(|at| segment.address.wrapping_add(at as u64)).collect::<Vec<_>>()
    });
    let (table, None) = (tables.next()?, tables.next()) else { return None };
    let locks: Vec<BTreeSet<(Size, u64)>> =
        references(&code, table).into_iter().map(|place| tested_before_locks(&code, place)).collect();
    let tested: BTreeSet<(Size, u64)> = locks.iter().flatten().copied().collect();
    let count = locks.iter().filter(|lock| !lock.is_empty()).count();
    match tested.into_iter().collect::<Vec<_>>().as_slice() {
        [(Size::Word, word)] if count >= 2 => Some(*word),
        _ => None,
    }
}

/// Returns the addresses behind the instructions that read as a reference to the table. `bin_index` subtracts 4 from
/// its index, which compilers take from the table's address. The address is the last field of the instruction.
fn references(code: &Code<'_>, table: u64) -> Vec<u64> {
    let wanted = [table, table.wrapping_sub(4)];
    let mut found = Vec::new();
    for (start, data) in &code.parts {
        for (at, field) in data.windows(4).enumerate() {
            let value = i32::from_le_bytes(field.try_into().unwrap_or_default());
            let behind = start.wrapping_add(at as u64 + 4);
            if wanted.contains(&behind.wrapping_add_signed(value.into())) || wanted.contains(&(value as u64)) {
                found.push(behind);
            }
        }
    }
    found.truncate(MOST_REFERENCES);
    found
}

/// Follows the code from `place` to the locks that it takes first, and returns what is tested before each.
fn tested_before_locks(code: &Code<'_>, place: u64) -> BTreeSet<(Size, u64)> {
    let mut tested = BTreeSet::new();
    let mut seen = HashSet::new();
    let mut waiting = vec![(place, 0)];
    while let Some((address, depth)) = waiting.pop() {
        if seen.len() >= MOST_STEPS || !seen.insert(address) {
            continue;
        }
        let Some(instruction) = decoded(code, address) else { continue };
        if let Some(found) = lock_at(code, &instruction) {
            tested.insert(found);
            continue;
        }
        let near = matches!(instruction.op0_kind(), OpKind::NearBranch64);
        let target = near.then(|| instruction.near_branch_target());
        let next = instruction.next_ip();
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::IndirectCall => waiting.push((next, depth)),
            FlowControl::ConditionalBranch => {
                waiting.push((next, depth));
                waiting.extend(target.map(|target| (target, depth)));
            }
            FlowControl::UnconditionalBranch => waiting.extend(target.map(|target| (target, depth))),
            FlowControl::Call => {
                waiting.push((next, depth));
                waiting.extend(target.filter(|_| depth < DEPTH).map(|target| (target, depth + 1)));
            }
            _ => {}
        }
    }
    tested
}

/// Returns what an instruction loads or compares with zero, if a word in memory is exchanged next in one of the two
/// cases: `if (threads) while (a_swap(lock, 1)) ...`.
fn lock_at(code: &Code<'_>, load: &Instruction) -> Option<(Size, u64)> {
    let address = fixed(load)?;
    let size = match load.code() {
        Opcode::Mov_r32_rm32 | Opcode::Cmp_rm32_imm8 => Size::Word,
        Opcode::Movsx_r32_rm8 | Opcode::Movzx_r32_rm8 | Opcode::Mov_r8_rm8 | Opcode::Cmp_rm8_imm8 => Size::Byte,
        _ => return None,
    };
    let mut is_tested = load.op_count() == 2 && load.op1_kind() == OpKind::Immediate8to32;
    is_tested |= load.code() == Opcode::Cmp_rm8_imm8;
    if is_tested && load.immediate8() != 0 {
        return None;
    }
    let register = load.op0_register().full_register();
    let mut at = load.next_ip();
    for _ in 0..BETWEEN {
        let instruction = decoded(code, at)?;
        at = instruction.next_ip();
        match instruction.flow_control() {
            FlowControl::ConditionalBranch if is_tested => {
                let ways = [at, instruction.near_branch_target()];
                return ways.into_iter().any(|way| exchanges(code, way, address)).then_some((size, address));
            }
            FlowControl::Next => {}
            _ => return None,
        }
        let tests = matches!(instruction.code(), Opcode::Test_rm32_r32 | Opcode::Test_rm8_r8);
        let operands = [instruction.op0_register(), instruction.op1_register()];
        is_tested |= tests && operands.iter().all(|operand| operand.full_register() == register);
    }
    None
}

/// Whether a 32-bit word in memory, not that at `other`, is exchanged before control may branch.
fn exchanges(code: &Code<'_>, mut at: u64, other: u64) -> bool {
    for _ in 0..BETWEEN {
        let Some(instruction) = decoded(code, at) else { return false };
        at = match instruction.flow_control() {
            FlowControl::Next => instruction.next_ip(),
            FlowControl::UnconditionalBranch => instruction.near_branch_target(),
            _ => return false,
        };
        if instruction.code() == Opcode::Xchg_rm32_r32 {
            return instruction.op0_kind() == OpKind::Memory && fixed(&instruction) != Some(other);
        }
    }
    false
}

/// The address of an instruction's operand in memory, if no register goes into it.
fn fixed(instruction: &Instruction) -> Option<u64> {
    let in_memory = [instruction.op0_kind(), instruction.op1_kind()].contains(&OpKind::Memory);
    if in_memory && instruction.is_ip_rel_memory_operand() {
        return Some(instruction.ip_rel_memory_address());
    }
    let plain = instruction.memory_base() == Register::None && instruction.memory_index() == Register::None;
    (in_memory && plain && instruction.segment_prefix() == Register::None).then(|| instruction.memory_displacement64())
}

fn decoded(code: &Code<'_>, address: u64) -> Option<Instruction> {
    x86::decoded(64, address, code.bytes_at(address)?)
}
