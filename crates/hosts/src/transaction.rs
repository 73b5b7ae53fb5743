//! Files that take other files' names, one rename each, and all of it taken back unless the whole succeeds.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempPath;

use crate::error::{Error, IoContext};
use crate::names;
use crate::recognise::is_missing;
use crate::record::{folder_of, temporary};
use crate::remedy::Remedy;
use crate::staged::{Staged, StagedFolder};

/// The purpose of a transaction, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Hosts become grafts, with backup and record beside them.
    Graft,
    /// Hosts become stock again.
    Undo,
    /// A file or a folder is written that has nothing beside it.
    Write,
}

/// Renames made so far. Dropped before `commit`, it takes them back as far as that can be done.
pub(crate) struct Transaction {
    purpose: Purpose,
    steps: Vec<Step>,
}

struct Step {
    /// Whose name, backup or record it is.
    host: PathBuf,
    path: PathBuf,
    before: Previous,
}

enum Previous {
    /// The name was free.
    Nothing,
    /// The file that had the name, under another one.
    Kept(TempPath),
    /// The same for a folder.
    KeptFolder(TemporaryFolder),
    /// The file that had the name has this one, which was that of the file that has the name now.
    Exchanged(PathBuf),
}

impl Transaction {
    pub(crate) fn new(purpose: Purpose) -> Transaction {
        Transaction { purpose, steps: Vec::new() }
    }

    /// Gives the name `path` to the file `new`, in one rename; temporary names are made after `host`.
    pub(crate) fn swap(&mut self, host: &Path, new: Staged, path: &Path) -> Result<(), Error> {
        let new = new.into_file();
        let before = match fs::symlink_metadata(path) {
            Err(error) if is_missing(&error) => {
                new.persist(path).map_err(|error| error.error).context(path, "replace")?;
                Previous::Nothing
            }
            _ => match Staged::second_name(host, path) {
                // A second name first: for processes that run the old file, the kernel goes on to name it `path`, with
                // `(deleted)` behind it, where an exchange would show the temporary name (/proc/PID/exe).
                Ok(old) => {
                    new.persist(path).map_err(|error| error.error).context(path, "replace")?;
                    Previous::Kept(old.into_file())
                }
                Err(_) if names::exchange(&new, path).is_ok() => Previous::Kept(new),
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

    /// Gives the name `path` to the folder `new`. There is nothing of this name, or an empty folder.
    pub(crate) fn swap_folder(&mut self, new: StagedFolder, path: &Path) -> Result<(), Error> {
        let new = new.into_folder();
        let before = match fs::symlink_metadata(path) {
            Err(error) if is_missing(&error) => {
                new.persist(path).context(path, "write")?;
                Previous::Nothing
            }
            _ if names::exchange(new.path(), path).is_ok() => Previous::KeptFolder(new),
            _ => {
                let old = temporary(path, |name| names::move_to(path, name)).context(path, "replace")?;
                let old = TemporaryFolder::new(old.into_temp_path());
                self.note(path, path, Previous::KeptFolder(old));
                return new.persist(path).context(path, "write");
            }
        };
        self.note(path, path, before);
        Ok(())
    }

    /// Exchanges the names of `host` and of `other`, a sidecar of it, in one step.
    pub(crate) fn exchange(&mut self, host: &Path, other: &Path) -> io::Result<()> {
        names::exchange(host, other)?;
        self.note(host, host, Previous::Exchanged(other.to_owned()));
        Ok(())
    }

    /// Takes the name `path` from the file that has it, which is deleted in the end. Nothing, if there is none.
    pub(crate) fn remove(&mut self, host: &Path, path: &Path) -> io::Result<()> {
        match temporary(host, |name| names::move_to(path, name)) {
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

    /// Everything succeeded: forgets what was there before.
    pub(crate) fn commit(mut self) {
        self.steps.clear();
    }

    /// Takes everything back, last step first.
    ///
    /// # Errors
    /// What could not be. A step of a host that fails ends it for this host: record and backup of one that stays
    /// grafted must stay.
    pub(crate) fn roll_back(mut self) -> Result<(), RollbackFailure> {
        self.roll_back_all()
    }

    /// `cause`, after everything has been taken back; or both, if that could not be done.
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
                found.leave(path, before);
            } else if let Err((before, error)) = before.restore(&path) {
                let mut found = UnrestoredHost { path: host, changed: false, left: Vec::new(), error };
                found.leave(path, before);
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
        // Whoever can tell of it has called `commit` or `roll_back`.
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
            Previous::KeptFolder(old) => match names::exchange(old.path(), path) {
                Ok(()) => Ok(()),
                Err(_) => remove_folder(path)
                    .or_else(|error| if is_missing(&error) { Ok(()) } else { Err(error) })
                    .and_then(|()| fs::rename(old.path(), path))
                    .map_err(|error| (Previous::KeptFolder(old), error)),
            },
            Previous::Exchanged(other) => {
                names::exchange(path, &other).map_err(|error| (Previous::Exchanged(other), error))
            }
        }
    }
}

/// Files that could not be rolled back after a failure.
#[derive(Debug)]
pub struct RollbackFailure {
    purpose: Purpose,
    hosts: Vec<UnrestoredHost>,
    as_before: Vec<PathBuf>,
}

#[derive(Debug)]
struct UnrestoredHost {
    path: PathBuf,
    /// Whether it has its new content.
    changed: bool,
    /// Other files that are still there.
    left: Vec<PathBuf>,
    error: io::Error,
}

impl UnrestoredHost {
    fn leave(&mut self, path: PathBuf, before: Previous) {
        match () {
            () if path == self.path => self.changed = true,
            () if matches!(before, Previous::Nothing) => self.left.push(path),
            () => {}
        }
    }
}

impl RollbackFailure {
    /// The exit code of a run after which not every file is as it was before, nor as it should be.
    pub const EXIT_CODE: u8 = 4;

    /// The files that are changed all the same.
    pub fn changed(&self) -> impl Iterator<Item = &Path> {
        self.hosts.iter().filter(|host| host.changed).map(|host| host.path.as_path())
    }

    /// The remedy.
    pub fn remedy(&self) -> Remedy {
        let hosts: Vec<PathBuf> = self.hosts.iter().map(|host| host.path.clone()).collect();
        match self.purpose {
            Purpose::Graft => Remedy::Resume { grafting: true, hosts },
            Purpose::Undo => Remedy::Resume { grafting: false, hosts },
            Purpose::Write => Remedy::Delete { files: hosts },
        }
    }
}

impl fmt::Display for RollbackFailure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("what had been done until then could not all be taken back:")?;
        let new = match self.purpose {
            Purpose::Graft => "is the graft now",
            Purpose::Undo => "is stock now",
            Purpose::Write => "is the new file now",
        };
        for (index, host) in self.hosts.iter().enumerate() {
            let separator = if index == 0 { "" } else { ";" };
            let left: Vec<String> = host.left.iter().map(|left| format!("`{}`", left.display())).collect();
            let state = match left.as_slice() {
                _ if host.changed => new.to_owned(),
                [] => "is as it was, without its backup or record".to_owned(),
                left => format!("is as it was, with {} beside it", left.join(" and ")),
            };
            write!(out, "{separator} `{}` {state} ({})", host.path.display(), host.error)?;
        }
        for host in &self.as_before {
            write!(out, "; `{}` is as it was", host.display())?;
        }
        Ok(())
    }
}

/// A folder under a temporary name; deleted with all it holds unless it gets another one.
pub(crate) struct TemporaryFolder(Option<TempPath>);

impl TemporaryFolder {
    pub(crate) fn new(path: TempPath) -> TemporaryFolder {
        TemporaryFolder(Some(path))
    }

    /// Gives the folder `from` a temporary name beside `host`.
    pub(crate) fn moved(from: &Path, host: &Path) -> Result<TemporaryFolder, Error> {
        let moved = temporary(host, |name| names::move_to(from, name)).context(host, "write")?;
        Ok(TemporaryFolder::new(moved.into_temp_path()))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.as_deref().unwrap_or(Path::new(""))
    }

    fn persist(mut self, name: &Path) -> io::Result<()> {
        fs::rename(self.path(), name)?;
        if let Some(path) = self.0.take() {
            // Nothing is left to delete under this name.
            let _ = path.keep();
        }
        Ok(())
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = remove_folder(&path);
            let _ = path.keep();
        }
    }
}

/// Deletes a folder of ours with all it holds, also where copies of read-only folders are in it.
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
        (Ok(one), Ok(other)) => names::exchange(one.path(), other.path()).is_ok(),
        _ => false,
    }
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
    use std::io::Write;

    use super::*;
    use crate::names::lacking;

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

    /// File systems of every kind: hard links and exchange there, or either missing, or both.
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
            // Without both, such a link has no second name: nothing is done then.
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
        // Somebody deletes what was kept of the first.
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
