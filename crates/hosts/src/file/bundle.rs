//! How a bundle is packed.

use std::fs::File;
use std::io::{BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use tar::Header;

use crate::error::packed::PackedError;

/// The size of a tar's blocks.
pub(crate) const BLOCK: usize = 512;

/// How a bundle is packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A tar, compressed by gzip.
    TarGz,
    /// A zip.
    Zip,
}

impl Format {
    /// The file name ending, which `swift sdk install` requires.
    pub fn ending(self) -> &'static str {
        match self {
            Format::TarGz => ".tar.gz",
            Format::Zip => ".zip",
        }
    }
}

/// Whether a file that starts as gzip does holds a tar.
pub(crate) fn holds_tar(file: &mut File) -> bool {
    let mut block = [0; BLOCK];
    let decoded = MultiGzDecoder::new(BufReader::new(file)).read_exact(&mut block);
    decoded.is_ok() && checked_header(&block, 0).is_ok()
}

/// Reads a tar's header, which is at `offset`.
///
/// # Errors
/// It does not have its checksum.
pub(crate) fn checked_header(block: &[u8; BLOCK], offset: u64) -> Result<&Header, PackedError> {
    let header = Header::from_byte_slice(block);
    let field = 148..156;
    let sum = |(at, byte): (usize, &u8)| u32::from(if field.contains(&at) { b' ' } else { *byte });
    let expected: u32 = block.iter().enumerate().map(sum).sum();
    match header.cksum() {
        Ok(found) if found == expected => Ok(header),
        _ => Err(PackedError::Damaged(format!("the tar header at offset {offset} does not have its checksum"))),
    }
}
