//! A donor's shared object, read for a merge: its memory, and the relocations and functions that the merged program
//! takes over.

use super::dynamic::{
    Dynamic, FINI, FINI_ARRAY, FINI_ARRAYSZ, INIT, INIT_ARRAY, INIT_ARRAYSZ, NEEDED, PREINIT_ARRAY, RELR, Relocation,
};
use super::kinds::Kinds;
use crate::blob::{BlobError, MOST_BLOB};
use crate::image::{Image, PF_W, PF_X, PT_GNU_RELRO, PT_NOTE, PT_TLS, Segment};
use crate::probes::Probes;
use crate::section_table::Function;
use format::sealed;

/// A donor's shared object. Addresses are its own.
#[derive(Debug)]
pub(super) struct Donor<'a> {
    pub(super) dynamic: Dynamic<'a>,
    /// The memory image. Whole pages.
    pub(super) memory: Vec<u8>,
    /// The loaded segments, in whole pages: addresses, and whether they can be executed or written.
    pub(super) loads: Vec<Segment>,
    pub(super) tls: Segment,
    pub(super) notes: std::ops::Range<u64>,
    pub(super) probes: Probes,
    /// The range that is read-only after relocation, in whole pages.
    pub(super) relro: std::ops::Range<u64>,
    /// The place of the words that name what it makes read-only.
    pub(super) sealed: u64,
    /// Words that become base + value.
    pub(super) relative: Vec<(u64, u64)>,
    /// Words that become the distance of this place in its storage from the thread pointer.
    pub(super) thread_distances: Vec<(u64, i64)>,
    /// Words that become the address of a symbol, and what is added to it.
    pub(super) imported: Vec<Relocation>,
    /// Functions to call at the start, and at the end.
    pub(super) constructors: Vec<u64>,
    pub(super) destructors: Vec<u64>,
}

impl<'a> Donor<'a> {
    /// Returns the functions that it exports, if its first byte is at `base`.
    pub(super) fn exported(&self, base: u64) -> impl Iterator<Item = Function<'a>> {
        let defined = self.dynamic.symbols.iter().skip(1).filter(|symbol| symbol.is_defined());
        defined.map(move |symbol| Function {
            name: self.dynamic.name(symbol),
            address: base + symbol.value,
            size: symbol.size,
        })
    }

    pub(super) fn parse(image: &'a Image<'a>, page: u64, kinds: Kinds) -> Result<Donor<'a>, BlobError> {
        let dynamic = Dynamic::parse(image).map_err(|refusal| layout(refusal.to_string()))?;
        let without = [NEEDED, RELR, INIT, FINI, PREINIT_ARRAY];
        if let Some(tag) = without.into_iter().find(|tag| dynamic.value(*tag).is_some()) {
            return Err(layout(format!("it has the dynamic tag {tag}")));
        }
        let end = image.loads().map(|load| load.memory().end).max().unwrap_or(0).next_multiple_of(page);
        if end > MOST_BLOB {
            return Err(layout(format!("it takes {end} bytes of memory")));
        }
        let mut memory = vec![0; end as usize];
        let mut loads: Vec<Segment> = Vec::new();
        for load in image.loads() {
            let at = load.address as usize;
            memory[at..at + load.file_size as usize].copy_from_slice(image.bytes_from(load.address));
            let start = load.address / page * page;
            let size = load.memory().end.next_multiple_of(page) - start;
            if loads.last().map_or(0, |last| last.memory().end) != start {
                return Err(layout("its segments leave gaps, or share pages"));
            }
            loads.push(Segment { address: start, memory_size: size, file_size: size, ..*load });
        }
        if loads.iter().any(|load| load.flags & PF_W != 0 && load.flags & PF_X != 0) {
            return Err(layout("it has a segment that can be written and executed"));
        }
        let tls = image.segment(PT_TLS).copied().unwrap_or(Segment { kind: PT_TLS, align: 1, ..Segment::default() });
        let notes = image.segment(PT_NOTE).ok_or_else(|| layout("it has no notes"))?.memory();
        let relro = image.segment(PT_GNU_RELRO).map_or(0..0, Segment::memory);
        // The linker begins it at a page, or in the first page of its segment, which holds nothing else. It may end
        // with its segment, whose last page holds nothing else, either.
        let is_last = image.loads().any(|load| load.memory().contains(&relro.start) && load.memory().end <= relro.end);
        let relro_end = if is_last { relro.end.next_multiple_of(page) } else { relro.end / page * page };
        let relro = relro.start / page * page..relro_end;
        let mut heads = memchr::memmem::find_iter(&memory, &sealed::head()).map(|at| at as u64).collect::<Vec<_>>();
        let sealed = heads.pop().filter(|_| heads.is_empty());
        let sealed = sealed.ok_or_else(|| layout("it does not name the ranges that it makes read-only"))?;
        let mut donor = Donor {
            memory,
            relro,
            sealed,
            loads,
            tls,
            notes,
            probes: Probes::from_image(image),
            relative: Vec::new(),
            thread_distances: Vec::new(),
            imported: Vec::new(),
            constructors: Vec::new(),
            destructors: Vec::new(),
            dynamic,
        };
        donor.read_relocations(kinds)?;
        donor.constructors = donor.functions(INIT_ARRAY, INIT_ARRAYSZ)?;
        donor.destructors = donor.functions(FINI_ARRAY, FINI_ARRAYSZ)?;
        Ok(donor)
    }

    fn read_relocations(&mut self, kinds: Kinds) -> Result<(), BlobError> {
        let all: Vec<Relocation> = self.dynamic.relocations.iter().chain(&self.dynamic.slots).copied().collect();
        for relocation in all {
            let symbol = self.dynamic.symbols.get(relocation.symbol as usize).copied();
            let symbol = symbol.ok_or_else(|| layout("a relocation has a symbol that is not there"))?;
            let Relocation { place, kind, addend, .. } = relocation;
            match () {
                () if kind == kinds.relative => self.relative.push((place, addend as u64)),
                () if kind == kinds.tpoff && relocation.symbol == 0 => self.thread_distances.push((place, addend)),
                () if ![kinds.absolute, kinds.glob_dat, kinds.jump_slot].contains(&kind) => {
                    return Err(layout(format!("it has a relocation of type {kind}")));
                }
                // aarch64's slots may have an addend, too; linkers write 0.
                () if symbol.is_defined() => {
                    let addend = if kind == kinds.absolute { addend as u64 } else { 0 };
                    self.relative.push((place, symbol.value.wrapping_add(addend)));
                }
                () => self.imported.push(relocation),
            }
        }
        self.relative.sort_unstable();
        Ok(())
    }

    /// The functions in an array, whose words are relocated.
    fn functions(&self, at: u64, size: u64) -> Result<Vec<u64>, BlobError> {
        let Some((at, size)) = self.dynamic.value(at).zip(self.dynamic.value(size)) else { return Ok(Vec::new()) };
        let words = self.relative.iter().filter(|(place, _)| (at..at + size).contains(place));
        let functions: Vec<u64> = words.map(|(_, function)| *function).collect();
        if functions.len() as u64 * 8 != size {
            return Err(layout("not every word of its list of constructors is relocated"));
        }
        Ok(functions)
    }

    /// The initial bytes of its thread-local storage.
    pub(super) fn thread_image(&self) -> &[u8] {
        &self.memory[self.tls.address as usize..(self.tls.address + self.tls.file_size) as usize]
    }

    /// Fills in what it makes read-only when it starts; addresses of its own, behind its last byte too.
    pub(super) fn seal(&mut self, ranges: [std::ops::Range<u64>; sealed::RANGES]) -> Result<(), BlobError> {
        let place = self.sealed;
        for (index, range) in ranges.into_iter().enumerate().filter(|(_, range)| !range.is_empty()) {
            let at = place + (sealed::HEAD + 16 * index) as u64;
            self.write(at, range.start.wrapping_sub(place))?;
            self.write(at + 8, range.end - range.start)?;
        }
        Ok(())
    }

    pub(super) fn write(&mut self, place: u64, word: u64) -> Result<(), BlobError> {
        let at = place as usize;
        let bytes = self.memory.get_mut(at..at + 8).ok_or_else(|| layout("a relocated word lies outside"))?;
        bytes.copy_from_slice(&word.to_le_bytes());
        Ok(())
    }
}

pub(super) fn layout(what: impl Into<String>) -> BlobError {
    BlobError::Layout(what.into())
}
