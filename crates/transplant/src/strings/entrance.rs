//! Checks whether a jump can be written over a function's first bytes: they belong to the function, and nothing jumps
//! to them except to the first.

use std::collections::BTreeSet;
use std::ops::Range;

use super::{KeptReason, StringEntry};
use crate::code::{Code, Flow, Function};

/// Records for each function why it cannot be redirected.
pub(super) fn check(code: &Code<'_>, found: &mut [StringEntry], taken: &[u64]) {
    let size = code.machine.jump_size();
    let mut sites: BTreeSet<u64> = taken.iter().copied().collect();
    let entries = found.iter_mut().filter(|entry| entry.kept.is_none());
    let mut open: Vec<(&mut StringEntry, u64, Function)> = Vec::new();
    for entry in entries {
        let site = code.behind_landing_pad(entry.address);
        let function = code.walk(entry.address).filter(|function| has_room(code, function, site, size));
        // For example a symbol behind the landing pad.
        let overlaps = sites.range(site.saturating_sub(size - 1)..site + size).next().is_some();
        match function.filter(|_| !overlaps) {
            Some(function) => {
                sites.insert(site);
                open.push((entry, site, function));
            }
            None => entry.kept = Some(KeptReason::NoRoom),
        }
    }
    let open: Vec<(&mut StringEntry, Function, BTreeSet<u64>)> = open
        .into_iter()
        .map(|(entry, site, function)| {
            let places = unexpected(&function, site, size);
            (entry, function, places)
        })
        .collect();
    let over = |places: &BTreeSet<u64>| match (places.first(), places.last()) {
        (Some(first), Some(last)) => *first..*last + 1,
        _ => 0..0,
    };
    let functions: Vec<(u64, Range<u64>)> =
        open.iter().map(|(entry, _, places)| (entry.address, over(places))).collect();
    let others = code.machine.other_branches(code, &functions);
    for (entry, function, places) in open {
        let far = code.branches_into(over(&places)).map(|branch| (branch.site, branch.target));
        let all = far.chain(others.iter().copied());
        let outside = all.filter(|(from, to)| places.contains(to) && !function.covers(*from));
        if let Some(site) = outside.map(|(from, _)| from).min() {
            entry.kept = Some(KeptReason::JumpedInto { site });
        }
    }
}

/// Whether the `size` bytes from `site` on are the function's own, or padding within or behind it that is never
/// executed and cannot be the beginning of another function.
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

/// The places that no branch from outside may target: those behind the first overwritten byte.
///
/// If the function itself branches back into the overwritten bytes, as a loop does, every place behind its start
/// counts, since none is executed after the redirection.
fn unexpected(function: &Function, site: u64, size: u64) -> BTreeSet<u64> {
    let over = site + 1..site + size;
    let goes_back = function.instructions.values().any(|instruction| match instruction.flow {
        Flow::Conditional(into) | Flow::Jump(Some(into)) | Flow::Call(Some(into)) => over.contains(&into),
        _ => false,
    });
    let behind = function.instructions.keys().copied().filter(|at| *at > site && goes_back);
    over.chain(behind).collect()
}
