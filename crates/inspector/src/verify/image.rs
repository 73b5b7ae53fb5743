//! Compares what a grafted executable loads with what it must load, byte for byte.

use std::ops::Range;

use super::check::{Check, parse};
use crate::elf::{Elf, PT_LOAD, Segment};
use crate::entry_points::loads;
use crate::error::InspectError;

/// Sizes of the ELF header and of a program header, in bytes (64-bit; gABI, "ELF Header" and "Program Header").
pub(super) const ELF_HEADER: usize = 64;
pub(super) const PROGRAM_HEADER: usize = 56;
/// The bytes of a program header that hold the file offset, which `strip` may change.
const FILE_OFFSET: Range<usize> = 8..16;
/// The bytes of a program header that hold the sizes in the file and in memory.
const SIZES: Range<usize> = 32..48;

/// Checks that the executable `graft` is `expected`, which was made from `stock`: the whole file, or, if it was
/// stripped later, everything that is loaded.
///
/// # Errors
/// A file is not an ELF file.
pub fn same_image(graft: &[u8], expected: &[u8], stock: &[u8]) -> Result<Check, InspectError> {
    let name = "bytes";
    if graft == expected {
        return Ok(Check::new(name, true, format!("all {} bytes of the file are as they have to be", graft.len())));
    }
    let (elf, right) = (parse(graft)?, parse(expected)?);
    let unused = cleared_table(&elf, &parse(stock)?);
    let mut complaints = headers(&elf, &right, &unused);
    let mut loaded = 0;
    for (found, wanted) in loads(&elf).zip(loads(&right)) {
        let (found_data, wanted_data) = (found.data.unwrap_or_default(), wanted.data.unwrap_or_default());
        loaded += wanted_data.len();
        if !same_size(found, wanted, &unused) {
            complaints.push(format!("the segment at {:#x} is not all in the file", found.address));
            continue;
        }
        // Ranges that are compared elsewhere, or not at all, are made equal on both sides.
        let mut wanted_data = wanted_data[..found_data.len()].to_vec();
        let unused = unused.start.saturating_sub(found.address)..unused.end.saturating_sub(found.address);
        for range in [own_headers(&elf, found), unused.start as usize..unused.end as usize] {
            let range = range.start.min(found_data.len())..range.end.min(found_data.len());
            wanted_data[range.clone()].copy_from_slice(&found_data[range]);
        }
        if let Some(at) = first_difference(found_data, &wanted_data) {
            let (one, other) = (found_data[at], wanted_data[at]);
            let address = found.address + at as u64;
            complaints.push(format!("the byte at {address:#x} is {one:#04x}, expected {other:#04x}"));
        }
    }
    Ok(Check::unless(name, complaints, || {
        format!(
            "all {loaded} bytes that are loaded are as they have to be; what is not loaded (symbols, section headers) \
             was changed after the graft"
        )
    }))
}

/// Returns the places at which two blocks differ, up to the end of the shorter one.
pub(super) fn differences<'d>(one: &'d [u8], other: &'d [u8]) -> impl Iterator<Item = usize> + 'd {
    const STEP: usize = 4096;
    let steps = one.chunks(STEP).zip(other.chunks(STEP)).enumerate().filter(|(_, (one, other))| one != other);
    steps.flat_map(|(index, (one, other))| {
        let pairs = one.iter().zip(other).enumerate().filter(|(_, (one, other))| one != other);
        pairs.map(move |(at, _)| index * STEP + at)
    })
}

/// Returns the first place where two blocks differ: the end of the shorter one, if the longer one begins with it.
/// `None` if they are equal.
pub fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    differences(one, other).next().or((one.len() != other.len()).then_some(one.len().min(other.len())))
}

/// Returns the range of stock's program headers, if they are gone: a graft has its own elsewhere, and `strip` clears
/// bytes that no section and no header covers, or cuts them off where they end a segment.
pub(super) fn cleared_table(graft: &Elf<'_>, stock: &Elf<'_>) -> Range<u64> {
    let size = stock.segments.len() * PROGRAM_HEADER;
    let found = loads(stock).find(|load| load.offset == 0).and_then(|load| {
        let start = stock.bytes.word(32)?;
        let same = loads(graft).find(|other| other.address == load.address)?;
        let rest = same.data?.get(usize::try_from(start).ok()?..)?;
        let address = load.address.checked_add(start)?;
        rest.iter().take(size).all(|byte| *byte == 0).then_some(address..address.checked_add(size as u64)?)
    });
    found.unwrap_or(0..0)
}

/// Whether a segment is as long as the one that is wanted, in the file and in memory, but for the range `unused` at its
/// end.
pub(super) fn same_size(found: &Segment<'_>, wanted: &Segment<'_>, unused: &Range<u64>) -> bool {
    let size = |segment: &Segment<'_>| segment.data.map_or(0, <[u8]>::len) as u64;
    let end = |segment: &Segment<'_>| segment.address.saturating_add(segment.memory);
    let is_cut = found.address == wanted.address
        && size(found) == found.memory
        && size(wanted) == wanted.memory
        && unused.start <= end(found)
        && (end(found)..=unused.end).contains(&end(wanted));
    is_cut || (size(found), found.memory) == (size(wanted), wanted.memory)
}

/// Returns the part of a segment that is a header of the file itself. [`headers`] compares its fields.
fn own_headers(elf: &Elf<'_>, segment: &Segment<'_>) -> Range<usize> {
    let size = segment.data.map_or(0, <[u8]>::len);
    if segment.offset == 0 {
        return 0..ELF_HEADER.min(size);
    }
    let table = elf.bytes.word(32).unwrap_or(0);
    match table == segment.offset {
        true => 0..(elf.segments.len() * PROGRAM_HEADER).min(size),
        false => 0..0,
    }
}

/// Returns the differences of the headers, except in file offsets, and in the sizes of a segment without the range
/// `unused` at its end.
fn headers(elf: &Elf<'_>, right: &Elf<'_>, unused: &Range<u64>) -> Vec<String> {
    let mut complaints = Vec::new();
    // The bytes up to e_phoff, then from e_flags to e_phnum.
    for (from, to) in [(0, 32), (48, 58)] {
        let (found, wanted) = (elf.bytes.data.get(from..to), right.bytes.data.get(from..to));
        let differs = found
            .zip(wanted)
            .and_then(|(found, wanted)| found.iter().zip(wanted).position(|(one, other)| one != other));
        if let Some(at) = differs {
            complaints.push(match from + at {
                24..32 => format!(
                    "the entry point is {:#x}, expected {:#x}",
                    elf.bytes.word(24).unwrap_or(0),
                    right.bytes.word(24).unwrap_or(0)
                ),
                at => format!("byte {at} of the ELF header differs"),
            });
        }
    }
    let table = |elf: &Elf<'_>| {
        let start = usize::try_from(elf.bytes.word(32)?).ok()?;
        let bytes = elf.bytes.data.get(start..start.checked_add(elf.segments.len() * PROGRAM_HEADER)?)?;
        let entries = bytes.chunks_exact(PROGRAM_HEADER).enumerate().map(|(index, entry)| {
            let mut entry = entry.to_vec();
            entry[FILE_OFFSET].fill(0);
            let pair = elf.segments.get(index).zip(right.segments.get(index));
            if pair.is_some_and(|(found, wanted)| found.kind == PT_LOAD && same_size(found, wanted, unused)) {
                entry[SIZES].fill(0);
            }
            entry
        });
        Some(entries.collect::<Vec<_>>())
    };
    let (found, wanted) = (table(elf).unwrap_or_default(), table(right).unwrap_or_default());
    if found.len() != wanted.len() {
        complaints.push(format!("there are {} program headers, expected {}", found.len(), wanted.len()));
    } else if let Some(index) = (0..found.len()).find(|index| found[*index] != wanted[*index]) {
        let segment = &right.segments[index];
        let kind = if segment.kind == PT_LOAD { "loads" } else { "is about" };
        complaints.push(format!("program header {index}, which {kind} {:#x}, is another", segment.address));
    }
    // Loaded segments are compared by their bytes; the others are within those bytes.
    let others = elf.segments.iter().zip(&right.segments).filter(|(found, _)| found.kind != PT_LOAD);
    let misplaced = others.filter(|(found, wanted)| {
        let load = loads(elf).find(|load| found.address.wrapping_sub(load.address) < load.memory && found.memory != 0);
        let place = load.map_or(wanted.offset, |load| load.offset.wrapping_add(found.address - load.address));
        found.offset != place
    });
    complaints.extend(
        misplaced.map(|(found, _)| format!("the segment at {:#x} names a different place in the file", found.address)),
    );
    complaints
}
