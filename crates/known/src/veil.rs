//! Keeps marks complemented, and restores them at run time. This program is also a file that users inspect, and must
//! not carry the marks of allocators that it does not contain.

use std::hint::black_box;

/// Bytes that are in every file that contains an allocator.
#[derive(Debug)]
pub struct Mark {
    pub(crate) veiled: &'static [u8],
    /// Its description in reports.
    pub what: &'static str,
    /// The release, or line of releases, that the mark proves: no other one has it.
    pub version: Option<&'static str>,
}

impl Mark {
    /// Returns the bytes to find in a file.
    pub fn bytes(&self) -> Vec<u8> {
        unveil(self.veiled)
    }
}

/// Restores bytes that [`veiled`] has complemented.
pub fn unveil(bytes: &'static [u8]) -> Vec<u8> {
    // Without the barrier the compiler may restore the bytes at build time.
    black_box(bytes).iter().map(|byte| !byte).collect()
}

/// Complements every byte.
pub const fn veiled<const N: usize>(plain: &[u8; N]) -> [u8; N] {
    let mut bytes = [0; N];
    let mut at = 0;
    while at < N {
        bytes[at] = !plain[at];
        at += 1;
    }
    bytes
}

/// Complements numbers of `width` bytes each, in little-endian order.
pub(crate) const fn veiled_numbers<const N: usize, const BYTES: usize>(plain: &[u64; N], width: usize) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut at = 0;
    while at < BYTES {
        bytes[at] = !((plain[at / width] >> (8 * (at % width))) as u8);
        at += 1;
    }
    bytes
}
