//! Files that take other files' names, one rename each, and all of it taken back unless the whole succeeds.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::attributes;
use crate::error::{Error, IoContext};
use crate::record::temporary;

/// Replacements made so far. Dropped before `settle`, it takes them back, last one first.
#[derive(Default)]
pub(crate) struct Transaction {
    swapped: Vec<Swapped>,
}

struct Swapped {
    path: PathBuf,
    before: Before,
}

enum Before {
    /// The name was free.
    Nothing,
    /// The file that had the name, under another one.
    Kept(TempPath),
    /// The last step of its transaction, which nothing follows that could fail.
    Final,
}

/// Whether a step can be taken back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// More steps follow: keep what was there.
    Further,
    /// Nothing follows: spare the extra link.
    Last,
}

impl Transaction {
    /// Gives the name `path` to the file `new`, in one rename; temporary names are made after `host`.
    pub(crate) fn swap(&mut self, host: &Path, new: TempPath, path: &Path, step: Step) -> Result<(), Error> {
        let before = match (step, path.try_exists()) {
            (Step::Last, _) => Before::Final,
            (Step::Further, Ok(false)) => Before::Nothing,
            (Step::Further, _) => Before::Kept(second_name(host, path)?),
        };
        new.persist(path).map_err(|error| error.error).context(path, "replace")?;
        self.swapped.push(Swapped { path: path.to_owned(), before });
        Ok(())
    }

    /// Everything succeeded: forgets what was there before.
    pub(crate) fn settle(mut self) {
        self.swapped.clear();
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // The first step that cannot be taken back ends it: record and backup of a host that stays grafted must stay.
        while let Some(Swapped { path, before }) = self.swapped.pop() {
            let taken_back = match before {
                Before::Nothing => fs::remove_file(&path).is_ok(),
                Before::Kept(old) => old.persist(&path).is_ok(),
                Before::Final => true,
            };
            if !taken_back {
                self.swapped.clear();
            }
        }
    }
}

/// A second, temporary name for the file at `path`: a hard link, or where the file system has none, a faithful copy.
pub(crate) fn second_name(host: &Path, path: &Path) -> Result<TempPath, Error> {
    match temporary(host, |name| fs::hard_link(path, name)) {
        Ok(link) => Ok(link.into_temp_path()),
        // No hard links here, or not for this file (fs.protected_hardlinks, immutable files).
        Err(_) => {
            let from = File::open(path).context(path, "read")?;
            let mut copy = new_file(host)?;
            io::copy(&mut &from, copy.as_file_mut()).context(path, "copy")?;
            attributes::carry(&from, copy.as_file()).context(path, "copy")?;
            attributes::carry_times(&from, copy.as_file()).context(path, "copy")?;
            copy.as_file().sync_all().context(path, "copy")?;
            Ok(copy.into_temp_path())
        }
    }
}

/// A new file with `bytes`, safely on disk, with mode, owner and extended attributes of `like`; and what could not be kept.
pub(crate) fn written(host: &Path, bytes: &[u8], like: &File) -> Result<(TempPath, Vec<String>), Error> {
    let mut file = new_file(host)?;
    file.as_file_mut().write_all(bytes).context(host, "write")?;
    let lost = attributes::carry(like, file.as_file()).context(host, "write")?;
    file.as_file().sync_all().context(host, "write")?;
    Ok((file.into_temp_path(), lost))
}

/// A new file for `host`, which nobody else may read, empty.
pub(crate) fn new_file(host: &Path) -> Result<tempfile::NamedTempFile<File>, Error> {
    temporary(host, |name| {
        use std::os::unix::fs::OpenOptionsExt;
        // Nobody else may read it before it has its mode.
        File::options().read(true).write(true).create_new(true).mode(0o600).open(name)
    })
    .context(host, "write")
}

/// Makes renames in `folder` safe against a loss of power, where the file system can do that.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), Error> {
    let handle = File::open(folder).context(folder, "open")?;
    match handle.sync_all() {
        // Some network and FUSE file systems have no fsync for folders.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
        other => other.context(folder, "sync"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn fresh(host: &Path, text: &str) -> TempPath {
        written(host, text.as_bytes(), &File::open(host).unwrap()).unwrap().0
    }

    #[test]
    fn dropped_it_takes_everything_back_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let host = file(folder.path(), "libc.a", "stock");
        let free = folder.path().join("record");
        let mut transaction = Transaction::default();
        transaction.swap(&host, fresh(&host, "record"), &free, Step::Further).unwrap();
        transaction.swap(&host, fresh(&host, "graft"), &host, Step::Further).unwrap();
        assert_eq!(fs::read_to_string(&host).unwrap(), "graft");
        assert!(free.exists());
        drop(transaction);
        assert_eq!(fs::read_to_string(&host).unwrap(), "stock");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn settled_it_stays_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let host = file(folder.path(), "libc.a", "stock");
        let mut transaction = Transaction::default();
        transaction.swap(&host, fresh(&host, "graft"), &host, Step::Further).unwrap();
        transaction.settle();
        assert_eq!(fs::read_to_string(&host).unwrap(), "graft");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
