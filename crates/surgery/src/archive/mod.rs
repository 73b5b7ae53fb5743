//! Static archives in System V's form, as GNU ar and llvm-ar write them for ELF: read, and edited by ordinal.
//!
//! The ordinal of a member identifies it, since its name does not: musl's `libc.a` has two members `free.lo`, and two
//! `realloc.lo`.

mod edit;
mod error;
mod index;
mod parse;

pub use edit::Insert;
pub use error::{ArchiveError, Fault, Location};

use std::fmt;

use index::Index;

/// The first eight bytes of an archive.
pub const MAGIC: &[u8; 8] = b"!<arch>\n";

/// Bytes of a member's header: name 16, date 12, owner 6, group 6, mode 8, size 10, terminator 2.
pub const HEADER: usize = 60;

/// An archive whose structure has been checked from the first byte to the last.
#[derive(Debug, Clone)]
pub struct Archive<'a> {
    bytes: &'a [u8],
    members: Vec<Member<'a>>,
    index: Option<Index<'a>>,
    /// The name table with header and padding; empty if the archive has no such table.
    name_table: &'a [u8],
}

/// A member other than the symbol index and the name table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its position among the members, from 1. This alone identifies a member: names can occur twice.
    pub ordinal: usize,
    /// Without the terminating slash, from the name table if it is a long one. May be a path.
    pub name: &'a [u8],
    /// Where its header starts, in bytes from the start of the archive.
    pub offset: usize,
    /// Its content.
    pub data: &'a [u8],
    /// Header, content and the padding byte if there is one.
    whole: &'a [u8],
}

/// A member for messages: "member 3 `malloc.lo`".
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberId {
    /// Its ordinal.
    pub ordinal: usize,
    /// Its name as text.
    pub name: String,
}

impl fmt::Display for MemberId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "member {} `{}`", self.ordinal, self.name)
    }
}

impl Member<'_> {
    /// The member for messages.
    pub fn id(&self) -> MemberId {
        MemberId { ordinal: self.ordinal, name: self.display_name() }
    }

    /// The name as text. Bytes that are not UTF-8 are replaced.
    pub fn display_name(&self) -> String {
        format::printable(self.name)
    }
}

impl<'a> Archive<'a> {
    /// Reads and checks the structure of an archive: every header, every name, every entry of the index.
    ///
    /// # Errors
    /// `bytes` are not a System V archive, or are damaged. The error has the offset and the member.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ArchiveError> {
        parse::parse(bytes)
    }

    /// All members in their order: ordinal n is at index n - 1.
    pub fn members(&self) -> &[Member<'a>] {
        &self.members
    }

    /// The member with this ordinal; `None` if no member has it.
    pub fn member(&self, ordinal: usize) -> Option<&Member<'a>> {
        self.members.get(ordinal.checked_sub(1)?)
    }

    /// The symbol index as pairs of ordinal and symbol, in its order; empty without an index.
    pub fn indexed(&self) -> impl Iterator<Item = (usize, &'a [u8])> + '_ {
        self.index.iter().flat_map(|index| index.entries.iter().copied())
    }

    /// The bytes that the archive was read from.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}
