//! One allograft at a time in a folder: an advisory lock on the folder itself. A lock file would stay behind after a
//! kill; this lock ends with the process.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::error::{Error, IoContext};
use crate::file::names::folder_of;
use crate::watch::{Locking, Watch};

/// After this time, `watch` is called with the folder that is being waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// Exclusive locks on folders; released when dropped, or when the process ends.
pub(crate) struct FolderLocks {
    held: Vec<(PathBuf, File)>,
}

impl FolderLocks {
    /// Locks the folder of each of `files`, waiting for other allografts that work there.
    ///
    /// Folders are locked in the order of their real paths, so that two runs over overlapping trees cannot wait for
    /// each other. Where a folder cannot be locked, as on some network file systems, the work goes on and `watch` is
    /// called: the replacement is still atomic, and the host is compared again before it is replaced.
    ///
    /// # Errors
    /// A folder is missing, or locking it failed for a reason other than that it cannot be locked.
    pub(crate) fn take<'a>(files: impl IntoIterator<Item = &'a Path>, watch: &Watch<'_>) -> Result<FolderLocks, Error> {
        let mut folders = BTreeSet::new();
        for file in files {
            let folder = folder_of(file);
            folders.insert(folder.canonicalize().context(folder, "find")?);
        }
        let mut held = Vec::new();
        for folder in folders {
            let locked = File::open(&folder).and_then(|handle| {
                let waiting = || watch.locking(Locking::Waiting(&folder));
                patiently(|wait| lock(&handle, wait), waiting).map(|()| handle)
            });
            match locked {
                Ok(handle) => held.push((folder, handle)),
                Err(error) if cannot_lock(&error) => watch.locking(Locking::Unlocked(&folder, &error)),
                Err(error) => return Err(error).context(&folder, "lock"),
            }
        }
        Ok(FolderLocks { held })
    }

    /// Whether this process has locked the folder of `file`: then temporary files of other runs cannot be in use there.
    pub(crate) fn holds(&self, file: &Path) -> bool {
        folder_of(file).canonicalize().is_ok_and(|folder| self.held.iter().any(|(held, _)| *held == folder))
    }
}

/// Locks the folder. Returns `false` if another process has the lock and `wait` is `false`.
fn lock(folder: &File, wait: bool) -> io::Result<bool> {
    if wait {
        return folder.lock().map(|()| true);
    }
    match folder.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Calls `lock(false)` until the lock is taken or [`PATIENCE`] is over; then calls `waiting` once and `lock(true)`.
fn patiently(mut lock: impl FnMut(bool) -> io::Result<bool>, waiting: impl FnOnce()) -> io::Result<()> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(1);
    let mut waiting = Some(waiting);
    loop {
        match lock(waiting.is_none()) {
            Ok(true) => return Ok(()),
            Ok(false) if begin.elapsed() < PATIENCE => {
                sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(50));
            }
            Ok(false) => {
                if let Some(tell) = waiting.take() {
                    tell();
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether the error says that this folder cannot be locked at all. flock(2) on a read-only descriptor fails on some
/// network file systems; a folder that may not be read cannot be opened.
fn cannot_lock(error: &io::Error) -> bool {
    const ERRORS: [Errno; 7] =
        [Errno::NOTSUP, Errno::OPNOTSUPP, Errno::NOSYS, Errno::BADF, Errno::INVAL, Errno::NOLCK, Errno::ACCESS];
    Errno::from_io_error(error).is_some_and(|errno| ERRORS.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn failing(errno: Errno) -> io::Result<bool> {
        Err(errno.into())
    }

    #[test]
    fn interrupted_it_is_tried_again() {
        let tries = Cell::new(0);
        let lock = |_| {
            tries.set(tries.get() + 1);
            if tries.get() < 3 { failing(Errno::INTR) } else { Ok(true) }
        };
        patiently(lock, || panic!("nobody had it")).unwrap();
        assert_eq!(tries.get(), 3);
    }

    #[test]
    fn who_waits_long_is_told_once_and_then_waits() {
        let told = Cell::new(0);
        patiently(Ok, || told.set(told.get() + 1)).unwrap();
        assert_eq!(told.get(), 1);
    }

    #[test]
    fn only_what_cannot_be_locked_is_gone_without() {
        for errno in [Errno::NOTSUP, Errno::BADF, Errno::INVAL, Errno::NOLCK, Errno::NOSYS] {
            let error = patiently(|_| failing(errno), || ()).unwrap_err();
            assert!(cannot_lock(&error), "{errno:?}");
        }
        for errno in [Errno::IO, Errno::NOMEM, Errno::MFILE, Errno::NOENT] {
            let error = patiently(|_| failing(errno), || ()).unwrap_err();
            assert!(!cannot_lock(&error), "{errno:?}");
        }
    }
}
