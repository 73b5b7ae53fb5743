//! The parameters that an executable's graft writes for the donor's start: `struct transplant_parameters` in
//! `crates/donors/transplant/parameters.h`, words of 64 bits.

/// `magic`, the first word.
pub const MAGIC: u64 = 0x544e_4c50_5354_5247;
/// `format`, the second word.
pub const FORMAT: u64 = 4;
/// The size of these two in bytes.
pub const HEAD: usize = 16;
/// The number of words behind these two, up to `calls`.
pub const WORDS: usize = 18;
/// The index of `self_test` among the words behind `magic` and `format`: not 0 in a copy that runs its self-test.
pub const SELF_TEST: usize = 11;
/// The number of the program's entry points in `calls`, the last of the words.
pub const CALLS: usize = 10;
