//! The layout of a grafted libc.so. No byte of it moves in memory.
//!
//! ```text
//!  file                                                          memory
//!  libc.so as it was, but for the jumps                          the same addresses
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

use format::parameters;

use super::{Findings, refused};
use crate::blob::{Blob, BlobError, VARIABLE};
use crate::code::Machine;
use crate::image::{
    Image, PF_R, PF_W, PF_X, PROGRAM_HEADER, PT_LOAD, PT_NOTE, PT_PHDR, SHF_ALLOC, SHF_EXECINSTR, SHF_WRITE,
    SHT_NOBITS, SHT_NOTE, SHT_PROGBITS, Section, Segment, u64_at,
};
use crate::layout::{PlanError, write_entries};
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
    /// The largest size of a page.
    page: u64,
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
    let malformed = |what: &str| Refusal::Malformed(what.to_owned());
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
    let places = Places { base, data: blob.data, table, headers: memory.len() as u64, page };
    blob.memory = memory;
    if base + places.headers > i32::MAX as u64 {
        return Err(Refusal::OutOfReach(base + places.headers).into());
    }

    // Of `struct transplant_parameters`, a loader has no main, no self-test and no PT_TLS.
    let mut words = [0_u64; parameters::WORDS];
    words[..10].copy_from_slice(&[
        relative(image.entry),
        places.headers,
        table,
        blob.relative.len() as u64,
        blob.data,
        0,
        blob.sealed_end - blob.data,
        0,
        errno_offset as u64,
        relative(end.destructors),
    ]);
    words[17] = relative(exit.streams);
    let write = |blob: &mut Blob, name: &str, head: usize, words: &[u64]| {
        let at = blob.symbol(name)? as usize + head;
        let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        blob.write(at, &words);
        Ok::<(), BlobError>(())
    };
    write(&mut blob, "transplant_parameters", parameters::HEAD, &words)?;
    let [malloc, aligned_alloc] = [slots.malloc, slots.aligned_alloc].map(|(slot, own)| [slot, own].map(relative));
    let values = [values.field as u64, values.size, relative(values.main)];
    write(&mut blob, "transplant_loader", 0, &[&values[..], &malloc, &aligned_alloc].concat())?;
    let entries: Vec<(u64, u32)> = jumps.iter().filter_map(|jump| Some((jump.site, jump.number?))).collect();
    write_entries(&mut blob, base, &entries)?;
    for jump in &jumps {
        let target = base + blob.symbol(jump.to)?;
        let at = image.offset(jump.site).ok_or_else(|| malformed("an entry point is not in it"))?;
        let bytes = machine.jump(jump.site, target, jump.number.is_none()).ok_or(Refusal::OutOfReach(base))?;
        file[at..at + bytes.len()].copy_from_slice(&bytes);
    }

    file.resize(base as usize, 0);
    file.extend(&blob.memory);
    let segments = segments(image, &blob, &places, &moved);
    file.extend(segments.iter().flat_map(Segment::encode));
    let start = base + blob.symbol("transplant_start")?;
    file[24..32].copy_from_slice(&start.to_le_bytes());
    file[32..40].copy_from_slice(&(base + places.headers).to_le_bytes());
    file[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
    append_sections(&mut file, image, &blob, &places, (&moved, segments.len()));
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

/// The headers, with the new ones behind the last loaded segment. What lies in the writable segment has moved in the
/// file.
fn segments(image: &Image<'_>, blob: &Blob, places: &Places, moved: &Segment) -> Vec<Segment> {
    let segment = |kind, flags, from: u64, size: u64, align| {
        let at = places.base + from;
        Segment { kind, flags, offset: at, address: at, physical: at, file_size: size, memory_size: size, align }
    };
    let mut segments = image.segments.clone();
    for stock in &mut segments {
        if stock.kind == PT_LOAD && stock.address == moved.address {
            *stock = *moved;
        } else if stock.kind != PT_LOAD && stock.memory_size != 0 && moved.memory().contains(&stock.address) {
            stock.offset = moved.offset + (stock.address - moved.address);
        }
    }
    segments.push(segment(PT_NOTE, PF_R, blob.notes.start, blob.notes.end - blob.notes.start, 4));
    let last = segments.iter().rposition(|segment| segment.kind == PT_LOAD).map_or(0, |last| last + 1);
    let size = ((segments.len() + 3) * PROGRAM_HEADER) as u64;
    // The address and the offset of each are equal.
    let new = [
        segment(PT_LOAD, PF_R | PF_X, 0, places.data, places.page),
        segment(PT_LOAD, PF_R | PF_W, places.data, places.headers - places.data, places.page),
        segment(PT_LOAD, PF_R, places.headers, size, places.page),
    ];
    segments.splice(last..last, new);
    for own in segments.iter_mut().filter(|segment| segment.kind == PT_PHDR) {
        *own = segment(PT_PHDR, PF_R, places.headers, size, 8);
    }
    segments
}

/// Appends the section headers and the donor's. Sections of the writable segment have moved in the file, and none is
/// without content there. `segments` is the number of program headers.
fn append_sections(
    file: &mut Vec<u8>,
    image: &Image<'_>,
    blob: &Blob,
    places: &Places,
    (moved, segments): (&Segment, usize),
) {
    let mut table = SectionTable::of(image);
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
        let (address, size) = (places.base + from, to - from);
        table.add(name, Section { kind, flags, address, offset: address, size, align, ..Section::default() });
    }
    let headers = places.base + places.headers;
    table.add_program_headers(headers, headers, segments);
    table.write(file);
}
