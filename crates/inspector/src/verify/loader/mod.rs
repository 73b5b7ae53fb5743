//! Verifies a grafted dynamic loader, musl's libc.so. Its note, its entry points and its donor are checked like an
//! executable's; this module checks the parts that only a loader has.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `parameters` | the fields that describe libc.so to the donor |
//! | `file` | the permitted changes of its file |

mod file;
mod parameters;

use super::edits::{self, Edit, Naming, Permitted};
use super::file::PF_W;
use crate::elf::{Elf, PT_INTERP, Segment};
use crate::entry_points::{EntryPoints, loads};
use crate::verify::check::Check;

pub(super) use file::compare_files;
pub(super) use parameters::{filled_in, loader_parameters};

/// The size of a thread's values of pthread keys in stock, `__pthread_tsd_size` (musl,
/// src/thread/pthread_key_create.c).
const VALUES: u64 = 1024;

/// The calls that are redirected to the donor: at the ends of a thread and of the process.
const CALLS: usize = 2;

/// Whether a file is musl's libc.so, by names that only it exports.
pub(crate) fn is_loader(elf: &Elf<'_>) -> bool {
    let exports = |name: &[u8]| elf.dynamic_symbols.iter().any(|symbol| symbol.is_exported() && symbol.name == name);
    let interpreted = elf.segments.iter().any(|segment| segment.kind == PT_INTERP);
    !interpreted && exports(b"__dls3") && exports(b"__libc_start_main")
}

/// The writable segment of libc.so: the one that is not the donor's.
fn writable<'e, 'a>(elf: &'e Elf<'a>, donor: u64) -> Option<&'e Segment<'a>> {
    loads(elf).find(|load| load.address < donor && load.flags & PF_W != 0)
}

/// A segment in memory: its bytes, and zeros up to its end.
fn memory(segment: &Segment<'_>) -> Vec<u8> {
    const MOST: u64 = 1 << 28;
    let mut bytes = segment.data.unwrap_or_default().to_vec();
    bytes.resize(segment.memory.min(MOST) as usize, 0);
    bytes
}

/// The variable with the size of a thread's values: the address of the one word of data that differs from stock, and
/// its value in the graft.
fn size_of_values(graft: &Elf<'_>, stock: &Elf<'_>, donor: u64) -> Result<(u64, u64), String> {
    let (Some(before), Some(after)) = (writable(stock, donor), writable(graft, donor)) else {
        return Err("it has no writable segment".to_owned());
    };
    if before.address != after.address || before.memory != after.memory {
        return Err(format!("the writable segment at {:#x} is not where stock's is, or as large", after.address));
    }
    let (was, is) = (memory(before), memory(after));
    let word = |bytes: &[u8], at: usize| bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word));
    let differs: Vec<usize> = (0..was.len()).filter(|at| was[*at] != is[*at]).collect();
    let Some(first) = differs.first() else { return Err("no variable has another value than in stock".to_owned()) };
    let address = (before.address + *first as u64) & !7;
    let place =
        usize::try_from(address.checked_sub(before.address).ok_or("it begins within a word")?).unwrap_or(usize::MAX);
    match (word(&was, place), word(&is, place)) {
        (Some(VALUES), Some(now)) if differs.iter().all(|at| (place..place + 8).contains(at)) => Ok((address, now)),
        _ => Err(format!("the data at {address:#x} are not stock's")),
    }
}

/// Checks that everything that stock loads is loaded at the same addresses with the same contents, but for the jumps,
/// the calls at the ends of threads and of processes, and the size of a thread's values.
pub(super) fn unchanged(graft: &Elf<'_>, stock: &Elf<'_>, entry_points: &EntryPoints) -> Check {
    let (jumps, added) = (edits::jumps(graft, entry_points), edits::added(graft, entry_points));
    let is_edit = |edit: &Edit| edit.naming == Naming::Call && added.contains(&edit.after);
    let permitted = Permitted::new(graft, stock, &jumps, (CALLS, &is_edit));
    let constant = loads(stock).filter(|load| load.flags & PF_W == 0);
    let (mut complaints, _) = permitted.compare(graft, stock, constant);
    let mut size = 0;
    match size_of_values(graft, stock, added.start) {
        Ok((_, now)) => size = now,
        Err(problem) => complaints.push(problem),
    }
    Check::unless("program", complaints, || {
        let jumps = jumps.len();
        format!("libc.so is stock's but for {jumps} jumps, {CALLS} calls, and {size} bytes for a thread's values")
    })
}
