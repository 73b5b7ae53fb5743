//! The layout of the grafted file. No byte of the program moves, in the file or in memory: everything new lies behind
//! it.
//!
//! ```text
//!  file                                                          memory
//!  the program as it was, but for the jumps                      the same addresses
//!  page   code of the donor, its note          R E  \
//!         data of the donor                    RW    |           behind the program's last segment; page by page as
//!         copy of the program's .tdata with          |           in the file (`location`)
//!         the donor's in front, relocations    RW    |
//!  page   program headers                      R    /
//!         names and headers of sections
//! ```
//!
//! The program headers are last, in a segment of their own whose only section GNU's tools do not see
//! ([`SectionTable::add_program_headers`]). Only then do GNU's, LLVM's and elfutils' strip and objcopy keep the file
//! whole. For the same reason all data is in the file.

use format::entries::ENTRY;
use format::{note, parameters};

use crate::blob::{Blob, BlobError};
use crate::code::{Edit, Machine};
use crate::image::{
    Image, PF_R, PF_W, PF_X, PT_LOAD, PT_NOTE, PT_PHDR, PT_TLS, SHF_EXECINSTR, SHF_TLS, SHF_WRITE, SHT_NOBITS,
    SHT_NOTE, SHT_PROGBITS, Section, Segment,
};
use crate::location::Location;
use crate::refusal::Refusal;
use crate::relocations::Relocations;
use crate::section_table::SectionTable;
use crate::thread_storage::ThreadStorage;

/// Everything that goes into a grafted file.
#[derive(Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) machine: &'static dyn Machine,
    pub(crate) image: &'a Image<'a>,
    pub(crate) relocations: &'a Relocations,
    pub(crate) location: Location,
    pub(crate) blob: Blob,
    /// Jumps to write over the program's own bytes. Their targets are relative to the donor's base.
    pub(crate) jumps: Vec<Jump>,
    pub(crate) main: Edit,
    pub(crate) parameters: Parameters,
}

/// A jump or a call into the donor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Jump {
    /// The entry point's number in the note on entry points; `None` for a call.
    pub(crate) number: Option<u32>,
    pub(crate) site: u64,
    /// The donor's symbol.
    pub(crate) to: &'static str,
}

/// The values for the blob's `struct transplant_parameters` (crates/donors/transplant/parameters.h). Addresses are the
/// program's.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parameters {
    pub(crate) errno_offset: i64,
    pub(crate) key_destructors: Option<u64>,
    pub(crate) main: u64,
    pub(crate) streams: Option<u64>,
    pub(crate) calls: [Option<u64>; parameters::CALLS],
}

/// Returns the grafted file.
pub(crate) fn assemble(parts: Parts<'_>) -> Result<Vec<u8>, PlanError> {
    let Parts { machine, image, relocations, location, mut blob, jumps, main, parameters: given } = parts;
    let page = machine.page();
    let first = image.loads().map(|load| load.address).min().unwrap_or(0);
    let Location { base, offset } = location;
    let relative = |address: u64| address.wrapping_sub(base);

    let storage = ThreadStorage::of(image, &blob.tls, blob.thread_image())?;
    blob.move_thread_distances(&storage)?;
    // The copy of the storage, and the relocations, on pages of their own behind the donor's data.
    let copy = blob.memory.len() as u64;
    let mut image_at = copy.next_multiple_of(16);
    while (base + image_at) & (storage.align - 1) != storage.remainder {
        image_at += 1;
    }
    let mut pairs = blob.relative.clone();
    let own = blob.tls.address..blob.tls.address + blob.tls.file_size;
    for (place, value) in blob.relative.iter().filter(|(place, _)| own.contains(place)) {
        pairs.push((image_at + storage.own + (place - own.start), *value));
    }
    if let Some(stock) = image.segment(PT_TLS) {
        let range = stock.address..stock.address + stock.file_size;
        if let Some(address) = relocations.other.iter().find(|place| range.contains(place)) {
            return Err(Refusal::ThreadLocal(*address).into());
        }
        for (place, value) in relocations.within(range.clone()) {
            pairs.push((image_at + storage.front + (place - range.start), relative(value)));
        }
    }
    let table_at = (image_at + storage.image.len() as u64).next_multiple_of(16);
    let mut memory = std::mem::take(&mut blob.memory);
    memory.resize(image_at as usize, 0);
    memory.extend(&storage.image);
    memory.resize(table_at as usize, 0);
    memory.extend(pairs.iter().flat_map(|(place, value)| [place.to_le_bytes(), value.to_le_bytes()].concat()));
    memory.resize(memory.len().next_multiple_of(page as usize), 0);
    let headers_at = memory.len() as u64;
    blob.memory = memory;

    let span = (base + headers_at).saturating_sub(first);
    if span >= i32::MAX as u64 || (!image.position_independent && base + headers_at > i32::MAX as u64) {
        return Err(Refusal::OutOfReach(span).into());
    }
    let words: [u64; parameters::WORDS] = [
        relative(image.entry),
        headers_at,
        table_at,
        pairs.len() as u64,
        blob.data,
        copy,
        blob.sealed_end - blob.data,
        headers_at - copy,
        given.errno_offset as u64,
        given.key_destructors.map_or(0, relative),
        relative(given.main),
        // Set only in the copy that runs the self-test: `self_test`.
        0,
        image_at,
        storage.image.len() as u64,
        storage.size,
        storage.align,
        match main {
            Edit::Branch { target, .. } => relative(target),
            Edit::Operand { .. } => 0,
        },
        given.streams.map_or(0, relative),
    ];
    let calls = given.calls.iter().map(|call| call.map_or(0, relative));
    let at = blob.symbol("transplant_parameters")? as usize + parameters::HEAD;
    let words: Vec<u8> = words.into_iter().chain(calls).flat_map(u64::to_le_bytes).collect();
    blob.write(at, &words);
    let entries: Vec<(u64, u32)> = jumps.iter().filter_map(|jump| Some((jump.site, jump.number?))).collect();
    write_entries(&mut blob, base, &entries)?;

    let mut file = image.bytes.to_vec();
    for jump in &jumps {
        let target = base + blob.symbol(jump.to)?;
        let at = image.offset(jump.site).ok_or_else(|| Refusal::Malformed("an entry point is not in it".into()))?;
        let bytes = machine.jump(jump.site, target, jump.number.is_none()).ok_or(Refusal::OutOfReach(span))?;
        file[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    let (field, bytes) = match main {
        Edit::Operand { field, from, to } => {
            let target = base + blob.symbol(to)?;
            (field, (target.wrapping_sub(from.unwrap_or(0)) as u32).to_le_bytes().to_vec())
        }
        Edit::Branch { site, is_call, .. } => {
            let target = base + blob.symbol("transplant_libc_start_main")?;
            (site, machine.jump(site, target, is_call).ok_or(Refusal::OutOfReach(span))?)
        }
    };
    let at = image.offset(field).ok_or_else(|| Refusal::Malformed("its start is not in it".into()))?;
    file[at..at + bytes.len()].copy_from_slice(&bytes);
    file.resize(offset as usize, 0);
    file.extend(&blob.memory);
    let place = NewAddresses { page, base, offset, headers_at, image_at, table_at, copy };
    let segments = segments(image, &blob, &place, &storage);
    file.extend(segments.iter().flat_map(Segment::encode));
    let start = base + blob.symbol("transplant_start")?;
    file[24..32].copy_from_slice(&start.to_le_bytes());
    file[32..40].copy_from_slice(&(offset + headers_at).to_le_bytes());
    file[56..58].copy_from_slice(&(segments.len() as u16).to_le_bytes());
    if !image.sections.is_empty() {
        append_sections(&mut file, image, &blob, &place, (&storage, segments.len()));
    }
    Ok(file)
}

/// Why no file was made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanError {
    #[error(transparent)]
    Refusal(#[from] Refusal),
    #[error(transparent)]
    Blob(#[from] BlobError),
}

/// Distances from the base, except for the first two.
struct NewAddresses {
    page: u64,
    base: u64,
    offset: u64,
    headers_at: u64,
    image_at: u64,
    table_at: u64,
    copy: u64,
}

/// Writes the note of redirected entry points (docs/note.md): distances, each from its own place.
pub(crate) fn write_entries(blob: &mut Blob, base: u64, entries: &[(u64, u32)]) -> Result<(), PlanError> {
    let at = blob.symbol("transplant_entries")? + note::HEAD as u64;
    if entries.len() > blob.room()? {
        return Err(BlobError::Layout("it has no room for the entry points".to_owned()).into());
    }
    for (index, (entry, number)) in entries.iter().enumerate() {
        let place = at + (ENTRY * index) as u64;
        blob.write(place as usize, &(entry.wrapping_sub(base + place) as u32).to_le_bytes());
        blob.write(place as usize + 4, &number.to_le_bytes());
    }
    Ok(())
}

/// The program's headers, with the new ones behind its last loaded segment.
fn segments(image: &Image<'_>, blob: &Blob, place: &NewAddresses, storage: &ThreadStorage) -> Vec<Segment> {
    let segment = |kind, flags, from: u64, size: u64, align| Segment {
        kind,
        flags,
        offset: place.offset + from,
        address: place.base + from,
        physical: place.base + from,
        file_size: size,
        memory_size: size,
        align,
    };
    let mut segments = image.segments.clone();
    let tls = Segment {
        memory_size: storage.size,
        ..segment(PT_TLS, PF_R, place.image_at, storage.image.len() as u64, storage.align)
    };
    match segments.iter_mut().find(|segment| segment.kind == PT_TLS) {
        Some(stock) => *stock = tls,
        None => segments.push(tls),
    }
    segments.push(segment(PT_NOTE, PF_R, blob.notes.start, blob.notes.end - blob.notes.start, 4));
    let last = segments.iter().rposition(|segment| segment.kind == PT_LOAD).map_or(0, |last| last + 1);
    let size = ((segments.len() + 3) * crate::image::PROGRAM_HEADER) as u64;
    let new = [
        segment(PT_LOAD, PF_R | PF_X, 0, blob.data, place.page),
        segment(PT_LOAD, PF_R | PF_W, blob.data, place.headers_at - blob.data, place.page),
        segment(PT_LOAD, PF_R, place.headers_at, size, place.page),
    ];
    segments.splice(last..last, new);
    for own in segments.iter_mut().filter(|segment| segment.kind == PT_PHDR) {
        *own = segment(PT_PHDR, PF_R, place.headers_at, size, 8);
    }
    segments
}

/// Appends the program's section headers and the donor's, so that tools that go by sections keep the new parts.
/// `segments` is the number of program headers.
fn append_sections(
    file: &mut Vec<u8>,
    image: &Image<'_>,
    blob: &Blob,
    place: &NewAddresses,
    (storage, segments): (&ThreadStorage, usize),
) {
    let mut table = SectionTable::of(image);
    let section = |kind, flags, from: u64, to: u64, align| Section {
        kind,
        flags,
        address: place.base + from,
        offset: place.offset + from,
        size: to - from,
        align,
        ..Section::default()
    };
    let image_end = place.image_at + storage.image.len() as u64;
    table.add(".note.allograft", section(SHT_NOTE, 0, blob.notes.start, blob.notes.end, 4));
    table.add(".allograft.text", section(SHT_PROGBITS, SHF_EXECINSTR, blob.notes.end, blob.data, 4));
    table.add(".allograft.data", section(SHT_PROGBITS, SHF_WRITE, blob.data, place.copy, 64));
    let (flags, tbss_end) = (SHF_WRITE | SHF_TLS, place.image_at + storage.size);
    let tdata = table.add(".allograft.tdata", section(SHT_PROGBITS, flags, place.image_at, image_end, 1));
    let tbss = table.add(".allograft.tbss", section(SHT_NOBITS, flags, image_end, tbss_end, 1));
    table.add(".allograft.relocations", section(SHT_PROGBITS, SHF_WRITE, place.table_at, place.headers_at, 16));
    table.add_program_headers(place.base + place.headers_at, place.offset + place.headers_at, segments);
    table.move_thread_storage(file, image, storage, (tdata, tbss));
    table.write(file);
}
