//! Reads ELF notes, and the two that a graft leaves: one for its allocator, one for its string functions.

use std::cmp::Reverse;

use crate::archive;
use crate::bytes::Bytes;
use crate::elf::{Elf, PT_LOAD, PT_NOTE, SHT_NOTE};
use crate::error::InspectError;
use crate::library::Library;
use crate::pe::{self, Pe};
use crate::report::{Allocator, Evidence};
use crate::subject::windows;

/// The subject of a graft's note. Each has a section and a note type of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The allocator.
    Malloc,
    /// The string functions.
    Strings,
}

impl Subject {
    /// Returns the name of the section that holds the note.
    pub(crate) fn section(self) -> &'static str {
        match self {
            Subject::Malloc => ".note.allograft",
            Subject::Strings => ".note.allograft.strings",
        }
    }

    /// Returns the note's type.
    pub(crate) fn kind(self) -> u32 {
        match self {
            Subject::Malloc => 1,
            Subject::Strings => 2,
        }
    }

    /// Returns the name of the archive's member that holds the donor, as the header has it (docs/note.md).
    pub(crate) fn member(self) -> &'static str {
        match self {
            Subject::Malloc => "allograft.o/",
            Subject::Strings => "allograft_str.o/",
        }
    }
}

/// The note's owner, with its NUL.
pub(crate) const OWNER: &[u8] = b"allograft\0";
/// Bytes of the note's description.
pub(crate) const DESCRIPTION_SIZE: usize = 512;

/// One note of a file, unparsed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawNote<'a> {
    /// The owner with its NUL, without padding.
    pub(crate) owner: &'a [u8],
    pub(crate) kind: u32,
    pub(crate) description: &'a [u8],
}

/// The contents of a graft's note. Unknown keys are skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GraftNote {
    pub(crate) donor: String,
    pub(crate) version: String,
    pub(crate) options: String,
    pub(crate) object: String,
    pub(crate) allograft: String,
}

/// Whether `malloc` and `free` were bound to the graft when the program was linked: by the note of type 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    /// They are bound to the graft's.
    ToGraft,
    /// They are bound to the program's own.
    ToProgram,
}

/// The section of that note.
pub(crate) const BINDING_SECTION: &str = ".note.allograft.bond";
const BINDING_KIND: u32 = 3;

/// Reads the values that the linker filled in: four distances, each from its own place, to `malloc`, `__libc_malloc`,
/// `free` and `__libc_free`. `None` if there is no such note, or if several disagree.
pub(crate) fn binding(elf: &Elf<'_>) -> Option<Binding> {
    let mut bindings = bindings(elf).map(|note| {
        let words = elf.bytes.over(note.description);
        let target = |at: usize| words.u32(at).map(|distance| distance.wrapping_add(at as u32));
        let (malloc, own_malloc, free, own_free) = (target(0)?, target(4)?, target(8)?, target(12)?);
        Some(if malloc == own_malloc && free == own_free { Binding::ToGraft } else { Binding::ToProgram })
    });
    let first = bindings.next()??;
    bindings.all(|other| other == Some(first)).then_some(first)
}

fn bindings<'a>(elf: &Elf<'a>) -> impl Iterator<Item = RawNote<'a>> {
    all(elf).into_iter().filter(|note| note.owner == OWNER && note.kind == BINDING_KIND)
}

/// Whether each such note is at its own place: its first distance means a place in code, and `malloc` if that address
/// is known. A note that was copied from a different program is not.
pub(crate) fn is_binding_in_place(elf: &Elf<'_>, malloc: Option<u64>) -> bool {
    let start = elf.bytes.data.as_ptr() as usize;
    bindings(elf).all(|note| {
        let offset = (note.description.as_ptr() as usize - start) as u64;
        let mut loaded = elf.segments.iter().filter(|segment| segment.kind == PT_LOAD);
        let address = loaded.find_map(|segment| {
            let inside = offset.checked_sub(segment.offset)?;
            segment.data.is_some_and(|data| inside < data.len() as u64).then(|| segment.address.wrapping_add(inside))
        });
        let (Some(address), Some(distance)) = (address, elf.bytes.over(note.description).u32(0)) else { return false };
        let target = address.wrapping_add(i64::from(distance.cast_signed()).cast_unsigned());
        let is_code =
            |(from, data): (u64, &[u8])| target.checked_sub(from).is_some_and(|inside| inside < data.len() as u64);
        malloc.map_or_else(|| elf.executable().into_iter().any(is_code), |malloc| malloc == target)
    })
}

/// Splits the contents of a note section or segment into notes. Stops at the first that is malformed.
pub(crate) fn split<'a>(bytes: &Bytes<'a>, align: u64) -> Vec<RawNote<'a>> {
    // Segments of 8-byte notes (GNU properties) declare their alignment; all others have 4, whatever they declare.
    let align = if align == 8 { 8 } else { 4 };
    let mut notes = Vec::new();
    let mut at = 0;
    while let Some((note, next)) = note_at(bytes, at, align) {
        notes.push(note);
        at = next;
    }
    notes
}

fn note_at<'a>(bytes: &Bytes<'a>, at: usize, align: usize) -> Option<(RawNote<'a>, usize)> {
    let owner_size = usize::try_from(bytes.u32(at)?).ok()?;
    let description_size = usize::try_from(bytes.u32(at.checked_add(4)?)?).ok()?;
    let kind = bytes.u32(at.checked_add(8)?)?;
    let owner_at = at.checked_add(12)?;
    let owner_end = owner_at.checked_add(owner_size)?;
    let description_at = owner_end.checked_next_multiple_of(align)?;
    let description_end = description_at.checked_add(description_size)?;
    let note = RawNote {
        owner: bytes.data.get(owner_at..owner_end)?,
        kind,
        description: bytes.data.get(description_at..description_end)?,
    };
    Some((note, description_end.checked_next_multiple_of(align)?))
}

/// Returns all notes of a file, from its segments and its sections. A note that is in both is there twice.
pub(crate) fn all<'a>(elf: &Elf<'a>) -> Vec<RawNote<'a>> {
    let segments = elf.segments.iter().filter(|segment| segment.kind == PT_NOTE);
    let sections = elf.sections.iter().filter(|section| section.kind == SHT_NOTE);
    let segments = segments.filter_map(|segment| Some((segment.offset, segment.data?, segment.align)));
    let sections = sections.filter_map(|section| Some((section.offset, section.data?, section.align)));
    let mut notes = Vec::new();
    for mut places in [segments.collect::<Vec<_>>(), sections.collect()] {
        // Thousands of headers may name the same bytes, or overlapping ones: read no more than the file has.
        places.sort_by_key(|&(offset, data, _)| (offset, Reverse(data.len())));
        places.dedup_by_key(|&mut (offset, _, _)| offset);
        let mut budget = elf.bytes.data.len();
        for (_, data, align) in places {
            let Some(left) = budget.checked_sub(data.len()) else { break };
            budget = left;
            let data = elf.bytes.over(data);
            notes.extend(split(&data, align));
            if align == 8 {
                // A linker has put notes of both alignments into one segment.
                notes.extend(split(&data, 4).into_iter().filter(RawNote::is_of_graft));
            }
        }
    }
    notes
}

impl RawNote<'_> {
    /// Whether it is a graft's note on the subject.
    pub(crate) fn is_on(&self, subject: Subject) -> bool {
        self.owner == OWNER && self.kind == subject.kind()
    }

    /// Returns the description up to its first NUL.
    pub(crate) fn text(&self) -> String {
        let text = self.description.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }

    fn is_of_graft(&self) -> bool {
        self.owner == OWNER
    }
}

impl GraftNote {
    /// Parses a description: `key=value` lines, then NULs. The error names what is missing.
    pub(crate) fn parse(description: &[u8]) -> Result<Self, String> {
        let end = description.iter().position(|&byte| byte == 0).unwrap_or(description.len());
        let text = std::str::from_utf8(&description[..end]).map_err(|error| format!("it is not UTF-8: {error}"))?;
        let value = |key: &str| {
            text.lines()
                .find_map(|line| line.split_once('=').filter(|(found, _)| *found == key))
                .map(|(_, value)| value)
        };
        let required = |key: &str| value(key).map(str::to_owned).ok_or_else(|| format!("it has no line `{key}=`"));
        let note = GraftNote {
            donor: required("donor")?,
            version: required("version")?,
            options: required("options")?,
            object: required("object")?,
            allograft: required("allograft")?,
        };
        if note.donor.is_empty() { Err("it names no donor".to_owned()) } else { Ok(note) }
    }

    /// Returns the donor, with this evidence.
    pub(crate) fn allocator(&self, evidence: Vec<Evidence>) -> Allocator {
        let version = Some(self.version.clone()).filter(|text| !text.is_empty());
        Allocator { name: self.donor.clone(), version, evidence, file: None }
    }

    /// Returns a summary for a line of evidence; the note is in the section `section`.
    pub(crate) fn summary(&self, section: &str) -> String {
        let options = if self.options.is_empty() { String::new() } else { format!(" with {}", self.options) };
        format!("the note `{section}` says {} {}{options}, by allograft {}", self.donor, self.version, self.allograft)
    }
}

/// Returns the graft's notes on a subject, each parsed or with its fault. Equal ones are there once.
pub(crate) fn of_graft(elf: &Elf<'_>, subject: Subject) -> Vec<Result<GraftNote, String>> {
    let mut found = Vec::new();
    for note in all(elf).iter().filter(|note| note.is_on(subject)) {
        let note = GraftNote::parse(note.description);
        if !found.contains(&note) && found.len() < 16 {
            found.push(note);
        }
    }
    found
}

/// Returns the texts of the graft's notes in a file or an archive: on its allocator, and on its string functions.
/// Equal ones are there once.
pub(crate) fn texts(file: &[u8]) -> Result<[Vec<String>; 2], InspectError> {
    let mut found = [Vec::new(), Vec::new()];
    let mut add = |elf: &Elf<'_>| {
        for note in all(elf) {
            for (subject, texts) in [Subject::Malloc, Subject::Strings].into_iter().zip(&mut found) {
                let text = note.text();
                if note.is_on(subject) && !texts.contains(&text) {
                    texts.push(text);
                }
            }
        }
    };
    if pe::is_pe(file) {
        return Ok([windows::texts(&Pe::parse(file).map_err(InspectError::Pe)?), Vec::new()]);
    }
    match archive::is_archive(file) {
        true => Library::read(file)?.parts.iter().for_each(|part| add(&part.elf)),
        false => add(&Elf::parse(file).map_err(InspectError::Elf)?),
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_after_another_is_found_and_unknown_keys_are_skipped() {
        let mut section = Vec::new();
        for (owner, kind, description) in [
            (&b"GNU\0"[..], 3u32, &b"12345"[..]),
            (OWNER, 1, b"donor=x\nfuture=1\nversion=2\noptions=\nobject=\nallograft=3\n\0\0"),
        ] {
            section.extend((owner.len() as u32).to_le_bytes());
            section.extend((description.len() as u32).to_le_bytes());
            section.extend(kind.to_le_bytes());
            for part in [owner, description] {
                section.extend(part);
                section.resize(section.len().next_multiple_of(4), 0);
            }
        }
        let bytes = Bytes { data: &section, little: true, wide: true };
        let notes = split(&bytes, 4);
        assert_eq!(notes.len(), 2);
        assert!(notes[1].is_on(Subject::Malloc) && !notes[1].is_on(Subject::Strings));
        let note = GraftNote::parse(notes[1].description).unwrap();
        assert_eq!((note.donor.as_str(), note.version.as_str(), note.allograft.as_str()), ("x", "2", "3"));
        for cut in 0..section.len() {
            split(&bytes.over(&section[..cut]), 4);
        }
    }

    #[test]
    fn a_note_without_a_donor_is_refused() {
        assert!(GraftNote::parse(b"donor=\nversion=2\noptions=\nobject=\nallograft=3\n").is_err());
        assert!(GraftNote::parse(b"version=2\n").unwrap_err().contains("donor"));
    }
}
