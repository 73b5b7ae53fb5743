//! Published Swift SDK bundles: a tar in gzip, or a zip. They are read and written as streams, in memory that does not
//! grow with the bundle, and never unpacked to disk: so every entry but the `libc.a`s keeps its bytes and attributes.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `entry` | names and kinds of entries |
//! | `tar` | a tar, copied with changes |
//! | `zip` | a zip, copied with changes |
//! | `gzip` | compression by several threads |
//! | `unpacked_size` | the limit on the unpacked size |
//! | `carried` | whether a bundle carries a graft |

pub(crate) mod carried;
pub(crate) mod entry;
mod gzip;
mod tar;
mod unpacked_size;
mod zip;

use std::cell::Cell;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use entry::Entries;
use flate2::bufread::MultiGzDecoder;
use sha2::{Digest, Sha256};
use unpacked_size::UnpackedSize;

use crate::digest;
use crate::error::Error;
use crate::error::packed::PackedError;
use crate::file::bundle::Format;
use crate::prove::proven::Proven;
use crate::watch::Watch;

/// The size limit of a `libc.a`; the largest known one has 4 MB.
pub(crate) const MOST_LIBC: u64 = 64 << 20;

/// The size limit for the file with this name; `None` if the file is not wanted.
pub(crate) type Wants<'e> = &'e dyn Fn(&[u8]) -> Option<u64>;
/// Takes the name and content of a wanted file.
pub(crate) type See<'e> = &'e mut dyn FnMut(&[u8], &[u8]) -> Result<(), Error>;
/// Takes the name and content of a wanted file and returns its new content; `None` to keep it.
pub(crate) type Edit<'e> = &'e mut dyn FnMut(&[u8], &[u8]) -> Result<Option<Proven>, Error>;

/// Collects the entries of a bundle while it is copied, and decides about its files.
pub(crate) struct Editor<'e> {
    pub(crate) entries: Entries,
    pub(crate) wants: Wants<'e>,
    pub(crate) edit: Edit<'e>,
}

/// An error while copying a bundle.
enum CopyError {
    Read(io::Error),
    Write(io::Error),
    Packed { entry: Option<String>, problem: PackedError },
    Host(Error),
}

impl From<PackedError> for CopyError {
    fn from(problem: PackedError) -> CopyError {
        CopyError::Packed { entry: None, problem }
    }
}

impl From<images::tar::ReadError> for CopyError {
    fn from(error: images::tar::ReadError) -> CopyError {
        match error {
            images::tar::ReadError::Io(error) => CopyError::reading(error),
            images::tar::ReadError::Fault(fault) => {
                CopyError::Packed { entry: fault.entry, problem: PackedError::of_tar(fault.problem) }
            }
        }
    }
}

impl From<Error> for CopyError {
    fn from(error: Error) -> CopyError {
        CopyError::Host(error)
    }
}

impl CopyError {
    /// Converts a decompressor's error: it reports damage as an error of input.
    fn reading(error: io::Error) -> CopyError {
        if let Some(problem) = error.get_ref().and_then(|inner| inner.downcast_ref::<PackedError>()) {
            return problem.clone().into();
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof => PackedError::Truncated("the compressed stream".to_owned()).into(),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => PackedError::Damaged(error.to_string()).into(),
            _ => CopyError::Read(error),
        }
    }

    fn into_error(self, from: &Path, to: &Path) -> Error {
        match self {
            CopyError::Read(source) => Error::Io { path: from.to_owned(), action: "read", source },
            CopyError::Write(source) => Error::Io { path: to.to_owned(), action: "write", source },
            CopyError::Packed { entry, problem } => Error::Packed { path: from.to_owned(), entry, problem },
            CopyError::Host(error) => error,
        }
    }
}

/// The path of a file in a bundle, for messages.
pub(crate) fn inside(bundle: &Path, name: &[u8]) -> PathBuf {
    bundle.join(OsStr::from_bytes(name))
}

/// An entry's name for messages.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// The result of copying a bundle.
pub(crate) struct BundleCopy {
    /// SHA-256 of the file that was read.
    pub(crate) source: String,
    /// SHA-256 of the file that was written.
    pub(crate) written: String,
    /// SHA-256 of the tar before compression.
    pub(crate) written_tar: Option<String>,
}

/// A bundle to read.
pub(crate) struct Source<'a> {
    pub(crate) path: &'a Path,
    pub(crate) file: &'a File,
    pub(crate) format: Format,
    pub(crate) watch: &'a Watch<'a>,
}

impl Source<'_> {
    /// Reads the whole bundle and calls `see` with each wanted file. Returns the bundle's entries and its SHA-256.
    pub(crate) fn scan(&self, wants: Wants<'_>, see: See<'_>) -> Result<(Entries, String), Error> {
        let edit = &mut |name: &[u8], bytes: &[u8]| see(name, bytes).map(|()| None);
        let mut editor = Editor { entries: Entries::default(), wants, edit };
        let sha256 = match self.format {
            Format::TarGz => self.tar("reading", &mut editor, &mut io::sink()),
            Format::Zip => self.zip(&mut editor, &mut io::sink(), &|_| {}),
        };
        Ok((editor.entries, sha256.map_err(|error| error.into_error(self.path, self.path))?))
    }

    /// Writes the edited bundle to `out`; write errors name `host`.
    pub(crate) fn copy(&self, out: &mut File, host: &Path, mut editor: Editor<'_>) -> Result<BundleCopy, Error> {
        let mut hashed = Hashing { inner: out, hash: Sha256::new() };
        let size = self.size();
        let progress = |done| self.watch.progress("packing", done, size);
        let done = match self.format {
            Format::TarGz => self.pack_tar(&mut editor, &mut hashed),
            Format::Zip => self.zip(&mut editor, &mut hashed, &progress).map(|source| (source, None)),
        };
        let (source, written_tar) = done.map_err(|error| error.into_error(self.path, host))?;
        Ok(BundleCopy { source, written: digest::text(hashed.hash), written_tar })
    }

    /// Returns the SHA-256 of the packed bytes read.
    fn zip(&self, editor: &mut Editor<'_>, out: &mut dyn Write, progress: &dyn Fn(u64)) -> Result<String, CopyError> {
        zip::copy(self.file, out, editor, progress)?;
        digest::of_file(self.file).map_err(CopyError::Read)
    }

    fn pack_tar(&self, editor: &mut Editor<'_>, out: &mut dyn Write) -> Result<(String, Option<String>), CopyError> {
        let mut gzip = gzip::ParallelGzip::new(out).map_err(CopyError::Write)?;
        let mut plain = Hashing { inner: &mut gzip, hash: Sha256::new() };
        let source = self.tar("packing", editor, &mut plain)?;
        let tar = digest::text(plain.hash);
        gzip.finish().map_err(CopyError::Write)?;
        Ok((source, Some(tar)))
    }

    /// Returns the SHA-256 of the packed bytes read.
    fn tar(&self, doing: &'static str, editor: &mut Editor<'_>, out: &mut dyn Write) -> Result<String, CopyError> {
        io::Seek::rewind(&mut &*self.file).map_err(CopyError::Read)?;
        let read = Rc::new(Cell::new(0));
        let mut packed = PackedReader { file: self.file, hash: Sha256::new(), read: Rc::clone(&read) };
        let (size, watch) = (self.size(), self.watch);
        let mut plain = PlainReader {
            inner: MultiGzDecoder::new(BufReader::with_capacity(256 << 10, &mut packed)),
            read,
            unpacked: UnpackedSize::default(),
            tell: &|done| watch.progress(doing, done, size),
        };
        tar::copy(&mut plain, out, editor)?;
        drop(plain);
        Ok(digest::text(packed.hash))
    }

    pub(crate) fn size(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }
}

/// A reader that counts and hashes the packed bytes.
struct PackedReader<'a> {
    file: &'a File,
    hash: Sha256,
    read: Rc<Cell<u64>>,
}

impl Read for PackedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = (&mut &*self.file).read(buffer)?;
        self.hash.update(&buffer[..length]);
        self.read.set(self.read.get() + length as u64);
        Ok(length)
    }
}

/// A reader of the unpacked bytes that fails when they are out of proportion to the packed bytes read.
struct PlainReader<'a, R> {
    inner: R,
    read: Rc<Cell<u64>>,
    unpacked: UnpackedSize,
    tell: &'a dyn Fn(u64),
}

impl<R: Read> Read for PlainReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.unpacked.take(length as u64, self.read.get()).map_err(io::Error::other)?;
        (self.tell)(self.read.get());
        Ok(length)
    }
}

/// A writer that hashes the data it passes on.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.inner.write(bytes)?;
        self.hash.update(&bytes[..length]);
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::unpacked_size::ALWAYS_TAKEN;
    use super::*;

    #[test]
    fn what_unpacks_out_of_all_proportion_is_refused_on_the_way() {
        let plain = |read| PlainReader {
            inner: io::repeat(0).take(ALWAYS_TAKEN + (64 << 20)),
            read: Rc::new(Cell::new(read)),
            unpacked: UnpackedSize::default(),
            tell: &|_| {},
        };
        let mut buffer = vec![0; 16 << 20];
        let mut all = |mut reader: PlainReader<'_, io::Take<io::Repeat>>| loop {
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) => return Err(CopyError::reading(error)),
            }
        };
        let bomb = all(plain(1 << 20));
        assert!(matches!(bomb, Err(CopyError::Packed { problem: PackedError::TooLarge { .. }, .. })));
        assert!(all(plain(300 << 20)).is_ok(), "an SDK of 300 MB unpacks to more");
    }
}
