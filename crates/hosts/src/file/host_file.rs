//! A file that is read once, however many stages need it: each stage then sees the same bytes, and a large host costs
//! one read.

use std::cell::OnceCell;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::digest::sha256;
use crate::error::{Error, IoContext};
use crate::file::signature::{Signature, signature_of};

/// The number of bytes by which a file is recognised.
const START: u64 = 512;

/// The age of a file's last change from which on a further change will show in the time: file systems count in steps of
/// up to two seconds (FAT; most count in steps of the kernel's clock, 10 ms).
const SETTLED: Duration = Duration::from_secs(3);

/// Shows whether a name still belongs to the file that was read, and whether that file was written since. Does not
/// compare `ctime`: making the backup, a hard link, changes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl Identity {
    pub(crate) fn new(metadata: &Metadata) -> Identity {
        Identity {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    /// Whether this file may be the other one, copied by the file system with all its times.
    pub(crate) fn may_be_copy_of(&self, other: &Identity) -> bool {
        (self.size, self.modified) == (other.size, other.modified)
    }

    /// Whether a later change will show in the file's time. `read`: when the file was read.
    fn is_settled(&self, read: SystemTime) -> bool {
        let (seconds, nanoseconds) = self.modified;
        let modified = u64::try_from(seconds).ok().zip(u32::try_from(nanoseconds).ok());
        let modified = modified.map(|(seconds, rest)| SystemTime::UNIX_EPOCH + Duration::new(seconds, rest));
        modified.and_then(|modified| read.duration_since(modified).ok()).is_some_and(|age| age >= SETTLED)
    }
}

/// A file that was opened, and recognised by its start.
#[derive(Debug)]
pub(crate) struct HostFile {
    path: PathBuf,
    file: File,
    start: Vec<u8>,
    content: OnceCell<Content>,
}

struct Content {
    bytes: Vec<u8>,
    sha256: OnceCell<String>,
    identity: Identity,
    is_settled: bool,
}

impl fmt::Debug for Content {
    /// Leaves the bytes out: a test that failed once printed 280 MB.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Content")
            .field("size", &self.bytes.len())
            .field("is_settled", &self.is_settled)
            .finish()
    }
}

impl HostFile {
    /// Opens a regular file and reads its start.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn open(path: PathBuf) -> Result<HostFile, Error> {
        let file = File::open(&path).context(&path, "read")?;
        let mut start = Vec::with_capacity(START as usize);
        (&file).take(START).read_to_end(&mut start).context(&path, "read")?;
        Ok(HostFile { path, file, start, content: OnceCell::new() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The open file, for its attributes.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Its first bytes, at most 512: enough for the header of a tar.
    pub(crate) fn start(&self) -> &[u8] {
        &self.start
    }

    /// The kind of file, by its start.
    pub(crate) fn signature(&self) -> Signature {
        signature_of(&self.start)
    }

    /// All its bytes, read at the first call.
    ///
    /// # Errors
    /// The bytes cannot be read, or the file was written meanwhile.
    pub(crate) fn bytes(&self) -> Result<&[u8], Error> {
        self.content().map(|content| content.bytes.as_slice())
    }

    /// The SHA-256 of the bytes, computed at the first call.
    ///
    /// # Errors
    /// As for [`HostFile::bytes`].
    pub(crate) fn sha256(&self) -> Result<&str, Error> {
        self.content().map(|content| content.sha256.get_or_init(|| sha256(&content.bytes)).as_str())
    }

    fn content(&self) -> Result<&Content, Error> {
        if let Some(content) = self.content.get() {
            return Ok(content);
        }
        let identity = || self.file.metadata().map(|metadata| Identity::new(&metadata)).context(&self.path, "read");
        let before = identity()?;
        let mut bytes = Vec::with_capacity(usize::try_from(before.size).unwrap_or(0));
        bytes.extend_from_slice(&self.start);
        (&self.file).read_to_end(&mut bytes).context(&self.path, "read")?;
        #[cfg(test)]
        READ.with(|read| read.borrow_mut().push((self.path.clone(), bytes.len())));
        if identity()? != before {
            return Err(Error::ChangedMeanwhile { path: self.path.clone() });
        }
        let is_settled = before.is_settled(SystemTime::now());
        let sha256 = OnceCell::new();
        Ok(self.content.get_or_init(|| Content { bytes, sha256, identity: before, is_settled }))
    }

    /// The bytes, if they were read and `now` is certainly still the same, unwritten file.
    pub(crate) fn bytes_of(&self, now: &Identity) -> Option<&[u8]> {
        let content = self.content.get()?;
        (content.is_settled && content.identity == *now).then_some(&content.bytes)
    }

    /// Whether the path still belongs to the file that was read.
    pub(crate) fn is_current(&self) -> bool {
        let now = fs::metadata(&self.path).map(|metadata| Identity::new(&metadata));
        now.is_ok_and(|now| self.content.get().is_none_or(|content| content.identity == now))
    }

    /// The file that has the path now: this one, unless it was replaced, or written since it was read.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn current(self) -> Result<HostFile, Error> {
        let now = Identity::new(&fs::metadata(&self.path).context(&self.path, "read")?);
        match self.bytes_of(&now) {
            Some(_) => Ok(self),
            None => HostFile::open(self.path),
        }
    }
}

/// Reads the whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).context(path, "read")
}

/// Resolves `path` if its last part is a symbolic link; otherwise returns it unchanged.
pub(crate) fn real_file(path: &Path) -> Result<PathBuf, Error> {
    match fs::symlink_metadata(path).context(path, "read")?.is_symlink() {
        true => path.canonicalize().context(path, "read"),
        false => Ok(path.to_owned()),
    }
}

#[cfg(test)]
thread_local! {
    /// The files that this thread has read as a whole, with their sizes.
    pub(crate) static READ: std::cell::RefCell<Vec<(PathBuf, usize)>> = const { std::cell::RefCell::new(Vec::new()) };
}
