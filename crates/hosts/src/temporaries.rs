//! The temporary files and folders of this process, for the end that a signal brings.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use crate::transaction::remove_folder;

/// Names stay in it when they are free again: nobody else gets them, and to delete them again does nothing.
static PATHS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn paths() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    PATHS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the temporary file `path` by `create`, unless this process is ending: then it waits for that.
pub(crate) fn made<T>(path: &Path, create: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let mut paths = paths();
    let made = create(path)?;
    paths.insert(path.to_owned());
    Ok(made)
}

/// While it is there, no temporary file is made.
pub struct Ending {
    _paths: MutexGuard<'static, BTreeSet<PathBuf>>,
}

/// Deletes every temporary file that this process has made, whatever its other threads are about, as the next run would
/// after a kill: each host is stock or graft, and its record fits. For a process that a signal ends.
pub fn remove_temporaries() -> Ending {
    let paths = paths();
    for path in paths.iter() {
        if fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
            // Another thread may be filling the folder; it ends when it finds the folder gone.
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
