//! The whole plan of a graft: the contents of a program, and the edits. A part that is uncertain refuses the whole
//! plan: a program that is grafted in part would have blocks of two allocators.

use std::collections::BTreeSet;

use format::{Arch, Linked, Role, StringFunction, entries, parameters};

use crate::appended::{Jump, PlanError};
use crate::blob::{Blob, BlobError};
use crate::code::{self, Code, Flow};
use crate::executable::Executable;
use crate::family::{self, Family};
use crate::layout::{Parts, ProgramAddresses, assemble};
use crate::location::Location;
use crate::refusal::Refusal;
use crate::relocations::Relocations;
use crate::strings::{self, StringEntry};
use crate::{libc, loader, threads};

/// A function of the program that is redirected to the donor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its role.
    pub role: Role,
    /// The address of its start, before any base is added.
    pub address: u64,
}

/// A grafted executable, and what was found in the program.
#[derive(Debug, Clone)]
pub struct Graft {
    /// The functions found, and those redirected.
    pub plan: Plan,
    /// The grafted file.
    pub bytes: Vec<u8>,
}

/// The changes that a graft makes to an executable, with the facts that it relies on.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Its architecture.
    pub arch: Arch,
    /// Whether it loads at any address.
    pub position_independent: bool,
    /// Whether it has a symbol table. If so, the table agreed with what was found.
    pub symbols: bool,
    /// The functions that are redirected, by role and address.
    pub entries: Vec<Entry>,
    /// The program's string functions by address, the redirected and the kept. Empty if the blob has none.
    pub strings: Vec<StringEntry>,
    /// If the blob has string functions: those that were not found in the program, or that the donor does not have.
    pub strings_absent: Vec<(StringFunction, strings::Absence)>,
    /// Whether its fork calls the allocator's hook. If not, the program has no fork.
    pub fork_hook: bool,
    /// Whether its threads call the allocator when they end. If not, the program has no threads.
    pub thread_end: bool,
    /// Whether its `exit` passes through the donor, which writes the statistics then. If not, they are written when
    /// main returns.
    pub process_end: bool,
    /// If it is musl's dynamic loader: where the donor's thread-local storage is. `None` for a program.
    pub key_values: Option<loader::KeyValues>,
    /// The number of places in the code that read as references to the old allocator's state. All were accounted for.
    pub references: usize,
}

/// Plans the graft of a program or a loader, and makes it (see [`Executable::redirect`]).
pub(crate) fn graft(executable: &Executable<'_>, blob: &Blob, as_if_stripped: bool) -> Result<Graft, PlanError> {
    let image = &executable.image;
    let machine = code::machine(image.arch).ok_or_else(|| Refusal::Architecture(image.arch.to_string()))?;
    if blob.arch != image.arch {
        return Err(BlobError::Layout(format!("it is for {}, and the program for {}", blob.arch, image.arch)).into());
    }
    match executable.kind() {
        Linked::Dynamic => return Err(Refusal::Dynamic.into()),
        Linked::Program | Linked::Loader | Linked::Library => executable.check()?,
    }
    if executable.kind() == Linked::Loader {
        return loader::graft(image, machine, blob);
    }
    if blob.variables.is_some() {
        return Err(BlobError::Layout("it is for the dynamic loader".to_owned()).into());
    }
    let relocations = Relocations::read_static(image)?;
    let mut code = Code::new(machine, image, &relocations, !as_if_stripped);
    let family = family::find(&mut code)?;
    let errno_offset = libc::errno_offset(&code, &family)?;
    libc::check_fork(&mut code, &family)?;
    let end = libc::thread_end(&mut code)?;
    threads::check(&mut code, end)?;
    let main_call = libc::main(&code)?;
    // Without it, the statistics are written when main returns.
    let exit = libc::process_end(&mut code);

    let mut entries: Vec<Entry> = Vec::new();
    let mut jumps = Vec::new();
    let core = family.core.iter().map(|(role, address)| (*role, *address));
    for (role, address) in core.clone() {
        let site = code.behind_landing_pad(address);
        room(&mut code, &family, role, address, site)?;
        entries.push(Entry { role, address });
        jumps.push(Jump { number: Some(role.number()), site, to: target(role) });
    }
    for (role, address) in &family.wrappers {
        let site = code.behind_landing_pad(*address);
        if room(&mut code, &family, *role, *address, site).is_ok() && jumps.len() < entries::ROOM {
            entries.push(Entry { role: *role, address: *address });
            jumps.push(Jump { number: Some(role.number()), site, to: target(*role) });
        }
    }
    if let Some(end) = end {
        jumps.push(Jump { number: None, site: end.site, to: "transplant_thread_exit" });
    }
    if let Some(exit) = exit {
        jumps.push(Jump { number: None, site: exit.site, to: "transplant_process_exit" });
    }
    // Two jumps over the same bytes would mean that the findings contradict each other.
    let mut sites: Vec<(u64, Role)> =
        entries.iter().map(|entry| (code.behind_landing_pad(entry.address), entry.role)).collect();
    sites.sort_unstable();
    if let Some(pair) = sites.windows(2).find(|pair| pair[1].0 - pair[0].0 < machine.jump_size()) {
        return Err(Refusal::NoRoom { role: pair[0].1, address: pair[0].0 }.into());
    }
    let (strings, strings_absent) = redirected(&mut code, &family, &mut jumps, blob)?;

    let addresses = ProgramAddresses {
        errno_offset,
        key_destructors: end.map(|end| end.destructors),
        main: main_call.main,
        streams: exit.map(|exit| exit.streams),
        calls: calls(&code, &family),
    };
    let symbols = !code.symbols.is_empty();
    let parts = Parts {
        machine,
        image,
        relocations: &relocations,
        location: Location::choose(&code),
        blob: blob.clone(),
        jumps,
        main: main_call.edit,
        addresses,
    };
    let bytes = assemble(parts)?;
    entries.sort_unstable_by_key(|entry| (entry.role, entry.address));
    let plan = Plan {
        arch: image.arch,
        position_independent: image.position_independent,
        symbols,
        entries,
        strings,
        strings_absent,
        fork_hook: family.core.contains_key(&Role::ForkHook),
        thread_end: end.is_some(),
        process_end: exit.is_some(),
        key_values: None,
        references: family.references,
    };
    Ok(Graft { plan, bytes })
}

/// The program's string functions, redirected or kept, and the ones it does not have.
pub(crate) type Strings = (Vec<StringEntry>, Vec<(StringFunction, strings::Absence)>);

/// Finds the string functions if the blob has some, and adds a jump for each that can be redirected.
pub(crate) fn redirected(
    code: &mut Code<'_>,
    family: &Family,
    jumps: &mut Vec<Jump>,
    blob: &Blob,
) -> Result<Strings, PlanError> {
    if !blob.has_strings() {
        return Ok(Strings::default());
    }
    let donated: BTreeSet<StringFunction> = StringFunction::all().filter(|function| blob.brings(*function)).collect();
    let room = blob.room()?;
    let taken: Vec<u64> = jumps.iter().map(|jump| jump.site).collect();
    let entries = jumps.iter().filter(|jump| jump.number.is_some()).count();
    let found = strings::find(code, family, &donated, &taken, room.saturating_sub(entries));
    if !found.iter().any(|entry| entry.kept.is_none()) {
        let reasons: Vec<String> = found
            .iter()
            .take(6)
            .filter_map(|entry| Some(format!("{} at {:#x}: {}", entry.function, entry.address, entry.kept?)))
            .collect();
        let found = if reasons.is_empty() { "none was found".to_owned() } else { reasons.join("; ") };
        return Err(Refusal::Strings(found).into());
    }
    for entry in found.iter().filter(|entry| entry.kept.is_none()) {
        let site = code.behind_landing_pad(entry.address);
        jumps.push(Jump { number: Some(entry.function.number()), site, to: entry.function.name() });
    }
    let absent = strings::absent(&found, &donated, !code.symbols.is_empty());
    Ok((found, absent))
}

/// The donor's function for a role.
pub(crate) fn target(role: Role) -> &'static str {
    match role {
        Role::Malloc => "transplant_malloc",
        Role::Free => "transplant_free",
        Role::Calloc => "transplant_calloc",
        Role::Realloc => "transplant_realloc",
        Role::AlignedAlloc => "transplant_aligned_alloc",
        Role::UsableSize => "transplant_usable_size",
        Role::IsZero => "transplant_is_zero",
        Role::ForkHook => "transplant_fork_hook",
        Role::Donate => "transplant_donate",
    }
}

/// Checks that a jump can be written at `site`: the overwritten bytes belong to the function, and nothing jumps to them
/// except to the first.
pub(crate) fn room(code: &mut Code<'_>, family: &Family, role: Role, address: u64, site: u64) -> Result<(), Refusal> {
    let size = code.machine.jump_size();
    let function = match family.functions.get(&address) {
        Some(function) => Some(function.clone()),
        None => code.function(address).cloned(),
    };
    let Some(function) = function.filter(|function| function.has_room(site, size)) else {
        return Err(Refusal::NoRoom { role, address });
    };
    for into in site + 1..site + size {
        if code.is_start(into) && code.branches_to(into).iter().any(|branch| !function.covers(branch.site)) {
            // The branch was found by its bytes alone. They might not be an instruction, but count as one.
            let site = code.branches_to(into)[0].site;
            return Err(Refusal::JumpedInto { role, address: into, site });
        }
    }
    for instruction in function.instructions.values() {
        let (Flow::Conditional(into) | Flow::Jump(Some(into))) = instruction.flow else { continue };
        let overwritten = (site..site + size).contains(&instruction.address);
        if !overwritten && into > site && into < site + size {
            return Err(Refusal::JumpedInto { role, address: into, site: instruction.address });
        }
    }
    Ok(())
}

/// The program's functions for the self-test, in the order of `parameters.h`: functions whose code reaches the family,
/// and functions found by name that are redirected or call a redirected one.
fn calls(code: &Code<'_>, family: &Family) -> [Option<u64>; parameters::CALLS] {
    let core = |role| family.core.get(&role).copied();
    let calloc = family.wrappers.iter().find(|(role, _)| *role == Role::Calloc).map(|(_, start)| *start);
    let named = |name: &[u8]| code.named(name).first().copied();
    [
        core(Role::Malloc),
        core(Role::Free),
        calloc,
        core(Role::Realloc),
        core(Role::AlignedAlloc),
        named(b"posix_memalign"),
        core(Role::UsableSize),
        core(Role::ForkHook),
        named(b"__errno_location").or(named(b"___errno_location")),
        named(b"memalign"),
    ]
}
