//! gzip, compressed on all processors: one member (RFC 1952) whose blocks end on byte boundaries, so that each can be
//! made by itself. The bytes do not depend on the number of processors.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::num::NonZero;
use std::thread::{self, JoinHandle};

use flate2::{Compress, Compression, Crc, FlushCompress};

/// The bytes in a block. No block refers back into an earlier one, which at this size makes the result some thousandths
/// larger.
const BLOCK: usize = 512 << 10;

/// gzip's own default.
const LEVEL: u32 = 6;

/// Magic, deflate, no flags, no time, no hint at the level, Unix. (RFC 1952, 2.3.)
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];

/// An empty last block in the fixed code. (RFC 1951, 3.2.3.)
const LAST_BLOCK: [u8; 2] = [3, 0];

/// A block that a thread is compressing, with the checksum of its plain bytes.
type Block = JoinHandle<io::Result<(Vec<u8>, Crc)>>;

/// A writer that compresses into `out`.
pub(super) struct ParallelGzip<W: Write> {
    out: W,
    gathered: Vec<u8>,
    /// Blocks that are being compressed, oldest first.
    under_way: VecDeque<Block>,
    most_under_way: usize,
    crc: Crc,
}

impl<W: Write> ParallelGzip<W> {
    pub(super) fn new(out: W) -> io::Result<Self> {
        Self::with_threads(out, thread::available_parallelism().map_or(1, NonZero::get).min(64))
    }

    fn with_threads(mut out: W, count: usize) -> io::Result<Self> {
        out.write_all(&HEADER)?;
        let (gathered, under_way) = (Vec::with_capacity(BLOCK), VecDeque::new());
        // The oldest block is waited for, so a few more keep every processor busy.
        Ok(ParallelGzip { out, gathered, under_way, most_under_way: 2 * count, crc: Crc::new() })
    }

    fn start_block(&mut self) -> io::Result<()> {
        let plain = std::mem::replace(&mut self.gathered, Vec::with_capacity(BLOCK));
        let thread = thread::Builder::new().name("deflate".to_owned());
        self.under_way.push_back(thread.spawn(move || {
            let mut crc = Crc::new();
            crc.update(&plain);
            Ok((deflate(&plain)?, crc))
        })?);
        while self.under_way.len() > self.most_under_way {
            self.write_block()?;
        }
        Ok(())
    }

    /// Waits for the oldest block and writes it.
    fn write_block(&mut self) -> io::Result<()> {
        let Some(block) = self.under_way.pop_front() else { return Ok(()) };
        let (deflated, crc) = block.join().map_err(|_| io::Error::other("a thread that compresses has ended"))??;
        self.crc.combine(&crc);
        self.out.write_all(&deflated)
    }

    /// Writes the rest of the data and the end of the file.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if !self.gathered.is_empty() {
            self.start_block()?;
        }
        while !self.under_way.is_empty() {
            self.write_block()?;
        }
        self.out.write_all(&LAST_BLOCK)?;
        // RFC 1952, 2.3.1: CRC32, then the size modulo 2^32.
        self.out.write_all(&self.crc.sum().to_le_bytes())?;
        self.out.write_all(&self.crc.amount().to_le_bytes())?;
        self.out.flush()
    }
}

impl<W: Write> Write for ParallelGzip<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(BLOCK - self.gathered.len());
        self.gathered.extend_from_slice(&bytes[..taken]);
        if self.gathered.len() == BLOCK {
            self.start_block()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compresses `plain` to deflate blocks that end on a byte boundary, without the mark of a last block.
fn deflate(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut compress = Compress::new(Compression::new(LEVEL), false);
    // Incompressible bytes grow by five for each 16 KiB or so.
    let mut out = Vec::with_capacity(plain.len() + plain.len() / 1000 + 256);
    loop {
        let done = usize::try_from(compress.total_in()).unwrap_or(usize::MAX).min(plain.len());
        compress.compress_vec(&plain[done..], &mut out, FlushCompress::Sync).map_err(io::Error::other)?;
        if compress.total_in() == plain.len() as u64 && out.len() < out.capacity() {
            return Ok(out);
        }
        out.reserve(plain.len() / 8 + 256);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn packed(plain: &[u8], threads: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let mut gzip = ParallelGzip::with_threads(&mut out, threads).unwrap();
        gzip.write_all(plain).unwrap();
        gzip.finish().unwrap();
        out
    }

    fn noise(length: usize) -> Vec<u8> {
        let mut state = 88_172_645_463_325_252_u64;
        let mut step = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        (0..length).map(|_| step() as u8).collect()
    }

    #[test]
    fn what_goes_in_comes_out_whatever_the_number_of_threads() {
        let text: Vec<u8> = (0..3_000_000_u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        for plain in [&[][..], b"a", &text[..BLOCK], &text[..BLOCK + 1], &text, &noise(2 * BLOCK + 12_345)] {
            let one = packed(plain, 1);
            assert!(one == packed(plain, 5));
            let mut out = Vec::new();
            // One member, and no bytes after it.
            let mut decoder = flate2::bufread::GzDecoder::new(&one[..]);
            decoder.read_to_end(&mut out).unwrap();
            assert!(out == plain && decoder.into_inner().is_empty());
        }
        assert!(packed(&text, 2).len() < text.len() / 3);
    }

    #[test]
    fn a_full_disk_is_an_error_and_no_hang() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                self.0 += bytes.len();
                if self.0 > 100_000 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut gzip = ParallelGzip::with_threads(Full(0), 3).unwrap();
        let result = gzip.write_all(&noise(20 * BLOCK));
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
