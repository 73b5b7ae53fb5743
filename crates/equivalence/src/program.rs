//! The parts of a program that a proof reads.

use std::fmt;

use format::Arch;

/// A program in memory, before it runs.
pub trait Program: fmt::Debug {
    /// Its architecture.
    fn arch(&self) -> Arch;

    /// The bytes of its code from an address on, to the end of the segment; empty if there is no code.
    fn code(&self, address: u64) -> &[u8];

    /// Bytes that do not change while the program runs; `None` if the address has none, or if the program may write to
    /// them.
    fn constant(&self, address: u64, size: usize) -> Option<&[u8]>;
}
