//! The file under the name of a host's backup, and the one rule for whether it is the host's stock file: the record
//! names its SHA-256. The name alone is not evidence.

use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};

use crate::digest;
use crate::error::{Error, IoContext};
use crate::file::names::backup_path;
use crate::file::signature::host_kind;
use crate::record::{Record, sidecar};

/// A file under the name of a backup.
pub(crate) struct Backup {
    pub(crate) path: PathBuf,
    pub(crate) sha256: String,
    file: File,
}

impl Backup {
    /// The file beside `host` under that name; `None` if there is no such file.
    ///
    /// # Errors
    /// It is not a regular file, or cannot be read.
    pub(crate) fn beside(host: &Path) -> Result<Option<Backup>, Error> {
        let path = backup_path(host);
        let Some(file) = sidecar::open(&path)? else { return Ok(None) };
        let sha256 = digest::of_file(&file).context(&path, "read")?;
        Ok(Some(Backup { path, sha256, file }))
    }

    /// The file, at its beginning.
    pub(crate) fn into_file(mut self) -> Result<File, Error> {
        self.file.rewind().context(&self.path, "read")?;
        Ok(self.file)
    }

    /// The file's content.
    ///
    /// # Errors
    /// It cannot be read, or was written after its checksum was made.
    pub(crate) fn bytes(&self) -> Result<Vec<u8>, Error> {
        let (mut file, mut bytes) = (&self.file, Vec::new());
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).context(&self.path, "read")?;
        if digest::sha256(&bytes) == self.sha256 {
            Ok(bytes)
        } else {
            Err(Error::ChangedMeanwhile { path: self.path.clone() })
        }
    }
}

impl Record {
    /// The stock file of `host`: `backup`, if it is the file that this record names.
    ///
    /// # Errors
    /// The backup is missing, or is a different file.
    pub(crate) fn stock(&self, host: &Path, backup: Option<Backup>) -> Result<Backup, Error> {
        match backup {
            None => {
                let (path, kind) = (host.to_owned(), host_kind(host));
                Err(Error::BackupMissing { path, backup: backup_path(host), kind })
            }
            Some(backup) if backup.sha256 == self.stock_sha256 => Ok(backup),
            Some(Backup { path: backup, sha256: found, .. }) => {
                let kind = host_kind(host);
                Err(Error::BackupChanged { backup, found, expected: self.stock_sha256.clone(), kind })
            }
        }
    }
}
