//! The limit on the unpacked size of a bundle, against decompression bombs.

use std::cell::Cell;

use crate::error::packed::PackedError;

/// A count of the bytes that a bundle has unpacked to. The limit is a gigabyte or a hundred times the packed bytes,
/// whichever is larger. SDKs unpack to four or five times their size.
#[derive(Debug, Default)]
pub(super) struct UnpackedSize {
    unpacked: Cell<u64>,
}

pub(super) const ALWAYS_TAKEN: u64 = 1 << 30;
const MOST_RATIO: u64 = 100;

impl UnpackedSize {
    /// Counts `bytes` more. `packed`: all packed bytes read so far.
    ///
    /// # Errors
    /// The count is over the limit.
    pub(super) fn take(&self, bytes: u64, packed: u64) -> Result<(), PackedError> {
        let found = self.unpacked.get().saturating_add(bytes);
        self.unpacked.set(found);
        let limit = packed.saturating_mul(MOST_RATIO).max(ALWAYS_TAKEN);
        PackedError::at_most("what it unpacks to", found, "bytes so far", limit)
    }
}
