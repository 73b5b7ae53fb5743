//! Files that could not be rolled back after a failure. The error names each of them with its state, since no other
//! failure leaves a host changed.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use super::remedy::Remedy;

/// The purpose of a transaction, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Hosts become grafts, with backup and record beside them.
    Graft,
    /// Hosts become stock again.
    Undo,
    /// A file or a folder is written, without a backup or record beside it.
    Write,
}

/// Files that could not be rolled back after a failure.
#[derive(Debug)]
pub struct RollbackFailure {
    pub(crate) purpose: Purpose,
    pub(crate) hosts: Vec<UnrestoredHost>,
    pub(crate) as_before: Vec<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct UnrestoredHost {
    pub(crate) path: PathBuf,
    /// Whether it has the new content.
    changed: bool,
    /// Other files that are still there.
    left: Vec<PathBuf>,
    error: io::Error,
}

impl UnrestoredHost {
    /// A host for which `error` stopped the rollback.
    pub(crate) fn new(path: PathBuf, error: io::Error) -> UnrestoredHost {
        UnrestoredHost { path, changed: false, left: Vec::new(), error }
    }

    /// Records that the change to `path`, one of this host's files, was not rolled back. `is_new`: the name was free
    /// before.
    pub(crate) fn leave(&mut self, path: PathBuf, is_new: bool) {
        if path == self.path {
            self.changed = true;
        } else if is_new {
            self.left.push(path);
        }
    }
}

impl RollbackFailure {
    /// The exit code of a run that left a file in neither its old nor its new state.
    pub const EXIT_CODE: u8 = 4;

    /// The files that are still changed.
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
        out.write_str("not every change made until then could be rolled back:")?;
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
