//! An error as the user sees it: a message, a remedy, an exit code.

use std::io;
use std::path::Path;

use hosts::{Pending, RollbackFailure};
use serde::{Deserialize, Serialize};

use crate::remedy;

/// Help for a bug in allograft.
pub(crate) const REPORT: &str = "this is a bug in allograft: please report it, with the command line";

/// The reason why a command failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// One line.
    pub(crate) message: String,
    /// Lines of another program's output, shown below the message.
    pub(crate) said: Vec<String>,
    /// The remedy.
    pub(crate) help: String,
    pub(crate) exit_code: u8,
}

/// A failure without its remedy.
#[must_use]
pub(crate) struct Problem {
    message: String,
    exit_code: u8,
}

impl Problem {
    /// Returns the failure. `help` says what to do about it.
    pub(crate) fn with_help(self, help: impl Into<String>) -> Failure {
        let Problem { message, exit_code } = self;
        Failure { message, said: Vec::new(), help: help.into(), exit_code }
    }
}

/// Returns what to do about an error of the system.
pub(crate) fn mend(error: &io::Error) -> &'static str {
    use io::ErrorKind::{
        IsADirectory, NotADirectory, NotFound, OutOfMemory, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem,
        StorageFull,
    };
    match error.kind() {
        NotFound => "check the name: there is nothing of that name there",
        PermissionDenied => "get the permission, or work as a user who has it",
        StorageFull | QuotaExceeded => "make room there, or set TMPDIR to a folder with room if it is a temporary file",
        ReadOnlyFilesystem => "name a place that can be written to",
        IsADirectory => "name a file",
        NotADirectory => "name a folder",
        OutOfMemory => "free memory, or raise the limit (`ulimit -a`)",
        _ => "mend what the system says, and run the command again",
    }
}

impl Failure {
    /// Returns a failure with exit code 1: the check says no.
    pub(crate) fn unexpected(message: impl Into<String>) -> Problem {
        Problem { message: message.into(), exit_code: 1 }
    }

    /// Returns a failure with exit code 2: wrong usage, or input that cannot be read or is malformed.
    pub(crate) fn usage(message: impl Into<String>) -> Problem {
        Problem { message: message.into(), exit_code: 2 }
    }

    /// Returns a failure with exit code 3: the request would not be safe, or would do nothing.
    pub(crate) fn refused(message: impl Into<String>) -> Problem {
        Problem { message: message.into(), exit_code: 3 }
    }

    /// Returns a function that makes a failure of an I/O error with the file or folder at `path`. `verb` is what could
    /// not be done.
    pub(crate) fn io(verb: &str, path: &Path) -> impl Fn(io::Error) -> Failure {
        let what = format!("cannot {verb} `{}`", path.display());
        move |error| Failure::usage(format!("{what}: {error}")).with_help(mend(&error))
    }

    /// Returns a failure with exit code 4: a temporary file or folder stays.
    pub(crate) fn left(path: &Path, error: &io::Error) -> Failure {
        let message = format!("cannot delete `{}`, which is temporary: {error}", path.display());
        let help = "delete it: everything else is as this command says".to_owned();
        Failure { message, said: Vec::new(), help, exit_code: RollbackFailure::EXIT_CODE }
    }

    /// Adds another program's output: its first line ends the message, the others come below it.
    pub(crate) fn saying(mut self, said: &str) -> Failure {
        let mut lines = said.trim().lines();
        if let Some(first) = lines.next() {
            self.message = format!("{}: {first}", self.message);
        }
        self.said.extend(lines.map(|line| line.trim_end().to_owned()));
        self
    }

    /// The message and the other program's output below it.
    pub(crate) fn whole(&self) -> String {
        self.said.iter().fold(self.message.clone(), |text, line| text + "\n  " + line)
    }

    /// Replaces what to do about it.
    pub(crate) fn with_help(self, help: impl Into<String>) -> Failure {
        Failure { help: help.into(), ..self }
    }
}

impl From<hosts::Error> for Failure {
    fn from(error: hosts::Error) -> Failure {
        let help = remedy::help(&error.remedy());
        Failure { message: error.to_string(), said: Vec::new(), help, exit_code: error.exit_code() }
    }
}

impl Failure {
    /// Adds that some files are still changed.
    fn not_rolled_back(self, rollback: &RollbackFailure) -> Failure {
        let (message, help) = (format!("{}; {rollback}", self.message), remedy::help(&rollback.remedy()));
        Failure { message, said: self.said, help, exit_code: RollbackFailure::EXIT_CODE }
    }
}

/// Reports the result with `report`. If that fails, rolls everything back, since an exit code other than 0 promises
/// that every file is unchanged.
pub(crate) fn commit_reported<T>(
    pending: Pending<T>,
    report: impl FnOnce(&T) -> Result<(), Failure>,
) -> Result<T, Failure> {
    let Err(mut failure) = report(&pending) else { return Ok(pending.commit()) };
    Err(match pending.roll_back() {
        Ok(()) => {
            failure.help += "; nothing was changed";
            failure
        }
        Err(rollback) => failure.not_rolled_back(&rollback),
    })
}
