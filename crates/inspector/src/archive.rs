//! Reads static archives: System V and GNU layout, both sizes of index, long names as GNU and as BSD write them.
//!
//! The editor has its own reader (`surgery::archive`): with a common one, an edit and its check would make the same
//! mistake.

use crate::bytes::printable;
use crate::error::InspectError;

const MAGIC: &[u8] = b"!<arch>\n";
const THIN_MAGIC: &[u8] = b"!<thin>\n";
const HEADER: usize = 60;

/// A parsed archive.
#[derive(Debug)]
pub(crate) struct Archive<'a> {
    /// The members in order, without the index and the name table.
    pub(crate) members: Vec<Member<'a>>,
    /// The index entries in the index's own order. Empty without an index.
    pub(crate) index: Vec<IndexEntry<'a>>,
    pub(crate) has_index: bool,
    /// The table of long names. Empty without one.
    pub(crate) long_names: &'a [u8],
    /// The bytes around the index and around the table of long names.
    pub(crate) index_frame: Option<Frame<'a>>,
    pub(crate) names_frame: Option<Frame<'a>>,
}

/// The bytes of a table that are not its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) header: &'a [u8],
    /// The bytes behind the last entry; none for names.
    pub(crate) tail: &'a [u8],
    /// As of a member.
    pub(crate) pad: &'a [u8],
}

#[derive(Debug)]
pub(crate) struct Member<'a> {
    /// The number of the member, counted from 1.
    pub(crate) ordinal: usize,
    pub(crate) name: &'a [u8],
    pub(crate) header: &'a [u8],
    pub(crate) data: &'a [u8],
    /// The byte behind content of odd size; empty if the size is even or the file ends there.
    pub(crate) pad: &'a [u8],
    /// The offset of the header in the file.
    offset: usize,
}

#[derive(Debug)]
pub(crate) struct IndexEntry<'a> {
    pub(crate) symbol: &'a [u8],
    /// The place in [`Archive::members`] of the member that starts at the entry's offset. `None` if no member starts
    /// there.
    pub(crate) member: Option<usize>,
}

impl Member<'_> {
    pub(crate) fn label(&self) -> String {
        format!("{} (`{}`)", self.ordinal, printable(self.name))
    }

    pub(crate) fn is_elf(&self) -> bool {
        self.data.starts_with(b"\x7fELF")
    }
}

/// Whether the file starts as an archive does, thin or not.
pub(crate) fn is_archive(data: &[u8]) -> bool {
    data.starts_with(MAGIC) || data.starts_with(THIN_MAGIC)
}

/// The meaning of a name field that names no ordinary member.
enum Special {
    Index { wide: bool },
    LongNames,
}

impl<'a> Archive<'a> {
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, InspectError> {
        if data.starts_with(THIN_MAGIC) {
            return Err(InspectError::ThinArchive);
        }
        if !data.starts_with(MAGIC) {
            return Err(broken(0, "there is no archive magic"));
        }
        let mut archive = Archive {
            members: Vec::new(),
            index: Vec::new(),
            has_index: false,
            long_names: &[],
            index_frame: None,
            names_frame: None,
        };
        let mut raw_index = None;
        let mut offset = MAGIC.len();
        while offset < data.len() {
            let header = data
                .get(offset..offset.saturating_add(HEADER))
                .ok_or_else(|| broken(offset, "the file ends within a member's header"))?;
            if header.get(58..60) != Some(b"`\n".as_slice()) {
                return Err(broken(offset, "a member's header does not end in the two bytes that mark it"));
            }
            let size = decimal(&header[48..58])
                .ok_or_else(|| broken(offset, format!("`{}` is not a size", printable(&header[48..58]))))?;
            let start = offset.saturating_add(HEADER);
            let end = start.saturating_add(size);
            let body = data.get(start..end).ok_or_else(|| {
                broken(offset, format!("a member of {size} bytes in a file that ends after {}", data.len() - start))
            })?;
            let pad = data.get(end..end.saturating_add(size % 2)).unwrap_or_default();
            let frame = Frame { header, tail: &[], pad };
            match special(&header[..16]) {
                Some(Special::Index { wide }) => {
                    archive.has_index = true;
                    raw_index = Some((offset, wide, body, frame));
                }
                Some(Special::LongNames) => {
                    archive.long_names = body;
                    archive.names_frame = Some(frame);
                }
                None => {
                    let (name, contents) = name_and_contents(&header[..16], body, archive.long_names)
                        .ok_or_else(|| broken(offset, "a member's name is not in the table of long names"))?;
                    let ordinal = archive.members.len() + 1;
                    archive.members.push(Member { ordinal, name, header, data: contents, pad, offset });
                }
            }
            offset = end.saturating_add(size % 2);
        }
        if let Some((offset, wide, body, frame)) = raw_index {
            let (index, tail) = archive.read_index(offset, wide, body)?;
            archive.index = index;
            archive.index_frame = Some(Frame { tail, ..frame });
        }
        Ok(archive)
    }

    /// Reads an index: a count, that many big-endian file offsets, that many NUL-terminated names (System V ABI,
    /// chapter 7). Returns its entries, and what is behind them.
    fn read_index(
        &self,
        offset: usize,
        wide: bool,
        body: &'a [u8],
    ) -> Result<(Vec<IndexEntry<'a>>, &'a [u8]), InspectError> {
        let cut = || broken(offset, "the index ends before its last entry");
        let width = if wide { 8 } else { 4 };
        let number = |at: usize| -> Option<usize> {
            let raw = body.get(at..at.checked_add(width)?)?;
            usize::try_from(raw.iter().fold(0u64, |value, &byte| value << 8 | u64::from(byte))).ok()
        };
        let count = number(0).ok_or_else(cut)?;
        let names_at = count.checked_add(1).and_then(|words| words.checked_mul(width)).ok_or_else(cut)?;
        let mut names = body.get(names_at..).ok_or_else(cut)?;
        let mut entries = Vec::new();
        for entry in 0..count {
            let target = number((entry + 1) * width).ok_or_else(cut)?;
            let end = memchr::memchr(0, names).ok_or_else(cut)?;
            let (symbol, rest) = names.split_at(end);
            names = &rest[1..];
            let member = self.members.binary_search_by_key(&target, |member| member.offset).ok();
            entries.push(IndexEntry { symbol, member });
        }
        Ok((entries, names))
    }
}

fn special(name: &[u8]) -> Option<Special> {
    match name.trim_ascii_end() {
        b"/" => Some(Special::Index { wide: false }),
        b"/SYM64/" => Some(Special::Index { wide: true }),
        b"//" => Some(Special::LongNames),
        _ => None,
    }
}

/// Splits a member's name from its contents. The field holds `name/`, `/offset` into the long names, BSD's `#1/length`
/// with the name before the contents, or a plain name.
fn name_and_contents<'a>(field: &'a [u8], body: &'a [u8], long_names: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    if let Some(length) = field.strip_prefix(b"#1/") {
        let (name, contents) = body.split_at_checked(decimal(length)?)?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
        return Some((&name[..end], contents));
    }
    if let Some(place) = field.strip_prefix(b"/") {
        let rest = long_names.get(decimal(place)?..)?;
        let end = rest.iter().position(|&byte| byte == b'\n' || byte == 0).unwrap_or(rest.len());
        return Some((rest[..end].strip_suffix(b"/").unwrap_or(&rest[..end]), body));
    }
    let name = field.trim_ascii_end();
    Some((name.strip_suffix(b"/").unwrap_or(name), body))
}

/// Parses a decimal number that blanks may follow.
fn decimal(field: &[u8]) -> Option<usize> {
    let digits = field.trim_ascii_end();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn broken(offset: usize, problem: impl Into<String>) -> InspectError {
    InspectError::Archive { offset, problem: problem.into() }
}
