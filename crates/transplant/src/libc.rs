//! The facts of the rest of musl that the graft needs: the place of errno, whether the program forks, and where threads
//! end.

use std::collections::BTreeSet;

use crate::code::{Code, Flow, Function, MainCall};
use format::Role;

use crate::family::Family;
use crate::refusal::Refusal;

/// The distance of errno from the thread pointer. The family stores ENOMEM there when memory runs out: through
/// `__errno_location`, or directly where a compiler has inlined that. All such stores have to agree.
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
        other => Err(Refusal::Errno(other.len())),
    }
}

/// Checks that a program that forks has the allocator's hook. Without the hook a child may wait forever for a lock that
/// a different thread held.
///
/// A program without fork does not have its system call (src/process/_Fork.c), or has `_Fork` alone, which calls no
/// hook.
pub(crate) fn check_fork(code: &mut Code<'_>, family: &Family) -> Result<(), Refusal> {
    if family.core.contains_key(&Role::ForkHook) {
        return Ok(());
    }
    let calls = code.machine.forks(code);
    let named = !code.named(b"fork").is_empty() || (calls.is_empty() && !code.named(b"_Fork").is_empty());
    match named || !calls.is_empty() && !has_only_fork_without_hooks(code, family, &calls) {
        true => Err(Refusal::ForkHook),
        false => Ok(()),
    }
}

/// Whether the system calls that fork are `_Fork`'s only, and `fork` is not linked.
///
/// Since musl 1.2.2, fork calls `_Fork` and `__malloc_atfork`, and the latter makes the allocator's lock anew. It is in
/// the file of mallocng's malloc, so every program with that malloc and fork has it. Where nothing but the family
/// refers to the lock, it is not there: the linker left it out, and fork with it. Before 1.2.2, fork made the system
/// call itself, without a hook. It took no lock, and `_Fork` takes `__abort_lock` (src/process/fork.c, _Fork.c).
fn has_only_fork_without_hooks(code: &mut Code<'_>, family: &Family, calls: &[u64]) -> bool {
    if family.has_lock_elsewhere {
        return false;
    }
    let called = |role| {
        let function = family.core.get(&role).and_then(|start| family.functions.get(start));
        function.map(|function| function.calls.iter().map(|(_, to)| *to).collect::<BTreeSet<u64>>()).unwrap_or_default()
    };
    // mallocng locks by the same functions, unless they are inlined.
    let lock: BTreeSet<u64> = called(Role::Malloc).intersection(&called(Role::Free)).copied().collect();
    calls.iter().all(|call| {
        let Some(start) = code.enclosing(*call, &BTreeSet::new()) else { return false };
        let Some(function) = code.function(start) else { return false };
        function.covers(*call) && function.calls.iter().any(|(_, to)| lock.contains(to))
    })
}

/// The call at the end of a thread that is to be redirected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ThreadEnd {
    /// The address of the call.
    pub(crate) site: u64,
    /// The function that it calls: `__pthread_tsd_run_dtors`, or in a program without keys a function that does
    /// nothing.
    pub(crate) destructors: u64,
}

/// Finds the place where a thread ends; `None` in a program that cannot start threads.
///
/// pthread_exit (src/thread/pthread_create.c) is the function that calls `__unmapself`. It runs the destructors of the
/// thread's keys and then, at once, blocks signals. So the wanted call is the one directly before the call of a
/// function that makes the system call rt_sigprocmask. There has to be exactly one such pair.
pub(crate) fn thread_end(code: &mut Code<'_>) -> Result<Option<ThreadEnd>, Refusal> {
    let missing = |found| Err(Refusal::ThreadEnd(found));
    let unmap = code.machine.unmapself_functions(code);
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

/// The last call of `exit` before the process ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ProcessEnd {
    /// The address of the call.
    pub(crate) site: u64,
    /// The function that it calls: `__stdio_exit`.
    pub(crate) streams: u64,
}

/// Finds the place where `exit` has run all of the program's functions: it calls `__funcs_on_exit`, `__libc_exit_fini`
/// and `__stdio_exit`, and then `_Exit`, without a branch between them (src/exit/exit.c). `None` if there is no such
/// sequence.
///
/// Without symbols, `_Exit` is the function that makes the system call exit_group, and `exit` the only one that calls
/// it after others without a branch. `quick_exit` makes one call before it (src/exit/quick_exit.c), and `abort` makes
/// no such sequence.
pub(crate) fn process_end(code: &mut Code<'_>) -> Option<ProcessEnd> {
    let [exits, ends] = [b"exit".as_slice(), b"_Exit"].map(|name| code.named(name));
    if !exits.is_empty() || !ends.is_empty() {
        let ([exit], [end]) = (exits.as_slice(), ends.as_slice()) else { return None };
        let function = code.function(*exit)?.clone();
        return end_of(code, &function, *end);
    }
    let none = BTreeSet::new();
    let mut ends = BTreeSet::new();
    for call in code.machine.ends(code) {
        let start = code.enclosing(call, &none);
        ends.extend(start.filter(|start| code.function(*start).is_some_and(|function| function.calls.is_empty())));
    }
    let mut found = BTreeSet::new();
    for end in ends {
        for site in callers(code, end) {
            let Some(start) = code.enclosing(site, &none) else { continue };
            let function = code.function(start).cloned();
            found.extend(function.and_then(|function| end_of(code, &function, end)));
        }
    }
    let found: Vec<ProcessEnd> = found.into_iter().collect();
    if let [one] = found.as_slice() { Some(*one) } else { None }
}

/// Finds the call before that of `end`, if there are three in a row.
fn end_of(code: &Code<'_>, function: &Function, end: u64) -> Option<ProcessEnd> {
    // Calls that do not return lie side by side where a program chooses between several ways to end.
    let pairs: Vec<(u64, u64, u64)> = adjacent_calls(function).filter(|(_, first, _)| code.returns(*first)).collect();
    let before = |site: u64, called: u64| {
        let leads = |(from, _, second): &&(u64, u64, u64)| {
            *second == called && *from < site && !pairs.iter().any(|(other, ..)| (from + 1..site).contains(other))
        };
        pairs.iter().find(leads).map(|(from, first, _)| (*from, *first))
    };
    let lasts: Vec<(u64, u64)> =
        pairs.iter().filter(|(_, _, second)| *second == end).map(|(site, first, _)| (*site, *first)).collect();
    let [(site, streams)] = lasts.as_slice() else { return None };
    let (fini, called) = before(*site, *streams)?;
    before(fini, called)?;
    Some(ProcessEnd { site: *site, streams: *streams })
}

fn callers(code: &Code<'_>, start: u64) -> Vec<u64> {
    code.branches_to(start).iter().map(|branch| branch.site).collect()
}

/// Direct calls that follow each other without a branch or another call between: site and target of the first, and
/// target of the second.
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

/// Finds main, and the edit that passes the donor's main instead.
///
/// `_start_c` (crt/crt1.c), or in static-pie programs the function that `_dlstart_c` goes on to (crt/rcrt1.c), loads
/// three functions and branches: main into the first argument, `_init` into the fourth and `_fini` into the fifth.
/// There is exactly one such place in the code reached from the entry point.
pub(crate) fn main(code: &Code<'_>) -> Result<MainCall, Refusal> {
    let mut open = vec![(code.image.entry, 0)];
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    while let Some((start, depth)) = open.pop() {
        if !seen.insert(start) {
            continue;
        }
        let Some(function) = code.walk(start) else { continue };
        let (main_calls, taken) = code.machine.main_calls(code, &function);
        found.extend(main_calls);
        if depth < 3 {
            open.extend(taken.into_iter().chain(function.leads_to()).map(|to| (to, depth + 1)));
        }
    }
    // The walk goes past calls that do not return, so one place may be found from several starts.
    found.sort_unstable_by_key(|main_call| (main_call.edit, main_call.main));
    found.dedup();
    let named = code.named(b"main");
    match found.as_slice() {
        [one] if named.is_empty() || named.contains(&one.main) => Ok(*one),
        other => Err(Refusal::Main(other.len())),
    }
}
