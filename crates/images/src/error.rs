//! The errors of an image, each with its place.

use std::borrow::Cow;
use std::io;
use std::path::Path;

use crate::digest::Digest;

/// An error, with the place where it was found.
#[derive(Debug)]
pub struct Error {
    /// The file or folder that was named.
    pub path: Box<Path>,
    /// The part of the file: an index, a manifest, a layer.
    pub part: Option<String>,
    /// The entry of that part's tar.
    pub entry: Option<String>,
    /// The problem.
    pub problem: Problem,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`", self.path.display())?;
        if let Some(part) = &self.part {
            write!(f, ", {part}")?;
        }
        if let Some(entry) = &self.entry {
            write!(f, ", entry `{entry}`")?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl std::error::Error for Error {}

impl Error {
    /// Returns advice on the problem.
    pub fn help(&self) -> &'static str {
        self.problem.help()
    }
}

/// A problem of an image.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// A file cannot be read or written.
    #[error("cannot {action} it: {source}")]
    Io {
        /// The action that failed, a verb.
        action: &'static str,
        /// The reason.
        source: io::Error,
    },
    /// The file ends before its content does.
    #[error("it ends too early: {0}")]
    Truncated(String),
    /// Bytes that the format does not allow.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// A name that points out of the image, or is not a name.
    #[error("the entry's name {0}")]
    Name(&'static str),
    /// Two entries of one name in one layer: tools differ in which one counts.
    #[error("the entry appears twice")]
    Twice,
    /// A hard link without the file that it is another name of.
    #[error("it is a hard link to `{0}`, which is not a file before it in the same layer")]
    HardLink(String),
    /// More than any real image has.
    #[error("{what} is {found} {unit}, more than the {limit} allowed")]
    TooLarge {
        /// The thing that is too large.
        what: &'static str,
        /// The amount found.
        found: u64,
        /// The unit of both amounts.
        unit: &'static str,
        /// The limit.
        limit: u64,
    },
    /// An unsupported format.
    #[error("{0}, which is not supported")]
    Unsupported(Cow<'static, str>),
    /// A blob whose digest differs from its descriptor's.
    #[error("its digest is wrong: found {found}, expected {expected}")]
    Digest {
        /// The digest of the bytes.
        found: Digest,
        /// The descriptor's digest.
        expected: Box<Digest>,
    },
    /// A blob whose size differs from its descriptor's.
    #[error("its size is wrong: found {found} bytes, expected {expected}")]
    Size {
        /// The size of the bytes.
        found: u64,
        /// The descriptor's size.
        expected: u64,
    },
    /// A missing blob.
    #[error("`{0}` is missing")]
    Missing(String),
    /// A layer outside of the image.
    #[error("it is a foreign layer, which is at `{0}` and not in the image")]
    Foreign(String),
    /// A layer that only the owner of a key can read.
    #[error("it is an encrypted layer")]
    Encrypted,
    /// A document with unexpected content.
    #[error("{0}")]
    Json(String),
    /// The file has no image for a platform.
    #[error("there is no image in it: {0}")]
    NoImage(String),
    /// A file of the tree that was not kept.
    #[error("the content of `{0}` was not kept")]
    NotKept(String),
}

impl Problem {
    /// Refuses an amount above `limit`.
    pub(crate) fn at_most(what: &'static str, found: u64, unit: &'static str, limit: u64) -> Result<(), Problem> {
        if found > limit { Err(Problem::TooLarge { what, found, unit, limit }) } else { Ok(()) }
    }

    /// Converts a reader's error: decompressors report damage as an error of input, and our readers a limit as an error
    /// that carries the problem.
    pub(crate) fn reading(error: io::Error) -> Problem {
        match error.kind() {
            io::ErrorKind::Other if error.get_ref().is_some_and(|inner| inner.is::<Problem>()) => {
                match error.into_inner().map(|inner| inner.downcast::<Problem>()) {
                    Some(Ok(problem)) => *problem,
                    _ => Problem::Damaged("a limit".to_owned()),
                }
            }
            io::ErrorKind::UnexpectedEof => Problem::Truncated("the compressed stream".to_owned()),
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => Problem::Damaged(error.to_string()),
            // ruzstd's errors.
            io::ErrorKind::Other => Problem::Damaged(error.to_string()),
            _ => Problem::Io { action: "read", source: error },
        }
    }

    /// Converts it into an error of a reader.
    pub(crate) fn into_io(self) -> io::Error {
        io::Error::other(self)
    }

    pub(crate) fn in_part(self, path: &Path, part: impl Into<String>) -> Error {
        Error { path: path.into(), part: Some(part.into()), entry: None, problem: self }
    }

    pub(crate) fn into_error(self, path: &Path) -> Error {
        Error { path: path.into(), part: None, entry: None, problem: self }
    }

    fn help(&self) -> &'static str {
        match self {
            Problem::Io { action: "read", .. } => "check that it is there, and that you may read it",
            Problem::Io { .. } => "make room for temporary files, or set TMPDIR to a folder with room",
            Problem::Truncated(_) | Problem::Damaged(_) | Problem::Digest { .. } | Problem::Size { .. } => {
                "get or export the image again: it was damaged on the way"
            }
            Problem::Name(_) | Problem::Twice | Problem::HardLink(_) | Problem::TooLarge { .. } => {
                "no builder makes such an image: do not unpack it; get it from where it is published"
            }
            Problem::Unsupported(_) => "export it in another form: `docker save`, `skopeo copy ... oci:FOLDER`",
            Problem::Missing(_) => "export all of the image: `docker save`, `skopeo copy --all ... oci:FOLDER`",
            Problem::Foreign(_) => "get the layer too, and put it into the layout under its digest",
            Problem::Encrypted => "decrypt it first: `skopeo copy --decryption-key KEY ...`",
            Problem::Json(_) => "get or export the image again; the OCI image specification says what has to be there",
            Problem::NoImage(_) => {
                "name an OCI layout, a `docker save` archive, a root file system as a tar, or a package (.deb, .apk, \
                 .whl)"
            }
            Problem::NotKept(_) => "this is a bug in allograft: please report it, with the command line",
        }
    }
}

/// The result of work inside of a part, whose place the caller adds.
pub(crate) type Checked<T> = Result<T, Problem>;

/// A name for messages.
pub(crate) fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}
