//! SHA-256 of a file's bytes, in the lower-case hexadecimal form that records and reports use.

use sha2::{Digest, Sha256};

/// The SHA-256 of `bytes`: 64 lower-case hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_answer() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(super::sha256(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
