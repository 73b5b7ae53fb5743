//! Files under the names of a host's backup and record: what they are, and whether they are ours.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::digest;
use crate::error::{Error, IoContext};
use crate::file::names::{backup_path, record_path};
use crate::file::signature::kind_of;
use crate::record::Record;

/// Opens a backup or a record; `None` if there is none.
///
/// # Errors
/// Anything but a regular file is none of ours: a pipe would be waited for without end, a device read without end.
pub(crate) fn open(path: &Path) -> Result<Option<File>, Error> {
    use std::io::ErrorKind::{InvalidFilename, NotFound};
    let foreign = |kind| Error::ForeignSidecar { path: path.to_owned(), reason: format!("it is {}", kind_of(kind)) };
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() => {}
        Ok(there) => return Err(foreign(there.file_type())),
        // A name that is too long for a backup is that of none.
        Err(error) if matches!(error.kind(), NotFound | InvalidFilename) => return Ok(None),
        Err(error) => return Err(error).context(path, "read"),
    }
    // It may have become something else since.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()).context(path, "read"),
    };
    let found = file.metadata().context(path, "read")?;
    if found.is_file() { Ok(Some(file)) } else { Err(foreign(found.file_type())) }
}

/// All that a backup holds; `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let Some(mut file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).context(path, "read")?;
    Ok(Some(bytes))
}

/// The SHA-256 of a backup; `None` if there is none.
pub(crate) fn sha256(path: &Path) -> Result<Option<String>, Error> {
    open(path)?.map(|file| digest::of_file(&file).context(path, "read")).transpose()
}

/// Refuses a host beside which a graft could not put its backup and its record without taking what is not ours. The
/// host has this SHA-256 if it is stock.
pub(crate) fn may_be_written(host: &Path, stock_sha256: Option<&str>) -> Result<(), Error> {
    are_files(host)?;
    stock_sha256.map_or(Ok(()), |stock_sha256| are_ours(host, stock_sha256))
}

/// Refuses a host beside which something has the name of its backup or record that is no regular file: a graft would
/// put its own in that place.
fn are_files(host: &Path) -> Result<(), Error> {
    open(&record_path(host))?;
    open(&backup_path(host))?;
    Ok(())
}

/// Refuses a stock host with this SHA-256 beside which a file has the name of its backup or record that allograft has
/// not made: it would be replaced, and deleted by `undo`. The backup of an earlier graft is ours, by what the record
/// says.
fn are_ours(host: &Path, stock_sha256: &str) -> Result<(), Error> {
    let foreign = |path: &Path, reason: String| Err(Error::ForeignSidecar { path: path.to_owned(), reason });
    let record = match Record::read(host) {
        Err(Error::MalformedRecord { path, reason }) => return foreign(&path, format!("it is no record: {reason}")),
        other => other?,
    };
    let backup = backup_path(host);
    let Some(found) = sha256(&backup)? else { return Ok(()) };
    let known = record.is_some_and(|record| record.stock_sha256 == found || record.knows(&found));
    if known || found == stock_sha256 {
        return Ok(());
    }
    foreign(&backup, format!("it is not the stock file of `{}`, and no record names it", host.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libc.a.allograft-stock");
        assert!(open(&path).unwrap().is_none());
        assert!(open(&folder.path().join("x".repeat(300))).unwrap().is_none());
        fs::write(&path, "stock").unwrap();
        assert_eq!(read(&path).unwrap().unwrap(), b"stock");
        fs::remove_file(&path).unwrap();
        let refused = |found: &str| {
            let error = open(&path).unwrap_err();
            assert_eq!(error.exit_code(), 3);
            assert!(error.to_string().contains(found), "{error}");
        };
        symlink("/dev/zero", &path).unwrap();
        refused("a symbolic link");
        fs::remove_file(&path).unwrap();
        // Opened, it would be waited for.
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        refused("a pipe");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused("a folder");
    }
}
