//! musl's malloc family in a program: the role of each function, and the proof that no other code touches its state.
//!
//! A role is found by a function's behaviour, never by its name or its bytes. A symbol table, if there is one, has to
//! agree. `roles` finds the candidates; `state` finds the allocator's context and every reference to it.

mod donate;
mod roles;
mod state;

use std::collections::{BTreeMap, BTreeSet};

use format::Role;

use crate::code::{Code, Function};
use crate::image::Symbol;
use crate::refusal::Refusal;

/// The sizes of mallocng in units of 16 bytes, `__malloc_size_classes` (src/malloc/mallocng/malloc.c).
const SIZE_CLASSES: [u16; 48] = [
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 18, 20, 25, 31, 36, 42, 50, 63, 72, 84, 102, 127, 146, 170, 204, 255, 292,
    340, 409, 511, 584, 682, 818, 1023, 1169, 1364, 1637, 2047, 2340, 2730, 3276, 4095, 4680, 5460, 6552, 8191,
];

/// The names of mallocng's own function of this role in a symbol table. The public name may belong to the program's own
/// function.
fn own_names(role: Role) -> &'static [&'static str] {
    match role {
        Role::Malloc => &["__libc_malloc_impl"],
        Role::Free => &["__libc_free"],
        Role::Calloc => &[],
        Role::Realloc => &["__libc_realloc"],
        Role::AlignedAlloc => &["aligned_alloc"],
        Role::UsableSize => &["malloc_usable_size"],
        Role::IsZero => &["__malloc_allzerop"],
        Role::ForkHook => &["__malloc_atfork"],
        Role::Donate => &["__malloc_donate"],
    }
}

/// The malloc family of a program.
#[derive(Debug)]
pub(crate) struct Family {
    /// The starts of the functions with access to the allocator's state, if the program has them.
    pub(crate) core: BTreeMap<Role, u64>,
    /// Functions of the family that call one in `core`: wrappers that only jump, and calloc.
    pub(crate) wrappers: Vec<(Role, u64)>,
    /// Every function whose instructions have been accounted for.
    pub(crate) functions: BTreeMap<u64, Function>,
    /// The number of references to the state. All of them are the family's.
    pub(crate) references: usize,
    /// Whether other code may refer to the allocator's lock, as the hook of fork does.
    pub(crate) has_lock_elsewhere: bool,
}

/// Why mallocng was not found: symbols may show that there is no malloc at all. (musl's own names: `src/malloc/`.)
fn absent(symbols: &[Symbol<'_>]) -> Refusal {
    const FAMILY: [&[u8]; 8] = [
        b"malloc",
        b"free",
        b"calloc",
        b"realloc",
        b"aligned_alloc",
        b"__libc_malloc",
        b"__libc_free",
        b"__libc_malloc_impl",
    ];
    let has = |name: &[u8]| symbols.iter().any(|symbol| symbol.name == name);
    match has(b"_start") && !FAMILY.into_iter().any(has) {
        true => Refusal::NoMalloc,
        false => Refusal::NoMallocng,
    }
}

/// Finds the family, or returns a refusal that says what is missing.
pub(crate) fn find(code: &mut Code<'_>) -> Result<Family, Refusal> {
    let bytes: Vec<u8> = SIZE_CLASSES.into_iter().flat_map(u16::to_le_bytes).collect();
    let tables = code.image.find(&bytes);
    let table = match tables.as_slice() {
        [] => return Err(absent(&code.image.symbols())),
        [table] => table,
        several => return Err(Refusal::Table(several.len())),
    };
    let candidates = roles::candidates(code, *table)?;
    let mut core = BTreeMap::new();
    for (role, found) in &candidates.found {
        match found.as_slice() {
            [] => {}
            [one] => drop(core.insert(*role, *one)),
            many => return Err(Refusal::Ambiguous { role: *role, found: many.to_vec() }),
        }
    }
    for role in [Role::Malloc, Role::Free] {
        if !core.contains_key(&role) {
            return Err(Refusal::Missing(role));
        }
    }
    confirm_extents(code, &core)?;
    confirm_calls(code, &core)?;
    // First, since mallocng's other names would be that allocator's, too.
    for (name, role) in [("malloc", Role::Malloc), ("free", Role::Free)] {
        let own = code.named(name.as_bytes()).into_iter().find(|at| !leads_to(code, *at, core.get(&role).copied()));
        if let Some(address) = own {
            return Err(own_allocator(code, name, address));
        }
    }
    agree_with_symbols(code, &core)?;
    let state = state::confine(code, &core, &candidates, *table)?;
    if let Some(hook) = state.fork_hook {
        core.insert(Role::ForkHook, hook);
    }
    if let Some(donate) = state.donate {
        core.insert(Role::Donate, donate);
    }
    let mut family = Family {
        core,
        wrappers: Vec::new(),
        functions: state.functions,
        references: state.references,
        has_lock_elsewhere: state.has_lock_elsewhere,
    };
    add_wrappers(code, &mut family);
    own_public_names(code, &family)?;
    // musl's public `free` is a function that only jumps to `__libc_free` (src/malloc/free.c). It is linked if the
    // program has no `free` of its own.
    if code.symbols.is_empty() && !family.wrappers.iter().any(|(role, _)| *role == Role::Free) {
        return Err(Refusal::NoPublicFree);
    }
    Ok(family)
}

/// Refuses a function that runs into the start of the next one: then it is not the function with the observed
/// behaviour.
fn confirm_extents(code: &mut Code<'_>, core: &BTreeMap<Role, u64>) -> Result<(), Refusal> {
    for (role, start) in core {
        let Some(function) = code.function(*start).cloned() else { continue };
        if let Some(other) = code.jumped_within(&function).find(|place| function.runs_into(code, *place)) {
            return Err(Refusal::Ambiguous { role: *role, found: vec![*start, other] });
        }
    }
    Ok(())
}

/// Checks evidence outside of each function's own code: realloc calls malloc and free, and aligned_alloc calls malloc.
fn confirm_calls(code: &mut Code<'_>, core: &BTreeMap<Role, u64>) -> Result<(), Refusal> {
    for (role, called) in
        [(Role::Realloc, Role::Malloc), (Role::Realloc, Role::Free), (Role::AlignedAlloc, Role::Malloc)]
    {
        let (Some(caller), Some(target)) = (core.get(&role).copied(), core[&called].into()) else { continue };
        let leads: Vec<u64> = code.function(caller).map(|f| f.leads_to().collect()).unwrap_or_default();
        if !leads.into_iter().any(|to| code.through(to) == target) {
            return Err(Refusal::Unconfirmed { role, address: caller, expected: called });
        }
    }
    Ok(())
}

/// Refuses if a symbol of mallocng's names another address than the one that was found, or names a function that was
/// not found.
fn agree_with_symbols(code: &Code<'_>, core: &BTreeMap<Role, u64>) -> Result<(), Refusal> {
    for role in [Role::Malloc, Role::Free, Role::Realloc, Role::AlignedAlloc, Role::UsableSize, Role::IsZero] {
        for name in own_names(role) {
            let named: BTreeSet<u64> = code.named(name.as_bytes()).into_iter().map(|at| code.through(at)).collect();
            let Some(first) = named.first() else { continue };
            if named.len() > 1 || core.get(&role) != Some(first) {
                return Err(Refusal::Symbol { name, address: *first, found: core.get(&role).copied() });
            }
        }
    }
    Ok(())
}

/// Adds functions that only jump to one of the core or call it, and calloc. Redirecting them saves a jump, and in
/// calloc the clearing of blocks that are zero already. They also work without that, so a function that is uncertain is
/// left alone.
fn add_wrappers(code: &mut Code<'_>, family: &mut Family) {
    let core = family.core.clone();
    for role in [Role::Malloc, Role::Free, Role::Realloc] {
        let Some(target) = core.get(&role).copied() else { continue };
        let sites: Vec<(u64, bool)> = code.branches_to(target).iter().map(|b| (b.site, b.is_call)).collect();
        for (site, is_call) in sites {
            let starts = [Some(site), site.checked_sub(4), site.checked_sub(8)];
            for start in starts.into_iter().flatten() {
                let alone = match is_call {
                    true => start != site && code.thunk_target(start) == Some(target),
                    false => code.behind_landing_pad(start) == site,
                };
                if alone && code.is_start(start) && !core.values().any(|own| *own == start) {
                    family.wrappers.push((role, start));
                }
            }
        }
    }
    let Some(is_zero) = core.get(&Role::IsZero).copied() else { return };
    let sites: Vec<u64> = code.branches_to(is_zero).iter().filter(|b| b.is_call).map(|b| b.site).collect();
    for site in sites {
        if let Some(start) = roles::is_calloc(code, site, is_zero, core[&Role::Malloc]) {
            family.wrappers.push((Role::Calloc, start));
        }
    }
    family.wrappers.sort_unstable();
    family.wrappers.dedup();
}

/// Checks that the public names, if there are symbols, reach the family. A wrapper in the program that counts or checks
/// is allowed. Otherwise the program brings its own allocator, and musl's serves only musl.
fn own_public_names(code: &mut Code<'_>, family: &Family) -> Result<(), Refusal> {
    for (name, role, called) in [
        ("malloc", Role::Malloc, Role::Malloc),
        ("free", Role::Free, Role::Free),
        ("realloc", Role::Realloc, Role::Realloc),
        ("calloc", Role::Calloc, Role::Malloc),
    ] {
        let target = family.core.get(&called).copied();
        for at in code.named(name.as_bytes()) {
            let known =
                role == Role::Calloc && (family.wrappers.contains(&(role, at)) || family.functions.contains_key(&at));
            if !known && !leads_to(code, at, target) {
                return Err(own_allocator(code, name, at));
            }
        }
    }
    Ok(())
}

/// Whether a function is `target`, or calls it or jumps to it, perhaps through thunks.
fn leads_to(code: &mut Code<'_>, function: u64, target: Option<u64>) -> bool {
    let leads: Vec<u64> = code.function(function).map(|it| it.leads_to().collect()).unwrap_or_default();
    leads.into_iter().chain([function]).any(|to| Some(code.through(to)) == target)
}

/// The refusal of a program whose public function `name` is another allocator's, which its symbols may name.
fn own_allocator(code: &Code<'_>, name: &'static str, address: u64) -> Refusal {
    let is_there = |symbol: &&str| !code.named(symbol.as_bytes()).is_empty();
    let of = known::ROWS.iter().find(|row| row.interface.iter().any(&is_there)).map(|row| row.name);
    Refusal::OwnAllocator { name, address, of }
}
