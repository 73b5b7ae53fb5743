//! Threads and processes that a program makes with the system call clone, not with musl's `pthread_create`. A thread
//! whose thread-local storage the program lays out itself lacks the donor's part, and would crash in its first malloc:
//! such programs are refused.
//!
//! Checked are the flags at the system call, at calls of musl's `__clone` (src/thread/ARCH/clone.s) and of functions
//! around it, such as `clone` and `syscall` (src/linux/clone.c, src/misc/syscall.c): their origin is followed backwards
//! through each function, and from its arguments on to its callers. Not checked are clone3, whose flags are in memory,
//! and flags that come from memory or from a call.

use std::collections::BTreeSet;

use crate::code::Code;
use crate::code::Function;
use crate::code::origin::{Location, Origin, origins};
use crate::libc::ThreadEnd;
use crate::refusal::Refusal;

/// CLONE_VM, CLONE_VFORK and CLONE_SETTLS (clone(2), include/uapi/linux/sched.h).
const VM: u64 = 0x100;
const VFORK: u64 = 0x4000;
const SETTLS: u64 = 0x8_0000;
/// The flags of pthread_create (src/thread/pthread_create.c).
const MUSLS_THREAD: u64 = 0x7d_0f00;
/// The index of the flags among the arguments of musl's `__clone`, and of the system call.
const AT_MUSLS: u32 = 2;
const AT_SYSTEM_CALL: u32 = 0;
/// How many functions an argument is followed through.
const DEEPEST: usize = 4;

/// Refuses a program that makes threads with its own thread-local storage (CLONE_SETTLS): the donor's part of it exists
/// only in what musl allocates for a thread. Also one that makes a process that shares memory and storage with its
/// parent and runs beside it (CLONE_VM without CLONE_VFORK): both would use the same donor's part at once. `end` is
/// where musl's own threads end.
pub(crate) fn check(code: &mut Code<'_>, end: Option<ThreadEnd>) -> Result<(), Refusal> {
    let mut makers: BTreeSet<(u64, Origin)> = BTreeSet::new();
    for call in code.machine.clones(code) {
        makers.extend(flags_of(code, call));
    }
    for call in code.machine.passed_calls(code) {
        makers.extend(passed_flags(code, call));
    }
    let mut musls = 0;
    makers.retain(|(_, flags)| {
        // pthread_create.
        let own = flags.value() == Some(MUSLS_THREAD) && end.is_some() && musls == 0;
        musls += u32::from(own);
        !own
    });
    for (site, flags) in &makers {
        if flags.or & (VM | SETTLS) == VM | SETTLS {
            return Err(Refusal::OwnThreads(*site));
        }
    }
    match makers.iter().find(|(_, flags)| flags.or & (VM | VFORK) == VM) {
        Some((site, _)) => Err(Refusal::SharedStorage(*site)),
        None => Ok(()),
    }
}

/// The flags of a system call that may be clone, each with the call that gives them.
fn flags_of(code: &mut Code<'_>, call: u64) -> Vec<(u64, Origin)> {
    let functions = around(code, call);
    if !functions.is_empty() {
        let number = Location::Register(code.machine.number_register());
        let numbers = functions.iter().flat_map(|function| origins(code, function, call, number));
        let is_clone = numbers.into_iter().any(|origin| origin.value() == Some(code.machine.clone_number()));
        return if is_clone { argument(code, call, AT_SYSTEM_CALL, 0) } else { Vec::new() };
    }
    let near = near(code, call, AT_SYSTEM_CALL);
    if !near.is_empty() {
        return near;
    }
    // Some builds of musl's `__clone` end with bytes that are not an instruction, so it cannot be followed.
    let Some(clone) = code.start_before(call) else { return Vec::new() };
    callers(code, clone).into_iter().flat_map(|site| argument(code, site, AT_MUSLS, 1)).collect()
}

/// The flags of clone where the number of the system call is an argument of the function around it.
fn passed_flags(code: &mut Code<'_>, call: u64) -> Vec<(u64, Origin)> {
    let Some(flags) = code.machine.argument_register(AT_SYSTEM_CALL) else { return Vec::new() };
    let mut found = Vec::new();
    for function in around(code, call) {
        let [number, flags] = [code.machine.number_register(), flags]
            .map(|register| origins(code, &function, call, Location::Register(register)));
        let number = number.iter().find_map(Origin::passes);
        let flags = flags.iter().find_map(|origin| origin.argument);
        let (Some(number), Some(flags)) = (number, flags) else { continue };
        for site in callers(code, function.start) {
            let is_clone = |(_, origin): &(u64, Origin)| origin.value() == Some(code.machine.clone_number());
            if argument(code, site, number, 1).iter().any(is_clone) {
                found.extend(argument(code, site, flags, 1));
            }
        }
    }
    found
}

/// The origins of an argument at a call, through the arguments of the functions around it, each with the call where it
/// comes from.
fn argument(code: &mut Code<'_>, site: u64, index: u32, depth: usize) -> Vec<(u64, Origin)> {
    let functions = around(code, site);
    if functions.is_empty() {
        return near(code, site, index);
    }
    let Some(register) = code.machine.argument_register(index) else { return Vec::new() };
    let mut found = Vec::new();
    for function in functions {
        for origin in origins(code, &function, site, Location::Register(register)) {
            match origin.argument {
                Some(index) if depth < DEEPEST => {
                    for caller in callers(code, function.start) {
                        let outer = argument(code, caller, index, depth + 1);
                        found.extend(outer.iter().map(|(from, outer)| (*from, origin.with(outer))));
                    }
                }
                _ => found.push((site, origin)),
            }
        }
    }
    found
}

/// The numbers near a call in code that cannot be followed that read as flags of a thread with its own storage: either
/// no signal or SIGCHLD at its end.
fn near(code: &Code<'_>, site: u64, index: u32) -> Vec<(u64, Origin)> {
    let reads =
        |flags: &u64| flags & (VM | SETTLS) == VM | SETTLS && matches!(flags & 0xff, 0 | 17) && flags >> 31 == 0;
    let found = code.machine.near_argument(code, site, index).into_iter().rfind(reads);
    found.map(|flags| (site, Origin::number(flags))).into_iter().collect()
}

/// The function with this instruction; none if its code cannot be followed. Nothing calls a function whose address is
/// passed on, such as main in a program without symbols. Then each place before it that may begin a function counts.
fn around(code: &mut Code<'_>, site: u64) -> Vec<Function> {
    const SPAN: u64 = 4096;
    const MOST: usize = 8;
    let has = |function: &&Function| function.instructions.contains_key(&site);
    if let Some(start) = code.enclosing(site, &BTreeSet::new())
        && let Some(function) = code.function(start).filter(has)
    {
        return vec![function.clone()];
    }
    let mut found = Vec::new();
    for start in (site.saturating_sub(SPAN)..=site).rev() {
        // Padding may also be an instruction that does nothing: then no function begins there.
        let padding = code.instruction(start).is_none_or(|first| code.machine.is_padding(code.image, &first));
        if found.len() < MOST
            && !padding
            && code.machine.follows_an_end(code.image, start)
            && let Some(function) = code.function(start).filter(has)
        {
            found.push(function.clone());
        }
    }
    found
}

fn callers(code: &Code<'_>, start: u64) -> Vec<u64> {
    code.branches_to(start).iter().map(|branch| branch.site).collect()
}
