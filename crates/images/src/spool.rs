//! The kept contents, one behind the other in one temporary file. The file has no name, so that it cannot be left
//! behind.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::FileExt;

use crate::error::{Checked, Problem};

/// A part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// A spool that is written.
pub(crate) struct Spooling {
    file: BufWriter<File>,
    written: u64,
}

impl Spooling {
    pub(crate) fn new() -> Checked<Spooling> {
        let file = tempfile::tempfile().map_err(writing)?;
        Ok(Spooling { file: BufWriter::with_capacity(256 << 10, file), written: 0 })
    }

    /// The offset of the next write.
    pub(crate) fn place(&self) -> u64 {
        self.written
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> Checked<()> {
        self.file.write_all(bytes).map_err(writing)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    pub(crate) fn finish(self) -> Checked<Spool> {
        let file = self.file.into_inner().map_err(|error| writing(error.into_error()))?;
        Ok(Spool { file })
    }
}

fn writing(source: io::Error) -> Problem {
    Problem::Io { action: "write the temporary file for", source }
}

/// A spool to read.
#[derive(Debug)]
pub(crate) struct Spool {
    file: File,
}

impl Spool {
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn into_file(self) -> File {
        self.file
    }

    pub(crate) fn read(&self, part: Part) -> Checked<Vec<u8>> {
        let room = usize::try_from(part.size).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(room).map_err(|_| Problem::Io {
            action: "read",
            source: io::Error::other(format!("there is no memory for its {} bytes", part.size)),
        })?;
        bytes.resize(room, 0);
        self.file.read_exact_at(&mut bytes, part.offset).map_err(|source| Problem::Io { action: "read", source })?;
        Ok(bytes)
    }
}

/// Reads a part of a file from its start on.
#[derive(Debug)]
pub(crate) struct Range<'f> {
    file: &'f File,
    at: u64,
    end: u64,
}

impl<'f> Range<'f> {
    pub(crate) fn new(file: &'f File, part: Part) -> Range<'f> {
        Range { file, at: part.offset, end: part.offset.saturating_add(part.size) }
    }

    /// Passes over some bytes; `false` if there are fewer.
    pub(crate) fn pass(&mut self, bytes: u64) -> bool {
        let fits = bytes <= self.end - self.at;
        self.at += if fits { bytes } else { self.end - self.at };
        fits
    }
}

impl Read for Range<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let room = usize::try_from(self.end - self.at).unwrap_or(usize::MAX).min(buffer.len());
        let length = self.file.read_at(&mut buffer[..room], self.at)?;
        self.at += length as u64;
        Ok(length)
    }
}
