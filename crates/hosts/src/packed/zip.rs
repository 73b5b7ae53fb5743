//! zip, copied byte for byte: local headers, compressed content and the directory, except for edited files and all
//! offsets. Forms that it does not know (zip64, several parts) are refused, since copying them blindly could lose data.
//!
//! (PKWARE, APPNOTE.TXT 6.3.10; sections in brackets.)

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;

use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc};

use images::tar::Kind;

use super::entry::plain_name;
use super::unpacked_size::UnpackedSize;
use super::{CopyError, Editor, shown};
use crate::error::packed::PackedError;

const LOCAL: usize = 30;
const CENTRAL: usize = 46;
const END: usize = 22;
/// 4.3.16: the length of the comment after the end record has 16 bits.
const MOST_COMMENT: usize = 0xffff;
/// The zip64 extended information extra field (APPNOTE.TXT, 4.5.3), and the value that refers to it.
const ZIP64: u16 = 0x0001;
const IN_ZIP64: u32 = 0xffff_ffff;
/// 4.4.4, bit 0: encrypted; bit 3: sizes follow the content.
const ENCRYPTED: u16 = 1;
const DESCRIPTOR: u16 = 8;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// The size of a directory with two million entries, the limit of their number.
const MOST_DIRECTORY: u64 = 512 << 20;
const MOST_LINK: u64 = 4096;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn put_u32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// An entry of the directory (4.3.12).
struct Central {
    raw: Vec<u8>,
    name: Vec<u8>,
    /// The offset of its local header: first in the stock file, then in the copy.
    offset: u64,
    /// The offset of the next entry's header or, for the last entry, of the data after it.
    end: u64,
}

impl Central {
    fn flags(&self) -> u16 {
        u16_at(&self.raw, 8)
    }

    fn method(&self) -> u16 {
        u16_at(&self.raw, 10)
    }

    fn packed(&self) -> u64 {
        u64::from(u32_at(&self.raw, 20))
    }

    fn plain(&self) -> u64 {
        u64::from(u32_at(&self.raw, 24))
    }

    /// The kind of the entry, by its Unix mode (4.4.2, 4.4.15) if it has one, and by its name. A symbolic link's target
    /// is not in the directory.
    fn kind(&self) -> Kind {
        const FORMAT: u32 = 0o170_000;
        let mode = if self.raw[5] == 3 { u32_at(&self.raw, 38) >> 16 } else { 0 };
        match mode & FORMAT {
            0o120_000 => Kind::Symlink(Vec::new()),
            0o040_000 => Kind::Folder,
            _ if self.name.ends_with(b"/") => Kind::Folder,
            0 | 0o100_000 => Kind::File,
            _ => Kind::Special,
        }
    }
}

/// Copies a zip from `file` to `writer`, with the changes of `editor`.
pub(super) fn copy(
    file: &File,
    writer: &mut dyn Write,
    editor: &mut Editor<'_>,
    progress: &dyn Fn(u64),
) -> Result<(), CopyError> {
    let size = file.metadata().map_err(CopyError::Read)?.len();
    let zip = Zip { file, size, unpacked: UnpackedSize::default() };
    let (mut end, directory_start) = zip.end()?;
    let mut centrals = zip.directory(&end, directory_start)?;
    for central in &centrals {
        zip.enter(central, editor)?;
    }
    let mut order: Vec<usize> = (0..centrals.len()).collect();
    order.sort_by_key(|index| centrals[*index].offset);
    let mut out = Out { writer, written: 0 };
    let prefix = order.first().map_or(directory_start, |first| centrals[*first].offset);
    zip.copy_range(0, prefix, &mut out)?;
    for (place, index) in order.iter().enumerate() {
        let next = order.get(place + 1).map_or(directory_start, |next| centrals[*next].offset);
        centrals[*index].end = next;
        zip.entry(&mut centrals[*index], &mut out, editor)?;
        progress(next);
    }
    let new_directory = out.written;
    for mut central in centrals {
        put_u32(&mut central.raw, 42, in_32_bits(central.offset)?);
        out.write(&central.raw)?;
    }
    put_u32(&mut end, 12, in_32_bits(out.written - new_directory)?);
    put_u32(&mut end, 16, in_32_bits(new_directory)?);
    out.write(&end)
}

fn in_32_bits(value: u64) -> Result<u32, PackedError> {
    let fits = u32::try_from(value).ok().filter(|value| *value != IN_ZIP64);
    fits.ok_or(PackedError::Unsupported("it would be over 4 GiB".into()))
}

struct Out<'a> {
    writer: &'a mut dyn Write,
    written: u64,
}

impl Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), CopyError> {
        self.written += bytes.len() as u64;
        self.writer.write_all(bytes).map_err(CopyError::Write)
    }
}

struct Zip<'a> {
    file: &'a File,
    size: u64,
    unpacked: UnpackedSize,
}

impl Zip<'_> {
    fn read(&self, offset: u64, length: usize, what: &str) -> Result<Vec<u8>, CopyError> {
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => PackedError::Truncated(format!("{what} at offset {offset}")).into(),
            _ => CopyError::Read(error),
        })?;
        Ok(bytes)
    }

    fn copy_range(&self, from: u64, to: u64, out: &mut Out<'_>) -> Result<(), CopyError> {
        let mut at = from;
        while at < to {
            let length = (to - at).min(256 << 10) as usize;
            out.write(&self.read(at, length, "content")?)?;
            at += length as u64;
        }
        Ok(())
    }

    /// The end record with its comment (4.3.16), and the offset of the directory.
    fn end(&self) -> Result<(Vec<u8>, u64), CopyError> {
        let length = self.size.min((END + MOST_COMMENT) as u64) as usize;
        let tail = self.read(self.size - length as u64, length, "the end")?;
        let fits = |at: &usize| {
            tail[*at..].starts_with(b"PK\x05\x06") && u16_at(&tail, at + 20) as usize == tail.len() - at - END
        };
        let Some(at) = (0..=tail.len().saturating_sub(END)).rev().filter(|_| tail.len() >= END).find(fits) else {
            return Err(PackedError::Truncated("there is no end record".to_owned()).into());
        };
        let end = tail[at..].to_vec();
        let position = self.size - (tail.len() - at) as u64;
        let disks = [u16_at(&end, 4), u16_at(&end, 6)];
        let (count_here, count) = (u16_at(&end, 8), u16_at(&end, 10));
        if count == 0xffff || u32_at(&end, 12) == IN_ZIP64 || u32_at(&end, 16) == IN_ZIP64 {
            return Err(PackedError::Unsupported("it is in the zip64 form".into()).into());
        }
        if disks != [0, 0] || count_here != count {
            return Err(PackedError::Unsupported("it is one of several parts".into()).into());
        }
        let (length, start) = (u64::from(u32_at(&end, 12)), u64::from(u32_at(&end, 16)));
        if start + length != position {
            // There is a signature (4.3.13), a zip64 record, or data before the first entry that the offsets do not
            // count.
            return match start + length < position {
                true => {
                    Err(PackedError::Unsupported("there is other data between its directory and its end".into()).into())
                }
                false => Err(PackedError::Damaged("its directory overlaps its end record".to_owned()).into()),
            };
        }
        PackedError::at_most("its directory", length, "bytes", MOST_DIRECTORY)?;
        Ok((end, start))
    }

    fn directory(&self, end: &[u8], start: u64) -> Result<Vec<Central>, CopyError> {
        let damaged = |what: &str| CopyError::from(PackedError::Damaged(format!("its directory {what}")));
        let bytes = self.read(start, u32_at(end, 12) as usize, "the directory")?;
        let mut centrals = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            if rest.len() < CENTRAL || !rest.starts_with(b"PK\x01\x02") {
                return Err(damaged("holds data that is not an entry"));
            }
            let name = u16_at(rest, 28) as usize;
            let whole = CENTRAL + name + u16_at(rest, 30) as usize + u16_at(rest, 32) as usize;
            if rest.len() < whole {
                return Err(damaged("ends within an entry"));
            }
            let central = Central {
                raw: rest[..whole].to_vec(),
                name: rest[CENTRAL..CENTRAL + name].to_vec(),
                offset: u64::from(u32_at(rest, 42)),
                end: start,
            };
            let named = |problem| CopyError::Packed { entry: Some(shown(&central.name)), problem };
            if [20, 24, 42].iter().any(|field| u32_at(rest, *field) == IN_ZIP64) {
                return Err(named(PackedError::Unsupported("it is in the zip64 form".into())));
            }
            if central.offset + LOCAL as u64 > start {
                return Err(named(PackedError::Damaged("its header is outside the file".to_owned())));
            }
            centrals.push(central);
            at += whole;
        }
        if centrals.len() != u16_at(end, 10) as usize {
            return Err(damaged("does not hold as many entries as the end record says"));
        }
        Ok(centrals)
    }

    fn enter(&self, central: &Central, editor: &mut Editor<'_>) -> Result<(), CopyError> {
        let named = |problem| CopyError::Packed { entry: Some(shown(&central.name)), problem };
        let name = plain_name(&central.name).map_err(named)?;
        let kind = match central.kind() {
            Kind::Symlink(_) if central.plain() > MOST_LINK => {
                return Err(named(PackedError::Damaged("a symbolic link of over 4096 bytes".to_owned())));
            }
            Kind::Symlink(_) => Kind::Symlink(self.content(central, MOST_LINK)?),
            kind => kind,
        };
        if name.is_empty() {
            return if kind == Kind::Folder { Ok(()) } else { Err(named(PackedError::Name("is empty"))) };
        }
        editor.entries.enter(&name, kind).map_err(named)
    }

    /// The local header (4.3.7) with name and extra field, and the offset of the content.
    fn local(&self, central: &Central) -> Result<(Vec<u8>, u64), CopyError> {
        let named = |what: &str| CopyError::Packed {
            entry: Some(shown(&central.name)),
            problem: PackedError::Damaged(format!("its header at offset {} {what}", central.offset)),
        };
        let fixed = self.read(central.offset, LOCAL, "a header")?;
        if !fixed.starts_with(b"PK\x03\x04") {
            return Err(named("is none"));
        }
        let length = LOCAL + u16_at(&fixed, 26) as usize + u16_at(&fixed, 28) as usize;
        let raw = self.read(central.offset, length, "a header")?;
        if raw[LOCAL..LOCAL + u16_at(&fixed, 26) as usize] != central.name {
            return Err(named("has another name than the directory"));
        }
        let start = central.offset + length as u64;
        if start + central.packed() > central.end {
            return Err(named("and content overlap what follows"));
        }
        Ok((raw, start))
    }

    /// The content of a file, unpacked and checked against its checksum.
    fn content(&self, central: &Central, limit: u64) -> Result<Vec<u8>, CopyError> {
        let named = |problem| CopyError::Packed { entry: Some(shown(&central.name)), problem };
        let damaged = |what: &str| named(PackedError::Damaged(what.to_owned()));
        if central.flags() & ENCRYPTED != 0 {
            return Err(named(PackedError::Unsupported("it is encrypted".into())));
        }
        PackedError::at_most("the file", central.plain(), "bytes", limit).map_err(named)?;
        if central.packed() > 2 * limit {
            return Err(damaged("it is larger packed than unpacked"));
        }
        self.unpacked.take(central.plain(), self.size).map_err(named)?;
        let (_, start) = self.local(central)?;
        let packed = self.read(start, central.packed() as usize, "content")?;
        let bytes = match central.method() {
            STORED => packed,
            DEFLATED => {
                let mut bytes = Vec::new();
                let unpacked = DeflateDecoder::new(&packed[..]).take(central.plain() + 1).read_to_end(&mut bytes);
                unpacked.map_err(|error| damaged(&format!("its content cannot be unpacked: {error}")))?;
                bytes
            }
            _ => return Err(named(PackedError::Unsupported("it is compressed by a method other than deflate".into()))),
        };
        let mut crc = Crc::new();
        crc.update(&bytes);
        if bytes.len() as u64 != central.plain() || crc.sum() != u32_at(&central.raw, 16) {
            return Err(damaged("its content does not have the size and checksum of the directory"));
        }
        Ok(bytes)
    }

    fn entry(&self, central: &mut Central, out: &mut Out<'_>, editor: &mut Editor<'_>) -> Result<(), CopyError> {
        let (local, _) = self.local(central)?;
        let new_offset = out.written;
        let name = plain_name(&central.name)?;
        let limit = if central.kind() == Kind::File { (editor.wants)(&name) } else { None };
        let edited = match limit {
            Some(limit) => (editor.edit)(&name, &self.content(central, limit)?)?,
            None => None,
        };
        match edited {
            None => self.copy_range(central.offset, central.end, out)?,
            Some(graft) => self.write_edited(central, local, graft.bytes(), out)?,
        }
        central.offset = new_offset;
        Ok(())
    }

    fn write_edited(
        &self,
        central: &mut Central,
        local: Vec<u8>,
        bytes: &[u8],
        out: &mut Out<'_>,
    ) -> Result<(), CopyError> {
        let packed = match central.method() {
            STORED => bytes.to_vec(),
            _ => {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
                encoder.write_all(bytes).and_then(|()| encoder.finish()).map_err(CopyError::Write)?
            }
        };
        let mut crc = Crc::new();
        crc.update(bytes);
        let mut local = without_zip64(local);
        // The flags, then checksum and sizes.
        for (header, flags, sums) in [(&mut local, 6, 14), (&mut central.raw, 8, 16)] {
            header[flags] &= !(DESCRIPTOR as u8);
            put_u32(header, sums, crc.sum());
            put_u32(header, sums + 4, in_32_bits(packed.len() as u64)?);
            put_u32(header, sums + 8, in_32_bits(bytes.len() as u64)?);
        }
        out.write(&local)?;
        out.write(&packed)
    }
}

/// A local header without the extra field for large sizes, which tools write if they do not know the size beforehand.
fn without_zip64(local: Vec<u8>) -> Vec<u8> {
    let extra_at = LOCAL + u16_at(&local, 26) as usize;
    let mut kept = local[..extra_at].to_vec();
    let mut extra = &local[extra_at..];
    while extra.len() >= 4 {
        let whole = (4 + u16_at(extra, 2) as usize).min(extra.len());
        if u16_at(extra, 0) != ZIP64 {
            kept.extend_from_slice(&extra[..whole]);
        }
        extra = &extra[whole..];
    }
    kept.extend_from_slice(extra);
    let length = (kept.len() - extra_at) as u16;
    kept[28..30].copy_from_slice(&length.to_le_bytes());
    kept
}
