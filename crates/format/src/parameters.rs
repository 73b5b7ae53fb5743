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

/// `struct transplant_parameters` behind its first two words, in the order of its fields. Addresses are relative to the
/// donor's first byte.
#[derive(Debug, Default)]
pub struct Parameters {
    /// The program's entry point.
    pub entry: u64,
    /// The graft's program headers.
    pub headers: u64,
    /// The donor's own relative relocations, pairs of place and value.
    pub relocations: u64,
    /// The number of these pairs.
    pub relocation_count: u64,
    /// The starts of the ranges that become read-only after relocation: the donor's data and the copy of the
    /// thread-local storage.
    pub sealed: [u64; 2],
    /// The sizes of these in bytes.
    pub sealed_size: [u64; 2],
    /// The distance from the thread pointer to `errno`.
    pub errno_offset: i64,
    /// musl's destructors of keys.
    pub key_destructors: u64,
    /// The program's `main`. 0 in a loader.
    pub main: u64,
    /// The first bytes of the thread-local storage.
    pub tls_image: u64,
    /// Their number.
    pub tls_file_size: u64,
    /// The size of the thread-local storage in bytes.
    pub tls_size: u64,
    /// Its alignment in bytes.
    pub tls_alignment: u64,
    /// The function that calls `main`, where the graft branches around it. 0 where it does not.
    pub start_main: u64,
    /// musl's function that closes the streams. 0 if the program has none.
    pub streams: u64,
    /// The program's entry points for the self-test, 0 for each that it lacks.
    pub calls: [u64; CALLS],
}

impl Parameters {
    /// Encodes the words behind `magic` and `format`. `self_test` is 0: only the copy that runs the self-test sets it.
    pub fn encode(&self) -> Vec<u8> {
        let mut words = [0; WORDS];
        words[..SELF_TEST].copy_from_slice(&[
            self.entry,
            self.headers,
            self.relocations,
            self.relocation_count,
            self.sealed[0],
            self.sealed[1],
            self.sealed_size[0],
            self.sealed_size[1],
            self.errno_offset as u64,
            self.key_destructors,
            self.main,
        ]);
        words[SELF_TEST + 1..].copy_from_slice(&[
            self.tls_image,
            self.tls_file_size,
            self.tls_size,
            self.tls_alignment,
            self.start_main,
            self.streams,
        ]);
        words.into_iter().chain(self.calls).flat_map(u64::to_le_bytes).collect()
    }
}
