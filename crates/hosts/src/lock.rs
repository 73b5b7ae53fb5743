//! One allograft at a time in a folder: an advisory lock on the folder itself, which leaves nothing behind.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};

use crate::error::{Error, IoContext};
use crate::record::folder_of;

/// Exclusive locks on folders; given back when dropped (or when the process dies).
pub(crate) struct FolderLocks {
    held: Vec<(PathBuf, File)>,
}

impl FolderLocks {
    /// Locks the folder of each of `files`, waiting for other allografts that work there.
    ///
    /// Folders are locked in the order of their real paths, so that two runs over overlapping trees cannot wait for each
    /// other. Network file systems that cannot lock a folder (flock on a read-only descriptor fails there) are gone
    /// without: the replacement is still atomic, and the host is compared again before it is replaced.
    pub(crate) fn take<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<FolderLocks, Error> {
        let mut folders = BTreeSet::new();
        for file in files {
            let folder = folder_of(file);
            folders.insert(folder.canonicalize().context(folder, "find")?);
        }
        let mut held = Vec::new();
        for folder in folders {
            let handle = File::open(&folder).context(&folder, "open")?;
            if handle.lock().is_ok() {
                held.push((folder, handle));
            }
        }
        Ok(FolderLocks { held })
    }

    /// Whether the folder of `file` is locked by us: then nobody else's temporary files can be in use there.
    pub(crate) fn holds(&self, file: &Path) -> bool {
        folder_of(file).canonicalize().is_ok_and(|folder| self.held.iter().any(|(held, _)| *held == folder))
    }
}
