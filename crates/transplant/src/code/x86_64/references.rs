//! References in x86_64's code: the distance of an address from the end of the instruction, or in a program at a fixed
//! address the address itself.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::super::{Code, Function, Reference};
use super::{all as instructions, instruction_at};

/// Every place that reads as a reference into the range: four bytes that are an address, or a distance from the end of
/// their instruction, which may continue with an operand of 1, 2 or 4 bytes.
pub(super) fn all(code: &Code<'_>, range: Range<u64>) -> Vec<Reference> {
    let mut found = Vec::new();
    for (address, bytes) in code.image.executable() {
        let places = bytes.len().saturating_sub(3);
        let blocks = (0..places).step_by(BLOCK).map(|from| from..(from + BLOCK).min(places));
        let near = blocks.filter(|block| {
            let bytes = &bytes[block.start..block.end + 3];
            may_refer(bytes, address + block.start as u64, &range, code.image.position_independent)
        });
        for at in near.flatten() {
            let window = &bytes[at..at + 4];
            let value = i64::from(i32::from_le_bytes([window[0], window[1], window[2], window[3]]));
            let field = address + at as u64;
            for rest in [4, 5, 6, 8] {
                let target = (field + rest).wrapping_add_signed(value);
                if range.contains(&target) {
                    found.push(Reference { field, target });
                }
            }
            // A position-independent program cannot contain an address: such a number is something else.
            if !code.image.position_independent && range.contains(&(value as u64)) {
                found.push(Reference { field, target: value as u64 });
            }
        }
    }
    found
}

/// The bytes that [`may_refer`] looks at together.
const BLOCK: usize = 1024;

/// Whether any four of these bytes may be a reference into the range, by the lower 32 bits. Compilers make this loop
/// one over many places at a time: most of the time that a graft took was spent here.
fn may_refer(bytes: &[u8], address: u64, range: &Range<u64>, position_independent: bool) -> bool {
    let length = range.end.saturating_sub(range.start);
    let Ok(length) = u32::try_from(length.saturating_add(4)) else { return true };
    // A distance from 4 to 8 bytes behind the field.
    let lowest = range.start.wrapping_sub(8).wrapping_sub(address) as u32;
    let start = range.start as u32;
    let mut found = false;
    for phase in 0..4 {
        let fields = bytes.get(phase..).unwrap_or_default().chunks_exact(4);
        for (number, field) in (0_u32..).zip(fields) {
            let value = u32::from_le_bytes([field[0], field[1], field[2], field[3]]);
            let distance = value.wrapping_add(phase as u32 + 4 * number).wrapping_sub(lowest);
            found |= distance < length;
            found |= !position_independent & (value.wrapping_sub(start) < length);
        }
    }
    found
}

/// The addresses that a function takes, reads or writes.
pub(super) fn of_function(code: &Code<'_>, function: &Function) -> BTreeSet<(u64, u64)> {
    let absolute = !code.image.position_independent;
    let mut refers = BTreeSet::new();
    for instruction in instructions(code.image, function) {
        if let Some(target) = memory_target(&instruction)
            && (instruction.is_ip_rel_memory_operand() || absolute)
        {
            refers.insert((target, instruction.ip()));
        }
        if absolute && instruction.mnemonic() == Mnemonic::Mov {
            let values = (0..instruction.op_count()).filter_map(|op| instruction.try_immediate(op).ok());
            refers.extend(values.filter(|value| *value > 0x1_0000).map(|value| (value, instruction.ip())));
        }
    }
    refers
}

/// The address of a memory operand, by distance or absolute, with or without an index.
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

/// Whether the instruction refers to the address.
pub(super) fn refers_to(code: &Code<'_>, instruction: &Instruction, target: u64) -> bool {
    let absolute = !code.image.position_independent;
    (0..instruction.op_count()).any(|op| match instruction.op_kind(op) {
        OpKind::NearBranch64 => instruction.near_branch_target() == target,
        OpKind::Memory if instruction.is_ip_rel_memory_operand() => instruction.ip_rel_memory_address() == target,
        OpKind::Memory => absolute && instruction.memory_displacement64() == target,
        OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64 => {
            absolute && instruction.immediate(op) == target
        }
        _ => false,
    })
}

/// The start of the function that contains these four bytes as the reference that they read as.
pub(super) fn confirmed(code: &mut Code<'_>, reference: Reference, ends: &BTreeSet<u64>) -> Option<u64> {
    const SPAN: u64 = 4096;
    let Reference { field, target } = reference;
    let known = code.enclosing(field, ends);
    if let Some(start) = known {
        let address = code.function(start)?.instruction_over(field)?.address;
        if refers_to(code, &instruction_at(code.image, address)?, target) {
            return Some(start);
        }
        if code.follows_an_end(start) {
            return None;
        }
    }
    // No function is known there, or only one that may begin in the middle of a different function's instruction. Then
    // any start nearby will do if decoding from it in order reaches the field.
    let near = code.starts_within(field.saturating_sub(SPAN)..field.saturating_add(1));
    let found =
        near.into_iter().rev().chain(code.start_before(field)).find(|start| reads_so(code, *start, reference))?;
    Some(known.unwrap_or(found))
}

/// Whether the instructions from `start` on, decoded in order, contain the reference.
fn reads_so(code: &Code<'_>, start: u64, Reference { field, target }: Reference) -> bool {
    let mut address = start;
    while let Some(instruction) = instruction_at(code.image, address)
        && address <= field
    {
        if field < instruction.next_ip() {
            return refers_to(code, &instruction, target);
        }
        address = instruction.next_ip();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each place, and no shortcut: whatever the exact comparison finds, its block is looked at.
    #[test]
    fn no_reference_is_passed_over() {
        let (address, range) = (0x40_1000_u64, 0x40_9000..0x40_9010_u64);
        for (size, at) in [(4, 0), (5, 1), (7, 3), (64, 59), (64, 60), (1027, 1023), (1027, 510)] {
            let field = address + at as u64;
            for target in [range.start, range.end - 1] {
                let distances = [4, 5, 6, 8].map(|rest| (target.wrapping_sub(field + rest) as u32, true));
                for (value, relative) in distances.into_iter().chain([(target as u32, false)]) {
                    let mut bytes = vec![0; size];
                    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
                    assert!(may_refer(&bytes, address, &range, relative), "{size} {at} {target:#x} {value:#x}");
                }
            }
        }
        assert!(!may_refer(&[0; 1027], address, &range, false));
        // Behind the program, a distance is negative.
        let value = (range.start.wrapping_sub(0x50_0000 + 4) as u32).to_le_bytes();
        assert!(may_refer(&value, 0x50_0000, &range, true));
        assert!(may_refer(&[0; 4], address, &(0..u64::MAX), true));
    }
}
