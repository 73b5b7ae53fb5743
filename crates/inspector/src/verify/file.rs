//! Compares the whole file of a grafted executable with its stock file: no byte is lost, moved or added beside what a
//! graft writes. [`super::executable`] and [`super::donor_image`] compare the loaded bytes by address.

use std::ops::Range;

use super::check::Check;
use super::image::{ELF_HEADER, PROGRAM_HEADER, differences};
use super::section_headers::{Added, range, table};
use super::{loader, section_headers};
use crate::elf::{Elf, PT_DYNAMIC, PT_LOAD, PT_NOTE, PT_TLS, SHT_NOBITS, SHT_SYMTAB, Segment};
use crate::entry_points::{EntryPoints, loads};
use crate::report::Arch;

/// The size of a symbol, in bytes (64-bit; gABI, "Symbol Table").
const SYMBOL: usize = 24;
const PT_PHDR: u32 = 6;
const PF_X: u32 = 1;
const PF_W: u32 = 2;
const PF_R: u32 = 4;
const SHF_TLS: u64 = 0x400;
const STT_TLS: u8 = 6;
/// The additions of a graft: the donor's three segments and the note, and the sections beside that of its probes.
const NEW_LOADS: usize = 3;
const NEW_SECTIONS: usize = 7;
/// Checks that the file `elf`, as a graft writes it, is the file `stock` followed by a donor. The check fails for a
/// file that was stripped later.
pub(super) fn check(elf: &Elf<'_>, stock: &Elf<'_>) -> Check {
    if loader::is_loader(stock) {
        return loader::file(elf, stock);
    }
    let checked = headers(elf, stock)
        .and_then(|()| program_headers(elf, stock))
        .and_then(|()| contents(elf, stock))
        .and_then(|end| {
            let start = EntryPoints::required(elf)?.donor();
            let added = Added { start, end, sections: Some(NEW_SECTIONS) };
            section_headers::check(elf, stock, &added, &|_, wanted, index| wanted[index].without_storage())
        });
    Check::unless("file", checked.err().into_iter().collect(), || {
        let size = stock.bytes.data.len();
        format!("stock's {size} bytes, and {} behind them", elf.bytes.data.len() - size)
    })
}

/// Checks that the file of a dynamic program, as a graft writes it, is stock's followed by the new parts, which are
/// loaded from `start` on. The ELF header is stock's except for its tables; each program header is stock's or correct
/// for a new part; bytes that are not loaded are at their old offsets. `donor` is the merged donor, if one was merged.
/// The check fails for a file that was stripped later.
pub(super) fn check_dynamic(elf: &Elf<'_>, stock: &Elf<'_>, donor: Option<&Elf<'_>>, start: u64) -> Check {
    let checked = headers(elf, stock)
        .and_then(|()| kept_or_true(elf, stock, start))
        .and_then(|()| thread_storage(elf, &[Some(stock), donor]))
        .and_then(|()| contents(elf, stock))
        .and_then(|end| {
            section_headers::check(elf, stock, &Added { start, end, sections: None }, &section_headers::of_dynamic)
        })
        .and_then(|()| ends_with_zeros(elf));
    let size = stock.bytes.data.len();
    let good = || format!("stock's {size} bytes, and {} behind them", elf.bytes.data.len() - size);
    Check::unless("file", checked.err().into_iter().collect(), good)
}

/// Checks that zeros fill the room behind the dynamic section, which tools may take for a part of it.
fn ends_with_zeros(elf: &Elf<'_>) -> Result<(), String> {
    const ENTRY: usize = 16;
    let section = elf.segments.iter().find(|segment| segment.kind == PT_DYNAMIC);
    let entries = elf.dynamic_entries().take_while(|(tag, _)| *tag != 0).count();
    let rest = section.and_then(|section| section.data?.get(entries * ENTRY..)).unwrap_or_default();
    match rest.iter().all(|byte| *byte == 0) {
        true => Ok(()),
        false => Err("there are bytes behind the dynamic section".to_owned()),
    }
}

/// Checks that the thread-local storage has room for the storage of all `parts`, and for no more. Each part begins at
/// its alignment, and the program's keeps its distance from the thread pointer, so up to one alignment is unused.
fn thread_storage(elf: &Elf<'_>, parts: &[Option<&Elf<'_>>]) -> Result<(), String> {
    let storage = |elf: &Elf<'_>| elf.segments.iter().find(|it| it.kind == PT_TLS).map(|it| (it.memory, it.align));
    let wanted: u64 = parts.iter().flatten().filter_map(|part| storage(part)).map(|(size, _)| size).sum();
    match storage(elf) {
        None if wanted == 0 => Ok(()),
        Some((size, align)) if size.checked_sub(wanted).is_some_and(|between| between <= align.max(64)) => Ok(()),
        found => {
            let size = found.map_or(0, |(size, _)| size);
            Err(format!("its thread-local storage has {size} bytes, expected {wanted}"))
        }
    }
}

/// Checks that every program header of stock is there, except for the parts that a graft moves, and that all other
/// headers are correct.
fn kept_or_true(elf: &Elf<'_>, stock: &Elf<'_>, start: u64) -> Result<(), String> {
    const MOVED: [u32; 3] = [PT_TLS, PT_PHDR, PT_DYNAMIC];
    const NEW: [u32; 3] = [PT_LOAD, PT_NOTE, PT_TLS];
    let mut open: Vec<(usize, &[u8])> = programs(elf).into_iter().enumerate().collect();
    let mut moved = Vec::new();
    for (header, segment) in programs(stock).into_iter().zip(&stock.segments) {
        let same = open.iter().position(|(_, other)| *other == header);
        let instead = || {
            let is_its = |(at, _): &(usize, &[u8])| elf.segments[*at].kind == segment.kind;
            open.iter().position(|one| MOVED.contains(&segment.kind) && is_its(one))
        };
        let Some(at) = same.or_else(instead) else {
            return Err(format!("stock's program header about {:#x} is not there", segment.address));
        };
        let (index, other) = open.remove(at);
        if other != header {
            let now = &elf.segments[index];
            let kept = match now.kind {
                PT_PHDR => true,
                // Loaders write to it (DT_DEBUG), whatever the linker said.
                PT_DYNAMIC => now.flags == PF_R | PF_W,
                _ => now.flags == segment.flags && now.align >= segment.align,
            };
            if !kept {
                return Err(format!("the program header about {:#x} has other permissions", now.address));
            }
            moved.push((index, other));
        }
    }
    if let Some((index, _)) = open.iter().find(|(index, _)| !NEW.contains(&elf.segments[*index].kind)) {
        let segment = &elf.segments[*index];
        return Err(format!("a program header about {:#x} is new, of the type {:#x}", segment.address, segment.kind));
    }
    match moved.into_iter().chain(open).find(|(index, raw)| !is_true(elf, &elf.segments[*index], raw, start)) {
        Some((index, _)) => {
            Err(format!("the program header about {:#x} is not as a graft writes it", elf.segments[index].address))
        }
        None => Ok(()),
    }
}

/// Whether a header that a graft has written is correct: the part is at `start` or behind, its two addresses are equal,
/// its place in the file matches its place in memory, the file contains all that is loaded, and the kernel can map it.
pub(super) fn is_true(elf: &Elf<'_>, segment: &Segment<'_>, raw: &[u8], start: u64) -> bool {
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
            in_file && segment.flags == PF_R && segment.memory == table && segment.align == 8
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
pub(super) fn headers(elf: &Elf<'_>, stock: &Elf<'_>) -> Result<(), String> {
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

/// Checks that the program headers are stock's and the donor's. Thread-local storage and the address of the headers
/// themselves are new.
fn program_headers(elf: &Elf<'_>, stock: &Elf<'_>) -> Result<(), String> {
    let own = |elf: &Elf<'_>, index: usize| [PT_TLS, PT_PHDR].contains(&elf.segments[index].kind);
    let (mut open, theirs) = (programs(elf).into_iter().enumerate().collect::<Vec<_>>(), programs(stock));
    for (index, header) in theirs.iter().enumerate() {
        let same = |(at, other): &(usize, &[u8])| match own(stock, index) {
            true => elf.segments[*at].kind == stock.segments[index].kind,
            false => other == header,
        };
        let Some(at) = open.iter().position(same) else {
            return Err(format!(
                "stock's program header {index}, about {:#x}, is not there",
                stock.segments[index].address
            ));
        };
        open.remove(at);
    }
    let kinds: Vec<u32> = open.iter().map(|(index, _)| elf.segments[*index].kind).collect();
    let count = |wanted: u32| kinds.iter().filter(|kind| **kind == wanted).count();
    let storage = usize::from(stock.segments.iter().all(|segment| segment.kind != PT_TLS));
    if (count(PT_LOAD), count(PT_NOTE), count(PT_TLS)) != (NEW_LOADS, 1, storage)
        || kinds.len() != NEW_LOADS + 1 + storage
    {
        return Err(format!("{} program headers are new, of the types {kinds:?}", kinds.len()));
    }
    let new = open.iter().map(|(index, _)| *index);
    let own = (0..elf.segments.len()).filter(|index| [PT_TLS, PT_PHDR].contains(&elf.segments[*index].kind));
    let raw = programs(elf);
    match new.chain(own).find(|index| !in_place(elf, &elf.segments[*index], raw[*index])) {
        Some(index) => Err(format!(
            "program header {index}, about {:#x}, is not as a graft writes it",
            elf.segments[index].address
        )),
        None => Ok(()),
    }
}

/// Whether a new segment's header is correct: its offset matches its address, its two addresses are equal, and a
/// segment that is not loaded is read-only.
fn in_place(elf: &Elf<'_>, segment: &Segment<'_>, raw: &[u8]) -> bool {
    let load = loads(elf).find(|load| segment.address.wrapping_sub(load.address) < load.memory.max(1));
    let offset = load.map(|load| load.offset.wrapping_add(segment.address.wrapping_sub(load.address)));
    let table = (elf.segments.len() * PROGRAM_HEADER) as u64;
    let is_table = segment.offset == elf.bytes.word(32).unwrap_or(0) && segment.memory == table && segment.align == 8;
    offset == Some(segment.offset)
        && raw[16..24] == raw[24..32]
        && (segment.kind == PT_LOAD || segment.flags == PF_R)
        && (segment.kind != PT_PHDR || is_table)
}

/// Checks that the bytes of stock that are not loaded are still there, and that zeros fill the space up to the donor.
/// Returns the end of the donor's part of the file.
fn contents(elf: &Elf<'_>, stock: &Elf<'_>) -> Result<usize, String> {
    let (found, wanted) = (elf.bytes.data, stock.bytes.data);
    let is_new = |load: &&Segment<'_>| loads(stock).all(|other| other.address != load.address);
    let new: Vec<Range<usize>> =
        loads(elf).filter(is_new).filter_map(|load| range(load.offset, load.data?.len())).collect();
    let (Some(first), Some(end)) = (new.iter().map(|new| new.start).min(), new.iter().map(|new| new.end).max()) else {
        return Err("nothing of it is new".to_owned());
    };
    if first < wanted.len() || found.len() < end || new.windows(2).any(|pair| pair[0].end != pair[1].start) {
        return Err("the donor is not in one piece behind the program".to_owned());
    }
    if let Some(at) = found[wanted.len()..first].iter().position(|byte| *byte != 0) {
        return Err(format!("the byte at offset {:#x} is between the program and the donor", wanted.len() + at));
    }
    let loaded: Vec<Range<usize>> =
        loads(stock).filter_map(|load| range(load.offset, load.data.map_or(0, <[u8]>::len))).collect();
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
