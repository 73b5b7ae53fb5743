//! Digests of blobs (OCI image-spec, descriptor.md, "Digests").

use std::fmt;
use std::io::{self, Read};

use sha2::{Digest as _, Sha256};

use crate::error::{Checked, Problem};

/// The SHA-256 of a blob.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest of these bytes.
    pub fn hash(bytes: &[u8]) -> Digest {
        Digest(Sha256::digest(bytes).into())
    }

    /// Reads `sha256:` and 64 lower-case hexadecimal digits.
    pub(crate) fn parse(text: &str) -> Checked<Digest> {
        let wrong = |what: &str| Problem::Json(format!("found the digest `{}`, {what}", shortened(text)));
        let Some(hex) = text.strip_prefix("sha256:") else {
            let known = text.starts_with("sha512:") || text.starts_with("blake3:");
            return Err(match known {
                true => Problem::Unsupported(format!("its digest `{}` is not SHA-256", shortened(text)).into()),
                false => wrong("expected `sha256:` and 64 hexadecimal digits"),
            });
        };
        Digest::of_hex(hex).ok_or_else(|| wrong("expected `sha256:` and 64 hexadecimal digits"))
    }

    /// Reads 64 lower-case hexadecimal digits.
    pub(crate) fn of_hex(hex: &str) -> Option<Digest> {
        let mut bytes = [0; 32];
        if hex.len() != 64 {
            return None;
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
            let value = |digit: u8| match digit {
                b'0'..=b'9' => Some(digit - b'0'),
                b'a'..=b'f' => Some(digit - b'a' + 10),
                _ => None,
            };
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(Digest(bytes))
    }

    /// Returns the 64 hexadecimal digits.
    pub fn hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Counts and hashes what is read.
pub(crate) struct Hashing<R> {
    inner: R,
    hash: Option<Sha256>,
    pub(crate) read: u64,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: R) -> Self {
        Hashing { inner, hash: Some(Sha256::new()), read: 0 }
    }

    /// Only counts.
    pub(crate) fn counting(inner: R) -> Self {
        Hashing { inner, hash: None, read: 0 }
    }

    /// Reads the rest, and returns the digest of everything, unless it only counted.
    pub(crate) fn finish(mut self) -> io::Result<(Option<Digest>, u64)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((self.hash.map(|hash| Digest(hash.finalize().into())), self.read))
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        if let Some(hash) = &mut self.hash {
            hash.update(&buffer[..length]);
        }
        self.read += length as u64;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_written_in_one_form() {
        let digest = Digest::hash(b"");
        let text = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(digest.to_string(), text);
        assert_eq!(Digest::parse(text).unwrap(), digest);
        for wrong in [&text[7..], &text[..70], &text.to_uppercase(), "sha256:", "", "sha256:../../../etc/passwd"] {
            assert!(matches!(Digest::parse(wrong), Err(Problem::Json(_))), "{wrong}");
        }
        assert!(matches!(Digest::parse("sha512:00"), Err(Problem::Unsupported(_))));
    }

    #[test]
    fn what_is_read_is_hashed_to_its_end() {
        let mut reader = Hashing::new(&b"some bytes"[..]);
        reader.read_exact(&mut [0; 4]).unwrap();
        assert_eq!(reader.finish().unwrap(), (Some(Digest::hash(b"some bytes")), 10));
    }
}
