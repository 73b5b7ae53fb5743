//! What a proof reads of a program.

use std::fmt;

use format::Arch;

/// A program as it lies in memory when it is loaded.
pub trait Program: fmt::Debug {
    /// What it is for.
    fn arch(&self) -> Arch;

    /// The bytes of its code from an address on, to the end of the segment; empty where there is no code.
    fn code(&self, address: u64) -> &[u8];

    /// Bytes that stay what they are while it runs; `None` where there are none, or where it may write.
    fn constant(&self, address: u64, size: usize) -> Option<&[u8]>;
}
