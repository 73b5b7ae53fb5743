//! Reads the structure of an archive: headers, names, padding (System V ABI, chapter 7; GNU's long names).
//!
//! Readers of other crates return names and contents only. An edit keeps every byte that it does not change, so it
//! needs the headers, the padding and the order of the index, too.

use format::printable;

use super::error::{Fault, Location, quoted};
use super::index::{Index, Width};
use super::{Archive, ArchiveError, HEADER, MAGIC, Member};

/// A header with its content, before its name is read.
struct Record<'a> {
    offset: usize,
    header: &'a [u8],
    data: &'a [u8],
    whole: &'a [u8],
}

/// The header's sixteen bytes of name, decoded.
enum Name<'a> {
    Index(Width),
    Table,
    Short(&'a [u8]),
    Long(u64),
}

pub(super) fn parse(bytes: &[u8]) -> Result<Archive<'_>, ArchiveError> {
    if bytes.starts_with(b"!<thin>\n") {
        return Err(ArchiveError::Thin);
    }
    if !bytes.starts_with(MAGIC) {
        return Err(ArchiveError::NotAnArchive { found: quoted(&bytes[..bytes.len().min(MAGIC.len())]) });
    }
    let mut members: Vec<Member<'_>> = Vec::new();
    let mut index = None;
    let mut table = None;
    let mut offset = MAGIC.len();
    while offset < bytes.len() {
        let ordinal = members.len() + 1;
        let place = Location { offset, ordinal: Some(ordinal), name: name_shown(&bytes[offset..], table.as_ref()) };
        let record = record(bytes, offset).map_err(|fault| malformed(&place, fault))?;
        let name = name(&record, &place)?;
        offset += record.whole.len();
        match name {
            Name::Index(width) if members.is_empty() && table.is_none() && index.is_none() => {
                index = Some((record, width));
            }
            Name::Index(_) => {
                return Err(malformed(&place, Fault::OutOfPlace { found: "a symbol index" }));
            }
            Name::Table if members.is_empty() && table.is_none() => table = Some(NameTable::new(record)),
            Name::Table => return Err(malformed(&place, Fault::OutOfPlace { found: "a name table" })),
            Name::Short(name) => members.push(member(ordinal, name, &record)),
            Name::Long(reference) => {
                let found = match &table {
                    Some(table) => table.name(reference),
                    None => Err(Fault::NameOutside { reference, size: 0 }),
                };
                members.push(member(ordinal, found.map_err(|fault| malformed(&place, fault))?, &record));
            }
        }
    }
    let index = index
        .map(|(record, width)| {
            let place = Location { offset: record.offset, ordinal: None, name: Some("the symbol index".to_owned()) };
            Index::parse(record.whole, record.data, width, &members).map_err(|fault| malformed(&place, fault))
        })
        .transpose()?;
    let name_table = table.map_or(&[] as &[u8], |table| table.whole);
    Ok(Archive { bytes, members, index, name_table })
}

fn member<'a>(ordinal: usize, name: &'a [u8], record: &Record<'a>) -> Member<'a> {
    Member { ordinal, name, offset: record.offset, data: record.data, whole: record.whole }
}

/// The name for a message about a record that may be damaged; `None` if it has no readable name.
fn name_shown(rest: &[u8], table: Option<&NameTable<'_>>) -> Option<String> {
    let trimmed = rest.get(..16)?.trim_ascii_end();
    match trimmed {
        [b'/', reference @ ..] => Some(printable(table?.name(decimal(reference)?).ok()?)),
        _ => Some(printable(trimmed.strip_suffix(b"/").unwrap_or(trimmed))).filter(|name| !name.is_empty()),
    }
}

fn malformed(place: &Location, fault: Fault) -> ArchiveError {
    ArchiveError::Malformed { place: place.clone(), fault }
}

fn record(bytes: &[u8], offset: usize) -> Result<Record<'_>, Fault> {
    let rest = &bytes[offset..];
    let (header, content) = rest.split_at_checked(HEADER).ok_or(Fault::HeaderCut { found: rest.len() })?;
    if &header[58..] != b"`\n" {
        return Err(Fault::Terminator { found: quoted(&header[58..]) });
    }
    let size = decimal(&header[48..58]).ok_or_else(|| Fault::Size { found: quoted(&header[48..58]) })?;
    let data = usize::try_from(size)
        .ok()
        .and_then(|size| content.get(..size))
        .ok_or(Fault::ContentCut { found: content.len(), expected: size })?;
    // Content of odd size is padded to an even offset. Some writers leave that out at the very end.
    let end = (HEADER + data.len()).next_multiple_of(2).min(rest.len());
    Ok(Record { offset, header, data, whole: &rest[..end] })
}

/// A decimal number padded with spaces on the right.
pub(super) fn decimal(field: &[u8]) -> Option<u64> {
    let digits = field.trim_ascii_end();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn name<'a>(record: &Record<'a>, place: &Location) -> Result<Name<'a>, ArchiveError> {
    let field = &record.header[..16];
    for evidence in ["#1/", "__.SYMDEF"] {
        if field.starts_with(evidence.as_bytes()) {
            return Err(ArchiveError::Bsd { offset: place.offset, evidence });
        }
    }
    let trimmed = field.trim_ascii_end();
    match trimmed {
        b"/" => Ok(Name::Index(Width::Bits32)),
        b"/SYM64/" => Ok(Name::Index(Width::Bits64)),
        b"//" => Ok(Name::Table),
        [b'/', reference @ ..] => decimal(reference)
            .map(Name::Long)
            .ok_or_else(|| malformed(place, Fault::NameReference { found: quoted(trimmed) })),
        // Old writers leave the slash out.
        _ => match trimmed.strip_suffix(b"/").unwrap_or(trimmed) {
            b"" => Err(malformed(place, Fault::NameEmpty)),
            name => Ok(Name::Short(name)),
        },
    }
}

/// GNU's table of names over 15 bytes: each ends with a slash and a newline.
struct NameTable<'a> {
    data: &'a [u8],
    whole: &'a [u8],
    /// Offsets of all newlines, so that a name's end is found without walking a hostile table for every member.
    newlines: Vec<usize>,
}

impl<'a> NameTable<'a> {
    fn new(record: Record<'a>) -> Self {
        let newlines =
            record.data.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(offset, _)| offset).collect();
        NameTable { data: record.data, whole: record.whole, newlines }
    }

    fn name(&self, reference: u64) -> Result<&'a [u8], Fault> {
        let start = usize::try_from(reference)
            .ok()
            .filter(|start| *start < self.data.len())
            .ok_or(Fault::NameOutside { reference, size: self.data.len() })?;
        let end = self
            .newlines
            .get(self.newlines.partition_point(|newline| *newline < start))
            .ok_or(Fault::NameUnterminated { reference })?;
        let name = &self.data[start..*end];
        match name.strip_suffix(b"/").unwrap_or(name) {
            b"" => Err(Fault::NameEmpty),
            name => Ok(name),
        }
    }
}
