//! A donor linked to bytes that refer to nothing outside: what the crate `donors` builds for this.

use std::collections::HashMap;
use std::ops::Range;

use surgery::donor::{DonorOption, Note};

use crate::image::{Image, PF_W, PT_TLS, SHF_ALLOC, SHT_RELA, Segment, u32_at, u64_at};

const R_RELATIVE: u32 = 8;
const R_TPOFF32: u32 = 23;
/// Kinds that the linker has settled, or settles at its own addresses: R_X86_64_64, PC32, GOT32, PLT32, GOTPCREL, PC64,
/// GOTPCRELX, REX_GOTPCRELX, RELATIVE.
const SETTLED: [u32; 9] = [1, 2, 3, 4, 9, 24, 41, 42, 8];

/// Why a blob cannot be used. The embedded ones have none of this; the tests show it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// Its layout is another.
    #[error("the donor's blob: {0}")]
    Layout(String),
    /// Its note cannot be written.
    #[error(transparent)]
    Note(#[from] surgery::donor::DonorError),
}

fn layout(what: impl Into<String>) -> BlobError {
    BlobError::Layout(what.into())
}

/// A donor's blob.
#[derive(Debug, Clone)]
pub struct Blob {
    /// As it lies in memory from its first byte on: code, then data from `data` on. Whole pages.
    pub(crate) memory: Vec<u8>,
    pub(crate) data: u64,
    /// The end of what is read-only once it is relocated.
    pub(crate) sealed_end: u64,
    pub(crate) tls: Segment,
    /// Words that become base + value.
    pub(crate) relative: Vec<(u64, u64)>,
    /// Distances from the thread pointer, of 4 bytes.
    pub(crate) thread_distances: Vec<u64>,
    pub(crate) notes: Range<u64>,
    symbols: HashMap<String, u64>,
}

impl Blob {
    /// Reads a linked blob, and gives it the note and the options that a tuned donor's object has.
    ///
    /// # Errors
    /// A blob of another layout than this crate's.
    pub fn parse(bytes: &[u8], note: &Note, options: &[DonorOption]) -> Result<Blob, BlobError> {
        let image = Image::parse(bytes).map_err(|refusal| layout(refusal.to_string()))?;
        let loads: Vec<&Segment> = image.loads().collect();
        let [text, data] = loads.as_slice() else { return Err(layout("it has not two segments")) };
        let end = data.memory().end.next_multiple_of(4096);
        if text.address != 0
            || text.flags & PF_W != 0
            || data.flags & PF_W == 0
            || data.address % 4096 != 0
            || end > 1 << 24
        {
            return Err(layout("its segments are not code and data"));
        }
        let mut memory = vec![0; end as usize];
        for load in [text, data] {
            let from = load.address as usize;
            memory[from..from + load.file_size as usize].copy_from_slice(image.from(load.address));
        }
        let tls = *image.segment(PT_TLS).ok_or_else(|| layout("it has no thread-local storage"))?;
        let symbols: HashMap<String, u64> = image
            .symbols()
            .iter()
            .map(|symbol| (String::from_utf8_lossy(symbol.name).into_owned(), symbol.value))
            .collect();
        let notes: Vec<_> = image
            .sections
            .iter()
            .filter(|section| image.section_name(section).starts_with(b".note.allograft"))
            .map(|section| section.address..section.address + section.size)
            .collect();
        let named = |name: &[u8]| image.section(name).ok_or_else(|| layout("a section is missing"));
        let note_at = named(b".note.allograft")?.address as usize;
        let table = named(b".allograft.options")?;
        let table = table.address as usize..(table.address + table.size) as usize;
        let mut blob = Blob {
            thread_distances: thread_distances(&image)?,
            relative: relative(&image)?,
            data: data.address,
            sealed_end: 0,
            tls,
            notes: notes.iter().map(|note| note.start).min().unwrap_or(0)
                ..notes.iter().map(|note| note.end).max().unwrap_or(0),
            memory,
            symbols,
        };
        blob.sealed_end = blob.symbol("transplant_sealed_end")?;
        // The note's numbers and owner stay (docs/note.md).
        blob.write(note_at + 24, &note.encode()?);
        for (index, option) in options.iter().enumerate() {
            let at = table.start + 16 + 64 * index;
            let name = blob.memory.get(at..at + 32).unwrap_or_default();
            if at + 64 > table.end || name.split(|byte| *byte == 0).next() != Some(option.name.as_bytes()) {
                return Err(layout("its options are not those of the donor's object"));
            }
            blob.write(at + 32, &option.value.to_le_bytes());
            blob.write(at + 56, &u32::from(option.set).to_le_bytes());
        }
        let parameters = blob.symbol("transplant_parameters")? as usize;
        let found = (u64_at(&blob.memory, parameters), u64_at(&blob.memory, parameters + 8));
        if found != (Some(0x544e_4c50_5354_5247), Some(1)) {
            return Err(layout("its parameters have another format"));
        }
        Ok(blob)
    }

    pub(crate) fn symbol(&self, name: &str) -> Result<u64, BlobError> {
        self.symbols.get(name).copied().ok_or_else(|| layout(format!("it does not define `{name}`")))
    }

    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Moves every access to thread-local storage by so many bytes.
    pub(crate) fn shift_thread_distances(&mut self, by: i32) {
        for at in self.thread_distances.clone() {
            let distance = u32_at(&self.memory, at as usize).unwrap_or(0) as i32;
            self.write(at as usize, &distance.wrapping_add(by).to_le_bytes());
        }
    }
}

/// The words that become base + value. The blob has no dynamic section: they are found by their section's name.
fn relative(image: &Image<'_>) -> Result<Vec<(u64, u64)>, BlobError> {
    let section = image.section(b".rela.dyn").ok_or_else(|| layout("it has no relocations"))?;
    let content = section.content().and_then(|at| image.bytes.get(at)).unwrap_or_default();
    let entry = |entry: &[u8]| match (u64_at(entry, 0), u32_at(entry, 8), u64_at(entry, 16)) {
        (Some(place), Some(R_RELATIVE), Some(value)) => Ok((place, value)),
        _ => Err(layout("it has relocations that are not relative")),
    };
    content.chunks_exact(24).map(entry).collect()
}

/// Where the code has a distance from the thread pointer: the linker keeps its relocations for this (`--emit-relocs`).
fn thread_distances(image: &Image<'_>) -> Result<Vec<u64>, BlobError> {
    let mut found = Vec::new();
    for section in image.sections.iter().filter(|section| section.kind == SHT_RELA && section.flags & SHF_ALLOC == 0) {
        let content = section.content().and_then(|at| image.bytes.get(at)).unwrap_or_default();
        for entry in content.chunks_exact(24) {
            match u32_at(entry, 8) {
                Some(R_TPOFF32) => found.extend(u64_at(entry, 0)),
                Some(kind) if SETTLED.contains(&kind) => {}
                other => return Err(layout(format!("it has a relocation of type {other:?}"))),
            }
        }
    }
    Ok(found)
}
