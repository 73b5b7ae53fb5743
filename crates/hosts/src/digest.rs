//! SHA-256 of a file's bytes, in the lower-case hexadecimal form that records and reports use.

use std::fs::File;
use std::io::{self, Read, Seek};

use sha2::{Digest, Sha256};

/// The SHA-256 of `bytes`: 64 lower-case hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    text(Sha256::new_with_prefix(bytes))
}

/// The SHA-256 of `bytes`, as 32 bytes.
pub(crate) fn raw(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// The SHA-256 of a file's content. The memory that this takes does not grow with the file.
pub(crate) fn of_file(mut file: &File) -> io::Result<String> {
    file.rewind()?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(text(hash)),
            length => hash.update(&buffer[..length]),
        }
    }
}

/// A finished hash as 64 lower-case hexadecimal digits.
pub(crate) fn text(hash: Sha256) -> String {
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
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
