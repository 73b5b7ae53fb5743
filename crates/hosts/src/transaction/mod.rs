//! Gives files new names, one rename each, and rolls all of it back unless everything succeeds. A reader never sees
//! half a file, and a folder of many hosts is grafted as a whole or not at all.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `staged` | files that are ready to take a name |
//! | `place` | the order in which backup, record and host are written, and the states that a kill can leave |
//! | `pending` | a result that can be rolled back until it has been reported |

pub(crate) mod pending;
pub(crate) mod place;
pub(crate) mod staged;

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::error::rollback::{Purpose, RollbackFailure, UnrestoredHost};
use crate::error::{Error, IoContext, is_missing};
use crate::file::links;
use crate::file::names::folder_of;
use crate::file::temporaries::{TemporaryFolder, remove_folder, temporary};
use crate::transaction::staged::{Staged, StagedFolder};

/// The renames made so far. Dropped before `commit`, it rolls them back as far as possible.
pub(crate) struct Transaction {
    purpose: Purpose,
    steps: Vec<Step>,
}

struct Step {
    /// The host to which the name belongs: its own, its backup's or its record's.
    host: PathBuf,
    path: PathBuf,
    before: Previous,
}

enum Previous {
    /// The name was free.
    Nothing,
    /// The file that had the name, under a temporary one.
    Kept(TempPath),
    /// The folder that had the name, under a temporary one.
    KeptFolder(TemporaryFolder),
    /// The two files have exchanged names: the one that had the name has this one now.
    Exchanged(PathBuf),
}

impl Transaction {
    pub(crate) fn new(purpose: Purpose) -> Transaction {
        Transaction { purpose, steps: Vec::new() }
    }

    /// Gives the name `path` to the file `new`, in one rename. Temporary names begin with the name of `host`.
    pub(crate) fn swap(&mut self, host: &Path, new: Staged, path: &Path) -> Result<(), Error> {
        let new = new.into_file();
        let before = match fs::symlink_metadata(path) {
            Err(error) if is_missing(&error) => {
                new.persist(path).map_err(|error| error.error).context(path, "replace")?;
                Previous::Nothing
            }
            _ => match Staged::second_name(host, path) {
                // A second name first: the kernel then still names the old file `path (deleted)` in /proc/PID/exe of
                // the processes that run it. After an exchange it would show the temporary name.
                Ok(old) => {
                    new.persist(path).map_err(|error| error.error).context(path, "replace")?;
                    Previous::Kept(old.into_file())
                }
                Err(_) if links::exchange(&new, path).is_ok() => Previous::Kept(new),
                Err(_) => {
                    let (old, _) = Staged::copy(host, path)?;
                    new.persist(path).map_err(|error| error.error).context(path, "replace")?;
                    Previous::Kept(old.into_file())
                }
            },
        };
        self.note(host, path, before);
        Ok(())
    }

    /// Gives the name `path` to the file `new`, which has neither backup nor record.
    pub(crate) fn write(&mut self, new: Staged, path: &Path) -> Result<(), Error> {
        self.swap(path, new, path)?;
        // The file is in place. That a crash of the machine could still undo the rename is not a failure.
        let _ = sync_folder(folder_of(path));
        Ok(())
    }

    /// Gives the name `path`, which is free or an empty folder's, to the folder `new`.
    pub(crate) fn write_folder(&mut self, new: StagedFolder, path: &Path) -> Result<(), Error> {
        self.swap_folder(new, path)?;
        let _ = sync_folder(folder_of(path));
        Ok(())
    }

    fn swap_folder(&mut self, new: StagedFolder, path: &Path) -> Result<(), Error> {
        let new = new.into_folder();
        let before = match fs::symlink_metadata(path) {
            Err(error) if is_missing(&error) => {
                new.persist(path).context(path, "write")?;
                Previous::Nothing
            }
            _ if links::exchange(new.path(), path).is_ok() => Previous::KeptFolder(new),
            _ => {
                let old = temporary(path, |name| links::move_to(path, name)).context(path, "replace")?;
                let old = TemporaryFolder::new(old.into_temp_path());
                self.note(path, path, Previous::KeptFolder(old));
                return new.persist(path).context(path, "write");
            }
        };
        self.note(path, path, before);
        Ok(())
    }

    /// Exchanges the names of `host` and its sidecar `other`, in one step.
    pub(crate) fn exchange(&mut self, host: &Path, other: &Path) -> io::Result<()> {
        links::exchange(host, other)?;
        self.note(host, host, Previous::Exchanged(other.to_owned()));
        Ok(())
    }

    /// Takes the name `path` from its file, which `commit` deletes. Does nothing if the name is free.
    pub(crate) fn remove(&mut self, host: &Path, path: &Path) -> io::Result<()> {
        match temporary(host, |name| links::move_to(path, name)) {
            Ok(moved) => {
                self.note(host, path, Previous::Kept(moved.into_temp_path()));
                Ok(())
            }
            Err(error) if is_missing(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn note(&mut self, host: &Path, path: &Path, before: Previous) {
        self.steps.push(Step { host: host.to_owned(), path: path.to_owned(), before });
    }

    /// Everything succeeded: deletes the replaced files.
    pub(crate) fn commit(mut self) {
        self.steps.clear();
    }

    /// Rolls everything back, last step first.
    ///
    /// # Errors
    /// The steps that could not be rolled back. After a failed step, the host's earlier steps stay: a host that stays
    /// grafted must keep its record and backup.
    pub(crate) fn roll_back(mut self) -> Result<(), RollbackFailure> {
        self.roll_back_all()
    }

    /// Rolls everything back and returns `cause`; if the rollback fails, returns both errors.
    pub(crate) fn failed(self, cause: Error) -> Error {
        match self.roll_back() {
            Ok(()) => cause,
            Err(failure) => Error::RollbackFailed { cause: Box::new(cause), failure },
        }
    }

    fn roll_back_all(&mut self) -> Result<(), RollbackFailure> {
        let hosts: BTreeSet<PathBuf> = self.steps.iter().map(|step| step.host.clone()).collect();
        let mut failure = RollbackFailure { purpose: self.purpose, hosts: Vec::new(), as_before: Vec::new() };
        while let Some(Step { host, path, before }) = self.steps.pop() {
            if let Some(found) = failure.hosts.iter_mut().find(|failure| failure.path == host) {
                found.leave(path, matches!(before, Previous::Nothing));
            } else if let Err((before, error)) = before.restore(&path) {
                let mut found = UnrestoredHost::new(host, error);
                found.leave(path, matches!(before, Previous::Nothing));
                failure.hosts.push(found);
            }
        }
        for folder in hosts.iter().map(|host| folder_of(host)).collect::<BTreeSet<_>>() {
            let _ = sync_folder(folder);
        }
        failure.as_before = hosts.into_iter().filter(|host| failure.hosts.iter().all(|s| s.path != *host)).collect();
        if failure.hosts.is_empty() { Ok(()) } else { Err(failure) }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // A caller that can report an error has called `commit` or `roll_back` before.
        let _ = self.roll_back_all();
    }
}

impl Previous {
    fn restore(self, path: &Path) -> Result<(), (Previous, io::Error)> {
        match self {
            Previous::Nothing => {
                let removed = match fs::symlink_metadata(path).is_ok_and(|found| found.is_dir()) {
                    true => remove_folder(path),
                    false => fs::remove_file(path),
                };
                removed.map_err(|error| (Previous::Nothing, error))
            }
            Previous::Kept(old) => old.persist(path).map_err(|error| (Previous::Kept(error.path), error.error)),
            Previous::KeptFolder(old) => match links::exchange(old.path(), path) {
                Ok(()) => Ok(()),
                Err(_) => remove_folder(path)
                    .or_else(|error| if is_missing(&error) { Ok(()) } else { Err(error) })
                    .and_then(|()| fs::rename(old.path(), path))
                    .map_err(|error| (Previous::KeptFolder(old), error)),
            },
            Previous::Exchanged(other) => {
                links::exchange(path, &other).map_err(|error| (Previous::Exchanged(other), error))
            }
        }
    }
}

/// Syncs renames in `folder` to disk, if the file system can.
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
    use std::io::Write;

    use super::*;
    use crate::error::remedy::Remedy;
    use crate::file::links::lacking;
    use crate::file::temporaries::new_file;
    use std::os::unix::fs::PermissionsExt;

    fn file(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        path
    }

    fn fresh(host: &Path, text: &str) -> Staged {
        let mut new = new_file(host).unwrap();
        new.as_file_mut().write_all(text.as_bytes()).unwrap();
        Staged::container(new.into_temp_path(), |_| Ok(())).unwrap()
    }

    /// Runs `work` with hard links and exchange available, with either missing, and with both missing.
    fn on_each(work: impl Fn()) {
        for (links, exchange) in [(false, false), (true, false), (false, true), (true, true)] {
            lacking::without(links, exchange, &work);
        }
    }

    #[test]
    fn taken_back_it_leaves_nothing() {
        on_each(|| {
            let folder = tempfile::tempdir().unwrap();
            let host = file(folder.path(), "libc.a", "stock");
            let free = folder.path().join("record");
            let other = file(folder.path(), "other", "other");
            let mut transaction = Transaction::new(Purpose::Graft);
            transaction.swap(&host, fresh(&host, "record"), &free).unwrap();
            transaction.swap(&host, fresh(&host, "graft"), &host).unwrap();
            transaction.remove(&host, &other).unwrap();
            transaction.remove(&host, &folder.path().join("missing")).unwrap();
            assert_eq!(fs::read_to_string(&host).unwrap(), "graft");
            assert!(free.exists() && !other.exists());
            transaction.roll_back().unwrap();
            assert_eq!(fs::read_to_string(&host).unwrap(), "stock");
            assert_eq!(fs::read_to_string(&other).unwrap(), "other");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        });
    }

    #[test]
    fn settled_it_stays_and_leaves_nothing() {
        on_each(|| {
            let folder = tempfile::tempdir().unwrap();
            let host = file(folder.path(), "libc.a", "stock");
            let mut transaction = Transaction::new(Purpose::Graft);
            transaction.swap(&host, fresh(&host, "graft"), &host).unwrap();
            let moved = file(folder.path(), "moved", "");
            transaction.remove(&host, &moved).unwrap();
            transaction.commit();
            assert_eq!(fs::read_to_string(&host).unwrap(), "graft");
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        });
    }

    #[test]
    fn a_folder_takes_the_place_of_an_empty_one() {
        on_each(|| {
            let outer = tempfile::tempdir().unwrap();
            for (out, keep) in [("new", true), ("new2", false), ("there", false), ("there", true)] {
                let out = outer.path().join(out);
                if out.ends_with("there") && !out.exists() {
                    fs::create_dir(&out).unwrap();
                }
                let before = out.exists();
                let new = temporary(&out, |path| fs::create_dir(path)).unwrap().into_temp_path();
                fs::create_dir_all(new.join("a/b")).unwrap();
                fs::set_permissions(new.join("a"), fs::Permissions::from_mode(0o555)).unwrap();
                let mut transaction = Transaction::new(Purpose::Write);
                let new = StagedFolder::container(TemporaryFolder::new(new), |_| Ok(())).unwrap();
                transaction.swap_folder(new, &out).unwrap();
                assert!(out.join("a/b").is_dir());
                if keep {
                    transaction.commit();
                    assert!(out.join("a/b").is_dir());
                } else {
                    transaction.roll_back().unwrap();
                    assert_eq!(out.exists(), before);
                    assert!(!out.join("a").exists());
                }
            }
            assert_eq!(fs::read_dir(outer.path()).unwrap().count(), 2, "no temporary folder is left");
        });
    }

    #[test]
    fn a_link_that_leads_nowhere_comes_back() {
        on_each(|| {
            let folder = tempfile::tempdir().unwrap();
            let host = file(folder.path(), "libc.a", "stock");
            let link = folder.path().join("out.a");
            std::os::unix::fs::symlink("nowhere", &link).unwrap();
            let mut transaction = Transaction::new(Purpose::Write);
            // Without hard links and exchange, such a link cannot be kept: it is refused.
            let done = transaction.swap(&link, fresh(&host, "graft"), &link);
            assert!(done.is_err() || fs::read_to_string(&link).unwrap() == "graft");
            transaction.roll_back().unwrap();
            assert_eq!(fs::read_link(&link).unwrap(), Path::new("nowhere"));
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        });
    }

    #[test]
    fn what_cannot_be_taken_back_is_named_with_what_could() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = ["a", "b"].map(|name| file(folder.path(), name, "stock"));
        let mut transaction = Transaction::new(Purpose::Graft);
        for host in &hosts {
            let record = host.with_extension("record");
            transaction.swap(host, fresh(host, "record"), &record).unwrap();
            transaction.swap(host, fresh(host, "graft"), host).unwrap();
        }
        // Another process deletes the kept file of the first host.
        for entry in fs::read_dir(folder.path()).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with(".allograft-tmp-a-") {
                fs::remove_file(entry.path()).unwrap();
            }
        }
        let failure = transaction.roll_back().unwrap_err();
        assert_eq!(failure.changed().collect::<Vec<_>>(), [hosts[0].as_path()]);
        let text = failure.to_string();
        assert!(text.contains("a` is the graft now (No such file"), "{text}");
        assert!(text.contains("b` is as it was"), "{text}");
        assert!(matches!(failure.remedy(), Remedy::Resume { grafting: true, .. }));
        assert_eq!(fs::read_to_string(&hosts[0]).unwrap(), "graft");
        assert!(hosts[0].with_extension("record").exists(), "no graft without its record");
        assert_eq!(fs::read_to_string(&hosts[1]).unwrap(), "stock");
        assert!(!hosts[1].with_extension("record").exists());
    }
}
