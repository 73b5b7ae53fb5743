//! Checks of the files under the names of a host's backup and record. A file there that allograft did not make would be
//! replaced by a graft and deleted by `undo`, so it is refused.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::digest;
use crate::error::{Error, IoContext};
use crate::file::names::{backup_path, record_path};
use crate::file::signature::kind_of;
use crate::record::Record;

/// Opens a backup or a record; `None` if it does not exist.
///
/// # Errors
/// It is not a regular file. A pipe would block without end, and a device could be read without end.
pub(crate) fn open(path: &Path) -> Result<Option<File>, Error> {
    use std::io::ErrorKind::{InvalidFilename, NotFound};
    let foreign = |kind| Error::ForeignSidecar { path: path.to_owned(), reason: format!("it is {}", kind_of(kind)) };
    match fs::symlink_metadata(path) {
        Ok(there) if there.is_file() => {}
        Ok(there) => return Err(foreign(there.file_type())),
        // A name that is too long cannot belong to any file.
        Err(error) if matches!(error.kind(), NotFound | InvalidFilename) => return Ok(None),
        Err(error) => return Err(error).context(path, "read"),
    }
    // Another process may have replaced it by a pipe or a link since.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = match openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()).context(path, "read"),
    };
    let found = file.metadata().context(path, "read")?;
    if found.is_file() { Ok(Some(file)) } else { Err(foreign(found.file_type())) }
}

/// The content of a backup; `None` if it does not exist.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    let Some(mut file) = open(path)? else { return Ok(None) };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).context(path, "read")?;
    Ok(Some(bytes))
}

/// The SHA-256 of a backup; `None` if it does not exist.
pub(crate) fn sha256(path: &Path) -> Result<Option<String>, Error> {
    open(path)?.map(|file| digest::of_file(&file).context(path, "read")).transpose()
}

/// Refuses a host if writing its backup and record would replace a file that allograft did not make. `stock_sha256`:
/// the host's SHA-256, if it is stock.
pub(crate) fn may_be_written(host: &Path, stock_sha256: Option<&str>) -> Result<(), Error> {
    are_files(host)?;
    stock_sha256.map_or(Ok(()), |stock_sha256| are_ours(host, stock_sha256))
}

/// Refuses a host if the name of its backup or record belongs to something that is not a regular file: a graft would
/// replace it.
fn are_files(host: &Path) -> Result<(), Error> {
    open(&record_path(host))?;
    open(&backup_path(host))?;
    Ok(())
}

/// Refuses a stock host with this SHA-256 if a file that allograft did not make has the name of its backup or record:
/// it would be replaced, and deleted by `undo`. The backup of an earlier graft is recognised by the record.
fn are_ours(host: &Path, stock_sha256: &str) -> Result<(), Error> {
    let foreign = |path: &Path, reason: String| Err(Error::ForeignSidecar { path: path.to_owned(), reason });
    let record = match Record::read(host) {
        Err(Error::MalformedRecord { path, reason }) => return foreign(&path, format!("it is not a record: {reason}")),
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
        // Opening a pipe would block.
        rustix::fs::mknodat(CWD, &path, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        refused("a pipe");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused("a folder");
    }
}
