//! What the graft needs of the rest of musl: where errno is, whether the program forks, where its threads end.

use std::collections::BTreeSet;

use crate::code::{Code, Flow, Function, Handover};
use crate::family::{Family, Role};
use crate::refusal::Refusal;

/// The distance of errno from the thread pointer. The family stores ENOMEM there when there is no memory: through
/// `__errno_location`, or where a compiler has put that in line, by itself. All such stores have to agree.
pub(crate) fn errno_offset(code: &Code<'_>, family: &Family) -> Result<i64, Refusal> {
    let mut found = BTreeSet::new();
    for function in family.functions.values() {
        found.extend(code.machine.no_memory_stores(code, function));
    }
    for name in [b"__errno_location".as_slice(), b"___errno_location"] {
        found.extend(code.named(name).into_iter().filter_map(|start| code.machine.errno_location(code, start)));
    }
    match found.iter().copied().collect::<Vec<_>>().as_slice() {
        [offset] if code.machine.errno_range().contains(offset) => Ok(*offset),
        other => Err(Refusal::Errno { found: other.len() }),
    }
}

/// A program that forks has to tell the allocator, or a child may wait forever for a lock that a thread held. Programs into
/// which fork is not linked have no such system call (src/process/_Fork.c).
pub(crate) fn check_fork(code: &Code<'_>, family: &Family) -> Result<(), Refusal> {
    if family.core.contains_key(&Role::ForkHook) {
        return Ok(());
    }
    let named = [b"fork".as_slice(), b"_Fork"].iter().any(|name| !code.named(name).is_empty());
    if named || code.machine.forks(code) { Err(Refusal::ForkHook) } else { Ok(()) }
}

/// The call at the end of a thread that is to be redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadEnd {
    /// The call.
    pub(crate) site: u64,
    /// What it calls: `__pthread_tsd_run_dtors`, or in a program without keys a function that does nothing.
    pub(crate) destructors: u64,
}

/// Where a thread ends: nothing in a program that cannot start any.
///
/// pthread_exit (src/thread/pthread_create.c) is the function that calls `__unmapself`. It runs the destructors of the
/// thread's keys and then, at once, blocks signals: so the call wanted is the one directly before the call of a function
/// that makes the system call rt_sigprocmask. There has to be exactly one such pair.
pub(crate) fn thread_end(code: &mut Code<'_>) -> Result<Option<ThreadEnd>, Refusal> {
    let missing = |found| Err(Refusal::ThreadEnd { found });
    let unmap = code.machine.unmap_selves(code);
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
    function.instructions.iter().filter_map(move |(site, instruction)| {
        let Flow::Call(Some(first)) = instruction.flow else { return None };
        let mut at = instruction.next;
        for _ in 0..8 {
            let next = function.instructions.get(&at)?;
            match next.flow {
                Flow::Call(Some(second)) => return Some((*site, first, second)),
                Flow::Next => at = next.next,
                _ => return None,
            }
        }
        None
    })
}

fn blocks_signals(code: &mut Code<'_>, start: u64) -> bool {
    let Some(function) = code.function(start).cloned() else { return false };
    code.machine.blocks_signals(code, &function)
}

/// main, and what has the donor's handed over in its place.
///
/// `_start_c` (crt/crt1.c), and in static-pie programs what `_dlstart_c` goes on to (crt/rcrt1.c), load three functions: main
/// into the first argument, `_init` into the fourth and `_fini` into the fifth, and branch. There is one such place within
/// what the entry point leads to.
pub(crate) fn main(code: &Code<'_>) -> Result<Handover, Refusal> {
    let mut open = vec![(code.image.entry, 0)];
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    while let Some((start, depth)) = open.pop() {
        if !seen.insert(start) {
            continue;
        }
        let Some(function) = code.walk(start) else { continue };
        let (handovers, taken) = code.machine.handovers(code, &function);
        found.extend(handovers);
        if depth < 3 {
            open.extend(taken.into_iter().chain(function.leads_to()).map(|to| (to, depth + 1)));
        }
    }
    // What does not return is walked past, so that one place may be seen from several starts.
    found.sort_unstable_by_key(|handover| (handover.edit, handover.main));
    found.dedup();
    let named = code.named(b"main");
    match found.as_slice() {
        [one] if named.is_empty() || named.contains(&one.main) => Ok(*one),
        other => Err(Refusal::Main { found: other.len() }),
    }
}
