//! The allocator's state, and the proof that only the family touches it.
//!
//! Other code that reads or writes `__malloc_context` or the size classes would find an allocator that is no longer in
//! use. So every place in the code that reads as a reference to them has to be part of an instruction of the family, or
//! proven not to be a reference, or in unreachable code.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;

use format::Role;

use super::donate;
use super::roles::Candidates;
use crate::code::{Code, Flow, Function, Reference};
use crate::image::{u32_at, u64_at};
use crate::refusal::Refusal;

/// `sizeof(struct malloc_context)` in musl 1.2.1 to 1.2.6 with 64-bit addresses: 0x398 at least, 0x3a0 at most.
const CONTEXT_SIZE: u64 = 0x3a0;
/// Offsets in it of `mmap_counter` and of `active` (src/malloc/mallocng/meta.h).
const MMAP_COUNTER: u64 = 12;
const ACTIVE: u64 = 80;

pub(super) struct State {
    pub(super) functions: BTreeMap<u64, Function>,
    pub(super) references: usize,
    pub(super) fork_hook: Option<u64>,
    /// Whether other code may refer to the allocator's lock.
    pub(super) has_lock_elsewhere: bool,
    pub(super) donate: Option<u64>,
}

/// Finds the context and accounts for every reference to it.
pub(super) fn confine(
    code: &mut Code<'_>,
    core: &BTreeMap<Role, u64>,
    candidates: &Candidates,
    table: u64,
) -> Result<State, Refusal> {
    let mut functions = BTreeMap::new();
    reach(code, core.values().copied(), &mut functions);
    let context = context(code, core, candidates, &functions)?;
    let ranges = [context.clone(), table..table + 96];
    let donate = donate::find(code, &context, &functions)?;
    if let Some(start) = donate {
        reach(code, [start], &mut functions);
    }
    let references: BTreeSet<Reference> = ranges.iter().flat_map(|range| code.references(range.clone())).collect();

    let covered = |functions: &BTreeMap<u64, Function>, address: u64| functions.values().any(|f| f.covers(address));
    // Inner functions: they touch the state and are not entry points. No code outside the family may call them.
    let inner: BTreeSet<u64> = functions
        .iter()
        .filter(|(start, function)| {
            !core.values().chain(&donate).any(|own| own == *start)
                && ranges.iter().any(|range| function.refers_into(range.clone()))
        })
        .map(|(start, _)| *start)
        .collect();
    // Nor may other code call a place in the middle of one.
    let amid = functions.values().filter(|function| ranges.iter().any(|range| function.refers_into(range.clone())));
    let inner: BTreeSet<u64> = amid.flat_map(|function| code.starts_amid(function)).chain(inner).collect();
    let mut unconfirmed = BTreeSet::new();
    for reference in references.iter().filter(|reference| !covered(&functions, reference.field)) {
        if let Some(start) = code.machine.confirmed(code, *reference, &candidates.ends) {
            unconfirmed.insert((start, *reference));
        }
    }
    let mut dead = BTreeSet::new();
    for (start, reference) in unconfirmed {
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
    let (fork_hook, has_lock_elsewhere) = fork_hook(code, core, &context, &functions)?;
    if let Some(start) = fork_hook
        && let Some(function) = code.function(start).cloned()
    {
        functions.insert(start, function);
    }
    Ok(State { functions, references: references.len(), fork_hook, has_lock_elsewhere, donate })
}

/// Adds functions and those that they call, as deep as the family goes. Those with the fewest calls on the way come
/// first, since a function may also be reached by longer paths.
fn reach(code: &mut Code<'_>, starts: impl IntoIterator<Item = u64>, functions: &mut BTreeMap<u64, Function>) {
    const DEEPEST: usize = 4;
    let mut open: VecDeque<(u64, usize)> = starts.into_iter().map(|start| (start, 0)).collect();
    while let Some((start, depth)) = open.pop_front() {
        if functions.contains_key(&start) || depth > DEEPEST {
            continue;
        }
        let Some(function) = code.function(start).cloned() else { continue };
        open.extend(function.leads_to().map(|to| (to, depth + 1)));
        functions.insert(start, function);
    }
}

/// Finds `__malloc_context`. Its first word, the secret, is compared wherever a block's group is found, and malloc uses
/// its counters and its lists. If there is a symbol, it has to agree.
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
        (_, _) => Err(Refusal::Context(likely.len())),
    }
}

/// Whether a function is unreachable: no branch targets it, no code takes its address, and no data holds it. A function
/// called only by unreachable functions is unreachable too.
fn is_dead(code: &mut Code<'_>, start: u64, family: &BTreeMap<u64, Function>, ends: &BTreeSet<u64>) -> bool {
    let Some(own) = code.function(start).cloned() else { return false };
    // Control can fall into a place that does not follow the end of a function.
    let mut entries = code.starts_amid(&own);
    entries.insert(start);
    if entries.iter().any(|entry| code.holds_address(*entry)) || !code.follows_an_end(start) {
        return false;
    }
    if is_in_jump_table(code, &own) {
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
        // A place outside of every known function may be a reference: then nothing proves the function unreachable.
        let Some(caller) = code.enclosing(field, ends) else { return false };
        let Some(function) = code.function(caller).cloned() else { return false };
        let Some(instruction) = function.instruction_over(field) else { return false };
        if code.machine.refers_to(code, &function, instruction.address, entry) {
            return false;
        }
    }
    true
}

/// Whether a jump table of an earlier function, of distances or addresses, points into this one: then this one is a
/// part of that function. Compilers write a `switch` so.
fn is_in_jump_table(code: &mut Code<'_>, own: &Function) -> bool {
    const NEAR: u64 = 4096;
    const MOST_PLACES: u64 = 512;
    for start in code.starts_within(own.start.saturating_sub(NEAR)..own.start) {
        let Some(function) = code.function(start) else { continue };
        if !function.instructions.values().any(|instruction| instruction.flow == Flow::Jump(None)) {
            continue;
        }
        let tables: BTreeSet<u64> = function.addresses().collect();
        for table in tables {
            let leads = |place: u64| {
                let distance = u32_at(code.image.read(table + 4 * place, 4)?, 0)?.cast_signed();
                let slot = table + 8 * place;
                let address = code.image.read(slot, 8).and_then(|bytes| u64_at(bytes, 0));
                let relocated = code.relocations.value_at(slot);
                let places = [Some(table.wrapping_add_signed(distance.into())), address, relocated];
                Some(places.into_iter().flatten().any(|to| own.instructions.contains_key(&to)))
            };
            if (0..MOST_PLACES).map_while(leads).any(|leads| leads) {
                return true;
            }
        }
    }
    false
}

/// Finds __malloc_atfork (musl 1.2.2 and later). It takes the allocator's lock before a fork, releases it in the
/// parent, and resets it in the child by writing 0. It is recognised by that, and by the comparison of its one argument
/// with 0. Also returns whether other code than the family's may refer to the lock: malloc and free both do.
fn fork_hook(
    code: &mut Code<'_>,
    core: &BTreeMap<Role, u64>,
    context: &Range<u64>,
    functions: &BTreeMap<u64, Function>,
) -> Result<(Option<u64>, bool), Refusal> {
    let writable = |code: &Code<'_>, start: u64| -> BTreeSet<u64> {
        let Some(function) = functions.get(&start) else { return BTreeSet::new() };
        let outside = |address: &u64| !context.contains(address);
        function.addresses().filter(|address| code.image.is_writable(*address) && outside(address)).collect()
    };
    let (malloc, free) = (writable(code, core[&Role::Malloc]), writable(code, core[&Role::Free]));
    let locks: BTreeSet<u64> = malloc.union(&free).copied().collect();
    let (mut found, mut has_lock_elsewhere) = (BTreeSet::new(), true);
    for lock in locks {
        let mut elsewhere = code.references(lock..lock + 4);
        elsewhere.retain(|reference| !functions.values().any(|function| function.covers(reference.field)));
        if elsewhere.is_empty() && malloc.contains(&lock) && free.contains(&lock) {
            has_lock_elsewhere = false;
        }
        for reference in elsewhere {
            let Some(start) = code.enclosing(reference.field, &BTreeSet::new()) else { continue };
            if code.function(start).cloned().is_some_and(|function| is_hook(code, &function, lock)) {
                found.insert(start);
            }
        }
    }
    let named = code.named(b"__malloc_atfork");
    match (found.iter().copied().collect::<Vec<_>>().as_slice(), named.as_slice()) {
        ([], []) => Ok((None, has_lock_elsewhere)),
        ([one], []) => Ok((Some(*one), true)),
        ([one], [name]) if one == name => Ok((Some(*one), true)),
        ([], [name, ..]) => Err(Refusal::Symbol { name: "__malloc_atfork", address: *name, found: None }),
        (many, _) => Err(Refusal::Ambiguous { role: Role::ForkHook, found: many.to_vec() }),
    }
}

fn is_hook(code: &Code<'_>, function: &Function, lock: u64) -> bool {
    function.instructions.len() <= 60 && code.machine.resets_lock(code, function, lock)
}
