//! The note on a dynamic program that loads its donor as a shared object (docs/note.md): the identity of that file. The
//! file's name is in the program's dynamic section, as its first DT_NEEDED.

use crate::note::{self, DESCRIPTION, HEAD};

/// The note's type.
pub const NOTE_TYPE: u32 = 6;
/// The note's section.
pub const SECTION: &str = ".note.allograft.needed";
/// The size of a SHA-256 in bytes.
const DIGEST: usize = 32;
/// The size of the whole note in bytes.
pub const SIZE: usize = HEAD + 8 + DIGEST + DESCRIPTION;
/// The version of this layout, the first 64-bit number.
const FORMAT: u64 = 1;

/// The contents of the note.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// The SHA-256 of the shared object.
    pub sha256: [u8; DIGEST],
    /// The description of the donor's note in the shared object ([`crate::note`]).
    pub donor: [u8; DESCRIPTION],
}

/// The head of the note, by which it is found.
pub fn head() -> [u8; HEAD] {
    note::head_of(NOTE_TYPE, SIZE - HEAD)
}

impl Needed {
    /// Encodes the whole note.
    pub fn encode(&self) -> Vec<u8> {
        [&head()[..], &FORMAT.to_le_bytes(), &self.sha256, &self.donor].concat()
    }

    /// Reads the note that begins with these bytes. `None` if it is a different note, or of a different format.
    pub fn parse(note: &[u8]) -> Option<Needed> {
        let rest = note.strip_prefix(&head())?.strip_prefix(&FORMAT.to_le_bytes())?;
        Some(Needed { sha256: *rest.first_chunk()?, donor: *rest[DIGEST..].first_chunk()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let needed = Needed { sha256: [7; DIGEST], donor: [b'x'; DESCRIPTION] };
        let note = needed.encode();
        assert_eq!((note.len(), Needed::parse(&note)), (SIZE, Some(needed)));
        for at in [8, HEAD] {
            let mut other = note.clone();
            other[at] ^= 2;
            assert_eq!(Needed::parse(&other), None, "the byte {at}");
        }
        assert_eq!(Needed::parse(&note[..SIZE - 1]), None);
    }
}
