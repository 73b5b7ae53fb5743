//! The ranges that a donor makes read-only when it starts in a merged program: `graft_sealed` in
//! `crates/donors/glue/shared.h`. Two words, magic and format; then for each range the distance of its start from the
//! first word, and its size in bytes. A size of 0 means that the range is unused.

/// The first word.
pub const MAGIC: u64 = 0x4445_414c_4553_4741;
/// The second word.
pub const FORMAT: u64 = 1;
/// The number of ranges.
pub const RANGES: usize = 2;
/// The size of the two words in bytes.
pub const HEAD: usize = 16;
/// The size of everything in bytes.
pub const SIZE: usize = HEAD + 16 * RANGES;

/// The head, by which the words are found.
pub fn head() -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&MAGIC.to_le_bytes());
    head[8..].copy_from_slice(&FORMAT.to_le_bytes());
    head
}
