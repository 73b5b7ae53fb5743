//! The folder of the programs that are measured, which is deleted at the end. Folders that killed runs have left are
//! deleted by the next one.
//!
//! A run holds a lock on its folder, which the kernel gives back when the run ends, however it ends. It makes the mark
//! in the folder only after it has the lock. So a folder with the mark whose lock is free is left over.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tempfile::TempDir;

use crate::failure::{Failure, mend};

/// The prefix of the folders' names.
const PREFIX: &str = "allograft-bench-";
/// The mark of a folder, and its content.
const MARK: &str = ".allograft-bench";
const MARKED: &str = "made by `allograft bench`; deleted by a later run when this one has ended\n";

/// The folder, until it is dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    folder: TempDir,
    /// Holds the lock while the folder is deleted.
    _lock: File,
}

impl Scratch {
    /// Makes a folder, and deletes those of runs that have ended without doing so.
    ///
    /// # Errors
    /// There is no place for temporary files.
    pub(crate) fn new() -> Result<Scratch, Failure> {
        Scratch::at(&env::temp_dir()).map_err(|error| {
            Failure::usage(format!("cannot make a folder for the programs: {error}")).with_help(mend(&error))
        })
    }

    /// Makes a folder in `all`, and deletes those there of runs that have ended without doing so.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn at(all: &Path) -> io::Result<Scratch> {
        let scratch = Scratch::within(all)?;
        scratch.sweep(all);
        Ok(scratch)
    }

    fn within(all: &Path) -> io::Result<Scratch> {
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(all)?;
        let lock = File::open(folder.path())?;
        // If folders cannot be locked, this one gets no mark, so that no other run deletes it.
        if lock.try_lock().is_ok() {
            fs::write(folder.path().join(MARK), MARKED)?;
        }
        Ok(Scratch { folder, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Deletes the folders in `all` that are left over. One that cannot be deleted stays.
    fn sweep(&self, all: &Path) {
        let (Ok(entries), Ok(own)) = (fs::read_dir(all), fs::metadata(self.path())) else { return };
        for entry in entries.flatten() {
            let is_called_so = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
            if is_called_so && is_left_over(&entry.path(), own.uid()).unwrap_or(false) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Whether a folder was made by a run of the user `owner` that has ended.
fn is_left_over(folder: &Path, owner: u32) -> io::Result<bool> {
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != owner {
        return Ok(false);
    }
    let handle = File::open(folder)?;
    let opened = handle.metadata()?;
    if (opened.dev(), opened.ino()) != (found.dev(), found.ino()) || handle.try_lock().is_err() {
        return Ok(false);
    }
    let mark = fs::symlink_metadata(folder.join(MARK))?;
    Ok(mark.is_file() && mark.len() == MARKED.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn folders_of_runs_that_have_ended_are_deleted_and_no_others() {
        let all = tempfile::tempdir().unwrap();
        let running = Scratch::within(all.path()).unwrap();
        fs::write(running.path().join("program"), "in use").unwrap();
        // A killed run leaves the folder, but not the lock.
        let Scratch { folder, _lock } = Scratch::within(all.path()).unwrap();
        let killed = folder.keep();
        drop(_lock);
        fs::create_dir_all(killed.join("arm1")).unwrap();
        let others = ["allograft-bench-notes", "allograft-bench-copy", "other"].map(|name| all.path().join(name));
        others.iter().for_each(|other| fs::create_dir(other).unwrap());
        fs::write(others[1].join(MARK), "somebody's own").unwrap();
        std::os::unix::fs::symlink(&killed, all.path().join("allograft-bench-link")).unwrap();
        running.sweep(all.path());
        assert!(!killed.exists() && running.path().join("program").exists());
        assert!(others.iter().all(|other| other.exists()));
        let path = running.path().to_owned();
        drop(running);
        assert!(!path.exists());
    }

    /// A child may outlive a run: it does not keep the folder.
    #[test]
    fn a_child_does_not_hold_the_lock() {
        let all = tempfile::tempdir().unwrap();
        let Scratch { folder, _lock } = Scratch::within(all.path()).unwrap();
        let folder = folder.keep();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        drop(_lock);
        // The child of a parallel test has a copy of the lock between its fork and its exec, so this asks repeatedly.
        // The child of this test sleeps far longer.
        let owner = fs::metadata(&folder).unwrap().uid();
        let left_over = (0..2000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            is_left_over(&folder, owner).unwrap()
        });
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(left_over);
    }
}
