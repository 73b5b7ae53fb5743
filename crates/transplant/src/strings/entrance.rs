//! Whether a jump can be written over a function's first bytes: they are its own, and nothing jumps behind the first of them.

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, OpKind};

use super::{Kept, StringEntry};
use crate::code::{Code, Flow, Function};

/// How far a branch of one byte leads, and the longest instruction.
const SHORT: u64 = 160;

/// Notes for each function why it cannot be redirected.
pub(super) fn check(code: &Code<'_>, found: &mut [StringEntry], taken: &[u64]) {
    let size = code.machine.jump_size();
    let mut sites: BTreeSet<u64> = taken.iter().copied().collect();
    let entries = found.iter_mut().filter(|entry| entry.kept.is_none());
    let mut open: Vec<(&mut StringEntry, u64, Function)> = Vec::new();
    for entry in entries {
        let site = code.behind_landing_pad(entry.address);
        let function = code.walk(entry.address).filter(|function| has_room(code, function, site, size));
        // A symbol behind the landing pad, say.
        let overlaps = sites.range(site.saturating_sub(size - 1)..site + size).next().is_some();
        match function.filter(|_| !overlaps) {
            Some(function) => {
                sites.insert(site);
                open.push((entry, site, function));
            }
            None => entry.kept = Some(Kept::NoRoom),
        }
    }
    let open: Vec<(&mut StringEntry, Function, BTreeSet<u64>)> = open
        .into_iter()
        .map(|(entry, site, function)| {
            let places = unexpected(&function, site, size);
            (entry, function, places)
        })
        .collect();
    let wanted: BTreeSet<u64> = open.iter().flat_map(|(_, _, places)| places).copied().collect();
    let conditional = conditional_branches(code, &wanted);
    for (entry, function, places) in open {
        let over = places.first().copied().unwrap_or(0)..places.last().map_or(0, |last| last + 1);
        let near = code.branches_into(over.clone()).map(|branch| (branch.site, branch.target));
        let all = near.chain(conditional.iter().copied()).chain(short_branches(code, entry.address, &over));
        let outside = all.filter(|(from, to)| places.contains(to) && !function.covers(*from));
        if let Some(site) = outside.map(|(from, _)| from).min() {
            entry.kept = Some(Kept::JumpedInto { site });
        }
    }
}

/// Whether so many bytes are the function's own, or padding within it or behind it that is never executed: nothing that could
/// be the beginning of another.
fn has_room(code: &Code<'_>, function: &Function, site: u64, size: u64) -> bool {
    let mut at = site;
    while at < site + size {
        let own = function.instructions.get(&at).copied();
        let begins = code.is_start(at) || at.is_multiple_of(16);
        let padding = || code.instruction(at).filter(|next| !begins && code.machine.is_padding(code.image, next));
        match own.or_else(padding) {
            Some(instruction) => at = instruction.next,
            None => return false,
        }
    }
    function.instructions.contains_key(&site)
}

/// Where nothing from outside may lead: behind the first byte that is written over. If the function itself goes back there, as a
/// loop does, nowhere behind its beginning: it is not executed any more then.
fn unexpected(function: &Function, site: u64, size: u64) -> BTreeSet<u64> {
    let over = site + 1..site + size;
    let goes_back = function.instructions.values().any(|instruction| match instruction.flow {
        Flow::Conditional(into) | Flow::Jump(Some(into)) | Flow::Call(Some(into)) => over.contains(&into),
        _ => false,
    });
    let behind = function.instructions.keys().copied().filter(|at| *at > site && goes_back);
    over.chain(behind).collect()
}

/// Conditional branches with a distance of 32 bits to one of the places, by the bytes alone: site and target.
fn conditional_branches(code: &Code<'_>, wanted: &BTreeSet<u64>) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for (address, bytes) in code.image.executable() {
        for at in memchr::memchr_iter(0x0f, bytes) {
            let [_, 0x80..=0x8f, distance @ ..] = &bytes[at..] else { continue };
            let Some(distance) = distance.first_chunk() else { continue };
            let site = address + at as u64;
            let target = (site + 6).wrapping_add_signed(i64::from(i32::from_le_bytes(*distance)));
            if wanted.contains(&target) {
                found.push((site, target));
            }
        }
    }
    found
}

/// Short branches of the functions around. They are decoded from where functions begin: between instructions any byte reads as one.
fn short_branches(code: &Code<'_>, address: u64, over: &Range<u64>) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for start in code.starts_within(address.saturating_sub(16 * SHORT)..over.end + SHORT) {
        if start == address {
            continue;
        }
        let bytes = code.image.from(start);
        let mut decoder =
            Decoder::with_ip(64, &bytes[..bytes.len().min(16 * SHORT as usize)], start, DecoderOptions::NONE);
        while decoder.can_decode() && decoder.ip() < over.end + SHORT {
            let instruction = decoder.decode();
            // The next function has a start of its own.
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
