//! tar, copied block for block: every entry's header and content as it is, but for the files that are edited.
//!
//! (POSIX.1-2024, pax; GNU tar manual, "Basic Tar Format".)

use std::io::{self, Read, Write};

use tar::Header;

use super::entry::{Kind, plain_name};
use super::{CopyError, Editor, shown};
use crate::error::packed::PackedError;
use crate::file::bundle::{BLOCK, checked_header};

/// tar writes so many bytes at a time; the end of the archive is filled up to that. (GNU tar: 20 blocks.)
const RECORD: u64 = 20 * BLOCK as u64;
/// A long name, or what pax says of one entry.
const MOST_EXTENDED: u64 = 1 << 20;

/// The fields that extension headers set for the next entry.
#[derive(Default)]
struct Extended {
    /// These headers with their content, as they were read.
    raw: Vec<u8>,
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
}

/// Reads a tar from `reader` and writes it to `writer`, with the files that `editor` wants as it wants them.
pub(super) fn copy(reader: &mut dyn Read, writer: &mut dyn Write, editor: &mut Editor<'_>) -> Result<(), CopyError> {
    let mut copy = Copy { reader, writer, editor, read: 0, written: 0, buffer: vec![0; 128 << 10] };
    let mut extended = Extended::default();
    loop {
        let mut block = [0; BLOCK];
        copy.fill(&mut block, "there is no end mark")?;
        if block.iter().all(|byte| *byte == 0) {
            if !extended.raw.is_empty() {
                return Err(PackedError::Damaged("a header of an extension that no entry follows".to_owned()).into());
            }
            return copy.rest(&block);
        }
        let header = checked_header(&block, copy.read - BLOCK as u64)?;
        let size = header.entry_size().map_err(|_| damaged_at("a size", copy.read - BLOCK as u64))?;
        match header.as_bytes()[156] {
            b'x' | b'L' | b'K' => copy.extension(header, size, &mut extended)?,
            b'g' => {
                let mut raw = Extended::default();
                copy.extension(header, size, &mut raw)?;
                if raw.name.is_some() || raw.link.is_some() || raw.size.is_some() {
                    return Err(PackedError::Unsupported("one name or size for all entries").into());
                }
                copy.write(&raw.raw)?;
            }
            _ => copy.entry(header, size, std::mem::take(&mut extended))?,
        }
    }
}

fn damaged_at(what: &str, offset: u64) -> PackedError {
    PackedError::Damaged(format!("{what} in the tar header at offset {offset} is no number"))
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

    fn extension(&mut self, header: &Header, size: u64, extended: &mut Extended) -> Result<(), CopyError> {
        PackedError::at_most("a header of an extension", size, "bytes", MOST_EXTENDED)?;
        let padded = self.content(size)?;
        extended.raw.extend_from_slice(header.as_bytes());
        extended.raw.extend_from_slice(&padded);
        let length = extended.raw.len() as u64;
        PackedError::at_most("what extensions say of one entry", length, "bytes", 4 * MOST_EXTENDED)?;
        let content = &padded[..size as usize];
        let to_zero = || content.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        match header.as_bytes()[156] {
            b'L' => extended.name = Some(to_zero()),
            b'K' => extended.link = Some(to_zero()),
            _ => pax(content, extended)?,
        }
        Ok(())
    }

    fn entry(&mut self, header: &Header, size: u64, extended: Extended) -> Result<(), CopyError> {
        let whole_name = extended.name.clone().unwrap_or_else(|| header.path_bytes().into_owned());
        let named = |problem: PackedError| CopyError::Packed { entry: Some(shown(&whole_name)), problem };
        let name = plain_name(&whole_name).map_err(named)?;
        let target = || match &extended.link {
            Some(link) => link.clone(),
            None => header.link_name_bytes().map(|name| name.into_owned()).unwrap_or_default(),
        };
        let kind = match header.as_bytes()[156] {
            b'0' | b'7' | 0 if whole_name.ends_with(b"/") => Kind::Folder,
            b'0' | b'7' | 0 => Kind::File,
            b'1' => Kind::HardLink(plain_name(&target()).map_err(named)?),
            b'2' => Kind::Symlink(target()),
            b'3' | b'4' | b'6' => Kind::Special,
            b'5' => Kind::Folder,
            b'S' => return Err(named(PackedError::Unsupported("it is a sparse file"))),
            _ => return Err(named(PackedError::Unsupported("it is an entry of an unknown kind"))),
        };
        let size = extended.size.unwrap_or(size);
        // What is no file has no content; some tools write a size all the same and others then read content.
        if kind != Kind::File && size != 0 {
            return Err(named(PackedError::Unsupported("it is no file and has a size")));
        }
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
            return self.edited(header, size, &extended, &name);
        }
        self.write(&extended.raw)?;
        self.write(header.as_bytes())?;
        PackedError::at_most("the file", size, "bytes", u64::MAX / 2).map_err(named)?;
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

    fn edited(&mut self, header: &Header, size: u64, extended: &Extended, name: &[u8]) -> Result<(), CopyError> {
        let mut bytes = self.content(size)?;
        bytes.truncate(size as usize);
        let edited = (self.editor.edit)(name, &bytes)?;
        self.write(&extended.raw)?;
        let mut header = header.clone();
        let bytes = match &edited {
            None => &bytes,
            Some(_) if extended.size.is_some() => {
                let problem = PackedError::Unsupported("the file's size is in a header of an extension");
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

    /// From the first block of zeros on. Where the end was filled up to a whole record, it is again.
    fn rest(&mut self, first: &[u8; BLOCK]) -> Result<(), CopyError> {
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
            if held.len() as u64 + length as u64 > MOST_EXTENDED {
                return Err(PackedError::Unsupported("its end is filled with a lot of zeros").into());
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

/// Reads `length key=value\n` records. The last one of a key counts.
fn pax(mut content: &[u8], extended: &mut Extended) -> Result<(), PackedError> {
    let damaged = || PackedError::Damaged("a pax header whose records do not fit".to_owned());
    while !content.is_empty() {
        let space = content.iter().position(|byte| *byte == b' ').ok_or_else(damaged)?;
        let length: usize =
            std::str::from_utf8(&content[..space]).ok().and_then(|text| text.parse().ok()).ok_or_else(damaged)?;
        if length <= space + 1 || length > content.len() || content[length - 1] != b'\n' {
            return Err(damaged());
        }
        let record = &content[space + 1..length - 1];
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(damaged)?;
        let (key, value) = (&record[..equals], &record[equals + 1..]);
        match key {
            b"path" => extended.name = Some(value.to_vec()),
            b"linkpath" => extended.link = Some(value.to_vec()),
            b"size" => {
                let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                extended.size = Some(size.ok_or_else(damaged)?);
            }
            _ if key.starts_with(b"GNU.sparse.") => return Err(PackedError::Unsupported("it holds a sparse file")),
            _ => {}
        }
        content = &content[length..];
    }
    Ok(())
}
