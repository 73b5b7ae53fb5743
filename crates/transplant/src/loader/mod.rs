//! musl's libc.so, which is also the dynamic loader: a donor in it serves every dynamic program.
//!
//! The malloc family is found as in a program, and the exported names have to agree. What else a loader's graft needs
//! is in `keys` (where a thread keeps the values of its pthread keys, behind which the donor's thread-local storage
//! lies) and in `exports` (names, and the slots through which libc calls its own malloc). `layout` puts the file
//! together.

mod exports;
mod keys;
mod layout;

use format::{Role, entries};

use crate::appended::{Jump, PlanError};
use crate::blob::Blob;
use crate::code::{Code, Machine};
use crate::family::{self, Family};
use crate::image::{Image, PT_TLS};
use crate::libc;
use crate::plan::{Entry, Graft, Plan, redirected, room, target};
use crate::refusal::Refusal;
use crate::relocations::Relocations;

use exports::Exports;
pub use keys::KeyValues;

/// The parts of a loader's graft.
pub(crate) struct Findings {
    pub(crate) jumps: Vec<Jump>,
    pub(crate) end: libc::ThreadEnd,
    pub(crate) exit: libc::ProcessEnd,
    pub(crate) errno_offset: i64,
    pub(crate) values: KeyValues,
    pub(crate) slots: exports::Slots,
}

/// Finds everything in the loader that a graft needs, and makes the graft; or refuses.
pub(crate) fn graft(image: &Image<'_>, machine: &'static dyn Machine, blob: &Blob) -> Result<Graft, PlanError> {
    if image.segment(PT_TLS).is_some() {
        return Err(refused("has thread-local storage of its own").into());
    }
    let storage = layout::storage(blob)?;
    let relocations = Relocations::read_static(image)?;
    let exports = Exports::parse(image)?;
    // Without slots of its own, nothing below would be found.
    let slots = exports.slots()?;
    let stubs = exports.stubs(machine, image);
    let mut code = Code::with(machine, image, &relocations, exports.symbols.clone(), stubs);
    let family = family::find(&mut code)?;
    exports.agree(&mut code, &family)?;
    let errno_offset = libc::errno_offset(&code, &family)?;
    let end = libc::thread_end(&mut code)?.ok_or_else(|| refused("does not start threads"))?;
    let exit = libc::process_end(&mut code).ok_or_else(|| refused("its `exit` does not end as musl's"))?;
    let values = keys::find(&mut code, storage)?;

    // `__libc_calloc` stays: it calls `__libc_malloc`, which is redirected, and clears the block. A program's malloc
    // must not serve it, and the donor's calloc asks whether there is one.
    let calloc = exports.address("calloc")?;
    let core = family.core.iter().map(|(role, address)| (*role, *address));
    let wrappers =
        family.wrappers.iter().filter(|(role, address)| *role != Role::Calloc || *address == calloc).copied();
    let (mut entries, mut jumps) = (Vec::new(), Vec::new());
    for (role, address) in core.chain(wrappers) {
        let site = code.behind_landing_pad(address);
        match room(&mut code, &family, role, address, site) {
            Ok(()) => {}
            Err(refusal) if is_needed(&family, role, address) => return Err(refusal.into()),
            Err(_) => continue,
        }
        entries.push(Entry { role, address });
        jumps.push(Jump { number: Some(role.number()), site, to: target(role) });
    }
    if jumps.len() > entries::ROOM {
        return Err(refused(format!("{} functions of it are malloc's family", jumps.len())).into());
    }
    let mut sites: Vec<u64> = jumps.iter().map(|jump| jump.site).collect();
    sites.sort_unstable();
    if let Some(pair) = sites.windows(2).find(|pair| pair[1] - pair[0] < machine.jump_size()) {
        return Err(refused(format!("two functions of malloc's family begin at {:#x}", pair[0])).into());
    }
    // They are exported, so that all have a name.
    let (strings, strings_absent) = redirected(&mut code, &family, &mut jumps, blob)?;
    jumps.push(Jump { number: None, site: end.site, to: "transplant_thread_exit" });
    jumps.push(Jump { number: None, site: exit.site, to: "transplant_process_exit" });

    let findings = Findings { jumps, end, exit, errno_offset, values, slots };
    let bytes = layout::assemble(image, machine, blob.clone(), findings)?;
    entries.sort_unstable_by_key(|entry| (entry.role, entry.address));
    let plan = Plan {
        arch: image.arch,
        position_independent: true,
        symbols: true,
        entries,
        strings,
        strings_absent,
        fork_hook: true,
        thread_end: true,
        process_end: true,
        key_values: Some(values),
        references: family.references,
    };
    Ok(Graft { plan, bytes })
}

/// Whether the graft would be wrong without that function. True for all but exported names that only jump to another
/// function.
fn is_needed(family: &Family, role: Role, address: u64) -> bool {
    role == Role::Calloc || family.core.get(&role) == Some(&address)
}

pub(crate) fn refused(why: impl Into<String>) -> Refusal {
    Refusal::Loader(why.into())
}
