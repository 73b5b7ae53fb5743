//! A donor that is linked to bytes without outside references. The crate `donors` builds it.
//! It was linked when allograft was built, so that a graft needs no linker, and two runs give the same bytes.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use format::note::{self, NoteError};
use format::{Arch, DonorKind, DonorOption, Note, StringFunction, entries, options, parameters};

use crate::image::{
    Image, PF_W, PT_TLS, SHF_ALLOC, SHT_RELA, SHT_SYMTAB, SYMBOL, Section, Segment, Symbol, u32_at, u64_at,
};
use crate::probes::Probes;
use crate::thread_storage::{ThreadStorage, distance};

/// A limit on a donor's size in memory, in bytes. No donor is as large.
pub(crate) const MOST_BLOB: u64 = 1 << 24;
/// R_X86_64_TPOFF32
const X86_64_DISTANCE: u32 = 23;
/// R_AARCH64_TLSLE_ADD_TPREL_HI12
const UPPER: u32 = 549;
/// Relocations that the linker has resolved, or resolves at its own addresses: R_X86_64_64, PC32, GOT32, PLT32,
/// GOTPCREL, PC64, GOTPCRELX, REX_GOTPCRELX, RELATIVE.
const SETTLED_X86_64: [u32; 9] = [1, 2, 3, 4, 9, 24, 41, 42, 8];
/// The relocations of aarch64: R_AARCH64_ABS64, PREL64, PREL32, LD_PREL_LO19, ADR_PREL_LO21, ADR_PREL_PG_HI21,
/// ADD_ABS_LO12_NC, LDST8_ABS_LO12_NC, TSTBR14, CONDBR19, JUMP26, CALL26, LDST16, LDST32, LDST64, LDST128,
/// ADR_GOT_PAGE, LD64_GOT_LO12_NC, RELATIVE. Distances between pages stay right wherever the blob begins at a page.
const SETTLED_AARCH64: [u32; 19] =
    [257, 260, 261, 273, 274, 275, 277, 278, 279, 280, 282, 283, 284, 285, 286, 299, 311, 312, 1027];

/// The symbols around the compiler's records of thread-local variables (crates/donors/transplant/loader.ld), and the
/// size of a record in bytes.
const VARIABLES: [&str; 2] = ["transplant_variables_start", "transplant_variables_end"];
pub(crate) const VARIABLE: usize = 32;

/// A field that holds a distance from the thread pointer, or part of one.
#[derive(Debug, Clone, Copy)]
enum Field {
    /// 32 bits.
    Word,
    /// 12 bits of an instruction: the upper half.
    Upper,
    /// 12 bits of an instruction: the lower half, in units of this many bytes.
    Lower { unit: u64 },
}

/// A place in the code that holds a distance from the thread pointer.
#[derive(Debug, Clone, Copy)]
struct Distance {
    at: u64,
    field: Field,
    /// The distance in the blob by itself.
    is: i64,
}

/// Why a blob cannot be used. The embedded blobs are free of these errors, which the tests check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// The layout differs from what this crate expects.
    #[error("the donor's blob: {0}")]
    Layout(String),
    /// The note cannot be written.
    #[error(transparent)]
    Note(#[from] NoteError),
}

fn layout(what: impl Into<String>) -> BlobError {
    BlobError::Layout(what.into())
}

/// A donor's blob.
#[derive(Debug, Clone)]
pub struct Blob {
    pub(crate) arch: Arch,
    /// The memory image: code, then data from `data` on. Whole pages.
    pub(crate) memory: Vec<u8>,
    pub(crate) data: u64,
    /// The end of the part that is read-only after relocation.
    pub(crate) sealed_end: u64,
    /// Its thread-local storage; of no size in a donor for the dynamic loader.
    pub(crate) tls: Segment,
    /// In a donor for the dynamic loader: the offset of the compiler's record of each thread-local variable.
    pub(crate) variables: Option<Vec<u64>>,
    /// Words that become base + value.
    pub(crate) relative: Vec<(u64, u64)>,
    thread_distances: Vec<Distance>,
    pub(crate) notes: Range<u64>,
    /// The offset of the string functions' note; `None` if the donor has no string functions.
    strings_note: Option<u64>,
    pub(crate) probes: Probes,
    /// The symbols that other objects can see: the string functions. All other symbols are hidden.
    exports: HashSet<String>,
    symbols: HashMap<String, u64>,
}

impl Blob {
    /// Reads a linked blob, and writes into it the note and the options of a tuned donor's object.
    ///
    /// # Errors
    /// The blob's layout differs from what this crate expects.
    pub fn parse(bytes: &[u8], note: &Note, options: &[DonorOption]) -> Result<Blob, BlobError> {
        let image = Image::parse(bytes).map_err(|refusal| layout(refusal.to_string()))?;
        let loads: Vec<&Segment> = image.loads().collect();
        let [text, data] = loads.as_slice() else { return Err(layout("it has not two segments")) };
        let page = crate::code::machine(image.arch).map_or(4096, |machine| machine.page());
        let end = data.memory().end.next_multiple_of(page);
        if text.address != 0
            || text.flags & PF_W != 0
            || data.flags & PF_W == 0
            || data.address % page != 0
            || end > MOST_BLOB
        {
            return Err(layout("its segments are not code and data"));
        }
        let mut memory = vec![0; end as usize];
        for load in [text, data] {
            let from = load.address as usize;
            memory[from..from + load.file_size as usize].copy_from_slice(image.bytes_from(load.address));
        }
        let name = |symbol: &Symbol<'_>| String::from_utf8_lossy(symbol.name).into_owned();
        let all = image.symbols();
        let symbols: HashMap<String, u64> = all.iter().map(|symbol| (name(symbol), symbol.value)).collect();
        let records = symbols.get(VARIABLES[0]).zip(symbols.get(VARIABLES[1]));
        let variables = records.map(|(start, end)| (*start..*end).step_by(VARIABLE).collect());
        let tls = match (image.segment(PT_TLS), &variables) {
            (Some(tls), None) => *tls,
            (None, Some(_)) => Segment { kind: PT_TLS, ..Segment::default() },
            _ => return Err(layout("its thread-local storage is neither of a program nor of a loader")),
        };
        let exports = all.iter().filter(|symbol| symbol.global).map(name).collect();
        let notes: Vec<_> = image
            .sections
            .iter()
            .filter(|section| image.section_name(section).starts_with(b".note.allograft"))
            .map(|section| section.address..section.address + section.size)
            .collect();
        let named = |name: &[u8]| image.section(name).ok_or_else(|| layout("a section is missing"));
        let note_at = named(DonorKind::Malloc.note_section().as_bytes())?.address as usize;
        let table = named(options::LIBRARY_OPTIONS_SECTION.as_bytes())?;
        let table = table.address as usize..(table.address + table.size) as usize;
        let mut blob = Blob {
            arch: image.arch,
            thread_distances: thread_distances(&image, &tls)?,
            relative: relative(&image)?,
            data: data.address,
            sealed_end: 0,
            tls,
            variables,
            strings_note: image.section(DonorKind::Strings.note_section().as_bytes()).map(|section| section.address),
            notes: notes.iter().map(|note| note.start).min().unwrap_or(0)
                ..notes.iter().map(|note| note.end).max().unwrap_or(0),
            probes: Probes::from_image(&image),
            memory,
            symbols,
            exports,
        };
        blob.sealed_end = blob.symbol("transplant_sealed_end")?;
        // The note's sizes, type and owner stay.
        blob.write(note_at + note::HEAD, &note.encode()?);
        let table = blob.memory.get_mut(table).unwrap_or_default();
        let own = options::parse(table).unwrap_or_default();
        if !own.iter().map(|option| &option.name).eq(options.iter().map(|option| &option.name)) {
            return Err(layout("its options are not those of the donor's object"));
        }
        options::write(options, table);
        let parameters = blob.symbol("transplant_parameters")? as usize;
        let found = (u64_at(&blob.memory, parameters), u64_at(&blob.memory, parameters + 8));
        if found != (Some(parameters::MAGIC), Some(parameters::FORMAT)) {
            return Err(layout("its parameters have another format"));
        }
        Ok(blob)
    }

    /// Returns the blob with `note` as the note of its string functions.
    ///
    /// # Errors
    /// The blob has no string functions.
    pub fn with_strings(mut self, note: &Note) -> Result<Blob, BlobError> {
        let at = self.strings_note.ok_or_else(|| layout("it has no string functions"))? as usize;
        self.write(at + note::HEAD, &note.encode()?);
        Ok(self)
    }

    /// Whether the donor has string functions.
    pub(crate) fn has_strings(&self) -> bool {
        self.strings_note.is_some()
    }

    /// Whether the donor has this string function. Where musl's own is as fast, it is left out.
    pub(crate) fn brings(&self, function: StringFunction) -> bool {
        self.has_strings() && self.exports.contains(function.name())
    }

    /// The number of entry points that the note has room for.
    pub(crate) fn room(&self) -> Result<usize, BlobError> {
        let size = u32_at(&self.memory, self.symbol("transplant_entries")? as usize + 4);
        size.map(|size| size as usize / entries::ENTRY).ok_or_else(|| layout("its note on entry points lies outside"))
    }

    pub(crate) fn symbol(&self, name: &str) -> Result<u64, BlobError> {
        self.symbols.get(name).copied().ok_or_else(|| layout(format!("it does not define `{name}`")))
    }

    pub(crate) fn write(&mut self, at: usize, bytes: &[u8]) {
        self.memory[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The initial bytes of its thread-local storage.
    pub(crate) fn thread_image(&self) -> &[u8] {
        &self.memory[self.tls.address as usize..(self.tls.address + self.tls.file_size) as usize]
    }

    /// Adapts every access to thread-local storage to the storage's place in a program.
    pub(crate) fn move_thread_distances(&mut self, storage: &ThreadStorage) -> Result<(), BlobError> {
        for Distance { at, field, is } in self.thread_distances.clone() {
            let distance = is + storage.shift;
            let before = u32_at(&self.memory, at as usize).unwrap_or(0);
            let part = |value: u64| before & !(0xfff << 10) | ((value & 0xfff) as u32) << 10;
            let now = match field {
                Field::Word => distance as i32 as u32,
                Field::Upper => part(distance as u64 >> 12),
                Field::Lower { unit } if (distance as u64).is_multiple_of(unit) => {
                    part((distance as u64 & 0xfff) / unit)
                }
                Field::Lower { .. } => return Err(layout("its thread-local storage is not aligned")),
            };
            self.write(at as usize, &now.to_le_bytes());
        }
        Ok(())
    }
}

/// The words that become base + value. The blob has no dynamic section: the relocations are found by their section's
/// name.
fn relative(image: &Image<'_>) -> Result<Vec<(u64, u64)>, BlobError> {
    let section = image.section(b".rela.dyn").ok_or_else(|| layout("it has no relocations"))?;
    let content = section.content().and_then(|at| image.bytes.get(at)).unwrap_or_default();
    let entry = |entry: &[u8]| match (u64_at(entry, 0), u32_at(entry, 8), u64_at(entry, 16)) {
        (Some(place), Some(kind), Some(value)) if kind == image.relative_kind() => Ok((place, value)),
        _ => Err(layout("it has relocations that are not relative")),
    };
    content.chunks_exact(24).map(entry).collect()
}

/// The places in the code with a distance from the thread pointer. For this the linker keeps its relocations
/// (`--emit-relocs`).
fn thread_distances(image: &Image<'_>, tls: &Segment) -> Result<Vec<Distance>, BlobError> {
    let table = image.sections.iter().find(|section| section.kind == SHT_SYMTAB).and_then(Section::content);
    let symbols = table.and_then(|at| image.bytes.get(at)).unwrap_or_default();
    let settled: &[u32] = if image.arch == Arch::Aarch64 { &SETTLED_AARCH64 } else { &SETTLED_X86_64 };
    let mut found = Vec::new();
    for section in image.sections.iter().filter(|section| section.kind == SHT_RELA && section.flags & SHF_ALLOC == 0) {
        let content = section.content().and_then(|at| image.bytes.get(at)).unwrap_or_default();
        for entry in content.chunks_exact(24) {
            let word = |at: usize| u64_at(entry, at).unwrap_or(0);
            let (at, kind, symbol, addend) = (word(0), word(8) as u32, word(8) >> 32, word(16).cast_signed());
            let field = match (image.arch, kind) {
                (Arch::X86_64, X86_64_DISTANCE) => Field::Word,
                (Arch::Aarch64, UPPER) => Field::Upper,
                (Arch::Aarch64, _) if lower_unit(kind).is_some() => {
                    Field::Lower { unit: lower_unit(kind).unwrap_or(1) }
                }
                _ if settled.contains(&kind) => continue,
                _ => return Err(layout(format!("it has a relocation of type {kind}"))),
            };
            let is = match field {
                Field::Word => {
                    let at = image.read(at, 4).and_then(|bytes| u32_at(bytes, 0));
                    i64::from(at.ok_or_else(|| layout("a relocation lies outside"))?.cast_signed())
                }
                // A part does not give the whole distance. The symbol does: it is counted from the beginning of the
                // storage.
                _ => {
                    let value = usize::try_from(symbol).ok().and_then(|index| u64_at(symbols, index * SYMBOL + 8));
                    let value = value.ok_or_else(|| layout("a relocation names no symbol"))?;
                    distance(tls.address, tls.align.max(1)) as i64 + value as i64 + addend
                }
            };
            found.push(Distance { at, field, is });
        }
    }
    Ok(found)
}

/// R_AARCH64_TLSLE_ADD_TPREL_LO12 and LO12_NC, and R_AARCH64_TLSLE_LDST8_TPREL_LO12 to LDST64_TPREL_LO12_NC.
fn lower_unit(kind: u32) -> Option<u64> {
    match kind {
        550..=553 => Some(1),
        554 | 555 => Some(2),
        556 | 557 => Some(4),
        558 | 559 => Some(8),
        _ => None,
    }
}
