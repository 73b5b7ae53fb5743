//! How much a bundle may unpack to.

use std::cell::Cell;

use crate::error::packed::PackedError;

/// The bytes that a bundle has unpacked to, as long as they are in proportion: a gigabyte whatever it comes from, or a
/// hundred times the packed bytes. SDKs unpack to four or five times their size.
#[derive(Debug, Default)]
pub(super) struct UnpackedSize {
    unpacked: Cell<u64>,
}

pub(super) const ALWAYS_TAKEN: u64 = 1 << 30;
const MOST_RATIO: u64 = 100;

impl UnpackedSize {
    /// Counts `bytes` more, that come out of `packed` bytes with all before them.
    ///
    /// # Errors
    /// When that is out of proportion.
    pub(super) fn take(&self, bytes: u64, packed: u64) -> Result<(), PackedError> {
        let found = self.unpacked.get().saturating_add(bytes);
        self.unpacked.set(found);
        let limit = packed.saturating_mul(MOST_RATIO).max(ALWAYS_TAKEN);
        PackedError::at_most("what it unpacks to", found, "bytes so far", limit)
    }
}
