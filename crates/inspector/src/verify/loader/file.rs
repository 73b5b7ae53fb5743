//! The whole file of a grafted libc.so, compared with stock's: stock's bytes, its writable segment once more with its
//! zeros, the donor, the names and the headers of sections.

use super::{PF_W, writable};
use crate::elf::{Elf, PT_LOAD, PT_NOTE, SHF_ALLOC, SHT_NOBITS};
use crate::entry_points::EntryPoints;
use crate::verify::file::{self, FileChanges, PT_PHDR};
use crate::verify::section_headers::Header;

/// SHT_PROGBITS
const PROGBITS: u32 = 1;
/// A loader's graft adds three segments and a note, and five sections.
const NEW_LOADS: usize = 3;
const NEW_SECTIONS: usize = 5;

/// Compares the file of a grafted libc.so with stock's.
///
/// # Errors
/// The first change that a graft does not make.
pub(in crate::verify) fn compare_files(elf: &Elf<'_>, stock: &Elf<'_>) -> Result<(), String> {
    let start = EntryPoints::required(elf)?.donor();
    let (Some(before), Some(after)) = (writable(stock, start), writable(elf, start)) else {
        return Err("it has no writable segment".to_owned());
    };
    let is_copied = |address: u64| address.wrapping_sub(before.address) < before.memory;
    let offset = |address: u64| after.offset.wrapping_add(address.wrapping_sub(before.address));
    let changes = FileChanges {
        start,
        kept: &|segment, header| {
            let mut header = header.to_vec();
            if is_copied(segment.address) && segment.memory != 0 {
                header[8..16].copy_from_slice(&offset(segment.address).to_le_bytes());
            }
            if segment.kind == PT_LOAD && segment.flags & PF_W != 0 {
                header[32..40].copy_from_slice(&segment.memory.to_le_bytes());
            }
            (segment.kind != PT_PHDR).then_some(header)
        },
        new: &[(PT_LOAD, NEW_LOADS..=NEW_LOADS), (PT_NOTE, 1..=1)],
        // The loader takes its headers at its base plus their offset, so that the two have to be equal.
        demand: &|segment| segment.offset == segment.address,
        copied: Some(after),
        sections: Some(NEW_SECTIONS),
        section: &|_, wanted, index| match wanted[index] {
            // Its zeros are in the file now.
            header if header.flags & SHF_ALLOC != 0 && is_copied(header.address) => Header {
                offset: offset(header.address),
                kind: if header.kind == SHT_NOBITS { PROGBITS } else { header.kind },
                ..header
            },
            header => header,
        },
    };
    file::compare(elf, stock, &changes)
}
