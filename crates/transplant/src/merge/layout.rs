//! The layout of a merged program. No byte of the program moves, in the file or in memory: everything new follows it.
//!
//! ```text
//!  file                                                          memory
//!  the program, unchanged but for the numbers of symbols         the same addresses
//!         in the relocations of its slots (DT_JMPREL)
//!  page   note, symbols, names, hashes, versions, relocations R   \
//!         the donor's constants                          R        |  behind the program's last segment; page by page
//!         the donor's code                               R E      |  as in the file (`location`)
//!         the donor's data                               RW       |
//!         thread-local storage of both, lists of start   RW       |
//!         and end, dynamic section                       RW       |
//!  page   program headers                                R       /
//!         names and headers of sections
//! ```
//!
//! The program headers are last, and all data is in the file, as in [`crate::layout`] and for the same reason.

use format::merged::{self, Merged};

use super::Libc;
use super::donor::Donor;
use super::dynamic::{
    Dynamic, FINI_ARRAY, FINI_ARRAYSZ, GNU_HASH, HASH, INIT_ARRAY, INIT_ARRAYSZ, JMPREL, PREINIT_ARRAY,
    PREINIT_ARRAYSZ, RELA, RELACOUNT, RELAENT, RELASZ, RELOCATION, STRSZ, STRTAB, SYMTAB, VERSYM,
};
use super::kinds::Kinds;
use super::names::{self, Names};
use super::relocations::{Moves, Table};
use super::sections::{self, Part};
use crate::appended::{Appended, PlanError};
use crate::image::{Image, PF_R, PF_W, PF_X, PT_DYNAMIC, PT_NOTE, PT_TLS, Segment, u64_at};
use crate::location::Location;
use crate::refusal::Refusal;
use crate::section_table;
use crate::thread_storage::ThreadStorage;

/// A block of bytes that grows, and begins at an address.
#[derive(Debug)]
pub(super) struct Block {
    address: u64,
    pub(super) bytes: Vec<u8>,
}

impl Block {
    pub(super) fn new(address: u64) -> Block {
        Block { address, bytes: Vec::new() }
    }

    pub(super) fn end(&self) -> u64 {
        self.address + self.bytes.len() as u64
    }

    /// Appends bytes at the next address that is aligned so. Returns where they are.
    pub(super) fn lay(&mut self, bytes: &[u8], align: usize) -> std::ops::Range<u64> {
        self.bytes.resize(self.bytes.len().next_multiple_of(align), 0);
        let start = self.end();
        self.bytes.extend(bytes);
        start..self.end()
    }
}

/// Returns the merged file, and the number of names that the donor defines in it.
pub(super) fn assemble(
    image: &Image<'_>,
    program: &Dynamic<'_>,
    mut donor: Donor<'_>,
    libc: Libc,
    location: Location,
    (page, kinds): (u64, Kinds),
) -> Result<(Vec<u8>, usize), PlanError> {
    let storage = ThreadStorage::combine(image, &donor.tls, donor.thread_image())?;
    // The sizes of the tables do not depend on addresses, so they are made twice: to learn where the donor is, and with
    // its place filled in.
    let section = sections::of_symbols(image);
    let sized = names::merged(program, &donor.dynamic, 0, storage.front, section);
    let moves = |at: u64| Moves { stock: image.segment(PT_TLS).copied(), at: at + storage.front, front: storage.front };
    let lists = Lists::new(image, program, &donor, libc)?;
    let most = Table::from_program(image, program, &sized, &moves(0), kinds)?.size()
        + (donor.relative.len() + donor.imported.len() + lists.len()) * RELOCATION;
    let tables = merged::SIZE as u64 + sized.size() + most as u64 + 16 * 8;
    let base = location.base + tables.next_multiple_of(page);
    let memory = donor.memory.len() as u64;

    let names = names::merged(program, &donor.dynamic, base, storage.front, section);
    let mut data = Block::new(base + memory);
    let mut image_at = data.address;
    while image_at & (storage.align - 1) != storage.remainder {
        image_at += 1;
    }
    data.bytes.resize((image_at - data.address) as usize, 0);
    let tls = data.lay(&storage.image, 1);
    let moves = moves(tls.start);
    let mut table = Table::from_program(image, program, &names, &moves, kinds)?;
    let in_storage = table.add_donor(&mut donor, image, &names, (base, tls.start + storage.own, storage.distance))?;
    if !image.position_independent {
        for (offset, value) in &in_storage {
            let at = (tls.start - data.address + storage.own + offset) as usize;
            data.bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    let placed = lists.lay(&mut data, &mut table, image, &names, base);

    let record = Merged {
        donor: base - location.base,
        size: memory,
        front: storage.front,
        own: storage.own,
        constructors: donor.constructors.len() as u64,
        preinit: libc == Libc::Glibc,
    };
    let mut read_only = Block::new(location.base);
    let note = read_only.lay(&record.encode(), 1);
    let symbols = read_only.lay(&names.symbols, 8);
    let gnu_hash = names.gnu_hash.as_ref().map(|hash| read_only.lay(hash, 8));
    let hash = names.hash.as_ref().map(|hash| read_only.lay(hash, 8));
    let versions = names.versions.as_ref().map(|versions| read_only.lay(versions, 8));
    let relocations = read_only.lay(&table.encode(), 8);
    let strings = read_only.lay(&names.strings, 1);
    if read_only.end() > base {
        return Err(Refusal::Merge("its tables are larger than was computed".to_owned()).into());
    }
    read_only.bytes.resize((base - location.base) as usize, 0);

    let mut change: Vec<(u64, u64)> = vec![
        (SYMTAB, symbols.start),
        (STRTAB, strings.start),
        (STRSZ, names.strings.len() as u64),
        (RELA, relocations.start),
        (RELASZ, relocations.end - relocations.start),
        (RELAENT, RELOCATION as u64),
        (RELACOUNT, table.relative.len() as u64),
    ];
    change.extend(placed.tags);
    let some = [(GNU_HASH, &gnu_hash), (HASH, &hash), (VERSYM, &versions)];
    change.extend(some.into_iter().filter_map(|(tag, range)| Some((tag, range.as_ref()?.start))));
    // To the end of its page, so that tools which cut a segment at the end of its last section keep all of it.
    let mut entries = entries(program, change);
    let end = (data.end().next_multiple_of(16) + entries.len() as u64).next_multiple_of(page);
    entries.resize((end - data.end().next_multiple_of(16)) as usize, 0);
    let dynamic = data.lay(&entries, 16);
    let headers_at = data.end();
    donor.seal([donor.relro.clone(), memory..headers_at - base])?;

    let mut file = image.bytes.to_vec();
    let slots = program.value(JMPREL).unwrap_or(0);
    for (index, slot) in table.slots.iter().enumerate() {
        let at = image.offset(slots + (index * RELOCATION) as u64);
        let at = at.ok_or_else(|| Refusal::Malformed("a relocation of a slot is not in it".to_owned()))?;
        file[at..at + RELOCATION].copy_from_slice(&slot.encode());
    }
    file.resize(location.offset as usize, 0);
    file.extend(read_only.bytes.iter().chain(&donor.memory).chain(&data.bytes));
    let notes = vec![note.clone(), base + donor.notes.start..base + donor.notes.end];
    // The segments before the donor's, the donor's, and those behind it.
    let mut loads = vec![(PF_R, location.base..base)];
    loads.extend(donor.loads.iter().map(|load| (load.flags, base + load.address..base + load.memory().end)));
    loads.push((PF_R | PF_W, base + memory..headers_at));
    let appended = Appended { location, page, headers_at };
    let mut parts = Parts { appended, notes, tls: None, dynamic: dynamic.clone(), loads };
    let storage_at = appended.segment(PT_TLS, PF_R, tls.clone(), storage.align);
    parts.tls = Some(Segment { memory_size: storage.size, ..storage_at });
    parts.write_headers(&mut file, image);
    if !image.sections.is_empty() {
        let part = |kind, range: &std::ops::Range<u64>| Part { kind, range: range.clone() };
        let mut all =
            vec![part(sections::Kind::Note, &note), part(sections::Kind::Symbols { locals: names.locals }, &symbols)];
        all.extend(gnu_hash.iter().map(|range| part(sections::Kind::GnuHash, range)));
        all.extend(hash.iter().map(|range| part(sections::Kind::Hash, range)));
        all.extend(versions.iter().map(|range| part(sections::Kind::Versions, range)));
        all.push(part(sections::Kind::Relocations, &relocations));
        all.push(part(sections::Kind::Strings, &strings));
        // The donor's notes are in its first segment, and have a section of their own, so that tools keep their
        // segment.
        let notes = base + donor.notes.start..base + donor.notes.end;
        for load in &donor.loads {
            let range = base + load.address..base + load.memory().end;
            if has_notes(&donor, load) {
                all.push(part(sections::Kind::Head, &(range.start..notes.start)));
                all.push(part(sections::Kind::DonorsNotes, &notes));
                all.push(part(sections::Kind::Constants, &(notes.end..range.end)));
                continue;
            }
            let kind = match load.flags & (PF_W | PF_X) {
                0 => sections::Kind::Constants,
                PF_X => sections::Kind::Code,
                _ => sections::Kind::Data,
            };
            all.push(part(kind, &range));
        }
        all.push(part(sections::Kind::ThreadImage, &tls));
        all.push(part(sections::Kind::ThreadZeros, &(tls.end..tls.start + storage.size)));
        all.extend(placed.lists.iter().map(|range| part(sections::Kind::Lists, range)));
        all.push(part(sections::Kind::Dynamic, &dynamic));
        let functions: Vec<section_table::Function<'_>> = donor.exported(base).collect();
        let extra = sections::ForTools { functions: &functions, probes: &donor.probes.placed(base) };
        sections::append(&mut file, image, &all, Some(&storage), &parts, extra);
    }
    Ok((file, names.defined))
}

/// Whether this segment of the donor contains its notes.
fn has_notes(donor: &Donor<'_>, load: &Segment) -> bool {
    load.address <= donor.notes.start && donor.notes.end <= load.memory().end
}

impl Names {
    fn size(&self) -> u64 {
        let tables = [&self.versions, &self.gnu_hash, &self.hash].into_iter().flatten().map(Vec::len).sum::<usize>();
        (self.symbols.len() + self.strings.len() + tables) as u64
    }
}

/// One function of a list that is called at the start or at the end.
#[derive(Debug, Clone, Copy)]
enum Function {
    /// One of the donor's functions, at the donor's own address.
    Donors(u64),
    /// One of the program's own: a word of the file, to which nothing is added.
    Word(u64),
    /// One of the program's own: a word that the base is added to.
    Relative(u64),
    /// One of the program's own: a word that becomes a symbol's address.
    Symbol(super::dynamic::Relocation),
}

/// The lists of functions, the donor's before the program's, and their tags.
struct Lists(Vec<(u64, u64, Vec<Function>)>);

/// Where the lists are.
struct Placed {
    tags: Vec<(u64, u64)>,
    lists: Vec<std::ops::Range<u64>>,
}

impl Lists {
    fn new(image: &Image<'_>, program: &Dynamic<'_>, donor: &Donor<'_>, libc: Libc) -> Result<Lists, Refusal> {
        let start = match libc {
            Libc::Glibc => (PREINIT_ARRAY, PREINIT_ARRAYSZ),
            Libc::Musl => (INIT_ARRAY, INIT_ARRAYSZ),
        };
        let mut lists = Vec::new();
        // Functions of the end are called from the last to the first, so that the donor's are the last.
        for ((at, size), own) in [(start, &donor.constructors), ((FINI_ARRAY, FINI_ARRAYSZ), &donor.destructors)] {
            let mut functions: Vec<Function> = own.iter().map(|function| Function::Donors(*function)).collect();
            let (from, bytes) = (program.value(at).unwrap_or(0), program.value(size).unwrap_or(0));
            for place in (from..from.saturating_add(bytes)).step_by(8) {
                functions.push(word(image, program, place)?);
            }
            if !own.is_empty() {
                lists.push((at, size, functions));
            }
        }
        Ok(Lists(lists))
    }

    fn len(&self) -> usize {
        self.0.iter().map(|(_, _, list)| list.len()).sum()
    }

    fn lay(&self, data: &mut Block, table: &mut Table, image: &Image<'_>, names: &Names, base: u64) -> Placed {
        let mut placed = Placed { tags: Vec::new(), lists: Vec::new() };
        for (at, size, functions) in &self.0 {
            let words = functions.iter().map(|function| match function {
                Function::Donors(own) => base + own,
                Function::Word(word) | Function::Relative(word) => *word,
                Function::Symbol(_) => 0,
            });
            let words: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
            let range = data.lay(&words, 16);
            for (index, function) in functions.iter().enumerate() {
                let place = range.start + 8 * index as u64;
                match function {
                    Function::Donors(own) if image.position_independent => table.relative(place, base + own),
                    Function::Relative(value) => table.relative(place, *value),
                    Function::Symbol(of) => {
                        let symbol = names.programs[of.symbol as usize];
                        table.other.push(super::dynamic::Relocation { place, symbol, ..*of });
                    }
                    Function::Donors(_) | Function::Word(_) => {}
                }
            }
            placed.tags.extend([(*at, range.start), (*size, words.len() as u64)]);
            placed.lists.push(range);
        }
        placed
    }
}

/// The function at a place in one of the program's lists.
fn word(image: &Image<'_>, program: &Dynamic<'_>, place: u64) -> Result<Function, Refusal> {
    if let Some(relocation) = program.relocations.iter().find(|relocation| relocation.place == place) {
        return Ok(match relocation.kind {
            kind if kind == image.relative_kind() => Function::Relative(relocation.addend as u64),
            _ => Function::Symbol(*relocation),
        });
    }
    if let Some((_, word)) = program.packed.iter().find(|(packed, _)| *packed == place) {
        return Ok(Function::Relative(*word));
    }
    let word = image.read(place, 8).and_then(|word| u64_at(word, 0));
    word.map(Function::Word).ok_or_else(|| Refusal::Malformed("its list of constructors is outside the file".into()))
}

/// The dynamic section: the program's entries in their order, with the changed values, then the new ones.
pub(super) fn entries(program: &Dynamic<'_>, mut change: Vec<(u64, u64)>) -> Vec<u8> {
    let mut entries = program.entries.clone();
    for (tag, value) in &mut entries {
        if let Some(at) = change.iter().position(|(changed, _)| changed == tag) {
            *value = change.swap_remove(at).1;
        }
    }
    change.sort_unstable();
    entries.extend(change);
    entries.push((0, 0));
    entries.into_iter().flat_map(|(tag, value)| [tag, value]).flat_map(u64::to_le_bytes).collect()
}

/// The new parts of a program whose own bytes stay in place, as the program headers describe them.
pub(super) struct Parts {
    pub(super) appended: Appended,
    pub(super) notes: Vec<std::ops::Range<u64>>,
    /// The thread-local storage of both; `None` if the program's own storage stays.
    pub(super) tls: Option<Segment>,
    pub(super) dynamic: std::ops::Range<u64>,
    /// What is loaded, in the order of addresses: permissions and range. Neighbours with the same permissions are one
    /// segment.
    pub(super) loads: Vec<(u32, std::ops::Range<u64>)>,
}

impl Parts {
    /// Appends the program headers to a file that ends before them, and enters them in the ELF header.
    pub(super) fn write_headers(&self, file: &mut Vec<u8>, image: &Image<'_>) {
        let mut segments = image.segments.clone();
        match (segments.iter_mut().find(|segment| segment.kind == PT_TLS), self.tls) {
            (Some(stock), Some(tls)) => *stock = tls,
            (None, Some(tls)) => segments.push(tls),
            (_, None) => {}
        }
        for own in segments.iter_mut().filter(|segment| segment.kind == PT_DYNAMIC) {
            *own = self.appended.segment(PT_DYNAMIC, PF_R | PF_W, self.dynamic.clone(), 8);
        }
        segments.extend(self.notes.iter().map(|note| self.appended.segment(PT_NOTE, PF_R, note.clone(), 4)));
        self.appended.write_headers(file, segments, self.loads.clone());
    }
}
