//! The record of a graft, a file beside the host. It ties graft and backup together by their SHA-256, so that `undo`
//! never restores a file that is not this graft's stock.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `backup` | whether a backup is the stock file |
//! | `sidecar` | checks of the files under these names |

pub(crate) mod backup;
pub(crate) mod sidecar;

use std::fs::{File, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::TempPath;

use crate::digest::sha256;
use crate::error::{Error, IoContext};
use crate::file::attributes::{self, Attributes};
use crate::file::host_file::real_file;
use crate::file::names::{host_of_backup, record_path};
use crate::file::temporaries::new_file;
use crate::record::backup::Backup;

/// A record has less than a thousand bytes.
const MOST_RECORD: u64 = 1 << 20;

/// The record of a graft, `<name>.allograft.json` beside the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// 1. Fields may be added, never renamed.
    pub schema_version: u32,
    /// SHA-256 of the stock host, and so of the backup.
    pub stock_sha256: String,
    /// SHA-256 of the graft.
    pub graft_sha256: String,
    /// SHA-256 of the graft of the same stock that was there before, when a donor was replaced. A run that was killed
    /// between writing the record and replacing the host leaves that one in place, and `undo` has to know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_sha256: Option<String>,
    /// The allocator's name; `none` where the host keeps its own.
    pub donor: String,
    /// The allocator's version; empty for none.
    pub version: String,
    /// The options that were set: `key=value`, separated by spaces; may be empty.
    pub options: String,
    /// The version of the string functions, where they are grafted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strings: Option<String>,
    /// The version of allograft that wrote the graft.
    pub allograft: String,
    /// The attributes of the stock host, if the backup could not keep them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stock: Option<Attributes>,
}

impl Record {
    /// Reads a record's text.
    ///
    /// # Errors
    /// Why it is not a record of this version.
    pub fn parse(text: &[u8]) -> Result<Record, String> {
        let record: Record = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        match record.schema_version {
            1 => Ok(record),
            other => Err(format!("schema_version {other}, expected 1")),
        }
    }

    /// Whether `sha256` is a graft that this record names.
    pub(crate) fn knows(&self, sha256: &str) -> bool {
        self.graft_sha256 == sha256 || self.replaced_sha256.as_deref() == Some(sha256)
    }

    /// The record of `host`, or `None` if it has none.
    pub(crate) fn read(host: &Path) -> Result<Option<Record>, Error> {
        let path = record_path(host);
        let Some(file) = sidecar::open(&path)? else { return Ok(None) };
        let malformed = |reason: String| Error::MalformedRecord { path: path.clone(), reason };
        let mut bytes = Vec::new();
        file.take(MOST_RECORD + 1).read_to_end(&mut bytes).context(&path, "read")?;
        if bytes.len() as u64 > MOST_RECORD {
            return Err(malformed(format!("it has more than {MOST_RECORD} bytes")));
        }
        Record::parse(&bytes).map(Some).map_err(malformed)
    }

    /// The record beside `host`, if it can be read and names a graft with this SHA-256.
    pub(crate) fn about(host: &Path, sha256: &str) -> Option<Record> {
        Record::read(host).ok().flatten().filter(|record| record.knows(sha256))
    }

    /// The bytes of the file: JSON, indented, with a newline at the end.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text.into_bytes()
    }

    /// Writes the record to a new file for `host`, synced to disk. The file has the host's owner, where the system
    /// permits, and can be read by the users who can read the host; it is never executable.
    pub(crate) fn written(&self, host: &Path, like: &File) -> Result<TempPath, Error> {
        let mut file = new_file(host)?;
        let mode = like.metadata().context(host, "read")?.permissions().mode() & 0o044 | 0o600;
        file.as_file_mut().write_all(&self.encode()).context(host, "write")?;
        attributes::carry_owner(like, file.as_file()).context(host, "write")?;
        file.as_file().set_permissions(Permissions::from_mode(mode)).context(host, "write")?;
        file.as_file().sync_all().context(host, "write")?;
        Ok(file.into_temp_path())
    }
}

/// The backup beside a graft, for comparing the two: `None` if `libc` has no backup; an error if the backup is not the
/// stock file that the record names.
pub fn stock_of(libc: &Path) -> Result<Option<PathBuf>, Error> {
    let host = real_file(libc)?;
    let Some(record) = Record::read(&host)? else { return Ok(None) };
    let Some(backup) = Backup::beside(&host)? else { return Ok(None) };
    record.stock(&host, Some(backup)).map(|stock| Some(stock.path))
}

/// Returns the host whose backup a file on disk is: it has the backup's name, and the host's record names its SHA-256
/// as that of stock. `None` if the name or the record does not fit.
pub fn backup_of(path: &Path, bytes: &[u8]) -> Option<PathBuf> {
    backup_by_record(path, bytes, |host| Record::read(host).ok().flatten())
}

/// Like [`backup_of`], in files of which `read` returns the bytes.
pub fn backup_among(path: &Path, bytes: &[u8], read: impl FnOnce(&Path) -> Option<Vec<u8>>) -> Option<PathBuf> {
    backup_by_record(path, bytes, |host| Record::parse(&read(&record_path(host))?).ok())
}

fn backup_by_record(path: &Path, bytes: &[u8], read: impl FnOnce(&Path) -> Option<Record>) -> Option<PathBuf> {
    let host = host_of_backup(path)?;
    let record = read(&host)?;
    (record.stock_sha256 == sha256(bytes)).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The name alone does not prove it: the record has to name the bytes.
    #[test]
    fn a_backup_is_known_by_name_and_record() {
        let folder = tempfile::tempdir().unwrap();
        let host = folder.path().join("server");
        let backup = crate::file::names::backup_path(&host);
        assert_eq!(backup_of(&backup, b"stock"), None, "no record");
        let text = format!(
            "{{\"schema_version\": 1, \"stock_sha256\": \"{}\", \"graft_sha256\": \"g\", \"donor\": \"d\", \
             \"version\": \"v\", \"options\": \"\", \"allograft\": \"a\"}}",
            sha256(b"stock")
        );
        fs::write(record_path(&host), &text).unwrap();
        assert_eq!(backup_of(&backup, b"stock"), Some(host.clone()));
        assert_eq!(backup_of(&backup, b"other"), None);
        assert_eq!(backup_of(&host, b"stock"), None);
        let read = |path: &Path| (path == record_path(&host)).then(|| text.clone().into_bytes());
        assert_eq!(backup_among(&backup, b"stock", read), Some(host.clone()));
        assert_eq!(backup_among(&backup, b"stock", |_| Some(b"{".to_vec())), None);
    }

    #[test]
    fn a_record_of_another_schema_is_malformed() {
        let folder = tempfile::tempdir().unwrap();
        let host = folder.path().join("libc.a");
        assert!(Record::read(&host).unwrap().is_none());
        for bytes in ["", "{", "{\"schema_version\": 1}", "[]"] {
            fs::write(record_path(&host), bytes).unwrap();
            assert!(matches!(Record::read(&host), Err(Error::MalformedRecord { .. })), "{bytes}");
        }
        let mut record = Record {
            schema_version: 1,
            stock_sha256: "s".into(),
            graft_sha256: "g".into(),
            replaced_sha256: None,
            donor: "d".into(),
            version: "v".into(),
            options: String::new(),
            strings: None,
            allograft: "a".into(),
            stock: None,
        };
        fs::write(record_path(&host), record.encode()).unwrap();
        assert_eq!(Record::read(&host).unwrap().as_ref(), Some(&record));
        // A record of an earlier release, and one of a later release with more fields.
        let text = String::from_utf8(record.encode()).unwrap();
        fs::write(record_path(&host), text.replacen('{', "{ \"later\": 1,", 1)).unwrap();
        assert_eq!(Record::read(&host).unwrap().as_ref(), Some(&record));
        record.stock = Some(Attributes { mode: 0o755, owner: 0, group: 0, extended: Vec::new() });
        fs::write(record_path(&host), record.encode()).unwrap();
        assert_eq!(Record::read(&host).unwrap().as_ref(), Some(&record));
        record.schema_version = 2;
        fs::write(record_path(&host), record.encode()).unwrap();
        assert!(matches!(Record::read(&host), Err(Error::MalformedRecord { .. })));
    }
}
