//! Names for the places of bytes in an archive or an ELF file, to say what a changed byte belongs to.

use std::ops::Range;

use anyhow::{Context, Result};
use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{ElfFile, FileHeader, ProgramHeader, SectionHeader};
use surgery::archive::{Archive, HEADER, MAGIC};

/// The place of all that no segment loads.
pub(crate) const NOT_LOADED: &str = "not loaded";

/// The place of the version of allograft in a graft's note.
pub(crate) const VERSION: &str = "version of allograft in the note";

/// The places of one file.
#[derive(Debug)]
pub(crate) struct Places(Vec<Place>);

type Place = (Range<usize>, String);

impl Places {
    /// Reads the structure of an archive or of a 64-bit ELF file.
    ///
    /// # Errors
    /// It is neither, or damaged.
    pub(crate) fn read(bytes: &[u8]) -> Result<Places> {
        let mut places: Vec<_> = versions(bytes).collect();
        places.extend(if bytes.starts_with(MAGIC) { archive(bytes)? } else { elf(bytes)? });
        Ok(Places(places))
    }

    /// The name of the place of a byte: the first that holds it.
    pub(crate) fn of(&self, at: usize) -> String {
        let place = self.0.iter().find(|(range, _)| range.contains(&at));
        place.map_or_else(|| "between".to_owned(), |(_, name)| name.clone())
    }
}

/// The fields of a member's header (ar(5)).
const FIELDS: [(Range<usize>, &str); 7] = [
    (0..16, "name"),
    (16..28, "date"),
    (28..34, "owner"),
    (34..40, "group"),
    (40..48, "mode"),
    (48..58, "size"),
    (58..60, "end of the header"),
];

/// The values of the key `allograft` in notes (docs/note.md).
fn versions(bytes: &[u8]) -> impl Iterator<Item = Place> {
    const KEY: &[u8] = b"\nallograft=";
    let keys = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(KEY)).map(|at| at + KEY.len());
    keys.filter_map(|start| {
        let length = bytes[start..].iter().take(32).position(|byte| *byte == b'\n')?;
        Some((start..start + length, VERSION.to_owned()))
    })
}

fn archive(bytes: &[u8]) -> Result<Vec<Place>> {
    let mut places = vec![(0..MAGIC.len(), "magic".to_owned())];
    let members = Archive::parse(bytes)?;
    for member in members.members() {
        let start = member.offset;
        places.extend(FIELDS.map(|(field, name)| (start + field.start..start + field.end, format!("member's {name}"))));
        let data = start + HEADER;
        places.push((data..data + member.data.len(), "member".to_owned()));
    }
    // The index and the name table come first.
    let first = members.members().first().context("no member")?.offset;
    places.push((0..first, "index and name table".to_owned()));
    Ok(places)
}

fn elf(bytes: &[u8]) -> Result<Vec<Place>> {
    let file: ElfFile<'_, FileHeader64<Endianness>> = ElfFile::parse(bytes)?;
    let (header, endian) = (file.elf_header(), file.endian());
    let table = |start: u64, size: u16, count: usize| {
        let start = start as usize;
        start..start + usize::from(size) * count
    };
    let sections = file.elf_section_table();
    let mut loaded: Vec<Range<usize>> = file
        .elf_program_headers()
        .iter()
        .filter(|header| header.p_type(endian) == object::elf::PT_LOAD)
        .map(|header| header.file_range(endian))
        .map(|(start, size)| start as usize..(start + size) as usize)
        .collect();
    loaded.sort_by_key(|range| range.start);
    let (ends, starts) = (loaded.iter().map(|range| range.end), loaded.iter().skip(1).map(|range| range.start));
    let gaps =
        [0].into_iter().chain(ends).zip([loaded.first().map_or(0, |first| first.start)].into_iter().chain(starts));
    let gaps = gaps.filter(|(from, to)| from < to).map(|(from, to)| (from..to, NOT_LOADED.to_owned()));
    let behind = loaded.last().map_or(0, |last| last.end)..bytes.len();
    let mut places: Vec<Place> = gaps.chain([(behind, NOT_LOADED.to_owned())]).collect();
    places.extend([
        (0..64, "ELF header".to_owned()),
        (
            table(header.e_phoff(endian), header.e_phentsize(endian), file.elf_program_headers().len()),
            "program header".to_owned(),
        ),
        (table(header.e_shoff(endian), header.e_shentsize(endian), sections.len()), "section header".to_owned()),
    ]);
    for section in sections.iter() {
        if let Some((start, size)) = section.file_range(endian) {
            let name = String::from_utf8_lossy(sections.section_name(endian, section)?).into_owned();
            places.push((start as usize..(start + size) as usize, name));
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_a_program_and_an_archive() {
        let folder = tempfile::tempdir().unwrap();
        crate::flows::program(folder.path());
        let program = Places::read(&std::fs::read(folder.path().join("program")).unwrap()).unwrap();
        assert_eq!(["ELF header", "program header"], [program.of(16), program.of(64)]);
        assert!(program.0.iter().any(|(_, name)| name == ".text"));
        let archive = Places::read(&crate::flows::libc()).unwrap();
        assert_eq!(["magic", "index and name table"], [archive.of(0), archive.of(8)]);
        assert!(archive.0.iter().any(|(range, name)| name == "member's mode" && range.len() == 8));
    }
}
