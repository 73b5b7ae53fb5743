//! All of it together: what is in a program, what becomes of it.

use format::{Arch, Role, StringFunction, entries, parameters};

use crate::blob::{Blob, BlobError};
use crate::code::{self, Code, Flow};
use crate::family::{self, Family};
use crate::image::Image;
use crate::layout::{Inset, Jump, Parameters, Trouble, assemble};
use crate::location::Location;
use crate::refusal::Refusal;
use crate::relocations::Relocations;
use crate::strings::{self, StringEntry};
use crate::{kind, libc};

/// A function of the program that leads to the donor's from now on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What it is.
    pub role: Role,
    /// Where it begins, before any base is added.
    pub address: u64,
}

/// A graft of an executable.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What it is for.
    pub arch: Arch,
    /// Whether it loads at any address.
    pub position_independent: bool,
    /// Whether it has a symbol table, which agreed with what was found.
    pub symbols: bool,
    /// The functions that are redirected, by role and address.
    pub entries: Vec<Entry>,
    /// Its string functions, in order of their addresses: those that are redirected and those that stay. None, if the
    /// blob brings none.
    pub strings: Vec<StringEntry>,
    /// With them: those that the program does not show, or the donor does not have.
    pub strings_absent: Vec<(StringFunction, strings::Absence)>,
    /// Whether its fork tells the allocator; a program without has no fork.
    pub fork_hook: bool,
    /// Whether its threads tell the allocator when they end; a program without has no threads.
    pub thread_end: bool,
    /// Places in the code that read as references to the old allocator's state: all of them were accounted for.
    pub references: usize,
    /// The grafted file.
    pub graft: Vec<u8>,
}

/// Finds everything in `program` that a graft needs, or refuses; then makes the graft.
///
/// `as_if_stripped` leaves its symbols out of account, for tests.
///
/// # Errors
/// A refusal, or a blob that cannot be used, which is this program's own fault.
pub fn plan(program: &[u8], blob: &Blob, as_if_stripped: bool) -> Result<Result<Plan, Refusal>, BlobError> {
    match planned(program, blob, as_if_stripped) {
        Ok(plan) => Ok(Ok(plan)),
        Err(Trouble::Refusal(refusal)) => Ok(Err(refusal)),
        Err(Trouble::Blob(error)) => Err(error),
    }
}

fn planned(program: &[u8], blob: &Blob, as_if_stripped: bool) -> Result<Plan, Trouble> {
    let image = Image::parse(program)?;
    let machine = code::machine(image.arch).ok_or_else(|| Refusal::Architecture { found: image.arch.to_string() })?;
    if blob.arch != image.arch {
        return Err(BlobError::Layout(format!("it is for {}, and the program for {}", blob.arch, image.arch)).into());
    }
    kind::check(&image)?;
    let relocations = Relocations::of(&image)?;
    let mut code = Code::of(machine, &image, &relocations, !as_if_stripped);
    let family = family::find(&mut code)?;
    let errno_offset = libc::errno_offset(&code, &family)?;
    libc::check_fork(&code, &family)?;
    let end = libc::thread_end(&mut code)?;
    libc::check_threads(&mut code, end)?;
    let handover = libc::main(&code)?;

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
    // Two jumps over the same bytes would be a contradiction in what was found.
    let mut sites: Vec<(u64, Role)> =
        entries.iter().map(|entry| (code.behind_landing_pad(entry.address), entry.role)).collect();
    sites.sort_unstable();
    if let Some(pair) = sites.windows(2).find(|pair| pair[1].0 - pair[0].0 < machine.jump_size()) {
        return Err(Refusal::NoRoom { role: pair[0].1, address: pair[0].0 }.into());
    }
    let strings = match blob.has_strings() {
        true => redirected(&mut code, &family, &mut jumps, blob)?,
        false => Vec::new(),
    };
    let donated = StringFunction::all().filter(|function| blob.brings(*function)).collect();
    let strings_absent = match blob.has_strings() {
        true => strings::absent(&strings, &donated, !code.symbols.is_empty()),
        false => Vec::new(),
    };

    let parameters = Parameters {
        errno_offset,
        key_destructors: end.map(|end| end.destructors),
        main: handover.main,
        calls: calls(&code, &family),
    };
    let symbols = !code.symbols.is_empty();
    let inset = Inset {
        machine,
        image: &image,
        relocations: &relocations,
        location: Location::of(&code),
        blob: blob.clone(),
        jumps,
        main: handover.edit,
        parameters,
    };
    let graft = assemble(inset)?;
    entries.sort_unstable_by_key(|entry| (entry.role, entry.address));
    Ok(Plan {
        arch: image.arch,
        position_independent: image.position_independent,
        symbols,
        entries,
        strings,
        strings_absent,
        fork_hook: family.core.contains_key(&Role::ForkHook),
        thread_end: end.is_some(),
        references: family.references,
        graft,
    })
}

/// Finds the string functions, and adds a jump for each that can be redirected.
fn redirected(
    code: &mut Code<'_>,
    family: &Family,
    jumps: &mut Vec<Jump>,
    blob: &Blob,
) -> Result<Vec<StringEntry>, Trouble> {
    let room = blob.room()?;
    let taken: Vec<u64> = jumps.iter().map(|jump| jump.site).collect();
    let entries = jumps.iter().filter(|jump| jump.number.is_some()).count();
    let others = StringFunction::all().filter(|function| blob.brings(*function)).collect();
    let found = strings::find(code, family, &others, &taken, room.saturating_sub(entries));
    if !found.iter().any(|entry| entry.kept.is_none()) {
        let reasons: Vec<String> = found
            .iter()
            .take(6)
            .filter_map(|entry| Some(format!("{} at {:#x}: {}", entry.function, entry.address, entry.kept?)))
            .collect();
        let found = if reasons.is_empty() { "none was found".to_owned() } else { reasons.join("; ") };
        return Err(Refusal::Strings { found }.into());
    }
    for entry in found.iter().filter(|entry| entry.kept.is_none()) {
        let site = code.behind_landing_pad(entry.address);
        jumps.push(Jump { number: Some(entry.function.number()), site, to: entry.function.name() });
    }
    Ok(found)
}

/// The donor's function for a role.
fn target(role: Role) -> &'static str {
    match role {
        Role::Malloc => "transplant_malloc",
        Role::Free => "transplant_free",
        Role::Calloc => "transplant_calloc",
        Role::Realloc => "transplant_realloc",
        Role::AlignedAlloc => "transplant_aligned_alloc",
        Role::UsableSize => "transplant_usable_size",
        Role::IsZero => "transplant_is_zero",
        Role::ForkHook => "transplant_fork_hook",
    }
}

/// Whether the bytes of a jump from `site` on can be written over: they are the function's own, and nothing jumps
/// behind the first.
fn room(code: &mut Code<'_>, family: &Family, role: Role, address: u64, site: u64) -> Result<(), Refusal> {
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
            // By the bytes alone; whether those of the branch are an instruction is left open, and counts against it.
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

/// The program's functions for the self-test, in the order of `parameters.h`: those that lead to the family by its
/// code, and others by name only where they are redirected themselves or call what is.
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
