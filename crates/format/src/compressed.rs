//! Files that are kept compressed in a program.

use std::io::{self, Read, Write};
use std::sync::OnceLock;

use lzma_rust2::{LzmaOptions, LzmaReader, LzmaWriter};

/// The effort, from 0 to 9. For files below its dictionary of 8 MiB, 6 compresses as well as 9.
const PRESET: u32 = 6;
/// The least and the greatest dictionary.
const SMALLEST: u32 = 4096;
const LARGEST: u32 = 8 << 20;
/// The memory that decompressing may take, in KiB: the dictionary, and tables.
const MEMORY_KIB: u32 = 16 << 10;

/// A file that a build has compressed by [`Compressed::compress`]. It is decompressed on first use.
#[derive(Debug)]
pub struct Compressed {
    compressed: &'static [u8],
    /// A similar file, which the compressed bytes refer to.
    like: Option<&'static Compressed>,
    /// Whether the bytes are the file's own.
    is_plain: bool,
    bytes: OnceLock<Vec<u8>>,
}

impl Compressed {
    /// Takes the compressed bytes (LZMA, with its header of 13 bytes).
    pub const fn new(compressed: &'static [u8]) -> Compressed {
        Compressed { compressed, like: None, is_plain: false, bytes: OnceLock::new() }
    }

    /// Takes the file itself: an unoptimised program would decompress it for longer than it does its work.
    pub const fn plain(bytes: &'static [u8]) -> Compressed {
        Compressed { compressed: bytes, like: None, is_plain: true, bytes: OnceLock::new() }
    }

    /// Takes the compressed bytes of a file, and the file `like` that they refer to.
    pub const fn like(like: &'static Compressed, compressed: &'static [u8]) -> Compressed {
        Compressed { compressed, like: Some(like), is_plain: false, bytes: OnceLock::new() }
    }

    /// Returns the file. It is empty if the compressed bytes are damaged, which the tests of the embedding crates rule
    /// out.
    pub fn bytes(&self) -> &[u8] {
        if self.is_plain {
            return self.compressed;
        }
        let decompressed = || Compressed::decompress(self.compressed, self.like.map(Compressed::bytes));
        self.bytes.get_or_init(|| decompressed().unwrap_or_default())
    }

    /// Decompresses a file that [`Compressed::compress`] has compressed, with the same `like`.
    ///
    /// # Errors
    /// The bytes are damaged.
    pub fn decompress(compressed: &[u8], like: Option<&[u8]>) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        LzmaReader::new_mem_limit(compressed, MEMORY_KIB, like)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Compresses a file: object code to about a quarter, which is a fifth less than with zlib. Parts that the similar
    /// file `like` also has are written as references to it.
    ///
    /// # Errors
    /// Those of memory.
    pub fn compress(bytes: &[u8], like: Option<&[u8]>) -> io::Result<Vec<u8>> {
        let mut options = LzmaOptions::with_preset(PRESET);
        // The decoder allocates a dictionary of this size, however small the file is.
        let reach = bytes.len() + like.map_or(0, <[u8]>::len);
        options.dict_size = u32::try_from(reach).unwrap_or(u32::MAX).clamp(SMALLEST, LARGEST);
        options.preset_dict = like.map(<[u8]>::to_vec);
        // The writer refuses to write a header if there is a dictionary, but the reader accepts one.
        let mut compressed = vec![options.get_props()];
        compressed.extend(options.dict_size.to_le_bytes());
        compressed.extend((bytes.len() as u64).to_le_bytes());
        let mut writer = LzmaWriter::new_no_header(compressed, &options, false)?;
        writer.write_all(bytes)?;
        writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_back() {
        let file: Vec<u8> = (0..100_000u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        let compressed = Compressed::compress(&file, None).unwrap();
        assert!(compressed.len() * 3 < file.len());
        assert_eq!(Compressed::new(compressed.leak()).bytes(), file);
        assert_eq!(Compressed::plain(b"no LZMA").bytes(), b"no LZMA");
        assert_eq!(Compressed::new(b"no LZMA").bytes(), b"");
    }

    #[test]
    fn a_file_like_another_takes_little() {
        let noise =
            |seed: u64| (0..50_000_u64).map(move |n| ((n ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8);
        let first: Vec<u8> = noise(7).collect();
        let second: Vec<u8> = b"new".iter().copied().chain(noise(7).skip(10)).collect();
        let alone = Compressed::compress(&second, None).unwrap();
        let like = Compressed::compress(&second, Some(&first)).unwrap();
        assert!(like.len() * 10 < alone.len(), "{} and {}", like.len(), alone.len());
        static EMPTY: Compressed = Compressed::new(b"");
        let first: &'static Compressed =
            Box::leak(Box::new(Compressed::new(Compressed::compress(&first, None).unwrap().leak())));
        let like: &'static [u8] = like.leak();
        assert_eq!(Compressed::like(first, like).bytes(), second);
        assert_ne!(Compressed::like(&EMPTY, like).bytes(), second);
    }
}
