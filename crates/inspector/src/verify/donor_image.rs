//! Compares the donor in a grafted executable with the linked donor that it was made from. It shares no code with the
//! editor: the donor's own symbols, sections and relocations give the layout. Every byte is compared, and before the
//! self-test: no code runs that is not the donor's.

use std::ops::Range;

use super::check::{Check, parse};
use super::image::first_difference;
use super::loader;
use super::probes;
use crate::elf::{Elf, PF_X, PT_TLS, SHF_ALLOC, SHT_RELA, Segment};
use crate::entry_points::{EntryPoints, loads};
use crate::error::InspectError;
use crate::report::Arch;

/// The size in bytes of a note's header, and of its description (docs/note.md).
const NOTE_HEADER: u64 = 24;
const NOTE_TEXT: u64 = 512;
/// The options block: a header, then rows. A row has the value, and a flag whether it is set (docs/options-block.md).
const OPTIONS_HEADER: u64 = 16;
const OPTIONS_ROW: u64 = 64;
const OPTION_VALUE: Range<u64> = 32..40;
const OPTION_SET: Range<u64> = 56..60;
/// `struct transplant_parameters` (crates/donors/transplant/parameters.h): its words, by their index.
pub(super) const PARAMETERS: u64 = 30;
/// The word with the address of `__stdio_exit`, the last function that `exit` calls before the process ends; 0 if that
/// call is stock's.
pub(super) const STREAMS: u64 = 19;
const SELF_TEST: u64 = 13;

/// Checks that the three segments of the donor in the executable `graft` hold the linked donor `donor`, and that the
/// fields that a graft fills in are valid; with the stock file `stock`, that they fit it.
///
/// # Errors
/// A file is not an ELF file.
pub fn donor_image(graft: &[u8], donor: &[u8], stock: Option<&[u8]>) -> Result<Check, InspectError> {
    let stock = stock.map(parse).transpose()?;
    Ok(check(&parse(graft)?, &parse(donor)?, stock.as_ref()))
}

pub(super) fn check(elf: &Elf<'_>, donor: &Elf<'_>, stock: Option<&Elf<'_>>) -> Check {
    let found = EntryPoints::required(elf).and_then(|entry_points| compare(elf, &entry_points, donor, stock));
    let complaints = found.unwrap_or_else(|problem| vec![problem]);
    Check::unless("donor", complaints, || "its code and data are the donor's".to_owned())
}

/// The linked donor.
pub(super) struct Linked<'d, 'a> {
    pub(super) elf: &'d Elf<'a>,
    code: &'d Segment<'a>,
    pub(super) data: &'d Segment<'a>,
    /// The end of its data in memory, rounded up to whole pages.
    pub(super) end: u64,
}

impl<'d, 'a> Linked<'d, 'a> {
    fn parse(elf: &'d Elf<'a>, page: u64) -> Option<Linked<'d, 'a>> {
        let mut parts = loads(elf);
        let (code, data) = (parts.next()?, parts.next()?);
        let end = data.address.checked_add(data.memory)?.checked_next_multiple_of(page)?;
        (parts.next().is_none() && code.address == 0 && end < 1 << 32).then_some(Linked { elf, code, data, end })
    }

    /// Returns the donor's memory image, from its first byte on, as the file defines it.
    fn memory(&self) -> Vec<u8> {
        let mut memory = vec![0; usize::try_from(self.end).unwrap_or(0)];
        for part in [self.code, self.data] {
            let start = usize::try_from(part.address).unwrap_or(usize::MAX);
            let bytes = part.data.unwrap_or_default();
            if let Some(place) = start.checked_add(bytes.len()).and_then(|end| memory.get_mut(start..end)) {
                place.copy_from_slice(bytes);
            }
        }
        memory
    }

    pub(super) fn symbol(&self, name: &str) -> Result<u64, String> {
        symbol(self.elf, name)
    }

    /// Returns the address range of a section.
    pub(super) fn section(&self, name: &str) -> Option<Range<u64>> {
        let section = self.elf.sections.iter().find(|section| section.name == name.as_bytes())?;
        let part = [self.code, self.data].into_iter().find(|part| {
            let size = part.data.map_or(0, <[u8]>::len) as u64;
            (part.offset..part.offset.saturating_add(size)).contains(&section.offset)
        })?;
        let start = part.address.checked_add(section.offset - part.offset)?;
        Some(start..start.checked_add(section.data?.len() as u64)?)
    }

    /// Returns the ranges that a graft writes in the donor.
    fn filled_in(&self) -> Result<Vec<Range<u64>>, String> {
        let mut ranges = Vec::new();
        for name in [".note.allograft", ".note.allograft.strings"] {
            if let Some(note) = self.section(name) {
                ranges.push(note.start + NOTE_HEADER..note.start + NOTE_HEADER + NOTE_TEXT);
            }
        }
        let entries = self.section(".note.allograft.entries").ok_or("the linked donor has no note on entry points")?;
        ranges.push(entries.start + NOTE_HEADER..entries.end);
        let options = self.section(".allograft.options").ok_or("the linked donor has no options")?;
        for row in (options.start + OPTIONS_HEADER..options.end).step_by(OPTIONS_ROW as usize) {
            ranges.extend([OPTION_VALUE, OPTION_SET].map(|part| row + part.start..row + part.end));
        }
        let parameters = self.symbol("transplant_parameters")?;
        // Magic and format are already in the donor.
        ranges.push(parameters + 16..parameters + 8 * PARAMETERS);
        ranges.extend(loader::filled_in(self));
        Ok(ranges)
    }

    /// Returns the fields in code that hold a distance from the thread pointer: the address of four bytes, and a mask
    /// of their bits.
    fn thread_distances(&self) -> Vec<(u64, u32)> {
        let tables =
            self.elf.sections.iter().filter(|section| section.kind == SHT_RELA && section.flags & SHF_ALLOC == 0);
        let mut found = Vec::new();
        for entry in tables.flat_map(|table| table.data.unwrap_or_default().chunks_exact(24)) {
            let words = self.elf.bytes.over(entry);
            let (Some(place), Some(kind)) = (words.u64(0), words.u32(8)) else { continue };
            match (self.elf.arch, kind) {
                // R_X86_64_TPOFF32: all of a 32-bit field.
                (Arch::X86_64, 23) => found.push((place, u32::MAX)),
                // R_AARCH64_TLSLE_ADD_TPREL_HI12 to R_AARCH64_TLSLE_LDST64_TPREL_LO12_NC: 12 bits of an instruction.
                (Arch::Aarch64, 549..=559) => found.push((place, 0xfff << 10)),
                _ => {}
            }
        }
        found
    }
}

/// Returns the value of a symbol that the linked donor defines.
pub(super) fn symbol(donor: &Elf<'_>, name: &str) -> Result<u64, String> {
    let found = donor.symbols.iter().find(|symbol| symbol.is_defined() && symbol.name == name.as_bytes());
    found.map(|symbol| symbol.value).ok_or_else(|| format!("the linked donor has no symbol `{name}`"))
}

fn compare(
    elf: &Elf<'_>,
    entry_points: &EntryPoints,
    donor: &Elf<'_>,
    stock: Option<&Elf<'_>>,
) -> Result<Vec<String>, String> {
    let page = if elf.arch == Arch::Aarch64 { 0x1_0000 } else { 0x1000 };
    if donor.arch != elf.arch {
        return Err("the linked donor is for another architecture".to_owned());
    }
    let linked = Linked::parse(donor, page).ok_or("the linked donor has another layout")?;
    let base = entry_points.donor();
    let own: Vec<&Segment<'_>> = loads(elf).filter(|load| load.address >= base).collect();
    let [code, data, headers] = own.as_slice() else {
        return Err(format!("{} segments are loaded behind the program, expected 3", own.len()));
    };
    let bytes = |segment: &Segment<'_>| segment.data.map(<[u8]>::to_vec).unwrap_or_default();
    let (code_bytes, data_bytes) = (bytes(code), bytes(data));
    let (split, copy) = (linked.data.address, linked.end - linked.data.address);
    let shapes = [
        ("code", code, 5, 0, split),
        ("data", data, 6, split, data_bytes.len() as u64),
        ("headers", headers, 4, split + data_bytes.len() as u64, headers.memory),
    ];
    for (what, segment, flags, distance, size) in shapes {
        let whole = segment.data.map_or(0, <[u8]>::len) as u64 == segment.memory;
        if segment.flags != flags || segment.address != base + distance || segment.memory != size || !whole {
            return Err(format!("the donor's {what} are not where or how they have to be"));
        }
    }
    if (data_bytes.len() as u64) < copy {
        return Err("the donor's data are cut off".to_owned());
    }

    let mut found = code_bytes;
    found.extend(&data_bytes[..copy as usize]);
    let mut wanted = linked.memory();
    let mut complaints = Vec::new();
    for range in linked.filled_in()? {
        let range = range.start as usize..range.end as usize;
        let (Some(from), Some(to)) = (found.get(range.clone()), wanted.get_mut(range)) else {
            return Err("a field that a graft fills in is outside the donor".to_owned());
        };
        to.copy_from_slice(from);
    }
    complaints.extend(thread_distances(&linked, &found, &mut wanted));
    if let Some(at) = first_difference(&found, &wanted) {
        complaints.push(format!(
            "the byte at {:#x} is {:#04x}, and the donor has {:#04x} there",
            base + at as u64,
            found.get(at).copied().unwrap_or(0),
            wanted.get(at).copied().unwrap_or(0)
        ));
    }
    let start = base.wrapping_add(linked.symbol("transplant_start")?);
    let entry = elf.bytes.word(24).unwrap_or(0);
    if entry != start {
        complaints.push(format!("the entry point is {entry:#x}, expected the donor's start at {start:#x}"));
    }
    let table = elf.bytes.word(32).and_then(|at| elf.bytes.slice(at, headers.memory));
    if table != headers.data {
        complaints.push("the program headers in memory are not those of the file".to_owned());
    }
    complaints.extend(probes::compare(elf, linked.elf, base));
    let check = if loader::is_loader(elf) { loader::loader_parameters } else { parameters };
    complaints.extend(check(elf, &linked, base, &found, (&data_bytes, headers.address), stock)?);
    Ok(complaints)
}

/// Copies the graft's distances into `wanted`, if all of them have changed by the same amount.
fn thread_distances(linked: &Linked<'_, '_>, found: &[u8], wanted: &mut [u8]) -> Option<String> {
    let mut shift = None;
    for (place, bits) in linked.thread_distances() {
        let place = usize::try_from(place).ok()?;
        let word = |bytes: &[u8]| bytes.get(place..)?.first_chunk().map(|word| u32::from_le_bytes(*word));
        let (now, before) = (word(found)?, word(wanted)?);
        // A field with only a part of a distance does not show the change of the whole distance.
        if bits == u32::MAX && *shift.get_or_insert(now.wrapping_sub(before)) != now.wrapping_sub(before) {
            return Some(format!(
                "the distance from the thread pointer at {place:#x} of the donor does not fit the others"
            ));
        }
        wanted[place..place + 4].copy_from_slice(&(before & !bits | now & bits).to_le_bytes());
    }
    None
}

/// Whether an address is in a segment of the program, which precedes the donor, and the segment has this flag.
pub(super) fn is_in_program(elf: &Elf<'_>, donor: u64, flag: u32, address: u64) -> bool {
    loads(elf)
        .any(|load| load.address < donor && load.flags & flag != 0 && address.wrapping_sub(load.address) < load.memory)
}

/// Whether `errno` can be so far from the thread pointer: it is a number of 32 bits in `struct pthread`.
pub(super) fn is_place_of_errno(distance: u64) -> bool {
    distance.cast_signed().unsigned_abs() < 4096 && distance.is_multiple_of(4)
}

/// The parameters of a donor that are wrong, in words.
#[derive(Default)]
pub(super) struct WrongParameters(pub(super) Vec<String>);

impl WrongParameters {
    pub(super) fn expect(&mut self, what: &str, right: bool) {
        if !right {
            self.0.push(format!("the donor's parameter for {what} is wrong"));
        }
    }
}

/// Checks the fields that describe the program to the donor.
fn parameters(
    elf: &Elf<'_>,
    linked: &Linked<'_, '_>,
    base: u64,
    found: &[u8],
    (data, headers): (&[u8], u64),
    stock: Option<&Elf<'_>>,
) -> Result<Vec<String>, String> {
    let at = linked.symbol("transplant_parameters")?;
    let words = elf.bytes.over(found);
    let word = |index: u64| words.u64((at + 8 * index) as usize).unwrap_or(0);
    let in_code = |distance: u64| is_in_program(elf, base, PF_X, base.wrapping_add(distance));
    let mut wrong = WrongParameters::default();
    let entry = stock.and_then(|stock| stock.bytes.word(24));
    wrong.expect(
        "the program's entry point",
        in_code(word(2)) && entry.is_none_or(|entry| base.wrapping_add(word(2)) == entry),
    );
    wrong.expect("the program headers", base.wrapping_add(word(3)) == headers);
    let (split, end) = (linked.data.address, linked.end);
    let data_end = split + data.len() as u64;
    let sealed = linked.symbol("transplant_sealed_end")?;
    wrong.expect("what is made read-only", (6..10).map(word).eq([split, end, sealed - split, data_end - end]));
    wrong.expect("errno", is_place_of_errno(word(10)));
    wrong.expect("the end of threads", word(11) == 0 || in_code(word(11)));
    wrong.expect("main", in_code(word(12)));
    wrong.expect("the self-test", word(SELF_TEST) == 0);
    wrong.expect("__libc_start_main", word(18) == 0 || in_code(word(18)));
    wrong.expect("the end of processes", word(STREAMS) == 0 || in_code(word(STREAMS)));
    wrong.expect("its entry points", (STREAMS + 1..PARAMETERS).map(word).all(|call| call == 0 || in_code(call)));
    let storage = elf.segments.iter().find(|segment| segment.kind == PT_TLS);
    let storage = storage.ok_or("there is no thread-local storage, and the donor has some")?;
    let image = storage.data.unwrap_or_default();
    let given = [storage.address.wrapping_sub(base), image.len() as u64, storage.memory, storage.align];
    wrong.expect("thread-local storage", (14..18).map(word).eq(given));

    // After the donor's data: the image of thread-local storage, then the words to relocate, then zeros.
    let inside = |address: u64| usize::try_from(address.checked_sub(split)?).ok().filter(|at| *at <= data.len());
    let (table, count) = (word(4), word(5));
    let ends = |size: u64| table.checked_add(size).and_then(inside);
    let (Some(image_at), Some(table_at), Some(table_end)) =
        (inside(given[0]), inside(table), count.checked_mul(16).and_then(ends))
    else {
        wrong.0.push("the donor's relocations or its thread-local storage lie outside its data".to_owned());
        return Ok(wrong.0);
    };
    let image_end = image_at.saturating_add(image.len());
    let copy = (end - split) as usize;
    if !(copy <= image_at && image_end <= table_at) {
        wrong.0.push("the donor's relocations or its thread-local storage lie in its data".to_owned());
        return Ok(wrong.0);
    }
    let gaps = [copy..image_at, image_end..table_at, table_end..data.len()];
    if gaps.into_iter().any(|gap| data[gap].iter().any(|byte| *byte != 0)) {
        wrong.0.push("there is something between the parts of the donor's data".to_owned());
    }
    let pairs: Vec<(u64, u64)> = pairs(elf, &data[table_at..table_end], 16, 8);
    let own = linked.section(".rela.dyn").unwrap_or(0..0);
    let own = linked.elf.bytes.over(found.get(own.start as usize..own.end as usize).unwrap_or_default());
    let own = self::pairs(linked.elf, own.data, 24, 16);
    let rest = pairs.get(own.len()..).unwrap_or_default();
    let in_image = |place: &u64| (given[0]..given[0] + image.len() as u64).contains(place);
    if !pairs.starts_with(&own) || !rest.iter().all(|(place, _)| in_image(place)) {
        wrong.0.push("the donor's relocations are not those that it was linked with".to_owned());
    }
    wrong.0.extend(storage_image(elf, linked, image, stock));
    Ok(wrong.0)
}

/// Returns the first word of each entry of a table, and the word at `second`.
pub(super) fn pairs(elf: &Elf<'_>, table: &[u8], size: usize, second: usize) -> Vec<(u64, u64)> {
    let entries = table.chunks_exact(size).map(|entry| elf.bytes.over(entry));
    entries.filter_map(|entry| Some((entry.u64(0)?, entry.u64(second)?))).collect()
}

/// Checks that thread-local storage begins as both images do: the donor's part before the program's (x86_64) or after
/// it, with zeros between.
fn storage_image(elf: &Elf<'_>, linked: &Linked<'_, '_>, image: &[u8], stock: Option<&Elf<'_>>) -> Option<String> {
    let of = |elf: &Elf<'_>| {
        let segment = elf.segments.iter().find(|segment| segment.kind == PT_TLS);
        segment.and_then(|segment| segment.data).map(<[u8]>::to_vec).unwrap_or_default()
    };
    let donors = of(linked.elf);
    let program = stock.map(of)?;
    let (rest, what) = match elf.arch {
        Arch::X86_64 => (image.strip_suffix(program.as_slice()), "before"),
        _ => (image.strip_prefix(program.as_slice()), "behind"),
    };
    let Some(rest) = rest else {
        return Some("the program's thread-local storage does not begin as it did".to_owned());
    };
    let zeros = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    let fits = |at: usize| rest[at..].starts_with(&donors) && zeros(&rest[..at]) && zeros(&rest[at + donors.len()..]);
    let last = rest.len().checked_sub(donors.len());
    match last.is_some_and(|last| (0..=last).any(fits)) {
        true => None,
        false => {
            Some(format!("the donor's thread-local storage {what} the program's does not begin with its linked image"))
        }
    }
}
