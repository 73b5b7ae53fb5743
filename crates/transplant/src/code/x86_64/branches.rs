//! Branches other than those with a one-byte opcode and a distance of 32 bits: conditional ones, and those with a
//! distance of one byte.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, OpKind};

use crate::code::Code;

/// The reach of a branch with a distance of one byte, and the longest instruction.
const SHORT: u64 = 160;

/// Returns site and target of branches into one of the ranges, each of which has the address of its function.
pub(super) fn into(code: &Code<'_>, functions: &[(u64, Range<u64>)]) -> Vec<(u64, u64)> {
    let mut found = conditional(code, functions);
    functions.iter().for_each(|(address, over)| found.extend(short(code, *address, over)));
    found
}

/// Conditional branches with a distance of 32 bits, by the bytes alone.
fn conditional(code: &Code<'_>, functions: &[(u64, Range<u64>)]) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for (address, bytes) in code.image.executable() {
        for at in memchr::memchr_iter(0x0f, bytes) {
            let [_, 0x80..=0x8f, distance @ ..] = &bytes[at..] else { continue };
            let Some(distance) = distance.first_chunk() else { continue };
            let site = address + at as u64;
            let target = (site + 6).wrapping_add_signed(i64::from(i32::from_le_bytes(*distance)));
            if functions.iter().any(|(_, over)| over.contains(&target)) {
                found.push((site, target));
            }
        }
    }
    found
}

/// Short branches of the functions around. They are decoded from the starts of functions: between instructions, any
/// byte reads as such a branch.
fn short(code: &Code<'_>, address: u64, over: &Range<u64>) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for start in code.starts_within(address.saturating_sub(16 * SHORT)..over.end + SHORT) {
        if start == address {
            continue;
        }
        let bytes = code.image.bytes_from(start);
        let mut decoder =
            Decoder::with_ip(64, &bytes[..bytes.len().min(16 * SHORT as usize)], start, DecoderOptions::NONE);
        while decoder.can_decode() && decoder.ip() < over.end + SHORT {
            let instruction = decoder.decode();
            // The next function is decoded from its own start.
            if instruction.is_invalid() || (start < address && instruction.ip() >= address) {
                break;
            }
            if instruction.op_count() == 1
                && instruction.op0_kind() == OpKind::NearBranch64
                && over.contains(&instruction.near_branch_target())
            {
                found.push((instruction.ip(), instruction.near_branch_target()));
            }
        }
    }
    found
}
