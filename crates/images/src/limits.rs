//! The limits for hostile images: everything that such an image could make large has its limit here.

use std::cell::Cell;
use std::io::{self, Read};

use crate::error::{Checked, Problem};

/// The size of a JSON document in bytes: twice the registries' limit for a manifest.
pub(crate) const MOST_JSON: u64 = 8 << 20;
/// The size of all documents of one layout in bytes.
pub(crate) const MOST_DOCUMENTS: u64 = 64 << 20;
/// The number of manifests in all indexes of one layout.
pub(crate) const MOST_MANIFESTS: u64 = 1000;
/// The depth of nested indexes.
pub(crate) const MOST_NESTED: u64 = 8;
/// The number of layers of one image. Engines have a limit of 127.
pub(crate) const MOST_LAYERS: u64 = 1000;
/// The number of entries in all layers of one image, ten times that of large images.
pub(crate) const MOST_ENTRIES: u64 = 2_000_000;
/// The number of entries of a zip: the reader of zips keeps its whole directory, five times a tree's memory.
pub(crate) const MOST_ZIPPED: u64 = 400_000;
/// The bytes that are read to find and to read the directory of a zip: names, comments, extra fields.
pub(crate) const MOST_ZIP_DIRECTORY: u64 = 64 << 20;
/// The length of all names of one image, with the targets of links, extended attributes, and the names of folders that
/// are only implied.
pub(crate) const MOST_NAME_BYTES: u64 = 256 << 20;
/// The longest name, or target of a link. (Linux: PATH_MAX.)
pub(crate) const LONGEST_NAME: u64 = 4096;
/// The size of a long name, or of the pax records of one entry.
pub(crate) const MOST_EXTENDED: u64 = 1 << 20;
/// The size of a file that is kept. ELF files of two gigabytes exist only with the debug information of browsers.
pub(crate) const MOST_KEPT: u64 = 4 << 30;
/// The number of symbolic links on one path. (Linux: MAXSYMLINKS.)
pub(crate) const MOST_LINKS: usize = 40;
/// The unpacked size of one image.
const MOST_UNPACKED: u64 = 256 << 30;
/// The unpacked size that is accepted at any ratio.
pub(crate) const ALWAYS_TAKEN: u64 = 1 << 30;
/// The greatest ratio of unpacked to packed bytes. Layers unpack to three or four times their size.
const MOST_RATIO: u64 = 100;

/// Counts the packed and the unpacked bytes of the compressed streams of one image.
#[derive(Debug, Default)]
pub(crate) struct Unpacked {
    packed: Cell<u64>,
    unpacked: Cell<u64>,
}

impl Unpacked {
    /// Returns the count for a stream of `packed` compressed bytes.
    pub(crate) fn new(packed: u64) -> Unpacked {
        Unpacked { packed: Cell::new(packed), unpacked: Cell::new(0) }
    }

    /// Counts the packed bytes that `reader` gives.
    pub(crate) fn packed<R: Read>(&self, reader: R) -> Packed<'_, R> {
        Packed { inner: reader, count: self }
    }

    /// Counts the bytes of a decompressor, and fails when the ratio becomes too large.
    pub(crate) fn plain<R: Read>(&self, reader: R) -> Plain<'_, R> {
        Plain { inner: reader, count: self }
    }

    fn take(&self, bytes: u64) -> Checked<()> {
        let found = self.unpacked.get().saturating_add(bytes);
        self.unpacked.set(found);
        let limit = self.packed.get().saturating_mul(MOST_RATIO).clamp(ALWAYS_TAKEN, MOST_UNPACKED);
        Problem::at_most("what it unpacks to", found, "bytes so far", limit)
    }
}

pub(crate) struct Packed<'c, R> {
    inner: R,
    count: &'c Unpacked,
}

impl<R: Read> Read for Packed<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.count.packed.set(self.count.packed.get().saturating_add(length as u64));
        Ok(length)
    }
}

pub(crate) struct Plain<'c, R> {
    inner: R,
    count: &'c Unpacked,
}

impl<R: Read> Read for Plain<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // The reader of xz would treat this as the end of a block.
        if buffer.is_empty() {
            return Ok(0);
        }
        let length = self.inner.read(buffer)?;
        self.count.take(length as u64).map_err(Problem::into_io)?;
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proportions_are_kept() {
        let count = Unpacked::default();
        assert!(count.take(ALWAYS_TAKEN).is_ok());
        assert!(count.take(1).is_err());
        io::copy(&mut count.packed(io::repeat(0).take(20 << 20)), &mut io::sink()).unwrap();
        assert!(count.take(1 << 20).is_ok());
        assert!(count.take(1 << 30).is_err());
        let error = io::copy(&mut count.plain(&b"x"[..]), &mut io::sink()).unwrap_err();
        assert!(matches!(Problem::reading(error), Problem::TooLarge { .. }));
    }
}
