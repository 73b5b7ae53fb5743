//! The note on a dynamic program that a donor was merged into (docs/note.md): the donor's place, and the parts of the
//! program that it got. Seven 64-bit words follow the note's head.

use crate::note::{self, HEAD};

/// The note's type.
pub const NOTE_TYPE: u32 = 5;
/// The note's section.
pub const SECTION: &str = ".note.allograft.merged";
/// The number of words.
const WORDS: usize = 7;
/// The size of the whole note in bytes.
pub const SIZE: usize = HEAD + 8 * WORDS;
/// The version of this layout, the first word.
const FORMAT: u64 = 1;

/// The contents of the note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Merged {
    /// The distance from the note's first byte to the donor's in memory, where its address 0 is.
    pub donor: u64,
    /// The size of the donor's memory in bytes.
    pub size: u64,
    /// The number of bytes in front of the program's own part of the thread-local storage.
    pub front: u64,
    /// The offset of the donor's part in it.
    pub own: u64,
    /// The number of the donor's constructors, which come before the program's.
    pub constructors: u64,
    /// Whether they are in DT_PREINIT_ARRAY, as glibc needs them, or in DT_INIT_ARRAY, as musl does.
    pub preinit: bool,
}

/// The head of the note: the sizes of name and description, the type, the owner.
pub fn head() -> [u8; HEAD] {
    note::head_of(NOTE_TYPE, 8 * WORDS)
}

impl Merged {
    /// Encodes the whole note.
    pub fn encode(&self) -> Vec<u8> {
        let words = [FORMAT, self.donor, self.size, self.front, self.own, self.constructors, u64::from(self.preinit)];
        let words: [u64; WORDS] = words;
        head().into_iter().chain(words.into_iter().flat_map(u64::to_le_bytes)).collect()
    }

    /// Reads the note that begins with these bytes. `None` if it is a different note, or of a different format.
    pub fn parse(note: &[u8]) -> Option<Merged> {
        let words = note.strip_prefix(&head())?.get(..8 * WORDS)?;
        let word = |at: usize| words[8 * at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        (word(0) == FORMAT && word(6) < 2).then(|| Merged {
            donor: word(1),
            size: word(2),
            front: word(3),
            own: word(4),
            constructors: word(5),
            preinit: word(6) == 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_as_it_was_written() {
        let merged = Merged { donor: 4096, size: 8192, front: 32, own: 8, constructors: 2, preinit: true };
        let note = merged.encode();
        assert_eq!((note.len(), Merged::parse(&note)), (SIZE, Some(merged)));
        for at in [8, 24] {
            let mut other = note.clone();
            other[at] ^= 2;
            assert_eq!(Merged::parse(&other), None, "the byte {at}");
        }
        assert_eq!(Merged::parse(&note[..SIZE - 1]), None);
    }
}
