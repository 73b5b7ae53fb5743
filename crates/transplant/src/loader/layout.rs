//! The layout of a grafted libc.so. No byte of it moves in memory.
//!
//! ```text
//!  file                                                          memory
//!  libc.so, unchanged but for the jumps                          the same addresses
//!         its writable segment once more, .bss as zeros   RW     the same addresses
//!  page   code of the donor, its note                     R E  \
//!         data of the donor, relocations                  RW    |  at addresses that are their offsets in the file
//!  page   program headers                                 R    /
//!         names and headers of sections
//! ```
//!
//! Two facts of kernels ask for that. Kernels before 6.7 know of one `.bss` in an interpreter, in its last segment
//! (fs/binfmt_elf.c, load_elf_interp); so none is left. And the loader takes its own program headers at its base plus
//! their offset in the file (ldso/dynlink.c, `__dls2`).

use format::parameters::Parameters;

use super::{Findings, refused};
use crate::appended::{Appended, PlanError, write_entries, write_jumps, write_parameters, write_start};
use crate::blob::{Blob, BlobError, VARIABLE};
use crate::code::Machine;
use crate::image::{
    Image, PF_R, PF_W, PF_X, PT_LOAD, PT_NOTE, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE, SHT_NOBITS, SHT_NOTE, SHT_PROGBITS,
    Segment, u64_at,
};
use crate::location::Location;
use crate::refusal::Refusal;
use crate::section_table::SectionTable;

/// The first word of the donor's storage says whether the variables have their initial values.
const FIRST: u64 = 8;
/// The greatest alignment that a thread's values have on every stack (src/thread/pthread_create.c).
const ALIGNMENT: u64 = 16;
/// `TRANSPLANT_STORAGE` (crates/donors/transplant/loader.h).
const MOST_STORAGE: u64 = 960;

/// The size in bytes of the donor's storage in each thread.
pub(super) fn storage(blob: &Blob) -> Result<u64, BlobError> {
    Ok(places(blob)?.1)
}

/// The offset of each thread-local variable in the storage, and the storage's size.
fn places(blob: &Blob) -> Result<(Vec<(u64, u64)>, u64), BlobError> {
    let layout = |what: &str| BlobError::Layout(what.to_owned());
    let variables = blob.variables.as_ref().ok_or_else(|| layout("it is not for the dynamic loader"))?;
    let (mut at, mut places) = (FIRST, Vec::new());
    for record in variables {
        let words = blob.memory.get(*record as usize..*record as usize + VARIABLE);
        let words = words.ok_or_else(|| layout("a thread-local variable lies outside"))?;
        let (size, alignment) = (u64_at(words, 0).unwrap_or(0), u64_at(words, 8).unwrap_or(0));
        if !alignment.is_power_of_two() || alignment > ALIGNMENT || size > MOST_STORAGE {
            return Err(layout("a thread-local variable is too large, or aligned too much"));
        }
        at = at.next_multiple_of(alignment);
        places.push((*record, at));
        at += size;
    }
    let size = at.next_multiple_of(64);
    if size > MOST_STORAGE {
        return Err(BlobError::Layout(format!("it has {at} bytes of thread-local variables")));
    }
    Ok((places, size))
}

/// Where the parts of the donor lie: its first byte has the same offset and address; the others are distances from it.
struct Places {
    base: u64,
    data: u64,
    table: u64,
    headers: u64,
}

/// Returns the grafted file.
pub(super) fn assemble(
    image: &Image<'_>,
    machine: &'static dyn Machine,
    mut blob: Blob,
    findings: Findings,
) -> Result<Vec<u8>, PlanError> {
    let Findings { jumps, end, exit, errno_offset, values, slots } = findings;
    let page = machine.page();
    let writable = writable(image)?;
    let mut file = image.bytes.to_vec();
    for jump in &jumps {
        if writable.memory().contains(&jump.site) {
            return Err(refused("has code that can be written").into());
        }
    }

    // The writable segment once more, with its zeros.
    file.resize(file.len().next_multiple_of(page as usize) + (writable.address % page) as usize, 0);
    let moved = Segment { offset: file.len() as u64, file_size: writable.memory_size, ..writable };
    file.extend_from_slice(image.read(writable.address, writable.file_size as usize).unwrap_or_default());
    file.resize((moved.offset + moved.file_size) as usize, 0);
    let at = (moved.offset + (values.variable - writable.address)) as usize;
    file[at..at + 8].copy_from_slice(&(values.size + values.storage).to_le_bytes());

    // An unused page before the donor, so that neither runs into the other.
    let last = image.loads().map(|load| load.memory().end).max().unwrap_or(0);
    let base = (last.next_multiple_of(page) + page).max((file.len() as u64).next_multiple_of(page));
    let relative = |address: u64| address.wrapping_sub(base);
    for (record, place) in places(&blob)?.0 {
        blob.write(record as usize + 16, &place.to_le_bytes());
    }
    let table = blob.memory.len() as u64;
    let mut memory = std::mem::take(&mut blob.memory);
    memory.extend(blob.relative.iter().flat_map(|(place, value)| [place.to_le_bytes(), value.to_le_bytes()].concat()));
    memory.resize(memory.len().next_multiple_of(page as usize), 0);
    let places = Places { base, data: blob.data, table, headers: memory.len() as u64 };
    blob.memory = memory;
    if base + places.headers > i32::MAX as u64 {
        return Err(Refusal::OutOfReach(base + places.headers).into());
    }

    // Of `struct transplant_parameters`, a loader has no main, no self-test and no PT_TLS.
    let start = Parameters {
        entry: relative(image.entry),
        headers: places.headers,
        relocations: table,
        relocation_count: blob.relative.len() as u64,
        sealed: [blob.data, 0],
        sealed_size: [blob.sealed_end - blob.data, 0],
        errno_offset,
        key_destructors: relative(end.destructors),
        streams: relative(exit.streams),
        ..Parameters::default()
    };
    write_parameters(&mut blob, &start)?;
    let [malloc, aligned_alloc] = [slots.malloc, slots.aligned_alloc].map(|(slot, own)| [slot, own].map(relative));
    let values = [values.field as u64, values.size, relative(values.main)];
    let words = [&values[..], &malloc, &aligned_alloc].concat();
    let words: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    let at = blob.symbol("transplant_loader")? as usize;
    blob.write(at, &words);
    let entries: Vec<(u64, u32)> = jumps.iter().filter_map(|jump| Some((jump.site, jump.number?))).collect();
    write_entries(&mut blob, base, &entries)?;
    write_jumps(&mut file, image, machine, (&jumps, &blob, base), base)?;

    file.resize(base as usize, 0);
    file.extend(&blob.memory);
    // The address and the offset of each are equal.
    let location = Location { base, offset: base };
    let appended = Appended { location, page, headers_at: base + places.headers };
    let loads = vec![(PF_R | PF_X, base..base + places.data), (PF_R | PF_W, base + places.data..base + places.headers)];
    let count = appended.write_headers(&mut file, segments(image, &blob, &appended, &moved), loads);
    write_start(&mut file, base + blob.symbol("transplant_start")?);
    append_sections(&mut file, image, &blob, &places, (&appended, &moved, count));
    Ok(file)
}

/// The one writable segment, which is the last, and behind the ELF header's.
fn writable(image: &Image<'_>) -> Result<Segment, Refusal> {
    let loads: Vec<&Segment> = image.loads().collect();
    let (Some(first), Some(last)) = (loads.first(), loads.last()) else { return Err(refused("loads nothing")) };
    let alone = loads.iter().filter(|load| load.flags & PF_W != 0).count() == 1;
    if !alone || last.flags & (PF_W | PF_X) != PF_W {
        return Err(refused("does not have one writable segment, at its end"));
    }
    if first.address != 0 || first.offset != 0 {
        return Err(refused("its ELF header is not mapped at its beginning"));
    }
    Ok(**last)
}

/// The headers without what is loaded anew. Sections of the writable segment have moved in the file.
fn segments(image: &Image<'_>, blob: &Blob, appended: &Appended, moved: &Segment) -> Vec<Segment> {
    let mut segments = image.segments.clone();
    for stock in &mut segments {
        if stock.kind == PT_LOAD && stock.address == moved.address {
            *stock = *moved;
        } else if stock.kind != PT_LOAD && stock.memory_size != 0 && moved.memory().contains(&stock.address) {
            stock.offset = moved.offset + (stock.address - moved.address);
        }
    }
    let base = appended.location.base;
    segments.push(appended.segment(PT_NOTE, PF_R, base + blob.notes.start..base + blob.notes.end, 4));
    segments
}

/// Appends the section headers and the donor's. Sections of the writable segment have moved in the file, and none is
/// without content there. `segments` is the number of program headers.
fn append_sections(
    file: &mut Vec<u8>,
    image: &Image<'_>,
    blob: &Blob,
    places: &Places,
    (appended, moved, segments): (&Appended, &Segment, usize),
) {
    let mut table = SectionTable::from_image(image);
    for section in table.sections.iter_mut().filter(|section| section.flags & SHF_ALLOC != 0) {
        if moved.memory().contains(&section.address) {
            section.offset = moved.offset + (section.address - moved.address);
            if section.kind == SHT_NOBITS {
                section.kind = SHT_PROGBITS;
            }
        }
    }
    for (name, kind, flags, from, to, align) in [
        (".note.allograft", SHT_NOTE, 0, blob.notes.start, blob.notes.end, 4),
        (".allograft.text", SHT_PROGBITS, SHF_EXECINSTR, blob.notes.end, places.data, 4),
        (".allograft.data", SHT_PROGBITS, SHF_WRITE, places.data, places.table, 64),
        (".allograft.relocations", SHT_PROGBITS, SHF_WRITE, places.table, places.headers, 16),
    ] {
        table.add(name, appended.section(kind, flags, &(places.base + from..places.base + to), align));
    }
    table.add_program_headers(appended, segments);
    table.add_probes(file, &blob.probes.placed(places.base));
    table.write(file);
}
