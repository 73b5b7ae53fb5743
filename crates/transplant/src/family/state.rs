//! The allocator's state, and the proof that only the family touches it.
//!
//! Whoever else reads or writes `__malloc_context` or the size classes would find an allocator that nobody feeds any
//! more. Every place in the code that reads as a reference to them has to lie in an instruction of the family, or be
//! shown to be none, or be code that nothing reaches.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use format::Role;

use super::roles::Candidates;
use crate::code::{Code, Function, Reference};
use crate::refusal::Refusal;

/// `sizeof(struct malloc_context)` in musl 1.2.1 to 1.2.6, where addresses have 64 bits: 0x398 at least, 0x3a0 at most.
const CONTEXT_SIZE: u64 = 0x3a0;
/// Offsets in it of `mmap_counter` and of `active` (src/malloc/mallocng/meta.h).
const MMAP_COUNTER: u64 = 12;
const ACTIVE: u64 = 80;

pub(super) struct State {
    pub(super) functions: BTreeMap<u64, Function>,
    pub(super) references: usize,
    pub(super) fork_hook: Option<u64>,
}

/// Finds the context and accounts for every reference.
pub(super) fn confine(
    code: &mut Code<'_>,
    core: &BTreeMap<Role, u64>,
    candidates: &Candidates,
    table: u64,
) -> Result<State, Refusal> {
    let mut functions = BTreeMap::new();
    for start in core.values() {
        reach(code, *start, 0, &mut functions);
    }
    let context = context(code, core, candidates, &functions)?;
    let ranges = [context.clone(), table..table + 96];
    let references: BTreeSet<Reference> = ranges.iter().flat_map(|range| code.references(range.clone())).collect();

    let covered = |functions: &BTreeMap<u64, Function>, address: u64| functions.values().any(|f| f.covers(address));
    // Functions inside: they touch the state and are no entry points. Nobody outside may call them.
    let inner: BTreeSet<u64> = functions
        .iter()
        .filter(|(start, function)| {
            !core.values().any(|own| own == *start) && ranges.iter().any(|range| function.refers_into(range.clone()))
        })
        .map(|(start, _)| *start)
        .collect();
    // Nor may anybody call what lies amid one.
    let amid = functions.values().filter(|function| ranges.iter().any(|range| function.refers_into(range.clone())));
    let inner: BTreeSet<u64> = amid.flat_map(|function| code.starts_amid(function)).chain(inner).collect();
    let mut strays = BTreeSet::new();
    for reference in references.iter().filter(|reference| !covered(&functions, reference.field)) {
        if let Some(start) = code.machine.confirmed(code, *reference, &candidates.ends) {
            strays.insert((start, *reference));
        }
    }
    let mut dead = BTreeSet::new();
    for (start, reference) in strays {
        if functions.contains_key(&start) || !is_dead(code, start, &functions, &candidates.ends) {
            return Err(Refusal::StateElsewhere { address: reference.field, function: start });
        }
        dead.insert(start);
    }
    for start in inner {
        let callers: Vec<u64> = code.branches_to(start).iter().map(|branch| branch.site).collect();
        for site in callers.into_iter().filter(|site| !covered(&functions, *site)) {
            let Some(caller) = code.enclosing(site, &candidates.ends) else { continue };
            let is_instruction =
                code.function(caller).is_some_and(|function| function.instructions.contains_key(&site));
            if is_instruction && !dead.contains(&caller) && !is_dead(code, caller, &functions, &candidates.ends) {
                return Err(Refusal::InsideCalled { function: start, address: site });
            }
        }
    }
    let fork_hook = fork_hook(code, core, &context, &functions)?;
    if let Some(start) = fork_hook
        && let Some(function) = code.function(start).cloned()
    {
        functions.insert(start, function);
    }
    Ok(State { functions, references: references.len(), fork_hook })
}

/// A function and what it calls, as deep as the family goes.
fn reach(code: &mut Code<'_>, start: u64, depth: usize, functions: &mut BTreeMap<u64, Function>) {
    if functions.contains_key(&start) || depth > 4 {
        return;
    }
    let Some(function) = code.function(start).cloned() else { return };
    let leads: Vec<u64> = function.leads_to().collect();
    functions.insert(start, function);
    leads.into_iter().for_each(|to| reach(code, to, depth + 1, functions));
}

/// `__malloc_context`: its first word, the secret, is compared wherever a block's group is found, and malloc uses its
/// counters and its lists. Where there is a symbol, it has to say the same.
fn context(
    code: &Code<'_>,
    core: &BTreeMap<Role, u64>,
    candidates: &Candidates,
    functions: &BTreeMap<u64, Function>,
) -> Result<Range<u64>, Refusal> {
    let writable = |function: &Function| -> BTreeSet<u64> {
        function.addresses().filter(|address| code.image.is_writable(*address)).collect()
    };
    let with_finders = |start: u64| -> BTreeSet<u64> {
        let Some(function) = functions.get(&start) else { return BTreeSet::new() };
        let mut refers = writable(function);
        for called in function.leads_to().filter(|to| candidates.group_finders.contains(to)) {
            refers.extend(functions.get(&called).map(writable).unwrap_or_default());
        }
        refers
    };
    let finders = candidates.group_finders.iter().filter_map(|start| functions.get(start)).map(writable);
    let common = core
        .iter()
        .filter(|(role, _)| **role != Role::Malloc)
        .map(|(_, start)| with_finders(*start))
        .chain(finders)
        .reduce(|one, other| one.intersection(&other).copied().collect())
        .unwrap_or_default();
    let of_malloc = with_finders(core[&Role::Malloc]);
    let used = |address: &u64| [MMAP_COUNTER, ACTIVE].map(|offset| of_malloc.contains(&(address + offset)));
    let mut likely: Vec<u64> =
        common.into_iter().filter(|address| used(address).contains(&true) || of_malloc.contains(address)).collect();
    if likely.len() > 1 && likely.iter().any(|address| used(address) == [true, true]) {
        likely.retain(|address| used(address) == [true, true]);
    }
    let named: Vec<u64> =
        code.symbols.iter().filter(|symbol| symbol.name == b"__malloc_context").map(|symbol| symbol.value).collect();
    match (likely.as_slice(), named.as_slice()) {
        ([one], []) => Ok(*one..*one + CONTEXT_SIZE),
        ([one], [name]) if one == name => Ok(*one..*one + CONTEXT_SIZE),
        ([one], _) => Err(Refusal::Symbol { name: "__malloc_context", address: named[0], found: Some(*one) }),
        (_, _) => Err(Refusal::Context { found: likely.len() }),
    }
}

/// Whether nothing reaches a function: nobody branches to it, takes its address, or holds it in data. A function that
/// only dead ones call is as dead.
fn is_dead(code: &mut Code<'_>, start: u64, family: &BTreeMap<u64, Function>, ends: &BTreeSet<u64>) -> bool {
    let Some(own) = code.function(start).cloned() else { return false };
    // Into what follows no end, control falls.
    let mut entries = code.starts_amid(&own);
    entries.insert(start);
    if entries.iter().any(|entry| code.holds_address(*entry)) || !code.machine.follows_an_end(code.image, start) {
        return false;
    }
    let callers = entries
        .into_iter()
        .flat_map(|entry| code.references(entry..entry + 1).into_iter().map(move |reference| (entry, reference.field)));
    for (entry, field) in callers.collect::<Vec<_>>() {
        if own.covers(field) {
            continue;
        }
        if family.values().any(|function| function.covers(field)) {
            return false;
        }
        // A place that is no instruction's is chance.
        let Some(caller) = code.enclosing(field, ends) else { return false };
        let Some(function) = code.function(caller).cloned() else { return false };
        let Some(instruction) = function.instruction_over(field) else { return false };
        if code.machine.says(code, &function, instruction.address, entry) {
            return false;
        }
    }
    true
}

/// __malloc_atfork (musl 1.2.2 and later): takes the allocator's lock before a fork, lets it go in the parent, and
/// makes it anew in the child by writing 0. Told by that, and by the comparison of its one argument with 0.
fn fork_hook(
    code: &mut Code<'_>,
    core: &BTreeMap<Role, u64>,
    context: &Range<u64>,
    functions: &BTreeMap<u64, Function>,
) -> Result<Option<u64>, Refusal> {
    let writable = |code: &Code<'_>, start: u64| -> BTreeSet<u64> {
        let Some(function) = functions.get(&start) else { return BTreeSet::new() };
        let outside = |address: &u64| !context.contains(address);
        function.addresses().filter(|address| code.image.is_writable(*address) && outside(address)).collect()
    };
    let (malloc, free) = (writable(code, core[&Role::Malloc]), writable(code, core[&Role::Free]));
    let locks: BTreeSet<u64> = malloc.union(&free).copied().collect();
    let mut found = BTreeSet::new();
    for lock in locks {
        for reference in code.references(lock..lock + 4) {
            if functions.values().any(|function| function.covers(reference.field)) {
                continue;
            }
            let Some(start) = code.enclosing(reference.field, &BTreeSet::new()) else { continue };
            if code.function(start).cloned().is_some_and(|function| is_hook(code, &function, lock)) {
                found.insert(start);
            }
        }
    }
    let named = code.named(b"__malloc_atfork");
    match (found.iter().copied().collect::<Vec<_>>().as_slice(), named.as_slice()) {
        ([], []) => Ok(None),
        ([one], []) => Ok(Some(*one)),
        ([one], [name]) if one == name => Ok(Some(*one)),
        ([], [name, ..]) => Err(Refusal::Symbol { name: "__malloc_atfork", address: *name, found: None }),
        (many, _) => Err(Refusal::Ambiguous { role: Role::ForkHook, found: many.to_vec() }),
    }
}

fn is_hook(code: &Code<'_>, function: &Function, lock: u64) -> bool {
    function.instructions.len() <= 60 && code.machine.makes_anew(code, function, lock)
}
