//! The compressions of layers, archives and packages, recognised by their first bytes.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::MultiGzDecoder;
use lzma_rust2::XzReader;
use ruzstd::decoding::FrameDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};

/// The memory that an xz stream may ask for, in KiB. `xz -9` asks for 64 MiB.
const MOST_XZ_MEMORY: u32 = 256 << 10;
/// The size of one read, in bytes.
const BUFFER: usize = 256 << 10;

/// The compression of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compression {
    /// Not compressed.
    Plain,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// The .xz file format.
    Xz,
}

impl Compression {
    /// Returns the compression of a stream that starts with these bytes; six are enough.
    pub(crate) fn recognise(start: &[u8]) -> Compression {
        match start {
            [0x1f, 0x8b, ..] => Compression::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Compression::Zstd,
            // A skippable frame (RFC 8878, 3.1.2), as seekable zstd may start with one.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Compression::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Compression::Xz,
            _ => Compression::Plain,
        }
    }
}

/// Returns a reader of a stream's uncompressed content, and the stream's compression.
///
/// # Errors
///
/// It cannot be read.
pub(crate) fn unpacked<'r>(source: impl Read + 'r) -> io::Result<(Compression, Box<dyn Read + 'r>)> {
    let mut source = BufReader::with_capacity(BUFFER, source);
    let compression = Compression::recognise(source.fill_buf()?);
    Ok((
        compression,
        match compression {
            Compression::Plain => Box::new(source),
            Compression::Gzip => Box::new(MultiGzDecoder::new(source)),
            Compression::Zstd => Box::new(Zstd::new(source)),
            Compression::Xz => Box::new(XzReader::new_mem_limit(source, true, MOST_XZ_MEMORY)),
        },
    ))
}

/// The frames of a zstd stream one after the other, without those that are skipped.
struct Zstd<R> {
    source: R,
    frame: FrameDecoder,
    inside: bool,
}

impl<R: BufRead> Zstd<R> {
    fn new(source: R) -> Self {
        Zstd { source, frame: FrameDecoder::new(), inside: false }
    }

    /// Begins the next frame; `false` at the end.
    fn next(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.frame.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    let skipped = io::copy(&mut self.source.by_ref().take(length.into()), &mut io::sink())?;
                    if skipped < length.into() {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(damaged(error)),
            }
        }
        Ok(false)
    }
}

fn damaged(error: FrameDecoderError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("as zstd: {error}"))
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.inside {
                // Whole blocks come out, of at most 128 KiB.
                while self.frame.can_collect() == 0 && !self.frame.is_finished() {
                    let block = ruzstd::decoding::BlockDecodingStrategy::UptoBlocks(1);
                    self.frame.decode_blocks(&mut self.source, block).map_err(damaged)?;
                }
                let length = self.frame.read(buffer)?;
                if length > 0 || buffer.is_empty() {
                    return Ok(length);
                }
                let (found, expected) = (self.frame.get_calculated_checksum(), self.frame.get_checksum_from_data());
                if expected.is_some() && found != expected {
                    return Err(io::Error::new(io::ErrorKind::InvalidData, "as zstd: a frame has another checksum"));
                }
                self.inside = false;
            }
            if !self.next()? {
                return Ok(0);
            }
            self.inside = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        unpacked(bytes)?.1.read_to_end(&mut plain)?;
        Ok(plain)
    }

    #[test]
    fn frames_follow_each_other_and_some_are_skipped() {
        let frame = |bytes: &[u8]| compress_to_vec(bytes, CompressionLevel::Fastest);
        let large: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
        let skipped = [&[0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0][..], b"xyz"].concat();
        let whole = [&skipped[..], &frame(b"one "), &frame(&large), &skipped, &frame(b""), &frame(b" two")].concat();
        assert!(read(&whole).unwrap() == [&b"one "[..], &large, b" two"].concat());
        for cut in [whole.len() - 1, whole.len() / 2, skipped.len() - 1, skipped.len() + 7] {
            assert!(read(&whole[..cut]).is_err(), "{cut}");
        }
        assert!(read(&[&frame(b"one")[..], b"more"].concat()).is_err());
    }

    #[test]
    fn a_damaged_frame_is_an_error() {
        let text = "some text that is compressed ".repeat(1000);
        let whole = compress_to_vec(text.as_bytes(), CompressionLevel::Fastest);
        assert_eq!(read(&whole).unwrap(), text.as_bytes());
        let mut damaged = whole.clone();
        let last = damaged.len() - 1;
        damaged[last] ^= 1;
        assert!(read(&damaged).is_err());
    }
}
