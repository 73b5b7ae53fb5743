//! Files that are kept compressed in a program.

use std::io::{self, Read, Write};
use std::sync::OnceLock;

use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;

/// A file that a build has compressed by [`Compressed::of`]. It is decompressed when it is first asked for.
#[derive(Debug)]
pub struct Compressed {
    compressed: &'static [u8],
    bytes: OnceLock<Vec<u8>>,
}

impl Compressed {
    /// Takes the compressed bytes (zlib, RFC 1950).
    pub const fn new(compressed: &'static [u8]) -> Compressed {
        Compressed { compressed, bytes: OnceLock::new() }
    }

    /// Returns the file. It is empty if the compressed bytes are damaged, which the tests of whoever embeds them rule
    /// out.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get_or_init(|| {
            let mut bytes = Vec::new();
            match ZlibDecoder::new(self.compressed).read_to_end(&mut bytes) {
                Ok(_) => bytes,
                Err(_) => Vec::new(),
            }
        })
    }

    /// Compresses a file as well as zlib can.
    ///
    /// # Errors
    /// Those of memory.
    pub fn of(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes)?;
        encoder.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_back() {
        let file: Vec<u8> = (0..100_000u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        let compressed = Compressed::of(&file).unwrap();
        assert!(compressed.len() * 3 < file.len());
        assert_eq!(Compressed::new(compressed.leak()).bytes(), file);
        assert_eq!(Compressed::new(b"no zlib").bytes(), b"");
    }
}
