//! Recognises a target by its content, and never by its name: a file called `libc.a` may be a linker script.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `graft` | whether a file is a graft already |
//! | `image` | whether a file or folder is a container image |

pub(crate) mod graft;
pub(crate) mod image;

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use crate::error::{Error, IoContext, is_missing};
use crate::file::bundle::{Format, holds_tar};
use crate::file::host_file::{HostFile, real_file};
use crate::file::names::{host_of_sidecar, is_backup, record_path};
use crate::file::signature::{Signature, kind_of};
use crate::recognition::graft::is_graft;
use crate::recognition::image::is_image;

/// A target that was recognised.
#[derive(Debug)]
pub(crate) enum Kind {
    /// A static archive: the real file where the target is a symbolic link.
    Archive(HostFile),
    /// An ELF executable: the real file where the target is a symbolic link.
    Executable(HostFile),
    /// A folder.
    Folder(PathBuf),
    /// A container image: an OCI layout, as a folder or a tar.
    Image(PathBuf),
    /// A packed bundle, by its format: the real file where the target is a symbolic link.
    Packed(PathBuf, Format),
}

impl Kind {
    pub(crate) fn path(&self) -> &Path {
        match self {
            Kind::Archive(file) | Kind::Executable(file) => file.path(),
            Kind::Folder(path) | Kind::Image(path) | Kind::Packed(path, _) => path,
        }
    }
}

/// A target that was recognised by its content, and can be worked on.
#[derive(Debug)]
pub struct Target(pub(crate) Kind);

impl Target {
    /// Opens and recognises the target at `path`.
    ///
    /// # Errors
    /// The target cannot be read, or is of no known kind.
    pub fn open(path: &Path) -> Result<Target, Error> {
        recognise(path).map(Target)
    }

    /// The bytes of an executable; `None` if the target is not one.
    ///
    /// # Errors
    /// The bytes cannot be read.
    pub fn executable(&self) -> Result<Option<&[u8]>, Error> {
        match &self.0 {
            Kind::Executable(file) => file.bytes().map(Some),
            Kind::Archive(_) | Kind::Folder(_) | Kind::Image(_) | Kind::Packed(..) => Ok(None),
        }
    }
}

/// Whether the target is an executable, by its content.
///
/// # Errors
/// The target cannot be read, or is of no known kind.
pub fn is_executable(target: &Path) -> Result<bool, Error> {
    Ok(matches!(recognise(target)?, Kind::Executable(_)))
}

/// Refuses the record of a graft.
pub(crate) fn check_record(path: &Path) -> Result<(), Error> {
    match host_of_sidecar(path).filter(|host| record_path(host) == path && host.is_file()) {
        None => Ok(()),
        Some(host) => {
            let found = format!("the record of the graft `{}`", host.display());
            Err(Error::Unrecognised { path: path.to_owned(), found })
        }
    }
}

/// Recognises `path` by the file's first bytes.
pub(crate) fn recognise(path: &Path) -> Result<Kind, Error> {
    let metadata = match fs::metadata(path) {
        Err(error) if is_missing(&error) && fs::symlink_metadata(path).is_ok() => {
            let target = fs::read_link(path).context(path, "read")?;
            let found = format!("a symbolic link to `{}`, where nothing is", target.display());
            return Err(Error::Unrecognised { path: path.to_owned(), found });
        }
        metadata => metadata.context(path, "read")?,
    };
    let kind = metadata.file_type();
    if kind.is_dir() {
        let path = path.to_owned();
        return Ok(if is_image(&path)? { Kind::Image(path) } else { Kind::Folder(path) });
    }
    if !kind.is_file() {
        return Err(Error::Unrecognised { path: path.to_owned(), found: kind_of(kind).to_owned() });
    }
    let real = real_file(path)?;
    if let Some(host) = host_of_sidecar(&real)
        && is_backup(&real)
        && (record_path(&host).exists() || is_graft(&host))
    {
        return Err(Error::IsBackup { path: real, host });
    }
    check_record(&real)?;
    let file = HostFile::open(real)?;
    let signature = file.signature();
    let real = file.path().to_owned();
    match signature {
        Signature::Archive => Ok(Kind::Archive(file)),
        Signature::Packed(Format::TarGz) if !holds_tar(&mut File::open(&real).context(&real, "read")?) => {
            Err(Error::Unrecognised { path: real, found: "a gzip file that holds no tar, or is damaged".to_owned() })
        }
        Signature::Packed(format) => Ok(Kind::Packed(real, format)),
        Signature::Executable => Ok(Kind::Executable(file)),
        Signature::Unsupported { kind, reason, help } => Err(Error::Unsupported { path: real, kind, reason, help }),
        Signature::Unknown(_) if is_image(&real)? => Ok(Kind::Image(real)),
        Signature::Unknown(found) => Err(Error::Unrecognised { path: real, found: found.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_files_are_not_opened() {
        // Opening a pipe without a writer would wait forever.
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("libc.a");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        let error = recognise(&pipe).unwrap_err();
        assert!(matches!(&error, Error::Unrecognised { found, .. } if found == "a pipe"), "{error}");
        assert_eq!(error.exit_code(), 2);
    }
}
