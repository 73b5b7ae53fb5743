//! Locates the donor in an executable that was grafted after linking, and the functions that jump to it. Profilers
//! attribute their samples with it.

use std::ops::Range;

use crate::elf::Elf;
use crate::entry_points::{EntryPoints, loads};

/// A donor in an executable that was grafted after linking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirected {
    /// The addresses of the donor's code.
    pub donor: Range<u64>,
    /// The functions that jump to it: address, and name (`malloc`, `memcpy`).
    pub functions: Vec<(u64, &'static str)>,
}

/// Reads the note on entry points of an executable. `None` if the file has no such note, or the code does not confirm
/// it.
pub fn redirected(bytes: &[u8]) -> Option<Redirected> {
    let elf = Elf::parse(bytes).ok()?;
    let points = EntryPoints::parse(&elf)?.ok().filter(|points| points.is_confirmed(&elf))?;
    let segment = loads(&elf).find(|load| load.address == points.donor())?;
    let named = points.entries.iter().filter_map(|entry| {
        let name = entry.symbol()?;
        Some((entry.address, name.strip_prefix("transplant_").unwrap_or(name)))
    });
    Some(Redirected {
        donor: segment.address..segment.address.saturating_add(segment.memory),
        functions: named.collect(),
    })
}
