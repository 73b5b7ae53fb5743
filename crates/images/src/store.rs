//! The blobs of an image: in a folder, or in a tar. A compressed tar is unpacked once into a temporary file, since
//! blobs are read in any order.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use foldhash::HashMap;

use crate::digest::Digest;
use crate::error::{Checked, Error, Problem};
use crate::limits::{MOST_DOCUMENTS, MOST_JSON, MOST_LINKS, Unpacked};
use crate::spool::{Part, Range, Spool, Spooling};
use crate::tar::{self, Content, Entry, Kind, Stream};

/// The most files of an archive of images.
const MOST_FILES: u64 = 100_000;

/// The blobs of an image.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) place: BlobStorage,
    /// The number of bytes read of documents.
    documents: Cell<u64>,
}

/// The location of the blobs.
#[derive(Debug)]
pub(crate) enum BlobStorage {
    /// The root folder of an OCI layout.
    Folder(PathBuf),
    /// A tar, and the offsets of its files.
    Archive { file: File, names: Names },
    /// A file that is a tar or a package by itself.
    File(File),
}

/// The files of a tar by name.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<Vec<u8>, Slot>);

#[derive(Debug, Clone)]
enum Slot {
    File(Part),
    /// The target of a link.
    Link(Vec<u8>),
}

impl Names {
    /// Adds an entry.
    pub(crate) fn enter(&mut self, entry: Entry) -> Checked<()> {
        let slot = match entry.kind {
            Kind::File => Slot::File(Part { offset: entry.offset, size: entry.size }),
            Kind::HardLink(target) => Slot::Link(target),
            Kind::Symlink(target) => {
                let folder = entry.name.iter().rposition(|byte| *byte == b'/').map_or(0, |end| end + 1);
                Slot::Link(joined(&entry.name[..folder], &target))
            }
            Kind::Folder | Kind::Special => return Ok(()),
        };
        Problem::at_most("its number of files", self.0.len() as u64 + 1, "files", MOST_FILES)?;
        match self.0.insert(entry.name, slot) {
            None => Ok(()),
            Some(_) => Err(Problem::Twice),
        }
    }

    /// Whether there is a file of that name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.find(name.as_bytes()).is_some()
    }

    fn find(&self, name: &[u8]) -> Option<Part> {
        let mut name = name;
        for _ in 0..MOST_LINKS {
            match self.0.get(name)? {
                Slot::File(part) => return Some(*part),
                Slot::Link(target) => name = target,
            }
        }
        None
    }
}

/// Resolves a link in a folder. Returns a name that cannot exist if the target is outside the tar.
fn joined(folder: &[u8], target: &[u8]) -> Vec<u8> {
    let start = if target.starts_with(b"/") { &[][..] } else { folder };
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in start.split(|byte| *byte == b'/').chain(target.split(|byte| *byte == b'/')) {
        match part {
            b"" | b"." => {}
            b".." if parts.pop().is_none() => return Vec::new(),
            b".." => {}
            part => parts.push(part),
        }
    }
    parts.join(&b'/')
}

/// A file of the store, opened.
pub(crate) struct Opened<'s> {
    pub(crate) reader: Box<dyn Read + 's>,
    pub(crate) size: u64,
}

impl Store {
    pub(crate) fn new(place: BlobStorage) -> Store {
        Store { place, documents: Cell::new(0) }
    }

    /// Reads an uncompressed tar.
    pub(crate) fn archive(file: File) -> Result<Store, tar::Fault> {
        let size = file.metadata().map_err(|source| Problem::Io { action: "read", source })?.len();
        let mut names = Names::default();
        tar::each(&mut Range::new(&file, Part { offset: 0, size }), &mut |entry, _: &mut Content<'_>| {
            names.enter(entry)
        })?;
        Ok(Store::new(BlobStorage::Archive { file, names }))
    }

    /// Unpacks a compressed tar into a temporary file, and reads it.
    pub(crate) fn unpacked(file: &File) -> Result<Store, tar::Fault> {
        let count = Unpacked::default();
        let size = file.metadata().map_err(|source| Problem::Io { action: "read", source })?.len();
        let packed = count.packed(Range::new(file, Part { offset: 0, size }));
        let (_, reader) = crate::compression::unpacked(packed).map_err(Problem::reading)?;
        let mut reader = Copying { inner: count.plain(reader), spool: Spooling::new()? };
        let mut names = Names::default();
        tar::each(&mut Stream(&mut reader), &mut |entry, _: &mut Content<'_>| names.enter(entry))?;
        let spool: Spool = reader.spool.finish()?;
        Ok(Store::new(BlobStorage::Archive { file: spool.into_file(), names }))
    }

    /// Opens the file of that name; `None` if it does not exist.
    pub(crate) fn open(&self, name: &str) -> Checked<Option<Opened<'_>>> {
        match &self.place {
            BlobStorage::Folder(folder) => {
                let path = folder.join(name);
                let reading = |source| Problem::Io { action: "read", source };
                // Opening a pipe or a device could wait forever.
                match fs::metadata(&path) {
                    Ok(metadata) if metadata.is_file() => {}
                    Ok(_) => return Err(Problem::Damaged(format!("`{name}` is not a file"))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                    Err(error) => return Err(reading(error)),
                }
                let file = File::open(&path).map_err(reading)?;
                let size = file.metadata().map_err(reading)?.len();
                Ok(Some(Opened { reader: Box::new(file), size }))
            }
            BlobStorage::Archive { file, names } => Ok(names
                .find(name.as_bytes())
                .map(|part| Opened { reader: Box::new(Range::new(file, part)), size: part.size })),
            BlobStorage::File(_) => Ok(None),
        }
    }

    /// Opens a blob.
    ///
    /// # Errors
    /// It is missing, cannot be read, or has a different size.
    pub(crate) fn blob(&self, digest: Digest, size: u64) -> Checked<Opened<'_>> {
        let name = blob_name(digest);
        let opened = self.open(&name)?.ok_or(Problem::Missing(name))?;
        match opened.size == size {
            true => Ok(opened),
            false => Err(Problem::Size { found: opened.size, expected: size }),
        }
    }

    /// Reads a document, and checks it against its digest if that is known.
    pub(crate) fn document(&self, name: &str, digest: Option<Digest>) -> Checked<Vec<u8>> {
        let opened = self.open(name)?.ok_or_else(|| Problem::Missing(name.to_owned()))?;
        Problem::at_most("the document", opened.size, "bytes", MOST_JSON)?;
        let mut bytes = Vec::new();
        opened.reader.take(MOST_JSON + 1).read_to_end(&mut bytes).map_err(Problem::reading)?;
        Problem::at_most("the document", bytes.len() as u64, "bytes", MOST_JSON)?;
        self.documents.set(self.documents.get() + bytes.len() as u64);
        Problem::at_most("what is in its documents", self.documents.get(), "bytes so far", MOST_DOCUMENTS)?;
        let found = Digest::hash(&bytes);
        match digest {
            Some(expected) if expected != found => Err(Problem::Digest { found, expected: expected.into() }),
            _ => Ok(bytes),
        }
    }
}

/// The path of a blob in a layout (OCI image-spec, image-layout.md, "Blobs").
pub(crate) fn blob_name(digest: Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// Opens a file that a user named.
///
/// # Errors
///
/// It is not a regular file, or cannot be read.
pub(crate) fn opened(path: &Path) -> Result<File, Error> {
    let reading = |source| Problem::Io { action: "read", source }.into_error(path);
    if !fs::metadata(path).map_err(reading)?.is_file() {
        return Err(reading(io::Error::other("it is neither a file nor a folder")));
    }
    File::open(path).map_err(reading)
}

/// Copies all that is read into a spool.
struct Copying<R> {
    inner: R,
    spool: Spooling,
}

impl<R: Read> Read for Copying<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.spool.put(&buffer[..length]).map_err(Problem::into_io)?;
        Ok(length)
    }
}

impl tar::Fault {
    /// Returns the fault as an error of the file at `path`.
    pub(crate) fn into_error(self, path: &Path, part: Option<String>) -> Error {
        Error { path: path.into(), part, entry: self.entry, problem: self.problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_to_names_inside() {
        assert_eq!(joined(b"a/b/", b"../c/layer.tar"), b"a/c/layer.tar");
        assert_eq!(joined(b"a/", b"/x"), b"x");
        assert_eq!(joined(b"a/", b"../../x"), b"");
        assert_eq!(joined(b"", b"./x"), b"x");
    }
}
