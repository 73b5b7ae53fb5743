//! Donor objects: their notes, and how options are written into them.

mod error;

pub use error::DonorError;

use std::ops::Range;

use format::options::{self, LIBRARY_OPTIONS_SECTION, OPTIONS_SECTION};
use format::{Arch, DonorKind, DonorOption, Note, NoteError, note, windows};
use object::elf;
use sha2::{Digest, Sha256};

use relocatable::{Coff, Object, ObjectError, Section, Sections};

/// A donor's object. Its note and its options have been checked.
#[derive(Debug, Clone)]
pub struct DonorObject<'a> {
    bytes: &'a [u8],
    kind: DonorKind,
    arch: Arch,
    note: Note,
    /// The range of the note's 512 bytes.
    description: Range<usize>,
    options: Vec<DonorOption>,
    /// The range of the options section's content; empty for a kind of donor without options.
    table: Range<usize>,
}

impl<'a> DonorObject<'a> {
    /// Reads and checks a donor's object.
    ///
    /// # Errors
    /// `bytes` are not a relocatable object of a known architecture, or the note or the options are missing or
    /// malformed.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DonorError> {
        if bytes.is_empty() {
            return Err(DonorError::Empty);
        }
        let object = Object::recognise(bytes).ok_or(ObjectError::NotAnObject)?;
        DonorObject::read(bytes, object, OPTIONS_SECTION)
    }

    /// Reads and checks a donor that is a shared object.
    ///
    /// # Errors
    /// Those of [`DonorObject::parse`].
    pub fn parse_library(bytes: &'a [u8]) -> Result<Self, DonorError> {
        let object = Object::recognise_library(bytes).ok_or(ObjectError::NotAnObject)?;
        DonorObject::read(bytes, object, LIBRARY_OPTIONS_SECTION)
    }

    /// Reads and checks a donor for Windows, a COFF object.
    ///
    /// # Errors
    /// Those of [`DonorObject::parse`].
    pub fn parse_windows(bytes: &'a [u8]) -> Result<Self, DonorError> {
        let coff = Coff::parse(bytes)?;
        let only = |name: &'static str| match coff.sections(name)?.as_slice() {
            [section] => Ok(section.clone()),
            all => Err(DonorError::SectionCount { name, found: all.len() }),
        };
        let kind = DonorKind::Malloc;
        let (section, table) = (only(windows::NOTE_SECTION)?, only(windows::OPTIONS_SECTION)?);
        let within = note::description(kind, &bytes[section.clone()])?;
        let description = section.start + within.start..section.start + within.end;
        let (note, options) = (Note::parse(&bytes[description.clone()])?, options::parse(&bytes[table.clone()])?);
        Ok(DonorObject { bytes, kind, arch: Arch::X86_64, note, description, options, table })
    }

    fn read(bytes: &'a [u8], object: Object<'a>, options_section: &'static str) -> Result<Self, DonorError> {
        let arch = object
            .machine
            .arch()
            .ok_or_else(|| DonorError::Object(ObjectError::Machine { found: object.machine.to_string() }))?;
        let sections = object.sections()?;
        let kind = match sections.iter().any(|section| section.name == DonorKind::Strings.note_section().as_bytes()) {
            true => DonorKind::Strings,
            false => DonorKind::Malloc,
        };
        let section = only(&sections, kind.note_section())?;
        if section.kind != elf::SHT_NOTE || section.flags & elf::SHF_ALLOC.0 == 0 {
            return Err(DonorError::NoteSection { kind: section.kind.0, flags: section.flags });
        }
        let within = note::description(kind, section.data)?;
        let description = section.offset + within.start..section.offset + within.end;
        let (options, table) = if kind.has_options() {
            let table = only(&sections, options_section)?;
            (options::parse(table.data)?, table.offset..table.offset + table.data.len())
        } else {
            (Vec::new(), description.end..description.end)
        };
        Ok(DonorObject { bytes, kind, arch, note: Note::parse(&section.data[within])?, description, options, table })
    }

    /// The kind of functions that the donor replaces: the allocator or the string functions.
    pub fn kind(&self) -> DonorKind {
        self.kind
    }

    /// The architecture that the donor is compiled for.
    pub fn arch(&self) -> Arch {
        self.arch
    }

    /// The donor's note.
    pub fn note(&self) -> Note {
        self.note.clone()
    }

    /// The options that can be set, in the object's order.
    pub fn options(&self) -> Vec<DonorOption> {
        self.options.clone()
    }

    /// SHA-256 of the object, with zeros in place of the note's description and the options. It is the same for every
    /// choice of options.
    pub fn checksum(&self) -> [u8; 32] {
        let mut zeroed = [self.description.clone(), self.table.clone()];
        zeroed.sort_by_key(|range| range.start);
        let mut hash = Sha256::new();
        let mut at = 0;
        for range in zeroed {
            // In a hostile object the two sections can overlap.
            let (start, end) = (range.start.max(at), range.end.max(at));
            hash.update(&self.bytes[at..start]);
            hash.update(vec![0; end - start]);
            at = end;
        }
        hash.update(&self.bytes[at..]);
        hash.finalize().into()
    }

    /// Returns the object with these options set and its note filled in. Later settings override earlier ones. The same
    /// settings give the same bytes in any order.
    ///
    /// # Errors
    /// The donor does not have an option, a value is out of its range, or the options do not fit into the note.
    pub fn tuned(&self, settings: &[(String, i64)], allograft_version: &str) -> Result<Vec<u8>, DonorError> {
        let mut options = self.options.clone();
        for (name, value) in settings {
            options::set(&mut options, name, *value)?;
        }
        let set = options.iter().filter(|option| option.set).map(|option| format!("{}={}", option.name, option.value));
        let note = Note {
            options: set.collect::<Vec<_>>().join(" "),
            object: format!("sha256:{}", hexadecimal(&self.checksum())),
            allograft: allograft_version.to_owned(),
            ..self.note.clone()
        };
        let mut tuned = self.bytes.to_vec();
        tuned[self.description.clone()].copy_from_slice(&note.encode()?);
        if self.kind.has_options() {
            options::write(&options, &mut tuned[self.table.clone()]);
        }
        Ok(tuned)
    }
}

/// Returns the text of a note, as written into a donor.
///
/// # Errors
/// As [`Note::encode`].
pub fn note_text(note: &Note) -> Result<String, NoteError> {
    let description = note.encode()?;
    let text = description.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(String::from_utf8_lossy(text).into_owned())
}

/// Returns the note of an object that carries a donor of this kind; `None` if it has no such section, or if its
/// sections cannot be read.
pub(crate) fn carried(object: &Object<'_>, kind: DonorKind) -> Result<Option<Note>, DonorError> {
    let Ok(sections) = object.sections() else { return Ok(None) };
    let named =
        |section: &&Section<'_>| section.kind == elf::SHT_NOTE && section.name == kind.note_section().as_bytes();
    let Some(section) = sections.iter().find(named) else { return Ok(None) };
    let within = note::description(kind, section.data)?;
    Ok(Some(Note::parse(&section.data[within])?))
}

fn only<'s, 'a>(sections: &'s Sections<'a>, name: &'static str) -> Result<&'s Section<'a>, DonorError> {
    let mut named = sections.iter().filter(|section| section.name == name.as_bytes() && !is_relocation(section));
    match (named.next(), named.next()) {
        (Some(section), None) => Ok(section),
        (found, _) => Err(DonorError::SectionCount { name, found: usize::from(found.is_some()) * 2 }),
    }
}

fn is_relocation(section: &Section<'_>) -> bool {
    matches!(section.kind, elf::SHT_RELA | elf::SHT_REL)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
