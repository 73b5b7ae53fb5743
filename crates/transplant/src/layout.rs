//! The layout of the grafted file. No byte of the program moves, in the file or in memory: everything new follows it.
//!
//! ```text
//!  file                                                          memory
//!  the program, unchanged but for the jumps                      the same addresses
//!  page   code of the donor, its note          R E  \
//!         data of the donor                    RW    |           behind the program's last segment; page by page as
//!         copy of the program's .tdata with          |           in the file (`location`)
//!         the donor's in front, relocations    RW    |
//!  page   program headers                      R    /
//!         notes on probes, names and headers of sections
//! ```
//!
//! The program headers are last, in a segment of their own whose only section GNU's tools do not see
//! ([`SectionTable::add_program_headers`]). Only then do GNU's, LLVM's and elfutils' strip and objcopy keep the file
//! whole. For the same reason all data is in the file.

use format::parameters::{self, Parameters};

use crate::appended::{Appended, Jump, PlanError, write_entries, write_jumps, write_parameters, write_start};
use crate::blob::Blob;
use crate::code::{Edit, Machine};
use crate::image::{
    Image, PF_R, PF_W, PF_X, PT_NOTE, PT_TLS, SHF_EXECINSTR, SHF_TLS, SHF_WRITE, SHT_NOBITS, SHT_NOTE, SHT_PROGBITS,
    Segment,
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
    pub(crate) addresses: ProgramAddresses,
}

/// Where in the program the donor finds what it needs. Addresses are the program's.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProgramAddresses {
    pub(crate) errno_offset: i64,
    pub(crate) key_destructors: Option<u64>,
    pub(crate) main: u64,
    pub(crate) streams: Option<u64>,
    pub(crate) calls: [Option<u64>; parameters::CALLS],
}

/// Returns the grafted file.
pub(crate) fn assemble(parts: Parts<'_>) -> Result<Vec<u8>, PlanError> {
    let Parts { machine, image, relocations, location, mut blob, jumps, main, addresses: given } = parts;
    let page = machine.page();
    let first = image.loads().map(|load| load.address).min().unwrap_or(0);
    let Location { base, offset } = location;
    let relative = |address: u64| address.wrapping_sub(base);

    let storage = ThreadStorage::combine(image, &blob.tls, blob.thread_image())?;
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
    let start = Parameters {
        entry: relative(image.entry),
        headers: headers_at,
        relocations: table_at,
        relocation_count: pairs.len() as u64,
        sealed: [blob.data, copy],
        sealed_size: [blob.sealed_end - blob.data, headers_at - copy],
        errno_offset: given.errno_offset,
        key_destructors: given.key_destructors.map_or(0, relative),
        main: relative(given.main),
        tls_image: image_at,
        tls_file_size: storage.image.len() as u64,
        tls_size: storage.size,
        tls_alignment: storage.align,
        start_main: match main {
            Edit::Branch { target, .. } => relative(target),
            Edit::Operand { .. } => 0,
        },
        streams: given.streams.map_or(0, relative),
        calls: given.calls.map(|call| call.map_or(0, relative)),
    };
    write_parameters(&mut blob, &start)?;
    let entries: Vec<(u64, u32)> = jumps.iter().filter_map(|jump| Some((jump.site, jump.number?))).collect();
    write_entries(&mut blob, base, &entries)?;

    let mut file = image.bytes.to_vec();
    write_jumps(&mut file, image, machine, (&jumps, &blob, base), span)?;
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
    let place = NewAddresses { base, headers_at, image_at, table_at, copy };
    let appended = Appended { location, page, headers_at: base + headers_at };
    let loads = vec![(PF_R | PF_X, base..base + blob.data), (PF_R | PF_W, base + blob.data..base + headers_at)];
    let count = appended.write_headers(&mut file, segments(image, &blob, &place, &appended, &storage), loads);
    write_start(&mut file, base + blob.symbol("transplant_start")?);
    if !image.sections.is_empty() {
        append_sections(&mut file, image, &blob, &place, (&appended, &storage, count));
    }
    Ok(file)
}

/// Distances from the base, except for that itself.
struct NewAddresses {
    base: u64,
    headers_at: u64,
    image_at: u64,
    table_at: u64,
    copy: u64,
}

/// The program's headers without what is loaded anew.
fn segments(
    image: &Image<'_>,
    blob: &Blob,
    place: &NewAddresses,
    appended: &Appended,
    storage: &ThreadStorage,
) -> Vec<Segment> {
    let at = |from: u64, size: u64| place.base + from..place.base + from + size;
    let mut segments = image.segments.clone();
    let tls = Segment {
        memory_size: storage.size,
        ..appended.segment(PT_TLS, PF_R, at(place.image_at, storage.image.len() as u64), storage.align)
    };
    match segments.iter_mut().find(|segment| segment.kind == PT_TLS) {
        Some(stock) => *stock = tls,
        None => segments.push(tls),
    }
    segments.push(appended.segment(PT_NOTE, PF_R, at(blob.notes.start, blob.notes.end - blob.notes.start), 4));
    segments
}

/// Appends the program's section headers and the donor's, so that tools that go by sections keep the new parts.
/// `segments` is the number of program headers.
fn append_sections(
    file: &mut Vec<u8>,
    image: &Image<'_>,
    blob: &Blob,
    place: &NewAddresses,
    (appended, storage, segments): (&Appended, &ThreadStorage, usize),
) {
    let mut table = SectionTable::from_image(image);
    let section = |kind, flags, from: u64, to: u64, align| {
        appended.section(kind, flags, &(place.base + from..place.base + to), align)
    };
    let image_end = place.image_at + storage.image.len() as u64;
    table.add(".note.allograft", section(SHT_NOTE, 0, blob.notes.start, blob.notes.end, 4));
    table.add(".allograft.text", section(SHT_PROGBITS, SHF_EXECINSTR, blob.notes.end, blob.data, 4));
    table.add(".allograft.data", section(SHT_PROGBITS, SHF_WRITE, blob.data, place.copy, 64));
    let (flags, tbss_end) = (SHF_WRITE | SHF_TLS, place.image_at + storage.size);
    let tdata = table.add(".allograft.tdata", section(SHT_PROGBITS, flags, place.image_at, image_end, 1));
    let tbss = table.add(".allograft.tbss", section(SHT_NOBITS, flags, image_end, tbss_end, 1));
    table.add(".allograft.relocations", section(SHT_PROGBITS, SHF_WRITE, place.table_at, place.headers_at, 16));
    table.add_program_headers(appended, segments);
    table.add_probes(file, &blob.probes.placed(place.base));
    table.move_thread_storage(file, image, storage, (tdata, tbss));
    table.write(file);
}
