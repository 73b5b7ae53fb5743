//! The notes of grafts in a file. They count only where the file's headers say that notes are: elsewhere, the same
//! bytes are data, as in a program that embeds donors or grafts.

use std::ops::Range;

use crate::image::{PT_NOTE, SHT_NOTE};

/// Returns the offsets of the notes that begin with these bytes. In a file whose headers cannot be read, a note may be
/// anywhere.
pub(crate) fn places<'b>(bytes: &'b [u8], head: &'b [u8]) -> impl Iterator<Item = usize> + 'b {
    let mut ranges = None;
    memchr::memmem::find_iter(bytes, head).filter(move |at| {
        // Most files have no such bytes at all.
        let ranges = ranges.get_or_insert_with(|| ranges_of_notes(bytes));
        ranges.as_ref().is_none_or(|ranges| ranges.iter().any(|range| range.contains(&(*at as u64))))
    })
}

/// The fields of headers in an ELF file of a class (gABI, "ELF Header", "Section Header", "Program Header").
struct Fields {
    /// The size of an address or an offset.
    word: usize,
    /// In the file's header: the offsets of the tables of segments and of sections; two numbers each, the size of an
    /// entry and their count.
    tables: [(usize, usize); 2],
    /// In the header of a segment: the offset and the size in the file.
    segment: [usize; 2],
    /// In that of a section.
    section: [usize; 2],
}

const WIDE: Fields = Fields { word: 8, tables: [(32, 54), (40, 58)], segment: [8, 32], section: [24, 32] };
const NARROW: Fields = Fields { word: 4, tables: [(28, 42), (32, 46)], segment: [4, 16], section: [16, 20] };

/// Returns the ranges of a file that its headers call notes. `None` if it is not an ELF file with whole headers.
fn ranges_of_notes(bytes: &[u8]) -> Option<Vec<Range<u64>>> {
    let fields = match bytes.get(..6)? {
        [0x7f, b'E', b'L', b'F', 2, 1] => WIDE,
        [0x7f, b'E', b'L', b'F', 1, 1] => NARROW,
        _ => return None,
    };
    let number = |at: usize, size: usize| {
        let mut raw = [0; 8];
        raw[..size].copy_from_slice(bytes.get(at..at.checked_add(size)?)?);
        Some(u64::from_le_bytes(raw))
    };
    let kinds = [(0, PT_NOTE, fields.segment), (4, SHT_NOTE, fields.section)];
    let mut ranges = Vec::new();
    for ((table, sizes), (kind_at, wanted, [offset_at, size_at])) in fields.tables.into_iter().zip(kinds) {
        let (start, entry, count) = (number(table, fields.word)?, number(sizes, 2)?, number(sizes + 2, 2)?);
        for index in 0..count {
            let at = usize::try_from(start.checked_add(index * entry)?).ok()?;
            if number(at.checked_add(kind_at)?, 4)? == u64::from(wanted) {
                let offset = number(at + offset_at, fields.word)?;
                ranges.push(offset..offset.saturating_add(number(at + size_at, fields.word)?));
            }
        }
    }
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// A file with one segment and one section, of these types, from 0x200 to 0x300 and from 0x300 to 0x400.
    fn file(is_wide: bool, segment: u32, section: u32) -> Vec<u8> {
        let mut file = vec![0; 0x1000];
        let fields = if is_wide { WIDE } else { NARROW };
        put(&mut file, 0, &[0x7f, b'E', b'L', b'F', if is_wide { 2 } else { 1 }, 1]);
        for ((table, sizes), at) in fields.tables.into_iter().zip([0x80_u8, 0xc0]) {
            put(&mut file, table, &[at]);
            put(&mut file, sizes, &[0x40, 0, 1, 0]);
        }
        put(&mut file, 0x80, &segment.to_le_bytes());
        put(&mut file, 0xc4, &section.to_le_bytes());
        for (at, [offset, size], start) in [(0x80, fields.segment, 0x200_u16), (0xc0, fields.section, 0x300)] {
            put(&mut file, at + offset, &start.to_le_bytes());
            put(&mut file, at + size, &0x100_u16.to_le_bytes());
        }
        file
    }

    #[test]
    fn a_note_counts_where_the_headers_say_that_notes_are() {
        let head = b"allograft: a note";
        for is_wide in [true, false] {
            for (segment, section, at, carries) in [
                (PT_NOTE, 1, 0x240, true),
                (PT_NOTE, 1, 0x340, false),
                (1, SHT_NOTE, 0x340, true),
                (1, SHT_NOTE, 0x240, false),
                (1, 1, 0x800, false),
            ] {
                let mut file = file(is_wide, segment, section);
                put(&mut file, at, head);
                let found: Vec<usize> = places(&file, head).collect();
                let expected = if carries { vec![at] } else { vec![] };
                assert_eq!(found, expected, "{is_wide} {segment} {section} {at:#x}");
                // The tables are not where the header says: the note may be anywhere.
                put(&mut file, if is_wide { 40 } else { 32 }, &0xffff_u16.to_le_bytes());
                assert_eq!(places(&file, head).next(), Some(at));
            }
        }
    }
}
