//! An error as the user sees it: a message, what to do about it, an exit code.

use std::io;
use std::path::Path;

use hosts::{Pending, RollbackFailure};
use serde::{Deserialize, Serialize};

use crate::remedy;

/// Why a command did not do what it was asked to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// One line.
    pub(crate) message: String,
    /// Lines that another program said, below the message.
    pub(crate) said: Vec<String>,
    pub(crate) help: Option<String>,
    pub(crate) exit_code: u8,
}

impl Failure {
    /// Wrong usage, or input that cannot be read or is malformed: exit code 2.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), said: Vec::new(), help: None, exit_code: 2 }
    }

    /// What would not be safe, or would do nothing: exit code 3.
    pub(crate) fn refused(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), said: Vec::new(), help: None, exit_code: 3 }
    }

    /// Returns what makes a failure of an error with the file or folder at `path`: `verb` is what could not be done.
    pub(crate) fn io(verb: &str, path: &Path) -> impl Fn(io::Error) -> Failure {
        let what = format!("cannot {verb} `{}`", path.display());
        move |error| Failure::usage(format!("{what}: {error}"))
    }

    /// What another program said for itself: its first line ends the message, the others come below.
    pub(crate) fn saying(mut self, said: &str) -> Failure {
        let mut lines = said.trim().lines();
        if let Some(first) = lines.next() {
            self.message = format!("{}: {first}", self.message);
        }
        self.said.extend(lines.map(|line| line.trim_end().to_owned()));
        self
    }

    /// The message with what another program said.
    pub(crate) fn whole(&self) -> String {
        self.said.iter().fold(self.message.clone(), |text, line| text + "\n  " + line)
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Failure {
        self.help = Some(help.into());
        self
    }
}

impl From<hosts::Error> for Failure {
    fn from(error: hosts::Error) -> Failure {
        let help = Some(remedy::help(&error.remedy()));
        Failure { message: error.to_string(), said: Vec::new(), help, exit_code: error.exit_code() }
    }
}

impl Failure {
    /// The same where files are changed all the same.
    fn not_rolled_back(self, rollback: &RollbackFailure) -> Failure {
        let (message, help) = (format!("{}; {rollback}", self.message), Some(remedy::help(&rollback.remedy())));
        Failure { message, said: self.said, help, exit_code: RollbackFailure::EXIT_CODE }
    }
}

/// Tells the result of what has been done by `tell`; if it cannot be told, everything is taken back, for an exit code
/// that is not 0 says that every file is as it was.
pub(crate) fn told<T>(pending: Pending<T>, tell: impl FnOnce(&T) -> Result<(), Failure>) -> Result<T, Failure> {
    let Err(mut failure) = tell(&pending) else { return Ok(pending.commit()) };
    Err(match pending.roll_back() {
        Ok(()) => {
            failure.help = Some(match failure.help {
                Some(help) => format!("{help}; nothing was changed"),
                None => "nothing was changed".to_owned(),
            });
            failure
        }
        Err(rollback) => failure.not_rolled_back(&rollback),
    })
}
