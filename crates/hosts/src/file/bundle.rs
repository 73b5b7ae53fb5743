//! The formats of packed bundles.

use std::fs::File;
use std::io::{BufReader, Read};

use flate2::bufread::MultiGzDecoder;

/// The format of a packed bundle.
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

/// Whether a gzip file holds a tar.
pub(crate) fn holds_tar(file: &mut File) -> bool {
    let mut block = [0; images::tar::BLOCK];
    let decoded = MultiGzDecoder::new(BufReader::new(file)).read_exact(&mut block);
    decoded.is_ok() && images::tar::is_header(&block) && block.iter().any(|byte| *byte != 0)
}
