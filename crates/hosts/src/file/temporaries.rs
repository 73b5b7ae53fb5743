//! Temporary files and folders: their names, those that a killed run left, and those of this process, which are
//! deleted when a signal ends it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;
use std::{fs, io};

use tempfile::TempPath;

use crate::error::{Error, IoContext};
use crate::file::links;
use crate::file::names::folder_of;

const TEMPORARY: &str = ".allograft-tmp-";
const RANDOM: usize = 6;

/// Names stay in the set when they are free again: no other run uses them, and deleting them again does nothing.
static PATHS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn paths() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the temporary file `path` by `create`. Blocks if this process is ending.
pub(crate) fn create_tracked<T>(path: &Path, create: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let mut paths = paths();
    let made = create(path)?;
    paths.insert(path.to_owned());
    Ok(made)
}

/// While this value exists, no temporary file is made.
pub struct Ending {
    _paths: MutexGuard<'static, BTreeSet<PathBuf>>,
}

/// Deletes every temporary file that this process has made, as the next run would after a kill: each host is then stock
/// or graft, with a record that fits. Other threads may still be working. For a process that a signal ends.
pub fn remove_temporaries() -> Ending {
    let paths = paths();
    for path in paths.iter() {
        if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
            // Another thread may still be writing into the folder; it stops once the folder is gone.
            for _ in 0..100 {
                if remove_folder(path).is_ok() {
                    break;
                }
                sleep(Duration::from_millis(10));
            }
        } else {
            let _ = fs::remove_file(path);
        }
    }
    Ending { _paths: paths }
}

/// Tries once more to delete the temporary files and folders that could not be deleted during the work. Returns those
/// that stay, each with the error.
pub fn left_behind() -> Vec<(PathBuf, io::Error)> {
    let delete = |path: &PathBuf| {
        let found = fs::symlink_metadata(path).ok()?;
        let deleted = if found.is_dir() { remove_folder(path) } else { fs::remove_file(path) };
        Some((path.components().collect(), deleted.err()?))
    };
    paths().iter().filter_map(delete).collect()
}

/// Makes a temporary file, folder or link for `host` in the host's folder by calling `create` with free names.
pub(crate) fn temporary<T>(
    host: &Path,
    mut create: impl FnMut(&Path) -> io::Result<T>,
) -> io::Result<tempfile::NamedTempFile<T>> {
    // The path gets its folder: a relative name would be resolved again after a change of folder.
    let prefix = temporary_prefix(host);
    tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(".tmp")
        .rand_bytes(RANDOM)
        .make_in(folder_of(host), |path| create_tracked(path, &mut create))
}

fn temporary_prefix(host: &Path) -> OsString {
    let mut prefix = OsString::from(TEMPORARY);
    prefix.push(host.file_name().unwrap_or_default());
    prefix.push("-");
    prefix
}

/// Whether `name` is a temporary name that allograft makes for some host.
pub(crate) fn is_temporary(name: &OsStr) -> bool {
    name.as_bytes().starts_with(TEMPORARY.as_bytes()) && name.as_bytes().ends_with(b".tmp")
}

/// The temporary files and folders of `host` that killed runs left behind.
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

/// A folder under a temporary name; deleted with its content unless it gets its final name.
pub(crate) struct TemporaryFolder(Option<TempPath>);

impl TemporaryFolder {
    pub(crate) fn new(path: TempPath) -> TemporaryFolder {
        TemporaryFolder(Some(path))
    }

    /// Makes an empty folder under a temporary name beside `host`.
    pub(crate) fn create(host: &Path) -> Result<TemporaryFolder, Error> {
        let made = temporary(host, |name| fs::create_dir(name)).context(host, "write")?;
        Ok(TemporaryFolder::new(made.into_temp_path()))
    }

    /// Gives the folder `from` a temporary name beside `host`.
    pub(crate) fn moved(from: &Path, host: &Path) -> Result<TemporaryFolder, Error> {
        let moved = temporary(host, |name| links::move_to(from, name)).context(host, "write")?;
        Ok(TemporaryFolder::new(moved.into_temp_path()))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }

    pub(crate) fn persist(mut self, name: &Path) -> io::Result<()> {
        fs::rename(self.path(), name)?;
        if let Some(path) = self.0.take() {
            // The folder has its final name: there is nothing to delete under this one.
            let _ = path.keep();
        }
        Ok(())
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // If the folder stays, [`left_behind`] reports it.
            let _ = remove_folder(&path);
            let _ = path.keep();
        }
    }
}

/// Deletes a folder with its content, even if copies of read-only folders are in it.
pub(crate) fn remove_folder(path: &Path) -> io::Result<()> {
    open_up(path);
    fs::remove_dir_all(path)
}

/// Makes every folder under `path` writable, so that it can be deleted.
fn open_up(path: &Path) {
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(0o700));
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}

/// Whether names can be exchanged in the folder of `host`.
pub(crate) fn can_exchange(host: &Path) -> bool {
    match (new_file(host), new_file(host)) {
        (Ok(one), Ok(other)) => links::exchange(one.path(), other.path()).is_ok(),
        _ => false,
    }
}

/// Creates an empty file for `host` that other users may not read.
pub(crate) fn new_file(host: &Path) -> Result<tempfile::NamedTempFile<File>, Error> {
    temporary(host, |name| {
        use std::os::unix::fs::OpenOptionsExt;
        // Other users may not read it before it has its mode.
        File::options().read(true).write(true).create_new(true).mode(0o600).open(name)
    })
    .context(host, "write")
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
