//! tar, copied block for block: only edited files get a new header and content.
//!
//! (POSIX.1-2024, pax; GNU tar manual, "Basic Tar Format".)

use std::io::{self, Read, Write};

use ::tar::Header;
use images::tar::{self, BLOCK, Kind, Next, RawEntry};

use super::entry::plain_name;
use super::{CopyError, Editor, shown};
use crate::error::packed::PackedError;

/// tar writes this many bytes at a time, and pads the end of the archive to a multiple of it. (GNU tar: 20 blocks.)
const RECORD: u64 = 20 * BLOCK as u64;
/// The maximum of zeros at the end.
const MOST_REST: u64 = 1 << 20;

/// Copies a tar from `reader` to `writer`, with the changes of `editor`.
pub(super) fn copy(reader: &mut dyn Read, writer: &mut dyn Write, editor: &mut Editor<'_>) -> Result<(), CopyError> {
    let mut copy = Copy { reader, writer, editor, read: 0, written: 0, buffer: vec![0; 128 << 10] };
    loop {
        match tar::next(copy.reader, &mut copy.read)? {
            Next::Entry(entry) => copy.entry(&entry)?,
            Next::End(blocks) => {
                let (extensions, end) = blocks.split_at(blocks.len() - BLOCK);
                copy.write(extensions)?;
                return copy.rest(end);
            }
        }
    }
}

struct Copy<'a, 'e> {
    reader: &'a mut dyn Read,
    writer: &'a mut dyn Write,
    editor: &'a mut Editor<'e>,
    read: u64,
    written: u64,
    buffer: Vec<u8>,
}

impl Copy<'_, '_> {
    fn fill(&mut self, buffer: &mut [u8], missing: &str) -> Result<(), CopyError> {
        self.reader.read_exact(buffer).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => PackedError::Truncated(missing.to_owned()).into(),
            _ => CopyError::reading(error),
        })?;
        self.read += buffer.len() as u64;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), CopyError> {
        self.written += bytes.len() as u64;
        self.writer.write_all(bytes).map_err(CopyError::Write)
    }

    fn content(&mut self, size: u64) -> Result<Vec<u8>, CopyError> {
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX).next_multiple_of(BLOCK)];
        self.fill(&mut bytes, "an entry's content is missing")?;
        Ok(bytes)
    }

    fn entry(&mut self, entry: &RawEntry) -> Result<(), CopyError> {
        let named = |problem: PackedError| CopyError::Packed { entry: Some(shown(&entry.name)), problem };
        let name = plain_name(&entry.name).map_err(named)?;
        let kind = match &entry.kind {
            Kind::HardLink(of) => Kind::HardLink(plain_name(of).map_err(named)?),
            other => other.clone(),
        };
        let size = entry.size;
        if name.is_empty() && kind != Kind::Folder {
            return Err(named(PackedError::Name("is empty")));
        }
        if !name.is_empty() {
            self.editor.entries.enter(&name, kind.clone()).map_err(named)?;
        }
        if kind == Kind::File
            && let Some(limit) = (self.editor.wants)(&name)
        {
            PackedError::at_most("the file", size, "bytes", limit).map_err(named)?;
            return self.edited(entry, &name);
        }
        self.write(&entry.extensions)?;
        self.write(&entry.header)?;
        let mut left = size.next_multiple_of(BLOCK as u64);
        let mut buffer = std::mem::take(&mut self.buffer);
        while left > 0 {
            let length = left.min(buffer.len() as u64) as usize;
            self.fill(&mut buffer[..length], "an entry's content is missing")?;
            self.write(&buffer[..length])?;
            left -= length as u64;
        }
        self.buffer = buffer;
        Ok(())
    }

    fn edited(&mut self, entry: &RawEntry, name: &[u8]) -> Result<(), CopyError> {
        let mut bytes = self.content(entry.size)?;
        bytes.truncate(entry.size as usize);
        let edited = (self.editor.edit)(name, &bytes)?;
        self.write(&entry.extensions)?;
        let mut header = Header::from_byte_slice(&entry.header).clone();
        let bytes = match &edited {
            None => &bytes,
            Some(_) if entry.has_extended_size => {
                let problem = PackedError::Unsupported("the file's size is in a header of an extension".into());
                return Err(CopyError::Packed { entry: Some(shown(name)), problem });
            }
            Some(graft) => {
                header.set_size(graft.bytes().len() as u64);
                header.set_cksum();
                graft.bytes()
            }
        };
        self.write(header.as_bytes())?;
        self.write(bytes)?;
        let padding = bytes.len().next_multiple_of(BLOCK) - bytes.len();
        self.write(&[0; BLOCK][..padding])
    }

    /// Copies the end, from the first block of zeros on. If the stock tar ends at a record's end, so does the copy.
    fn rest(&mut self, first: &[u8]) -> Result<(), CopyError> {
        let start = self.read - BLOCK as u64;
        let mut held = first.to_vec();
        loop {
            let length = self.reader.read(&mut self.buffer).map_err(CopyError::reading)?;
            if length == 0 {
                break;
            }
            self.read += length as u64;
            if self.buffer[..length].iter().any(|byte| *byte != 0) {
                return Err(PackedError::Damaged(format!("something follows the end mark at offset {start}")).into());
            }
            if held.len() as u64 + length as u64 > MOST_REST {
                return Err(PackedError::Unsupported("its end is filled with a lot of zeros".into()).into());
            }
            held.extend_from_slice(&self.buffer[..length]);
        }
        if held.len() >= 2 * BLOCK && self.read.is_multiple_of(RECORD) {
            let end = (self.written + 2 * BLOCK as u64).next_multiple_of(RECORD);
            held = vec![0; (end - self.written) as usize];
        }
        self.write(&held)
    }
}
