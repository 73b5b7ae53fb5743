//! SHA-256 of files, as notes state it.

use sha2::{Digest, Sha256};

/// Returns the SHA-256 of bytes, in hexadecimal.
pub(super) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
