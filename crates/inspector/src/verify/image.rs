//! Compares what a grafted executable loads with what it must load, byte for byte.

use super::Check;
use crate::elf::{Elf, PT_LOAD, Segment};
use crate::error::InspectError;
use crate::transplanted::loads;

/// Sizes of the ELF header and of a program header, in bytes (64-bit; gABI, "ELF Header" and "Program Header").
const ELF_HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
/// The bytes of a program header that hold the file offset, which `strip` may change.
const FILE_OFFSET: std::ops::Range<usize> = 8..16;

/// Checks that the executable `graft` is `expected`, which was made from `stock`: the whole file, or, if it has been
/// stripped since, everything that is loaded.
///
/// # Errors
/// A file is no ELF file.
pub fn same_image(graft: &[u8], expected: &[u8], stock: &[u8]) -> Result<Check, InspectError> {
    let name = "bytes";
    if graft == expected {
        return Ok(Check::new(name, true, format!("all {} bytes of the file are as they have to be", graft.len())));
    }
    let parse = |bytes| Elf::parse(bytes).map_err(|problem| InspectError::Elf { problem });
    let (elf, right) = (parse(graft)?, parse(expected)?);
    let unused = cleared_table(&elf, &parse(stock)?);
    let mut complaints = headers(&elf, &right);
    let mut loaded = 0;
    for (found, wanted) in loads(&elf).zip(loads(&right)) {
        let (found_data, wanted_data) = (found.data.unwrap_or_default(), wanted.data.unwrap_or_default());
        loaded += wanted_data.len();
        if found_data.len() != wanted_data.len() {
            complaints.push(format!("the segment at {:#x} is not all in the file", found.address));
            continue;
        }
        // Ranges that are compared elsewhere, or not at all, are made equal on both sides.
        let mut wanted_data = wanted_data.to_vec();
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
    Ok(Check::unless(name, complaints, || format!("all {loaded} bytes that are loaded are as they have to be")))
}

/// Returns the first place where two blocks differ. `None` if they are equal.
pub(super) fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    const STEP: usize = 4096;
    let same = one.chunks(STEP).zip(other.chunks(STEP)).take_while(|(one, other)| one == other).count() * STEP;
    let rest = |block: &[u8]| block.get(same..).unwrap_or_default().to_vec();
    let (one, other) = (rest(one), rest(other));
    let position = one.iter().zip(&other).position(|(one, other)| one != other);
    position.or((one.len() != other.len()).then_some(one.len().min(other.len()))).map(|at| same + at)
}

/// Returns the range of stock's program headers, if they have been cleared: a graft has its own elsewhere, and `strip`
/// clears bytes that no section and no header covers.
pub(super) fn cleared_table(graft: &Elf<'_>, stock: &Elf<'_>) -> std::ops::Range<u64> {
    let size = stock.segments.len() * PROGRAM_HEADER;
    let found = loads(stock).find(|load| load.offset == 0).and_then(|load| {
        let start = stock.bytes.word(32)?;
        let from = usize::try_from(start).ok()?;
        let same = loads(graft).find(|other| other.address == load.address)?;
        let table = same.data?.get(from..from.checked_add(size)?)?;
        let address = load.address.checked_add(start)?;
        table.iter().all(|byte| *byte == 0).then_some(address..address.checked_add(size as u64)?)
    });
    found.unwrap_or(0..0)
}

/// Returns the part of a segment that is a header of the file itself. [`headers`] compares its fields.
fn own_headers(elf: &Elf<'_>, segment: &Segment<'_>) -> std::ops::Range<usize> {
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

/// Returns the differences of the headers, except in file offsets.
fn headers(elf: &Elf<'_>, right: &Elf<'_>) -> Vec<String> {
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
                at => format!("byte {at} of the ELF header is another"),
            });
        }
    }
    let table = |elf: &Elf<'_>| {
        let start = usize::try_from(elf.bytes.word(32)?).ok()?;
        let bytes = elf.bytes.data.get(start..start.checked_add(elf.segments.len() * PROGRAM_HEADER)?)?;
        let entries = bytes.chunks_exact(PROGRAM_HEADER).map(|entry| {
            let mut entry = entry.to_vec();
            entry[FILE_OFFSET].fill(0);
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
    // Loaded segments are compared by their bytes; the others lie within those bytes.
    let others = elf.segments.iter().zip(&right.segments).filter(|(found, _)| found.kind != PT_LOAD);
    let misplaced = others.filter(|(found, wanted)| {
        let load = loads(elf).find(|load| found.address.wrapping_sub(load.address) < load.memory && found.memory != 0);
        let place = load.map_or(wanted.offset, |load| load.offset.wrapping_add(found.address - load.address));
        found.offset != place
    });
    complaints.extend(
        misplaced.map(|(found, _)| format!("the segment at {:#x} names another place in the file", found.address)),
    );
    complaints
}
