//! gzip, compressed on all processors: one member (RFC 1952) whose blocks end on byte boundaries, so that each can be
//! made by itself. The bytes do not depend on the number of processors.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::num::NonZero;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use flate2::{Compress, Compression, Crc, FlushCompress};

/// Bytes that are compressed at a time. Nothing refers back from one block into another, which at this size costs some
/// thousandths.
const BLOCK: usize = 512 << 10;

/// gzip's own default.
const LEVEL: u32 = 6;

/// Magic, deflate, no flags, no time, no hint at the level, Unix. (RFC 1952, 2.3.)
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];

/// An empty last block in the fixed code. (RFC 1951, 3.2.3.)
const LAST_BLOCK: [u8; 2] = [3, 0];

struct Job {
    plain: Vec<u8>,
    reply: Sender<io::Result<Block>>,
}

struct Block {
    deflated: Vec<u8>,
    crc: Crc,
}

/// Compresses what is written to it into `out`.
pub(super) struct ParallelGzip<W: Write> {
    out: W,
    gathered: Vec<u8>,
    jobs: Option<Sender<Job>>,
    under_way: VecDeque<Receiver<io::Result<Block>>>,
    most_under_way: usize,
    threads: Vec<JoinHandle<()>>,
    crc: Crc,
}

impl<W: Write> ParallelGzip<W> {
    pub(super) fn new(out: W) -> io::Result<Self> {
        Self::with_threads(out, thread::available_parallelism().map_or(1, NonZero::get).min(64))
    }

    fn with_threads(mut out: W, count: usize) -> io::Result<Self> {
        out.write_all(&HEADER)?;
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        let mut threads = Vec::new();
        for _ in 0..count {
            let queue = Arc::clone(&queue);
            threads.push(thread::Builder::new().name("deflate".to_owned()).spawn(move || work(&queue))?);
        }
        Ok(ParallelGzip {
            out,
            gathered: Vec::with_capacity(BLOCK),
            jobs: Some(jobs),
            under_way: VecDeque::new(),
            most_under_way: 2 * count,
            threads,
            crc: Crc::new(),
        })
    }

    fn hand_over(&mut self) -> io::Result<()> {
        let plain = std::mem::replace(&mut self.gathered, Vec::with_capacity(BLOCK));
        let (reply, receiver) = mpsc::channel();
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(Job { plain, reply }).is_ok());
        if !sent {
            return Err(lost());
        }
        self.under_way.push_back(receiver);
        while self.under_way.len() > self.most_under_way {
            self.take_in()?;
        }
        Ok(())
    }

    /// Waits for the oldest block and writes it.
    fn take_in(&mut self) -> io::Result<()> {
        let Some(receiver) = self.under_way.pop_front() else { return Ok(()) };
        let block = receiver.recv().map_err(|_| lost())??;
        self.crc.combine(&block.crc);
        self.out.write_all(&block.deflated)
    }

    /// Writes what is left and the end of the file.
    pub(super) fn finish(mut self) -> io::Result<()> {
        if !self.gathered.is_empty() {
            self.hand_over()?;
        }
        while !self.under_way.is_empty() {
            self.take_in()?;
        }
        self.out.write_all(&LAST_BLOCK)?;
        // RFC 1952, 2.3.1: CRC32, then the size modulo 2^32.
        self.out.write_all(&self.crc.sum().to_le_bytes())?;
        self.out.write_all(&self.crc.amount().to_le_bytes())?;
        self.out.flush()
    }
}

fn lost() -> io::Error {
    io::Error::other("a thread that compresses has ended")
}

impl<W: Write> Write for ParallelGzip<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(BLOCK - self.gathered.len());
        self.gathered.extend_from_slice(&bytes[..taken]);
        if self.gathered.len() == BLOCK {
            self.hand_over()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> Drop for ParallelGzip<W> {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            // Whoever waited for its block has been told.
            let _ = thread.join();
        }
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    let mut compress = Compress::new(Compression::new(LEVEL), false);
    loop {
        let job = match queue.lock() {
            Ok(queue) => queue.recv(),
            Err(_) => return,
        };
        let Ok(Job { plain, reply }) = job else { return };
        compress.reset();
        let mut crc = Crc::new();
        crc.update(&plain);
        let block = deflate(&mut compress, &plain).map(|deflated| Block { deflated, crc });
        // Nobody waits any more when the whole has failed.
        let _ = reply.send(block);
    }
}

/// `plain` as deflate blocks that end on a byte boundary, the last of which is not marked as such.
fn deflate(compress: &mut Compress, plain: &[u8]) -> io::Result<Vec<u8>> {
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
            // One member, and nothing behind it.
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
