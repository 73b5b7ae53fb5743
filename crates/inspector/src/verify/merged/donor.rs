//! The donor's memory in a merged program: every byte is the linked shared object's, relocated.

use super::Merged;
use super::machine::Machine;
use crate::elf::{Elf, PT_TLS, Segment};
use crate::entry_points::loads;
use crate::note::Subject;
use crate::tables::Tables;
use crate::verify::check::Check;
use crate::verify::image::differences;
use crate::verify::probes;

/// Magic and format of the words that name what is made read-only (crates/donors/glue/shared.h), and their size.
const SEALED: [u8; 16] = *b"AGSELAED\x01\0\0\0\0\0\0\0";
const SEALED_SIZE: usize = 48;
const OPTIONS: &[u8] = b".allograft.options";

pub(super) fn check(
    graft: &Tables<'_, '_>,
    linked: &Tables<'_, '_>,
    merged: &Merged,
    stock: Option<&Elf<'_>>,
) -> Check {
    match compare(graft, linked, merged, stock) {
        Ok(size) => Check::new("donor", true, format!("all {size} bytes of the donor are the linked donor's")),
        Err(problem) => Check::new("donor", false, problem),
    }
}

fn compare(
    graft: &Tables<'_, '_>,
    linked: &Tables<'_, '_>,
    merged: &Merged,
    stock: Option<&Elf<'_>>,
) -> Result<usize, String> {
    let (base, size) = (merged.donor.start, (merged.donor.end - merged.donor.start) as usize);
    let machine = Machine::for_file(graft.elf);
    let end = loads(linked.elf).map(|load| load.address.saturating_add(load.memory)).max().unwrap_or(0);
    if size as u64 != end.next_multiple_of(machine.page) || size > 1 << 26 {
        return Err(format!("the donor has {size} bytes of memory, expected {end}"));
    }
    let (mut wanted, mut found) = (vec![0; size], vec![0; size]);
    for load in loads(linked.elf) {
        let (at, data) = (load.address as usize, load.data.unwrap_or_default());
        wanted.get_mut(at..at + data.len()).ok_or("the donor's segments are outside its size")?.copy_from_slice(data);
        // Permissions are compared page by page.
        let flags = loads(graft.elf).find(|now| (base + load.address).wrapping_sub(now.address) < now.memory);
        if flags.map(|now| now.flags) != Some(load.flags) {
            return Err(format!("the donor's segment at {:#x} has other permissions", base + load.address));
        }
    }
    for load in loads(graft.elf) {
        let data = load.data.unwrap_or_default();
        let (from, to) = (load.address.max(base), load.address.saturating_add(data.len() as u64).min(merged.donor.end));
        if from < to {
            let part = &data[(from - load.address) as usize..(to - load.address) as usize];
            found[(from - base) as usize..(to - base) as usize].copy_from_slice(part);
        }
    }
    // The words that are relocated, in memory or in the table.
    let relocations = graft.relocations().ok_or("a table of relocations is outside the file")?;
    let fixed = graft.elf.file_type == crate::elf::ET_EXEC;
    let storage = graft.elf.segments.iter().find(|segment| segment.kind == PT_TLS).ok_or("it has no storage")?;
    let own = linked.elf.segments.iter().find(|segment| segment.kind == PT_TLS).ok_or("the donor has no storage")?;
    let own_image = own.address..own.address + own.data.map_or(0, <[u8]>::len) as u64;
    let distance = machine.distance(storage).wrapping_add(merged.own);
    let mut expected = Vec::new();
    for relocation in linked.relocations().ok_or("the donor's relocations are outside the file")? {
        let place = relocation.place as usize;
        let mut write = |word: u64| {
            let bytes =
                wanted.get_mut(place..place.saturating_add(8)).ok_or("a relocated word of the donor lies outside")?;
            bytes.copy_from_slice(&word.to_le_bytes());
            Ok::<(), &str>(())
        };
        match relocation.kind {
            kind if kind == machine.relative => {
                let value = base.wrapping_add(relocation.addend as u64);
                let at = match own_image.contains(&relocation.place) {
                    true => storage.address.wrapping_add(merged.own).wrapping_add(relocation.place - own_image.start),
                    false => base.wrapping_add(relocation.place),
                };
                if fixed { write(value)? } else { expected.push((at, machine.relative, &b""[..], value as i64)) }
            }
            kind if kind == machine.tpoff && relocation.symbol.is_empty() => {
                write(distance.wrapping_add(relocation.addend as u64))?;
            }
            kind if [machine.absolute, machine.glob_dat, machine.jump_slot].contains(&kind) => {
                let defined = linked.found(relocation.symbol).ok().flatten().filter(|symbol| symbol.section != 0);
                let kind = if kind == machine.absolute { kind } else { machine.glob_dat };
                let at = base.wrapping_add(relocation.place);
                match defined {
                    Some(symbol) => {
                        expected.push((at, machine.relative, &b""[..], base.wrapping_add(symbol.value) as i64))
                    }
                    None => expected.push((at, kind, relocation.symbol, relocation.addend)),
                }
            }
            other => return Err(format!("the donor has a relocation of type {other}")),
        }
    }
    let mut there: Vec<_> = relocations
        .iter()
        .filter(|it| {
            let in_storage =
                it.place.wrapping_sub(storage.address.wrapping_add(merged.own)) < own_image.end - own_image.start;
            merged.donor.contains(&it.place) || in_storage
        })
        .map(|it| (it.place, it.kind, it.symbol, it.addend))
        .collect();
    there.sort_unstable();
    expected.sort_unstable();
    if there != expected {
        return Err(format!("{} relocations of the donor are not the {} expected", there.len(), expected.len()));
    }

    // The fields that a graft fills in: the note, the options, and the ranges that are made read-only.
    let mut skip = Vec::new();
    let note = Subject::Malloc.section().as_bytes();
    for section in linked.elf.sections.iter().filter(|it| it.name == OPTIONS || it.name == note) {
        // Both are in the first segment, where addresses are offsets.
        let at = section.offset as usize;
        skip.push(at..at + section.data.map_or(0, <[u8]>::len));
    }
    let sealed = wanted.windows(SEALED.len()).position(|window| window == SEALED).ok_or("it seals nothing")?;
    skip.push(sealed + SEALED.len()..sealed + SEALED_SIZE);
    sealed_right(&found, sealed, graft, linked, merged)?;
    let is_kept = |at: &usize| !skip.iter().any(|range| range.contains(at));
    if let Some(at) = differences(&found, &wanted).find(is_kept) {
        let address = base + at as u64;
        return Err(format!("the byte at {address:#x} is {:#04x}, expected {:#04x}", found[at], wanted[at]));
    }
    thread_image(storage, own, &wanted, merged, stock, machine)?;
    probes::compare(graft.elf, linked.elf, base).map_or(Ok(()), Err)?;
    Ok(size)
}

/// Checks that the donor makes read-only exactly its own PT_GNU_RELRO, and the pages behind its memory up to the
/// headers.
fn sealed_right(
    found: &[u8],
    at: usize,
    graft: &Tables<'_, '_>,
    linked: &Tables<'_, '_>,
    merged: &Merged,
) -> Result<(), String> {
    let words = graft.elf.bytes.over(found.get(at..at + SEALED_SIZE).unwrap_or_default());
    let word = |index: usize| words.u64(16 + 8 * index).unwrap_or(0);
    let relro = linked.elf.segments.iter().find(|segment| segment.kind == crate::elf::PT_GNU_RELRO);
    let page = Machine::for_file(graft.elf).page;
    // To the end of its last page, if nothing of its segment is behind it.
    let relro = relro.map_or(0..0, |it| {
        let end = it.address.saturating_add(it.memory);
        let holds = |load: &crate::elf::Segment<'_>| it.address.wrapping_sub(load.address) < load.memory;
        let segment =
            loads(linked.elf).find(|load| holds(load)).map_or(0, |load| load.address.saturating_add(load.memory));
        let last = if segment <= end { end.next_multiple_of(page) } else { end / page * page };
        it.address / page * page..last
    });
    let size = merged.donor.end - merged.donor.start;
    let last = loads(graft.elf).map(|load| load.address).max().unwrap_or(0);
    let wanted = [relro, size..last.wrapping_sub(merged.donor.start)];
    for (index, range) in wanted.into_iter().enumerate() {
        let found = (word(2 * index), word(2 * index + 1));
        if found != (range.start.wrapping_sub(at as u64), range.end.wrapping_sub(range.start)) {
            return Err("the donor makes the wrong ranges read-only".to_owned());
        }
    }
    Ok(())
}

/// Checks that the initial thread-local storage is the donor's and the program's, each at its place, and zeros between;
/// and that the program's keeps its distance from the thread pointer, which its code uses.
fn thread_image(
    storage: &Segment<'_>,
    own: &Segment<'_>,
    donor: &[u8],
    merged: &Merged,
    stock: Option<&Elf<'_>>,
    machine: Machine,
) -> Result<(), String> {
    let image = storage.data.ok_or("its storage is outside the file")?;
    let (front, at) = (merged.front as usize, merged.own as usize);
    let initial = own.data.map_or(0, <[u8]>::len);
    let initial = donor.get(own.address as usize..).and_then(|rest| rest.get(..initial)).unwrap_or_default();
    if !initial.is_empty() && image.get(at..at + initial.len()) != Some(initial) {
        return Err("the donor's initial thread-local storage is not the linked donor's".to_owned());
    }
    let aligned = machine.distance(storage).wrapping_add(merged.own).wrapping_sub(own.address) % own.align.max(1);
    if aligned != 0 || merged.own.saturating_add(own.memory) > storage.memory {
        return Err("the donor's thread-local storage is not where it fits".to_owned());
    }
    let Some(stock) = stock else { return Ok(()) };
    let theirs = stock.segments.iter().find(|segment| segment.kind == PT_TLS);
    let (data, memory) = theirs.map_or((&[][..], 0), |it| (it.data.unwrap_or_default(), it.memory));
    let mut wanted = vec![0; image.len()];
    for (at, part) in [(at, initial), (front, data)].into_iter().filter(|(_, part)| !part.is_empty()) {
        wanted.get_mut(at..at + part.len()).ok_or("its storage is cut off")?.copy_from_slice(part);
    }
    let apart =
        merged.own.saturating_add(own.memory) <= merged.front || merged.own >= merged.front.saturating_add(memory);
    let (before, behind) = (merged.front.saturating_add(memory), merged.own.saturating_add(own.memory));
    if wanted != image || !apart || storage.memory != before.max(behind) {
        return Err("the program's thread-local storage has changed".to_owned());
    }
    let now = machine.distance(storage).wrapping_add(merged.front);
    if theirs.is_some_and(|theirs| machine.distance(theirs) != now) {
        return Err("the program's thread-local storage has another distance from the thread pointer".to_owned());
    }
    Ok(())
}
