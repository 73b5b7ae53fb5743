//! The files beside a grafted host: its backup, its record, and temporary files that a killed run left.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::TempPath;

use crate::attributes::{self, Attributes};
use crate::error::{Error, IoContext};
use crate::sidecar;
use crate::temporaries;
use crate::transaction::new_file;

const BACKUP: &str = ".allograft-stock";
const RECORD: &str = ".allograft.json";
const TEMPORARY: &str = ".allograft-tmp-";
const RANDOM: usize = 6;
/// A record has less than a thousand bytes.
const MOST_RECORD: u64 = 1 << 20;

/// The record of a graft, `<name>.allograft.json` beside the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// 1. Fields may be added, never renamed.
    pub schema_version: u32,
    /// SHA-256 of the stock host, which is what the backup holds.
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
    /// Whether `sha256` is a graft of the stock that this record speaks of.
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
        let record: Record = serde_json::from_slice(&bytes).map_err(|error| malformed(error.to_string()))?;
        match record.schema_version {
            1 => Ok(Some(record)),
            other => Err(malformed(format!("schema_version {other}, expected 1"))),
        }
    }

    /// The bytes of the file: JSON, indented, with a newline at the end.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text.into_bytes()
    }

    /// The record in a new file for `host`, safely on disk. It has the owner of the host, where the system permits, and
    /// may be read by those who may read the host; it is no program, whatever the host is.
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

fn beside(host: &Path, suffix: &str) -> PathBuf {
    let mut name = host.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    host.with_file_name(name)
}

/// Where the backup of `host` lies, whether or not there is one.
pub(crate) fn backup_path(host: &Path) -> PathBuf {
    beside(host, BACKUP)
}

/// Where the record of `host` lies, whether or not there is one.
pub(crate) fn record_path(host: &Path) -> PathBuf {
    beside(host, RECORD)
}

/// The host whose backup or record `path` is named like, or `None` for every other name.
pub(crate) fn host_of_sidecar(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.as_bytes();
    let host = [BACKUP, RECORD].iter().find_map(|suffix| name.strip_suffix(suffix.as_bytes()))?;
    if host.is_empty() { None } else { Some(path.with_file_name(OsStr::from_bytes(host))) }
}

/// Whether `path` has the name of a backup.
pub(crate) fn is_backup(path: &Path) -> bool {
    host_of_sidecar(path).is_some_and(|host| path == backup_path(&host))
}

/// The folder that holds `path`; `.` for a bare name.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Makes a temporary file, folder or link for `host` in the host's folder by calling `create` with free names.
pub(crate) fn temporary<T>(
    host: &Path,
    mut create: impl FnMut(&Path) -> io::Result<T>,
) -> io::Result<tempfile::NamedTempFile<T>> {
    // The folder is made explicit: a relative name would be looked up again after a change of folder.
    let prefix = temporary_prefix(host);
    tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(".tmp")
        .rand_bytes(RANDOM)
        .make_in(folder_of(host), |path| temporaries::made(path, &mut create))
}

fn temporary_prefix(host: &Path) -> OsString {
    let mut prefix = OsString::from(TEMPORARY);
    prefix.push(host.file_name().unwrap_or_default());
    prefix.push("-");
    prefix
}

/// Whether `name` is that of a temporary file that an allograft makes for some host.
pub(crate) fn is_temporary(name: &OsStr) -> bool {
    name.as_bytes().starts_with(TEMPORARY.as_bytes()) && name.as_bytes().ends_with(b".tmp")
}

/// The temporary files and folders of `host` that killed runs left.
pub(crate) fn left_temporaries(host: &Path) -> io::Result<Vec<PathBuf>> {
    let prefix = temporary_prefix(host);
    let mut left = Vec::new();
    for entry in fs::read_dir(folder_of(host))? {
        let entry = entry?;
        let name = entry.file_name();
        let random = name.as_bytes().strip_prefix(prefix.as_bytes()).and_then(|rest| rest.strip_suffix(b".tmp"));
        if random.is_some_and(|random| random.len() == RANDOM && random.iter().all(u8::is_ascii_alphanumeric)) {
            left.push(entry.path());
        }
    }
    left.sort();
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sidecars_know_their_host() {
        let host = Path::new("/sdk/lib/libc.a");
        assert_eq!(host_of_sidecar(&backup_path(host)).as_deref(), Some(host));
        assert_eq!(host_of_sidecar(&record_path(host)).as_deref(), Some(host));
        assert_eq!(host_of_sidecar(host), None);
        assert_eq!(host_of_sidecar(Path::new("/sdk/.allograft-stock")), None);
    }

    #[test]
    fn only_own_temporaries_are_left_overs() {
        let folder = tempfile::tempdir().unwrap();
        let host = folder.path().join("libc.a");
        let ours = folder.path().join(".allograft-tmp-libc.a-aB3xYz.tmp");
        for name in [
            ".allograft-tmp-libc.a-aB3xYz.tmp",
            ".allograft-tmp-libc.a-b-aB3xYz.tmp",
            ".allograft-tmp-libd.a-aB3xYz.tmp",
            "libc.a",
        ] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(left_temporaries(&host).unwrap(), [ours]);
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
        // Of an earlier release, and of one that knows more.
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
