//! Compares the whole file of a graft with its stock file: no byte is lost, moved or added beside what a graft writes.
//! Loaded bytes are compared by address ([`super::edits`], [`super::donor_image`]).
//!
//! One comparison serves all kinds of linked files, and each kind gives its list of permitted changes. A kind that had
//! a comparison of its own could forget a part of the file.

use std::ops::{Range, RangeInclusive};

use super::check::Check;
use super::image::{ELF_HEADER, PROGRAM_HEADER, differences};
use super::section_headers::{self, Added, range, table};
use crate::elf::{Elf, PT_LOAD, PT_NOTE, PT_TLS, SHT_NOBITS, SHT_SYMTAB, Segment};
use crate::entry_points::loads;
use crate::report::Arch;

/// The size of a symbol, in bytes (64-bit; gABI, "Symbol Table").
const SYMBOL: usize = 24;
pub(super) const PT_PHDR: u32 = 6;
const PF_X: u32 = 1;
pub(super) const PF_W: u32 = 2;
pub(super) const PF_R: u32 = 4;
const SHF_TLS: u64 = 0x400;
const STT_TLS: u8 = 6;

/// Takes a program header of stock, and returns the one in the graft. `None` if the graft writes a header of this type
/// anew.
pub(super) type Kept<'p> = dyn Fn(&Segment<'_>, &[u8]) -> Option<Vec<u8>> + 'p;

/// The changes that a kind of graft may make to stock's file, beside those of loaded bytes.
pub(super) struct FileChanges<'p> {
    /// The new parts are loaded from this address on.
    pub(super) start: u64,
    /// The changes of stock's program headers.
    pub(super) kept: &'p Kept<'p>,
    /// The types of the additional program headers, and how many there may be.
    pub(super) new: &'p [(u32, RangeInclusive<usize>)],
    /// The kind's own conditions for headers that were written anew, beside [`is_true`].
    pub(super) demand: &'p dyn Fn(&Segment<'_>) -> bool,
    /// The graft's copy of a segment, in the file once more with its zeros. The bytes at the segment's old place do not
    /// change.
    pub(super) copied: Option<&'p Segment<'p>>,
    /// As in [`Added::sections`].
    pub(super) sections: Option<usize>,
    /// The changes of stock's section headers.
    pub(super) section: section_headers::Changes<'p>,
}

/// Returns the check whether the file `elf`, as a graft writes it, is the file `stock` followed by new parts.
/// `compared` is the outcome of [`compare`]. The check fails for a file that was stripped later.
pub(super) fn check(elf: &Elf<'_>, stock: &Elf<'_>, compared: Result<(), String>) -> Check {
    Check::unless("file", compared.err().into_iter().collect(), || {
        let size = stock.bytes.data.len();
        format!("stock's {size} bytes, and {} behind them", elf.bytes.data.len() - size)
    })
}

/// Compares all parts of the file with stock's.
///
/// # Errors
/// The first change that is not permitted.
pub(super) fn compare(elf: &Elf<'_>, stock: &Elf<'_>, changes: &FileChanges<'_>) -> Result<(), String> {
    headers(elf, stock)?;
    program_headers(elf, stock, changes)?;
    let end = contents(elf, stock, changes.copied)?;
    let added = Added { start: changes.start, end, sections: changes.sections };
    section_headers::check(elf, stock, &added, changes.section)
}

/// Checks that every program header of stock is there, except for those that the graft writes anew, and that all other
/// headers are permitted and correct.
fn program_headers(elf: &Elf<'_>, stock: &Elf<'_>, changes: &FileChanges<'_>) -> Result<(), String> {
    let mut open: Vec<(usize, &[u8])> = programs(elf).into_iter().enumerate().collect();
    let mut written = Vec::new();
    for (segment, header) in stock.segments.iter().zip(programs(stock)) {
        let kept = (changes.kept)(segment, header);
        let is_it = |(index, other): &(usize, &[u8])| match &kept {
            Some(kept) => other == kept,
            None => elf.segments[*index].kind == segment.kind,
        };
        let Some(at) = open.iter().position(is_it) else {
            return Err(format!("stock's program header about {:#x} is not there", segment.address));
        };
        let found = open.remove(at);
        written.extend(kept.is_none().then_some(found));
    }
    let kinds: Vec<u32> = open.iter().map(|(index, _)| elf.segments[*index].kind).collect();
    let count = |wanted: u32| kinds.iter().filter(|kind| **kind == wanted).count();
    let is_known = |kind: &u32| changes.new.iter().any(|(known, _)| known == kind);
    if !kinds.iter().all(is_known) || !changes.new.iter().all(|(kind, range)| range.contains(&count(*kind))) {
        return Err(format!("{} program headers are new, of the types {kinds:?}", kinds.len()));
    }
    let is_right = |index: usize, raw: &[u8]| {
        let segment = &elf.segments[index];
        is_true(elf, segment, raw, changes.start) && (changes.demand)(segment)
    };
    match written.into_iter().chain(open).find(|(index, raw)| !is_right(*index, raw)) {
        Some((index, _)) => {
            Err(format!("the program header about {:#x} is not as a graft writes it", elf.segments[index].address))
        }
        None => Ok(()),
    }
}

/// Whether a header that a graft has written is correct: the part is at `start` or behind, its two addresses are equal,
/// its place in the file matches its place in memory, the file contains all that is loaded, and the kernel can map it.
fn is_true(elf: &Elf<'_>, segment: &Segment<'_>, raw: &[u8], start: u64) -> bool {
    const PAGE: u64 = 4096;
    let is_inside = |load: &&Segment<'_>| {
        let (from, end) = (segment.address, segment.address.saturating_add(segment.memory));
        load.address <= from && end <= load.address.saturating_add(load.memory)
    };
    let in_file = segment.data.is_some_and(|data| data.len() as u64 == segment.memory);
    let is_placed = match segment.kind {
        PT_LOAD => {
            let is_congruent = segment.align >= PAGE && segment.align.is_power_of_two();
            let is_page = segment.address % PAGE == segment.offset % PAGE;
            let permitted = [PF_R, PF_R | PF_W, PF_R | PF_X].contains(&segment.flags);
            in_file && is_congruent && is_page && permitted
        }
        PT_PHDR => {
            let table = (elf.segments.len() * PROGRAM_HEADER) as u64;
            let is_table = segment.offset == elf.bytes.word(32).unwrap_or(0) && segment.memory == table;
            in_file && is_table && segment.flags == PF_R && segment.align == 8
        }
        PT_NOTE => in_file && segment.flags == PF_R && segment.align == 4,
        // The rest is zeros in each thread's own copy, and not in the file.
        PT_TLS => {
            let fits = segment.data.is_some_and(|data| data.len() as u64 <= segment.memory);
            segment.align.is_power_of_two() && fits && segment.flags == PF_R
        }
        // The dynamic section.
        _ => in_file && segment.align == 8,
    };
    let load = loads(elf).find(|load| match segment.kind {
        PT_TLS => load.address <= segment.address && segment.address <= load.address.saturating_add(load.memory),
        _ => is_inside(load),
    });
    let offset = load.map(|load| load.offset.wrapping_add(segment.address.wrapping_sub(load.address)));
    segment.address >= start && raw[16..24] == raw[24..32] && is_placed && offset == Some(segment.offset)
}

/// Checks that the ELF header is stock's, except the entry point, the offsets of the tables and their counts.
fn headers(elf: &Elf<'_>, stock: &Elf<'_>) -> Result<(), String> {
    for range in [0..24, 48..56, 58..60, 62..64] {
        let header = |elf: &Elf<'_>| elf.bytes.data.get(range.clone()).map(<[u8]>::to_vec);
        if header(elf) != header(stock) {
            return Err(format!("bytes {} to {} of the ELF header are not stock's", range.start, range.end - 1));
        }
    }
    Ok(())
}

pub(super) fn programs<'a>(elf: &Elf<'a>) -> Vec<&'a [u8]> {
    table(elf, elf.bytes.word(32).unwrap_or(0), elf.segments.len(), PROGRAM_HEADER)
}

/// Checks that the bytes of stock that are not loaded are still there, and those of a segment that was `copied`. The
/// new parts are in one piece behind them, with zeros before it and before the copy. Returns their end.
fn contents(elf: &Elf<'_>, stock: &Elf<'_>, copied: Option<&Segment<'_>>) -> Result<usize, String> {
    let (found, wanted) = (elf.bytes.data, stock.bytes.data);
    let place = |load: &Segment<'_>| range(load.offset, load.data?.len());
    let is_new = |load: &&Segment<'_>| loads(stock).all(|other| other.address != load.address);
    let new: Vec<Range<usize>> = loads(elf).filter(is_new).filter_map(place).collect();
    let (Some(first), Some(last)) = (new.first(), new.last()) else { return Err("nothing of it is new".to_owned()) };
    if new.windows(2).any(|pair| pair[0].end != pair[1].start) {
        return Err("the new parts are not in one piece".to_owned());
    }
    if copied.is_some_and(|copied| copied.data.map_or(0, <[u8]>::len) as u64 != copied.memory) {
        return Err("the copied segment is not all in the file".to_owned());
    }
    let mut end = wanted.len();
    for part in copied.and_then(place).into_iter().chain(std::iter::once(first.start..last.end)) {
        let between = found.get(end..part.start).ok_or("the parts of the file overlap, or are not in it")?;
        if let Some(at) = between.iter().position(|byte| *byte != 0) {
            return Err(format!("the byte at offset {:#x} is between the parts of the file", end + at));
        }
        end = part.end;
    }
    let stays = |load: &&Segment<'_>| copied.is_none_or(|copied| copied.address != load.address);
    let loaded: Vec<Range<usize>> = loads(stock).filter(stays).filter_map(place).collect();
    let symbols: Vec<Range<usize>> = stock
        .sections
        .iter()
        .filter(|section| section.kind == SHT_SYMTAB)
        .filter_map(|section| range(section.offset, section.data?.len()))
        .collect();
    let distance = storage(elf).zip(storage(stock)).map(|(now, before)| now.wrapping_sub(before));
    for at in differences(found, wanted) {
        let holds = |ranges: &[Range<usize>]| ranges.iter().find(|range| range.contains(&at)).cloned();
        if at < ELF_HEADER || holds(&loaded).is_some() {
            continue;
        }
        let moved = holds(&symbols).and_then(|table| {
            let entry = table.start + (at - table.start) / SYMBOL * SYMBOL;
            let is_variable = wanted.get(entry + 4).is_some_and(|info| info & 15 == STT_TLS);
            Some((is_variable, moved(elf, stock, found.get(entry..)?, wanted.get(entry..)?)?))
        });
        let fits = match moved {
            None => false,
            Some((false, by)) => by == 0,
            Some((true, by)) => distance == Some(by),
        };
        if !fits {
            return Err(format!("the byte at offset {at:#x} is not stock's"));
        }
    }
    Ok(end)
}

/// Returns a number that grows by as much as the values of symbols in thread-local storage must, so that the variables
/// keep their distance from the thread pointer (musl, src/env/__init_tls.c, static_init_tls).
fn storage(elf: &Elf<'_>) -> Option<u64> {
    const GAP: u64 = 16;
    let segment = elf.segments.iter().find(|segment| segment.kind == PT_TLS)?;
    let (size, start, mask) = (segment.memory, segment.address, segment.align.saturating_sub(1));
    Some(match elf.arch {
        // The storage ends at the thread pointer.
        Arch::X86_64 => size.wrapping_add(0u64.wrapping_sub(size).wrapping_sub(start) & mask),
        // It begins after the thread pointer.
        _ => 0u64.wrapping_sub(GAP.wrapping_add(start.wrapping_sub(GAP) & mask)),
    })
}

/// Returns how far a symbol of thread-local storage has moved, if only its section and its value differ: the program's
/// storage is a part of the new one. A section symbol moves by 0.
fn moved(elf: &Elf<'_>, stock: &Elf<'_>, found: &[u8], wanted: &[u8]) -> Option<u64> {
    let (found, wanted) = (found.first_chunk::<SYMBOL>()?, wanted.first_chunk::<SYMBOL>()?);
    let section = |elf: &Elf<'_>, symbol: &[u8; SYMBOL]| {
        let index = usize::from(u16::from_le_bytes([symbol[6], symbol[7]]));
        let section = elf.sections.get(index).filter(|section| section.flags & SHF_TLS != 0)?;
        Some((index, section.kind == SHT_NOBITS))
    };
    let ((_, was_empty), (index, is_empty)) = (section(stock, wanted)?, section(elf, found)?);
    let value = |symbol: &[u8; SYMBOL]| u64::from_le_bytes(*symbol[8..].first_chunk().unwrap_or(&[0; 8]));
    // The part of the storage that begins as zeros is not in the file.
    let image = elf.segments.iter().find(|segment| segment.kind == PT_TLS)?.data?.len() as u64;
    let empty = if wanted[4] & 15 == STT_TLS { value(found) >= image } else { was_empty };
    let same = found[..6] == wanted[..6] && found[16..] == wanted[16..];
    (same && index >= stock.sections.len() && is_empty == empty).then(|| value(found).wrapping_sub(value(wanted)))
}
