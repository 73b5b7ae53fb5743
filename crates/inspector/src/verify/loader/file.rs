//! The whole file of a grafted libc.so, compared with stock's: stock's bytes, its writable segment once more with its
//! zeros, the donor, the names and the headers of sections.

use super::{PF_W, writable};
use crate::elf::{Elf, PT_LOAD, PT_NOTE, SHF_ALLOC, SHT_NOBITS, Segment};
use crate::entry_points::{EntryPoints, loads};
use crate::verify::check::Check;
use crate::verify::file::{headers, is_true, programs};
use crate::verify::image::{ELF_HEADER, differences};
use crate::verify::section_headers::{self, Added, Header, range};

/// SHT_PROGBITS
const PROGBITS: u32 = 1;
/// A loader's graft adds three segments and a note, and five sections.
const NEW_LOADS: usize = 3;
const NEW_SECTIONS: usize = 5;

/// Checks that the file `elf`, as a graft writes it, is the file `stock` with a donor. The check fails for a file that
/// was stripped later.
pub(in crate::verify) fn check(elf: &Elf<'_>, stock: &Elf<'_>) -> Check {
    let checked = headers(elf, stock).and_then(|()| compare(elf, stock));
    Check::unless("file", checked.err().into_iter().collect(), || {
        let size = stock.bytes.data.len();
        format!("stock's {size} bytes, and {} behind them", elf.bytes.data.len() - size)
    })
}

fn compare(elf: &Elf<'_>, stock: &Elf<'_>) -> Result<(), String> {
    let donor = EntryPoints::required(elf)?.donor();
    let (Some(before), Some(after)) = (writable(stock, donor), writable(elf, donor)) else {
        return Err("it has no writable segment".to_owned());
    };
    program_headers(elf, stock, before, after)?;
    let end = contents(elf, stock, donor, after)?;
    let added = Added { start: donor, end, sections: Some(NEW_SECTIONS) };
    section_headers::check(elf, stock, &added, &|_, wanted, index| {
        let header = wanted[index];
        let is_moved = header.flags & SHF_ALLOC != 0 && header.address.wrapping_sub(before.address) < before.memory;
        match is_moved {
            // Its zeros are in the file now.
            true => Header {
                offset: after.offset.wrapping_add(header.address - before.address),
                kind: if header.kind == SHT_NOBITS { PROGBITS } else { header.kind },
                ..header
            },
            false => header,
        }
    })
}

/// Checks that the program headers are stock's, with offsets that follow the writable segment, and the donor's.
fn program_headers(elf: &Elf<'_>, stock: &Elf<'_>, before: &Segment<'_>, after: &Segment<'_>) -> Result<(), String> {
    let mut open: Vec<(usize, &[u8])> = programs(elf).into_iter().enumerate().collect();
    for (index, header) in programs(stock).into_iter().enumerate() {
        let segment = &stock.segments[index];
        let mut wanted = header.to_vec();
        let inside = segment.address.wrapping_sub(before.address) < before.memory && segment.memory != 0;
        if inside {
            let offset = after.offset.wrapping_add(segment.address - before.address);
            wanted[8..16].copy_from_slice(&offset.to_le_bytes());
        }
        if segment.kind == PT_LOAD && segment.flags & PF_W != 0 {
            wanted[32..40].copy_from_slice(&segment.memory.to_le_bytes());
        }
        let Some(at) = open.iter().position(|(_, other)| *other == wanted) else {
            return Err(format!("stock's program header {index}, about {:#x}, is not there", segment.address));
        };
        open.remove(at);
    }
    let count = |kind: u32| open.iter().filter(|(index, _)| elf.segments[*index].kind == kind).count();
    if (count(PT_LOAD), count(PT_NOTE), open.len()) != (NEW_LOADS, 1, NEW_LOADS + 1) {
        return Err(format!("{} program headers are new, expected {}", open.len(), NEW_LOADS + 1));
    }
    // The loader takes its headers at its base plus their offset, so that the two have to be equal.
    let end = stock.segments.iter().map(|it| it.address.saturating_add(it.memory)).max().unwrap_or(0);
    let crooked = open.iter().find(|(index, raw)| {
        let segment = &elf.segments[*index];
        segment.offset != segment.address || !is_true(elf, segment, raw, end)
    });
    match crooked {
        Some((index, _)) => Err(format!("the header of the new segment {index} is not as a graft writes it")),
        None => Ok(()),
    }
}

/// Checks that the bytes of stock are still there, and that there are only zeros between the parts. Returns the end of
/// the donor's part of the file.
fn contents(elf: &Elf<'_>, stock: &Elf<'_>, donor: u64, moved: &Segment<'_>) -> Result<usize, String> {
    let (found, wanted) = (elf.bytes.data, stock.bytes.data);
    let of = |segment: &Segment<'_>| range(segment.offset, segment.data.map_or(0, <[u8]>::len));
    let mut parts: Vec<_> = loads(elf).filter(|load| load.address >= donor).filter_map(of).collect();
    parts.extend(of(moved));
    parts.sort_unstable_by_key(|part| part.start);
    if moved.data.map_or(0, <[u8]>::len) as u64 != moved.memory {
        return Err("the writable segment is not all in the file".to_owned());
    }
    let mut end = wanted.len();
    for part in &parts {
        let between = found.get(end..part.start).ok_or("the parts of the file overlap, or are not in it")?;
        if let Some(at) = between.iter().position(|byte| *byte != 0) {
            return Err(format!("the byte at offset {:#x} is between the parts of the file", end + at));
        }
        end = part.end;
    }
    let code: Vec<_> = loads(stock).filter(|load| load.flags & PF_W == 0).filter_map(of).collect();
    let changed = differences(found, wanted).find(|at| *at >= ELF_HEADER && !code.iter().any(|code| code.contains(at)));
    match changed {
        Some(at) => Err(format!("the byte at offset {at:#x} is not stock's")),
        None => Ok(end),
    }
}
