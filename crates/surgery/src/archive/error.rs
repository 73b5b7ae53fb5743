//! Errors in an archive, with their place.

use std::fmt;

/// Why bytes are not an archive that can be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// The magic is missing.
    #[error("not a static archive: it starts with {found}, expected \"!<arch>\\n\"")]
    NotAnArchive {
        /// The first bytes, quoted.
        found: String,
    },
    /// GNU's `!<thin>`: the members are separate files.
    #[error("a thin archive: it holds no members, only the names of their files")]
    Thin,
    /// BSD's form, which macOS uses.
    #[error("an archive in BSD's form (`{evidence}` at offset {offset:#x}), expected System V's")]
    Bsd {
        /// The offset of the header that shows it.
        offset: usize,
        /// The start of a name that only BSD's form has.
        evidence: &'static str,
    },
    /// The archive is malformed.
    #[error("{place}: {fault}")]
    Malformed {
        /// The place of the fault.
        place: Location,
        /// The fault.
        fault: Fault,
    },
    /// The member to insert has a name that does not fit.
    #[error(
        "a member cannot be named `{name}`: found {found}, expected 1 to 15 bytes of printable ASCII without a slash"
    )]
    Name {
        /// The name.
        name: String,
        /// The fault.
        found: String,
    },
    /// The member to insert is too large for the header's ten digits.
    #[error("a member of {size} bytes is larger than an archive can hold")]
    Large {
        /// Its size in bytes.
        size: usize,
    },
}

/// A place in an archive, with the parts that are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Location {
    /// In bytes from the start.
    pub offset: usize,
    /// The member's ordinal, or `None` for the index and the name table.
    pub ordinal: Option<usize>,
    /// The member's name.
    pub name: Option<String>,
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ordinal, &self.name) {
            (Some(ordinal), Some(name)) => write!(formatter, "member {ordinal} `{name}`, ")?,
            (Some(ordinal), None) => write!(formatter, "member {ordinal}, ")?,
            (None, Some(name)) => write!(formatter, "{name}, ")?,
            (None, None) => {}
        }
        write!(formatter, "offset {:#x}", self.offset)
    }
}

/// A fault at a place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file ends inside a header.
    #[error("the header is cut off: found {found} bytes, expected {}", super::HEADER)]
    HeaderCut {
        /// Bytes that are left.
        found: usize,
    },
    /// The header does not end with the terminator.
    #[error("the header ends with {found}, expected \"`\\n\"")]
    Terminator {
        /// The header's last two bytes, quoted.
        found: String,
    },
    /// The size is not a number.
    #[error("the size is {found}, expected a decimal number")]
    Size {
        /// The size's field, quoted.
        found: String,
    },
    /// The file ends inside the content.
    #[error("the content is cut off: found {found} bytes, expected {expected}")]
    ContentCut {
        /// Bytes that are left.
        found: usize,
        /// Bytes that the header promises.
        expected: u64,
    },
    /// A reference into the name table is not a number.
    #[error("the name is {found}, expected an offset into the name table")]
    NameReference {
        /// The name's field, quoted.
        found: String,
    },
    /// A reference is outside the name table, or there is no name table.
    #[error("the name is at {reference} of the name table, which has {size} bytes")]
    NameOutside {
        /// Offset into the name table.
        reference: u64,
        /// Its size.
        size: usize,
    },
    /// A name in the name table has no end.
    #[error("the name at {reference} of the name table has no end, expected a newline")]
    NameUnterminated {
        /// Offset into the name table.
        reference: u64,
    },
    /// The name is empty.
    #[error("the name is empty")]
    NameEmpty,
    /// The index or the name table is not at the front, or occurs twice.
    #[error("found {found} here, expected it once, before the first member")]
    OutOfPlace {
        /// Which of the two.
        found: &'static str,
    },
    /// The index is shorter than its count of entries takes.
    #[error("the symbol index has {found} bytes, expected at least {expected} for {count} symbols")]
    IndexCut {
        /// Size of its content.
        found: usize,
        /// Size that its count needs, without names.
        expected: u64,
        /// Its count of entries.
        count: u64,
    },
    /// The names in the index end before its entries do.
    #[error("the symbol index has names for {found} symbols, expected {count}")]
    IndexNames {
        /// The number of complete names.
        found: usize,
        /// Its count of entries.
        count: u64,
    },
    /// An entry does not point to a member's header.
    #[error("the symbol index has `{symbol}` at offset {target:#x}, where no member starts")]
    IndexTarget {
        /// The entry's symbol.
        symbol: String,
        /// The offset that it points to.
        target: u64,
    },
}

/// Bytes in quotes with escapes, cut after 64.
pub(super) fn quoted(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(64)];
    format!("\"{}\"", shown.escape_ascii())
}
