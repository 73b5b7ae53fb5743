//! An error as the user sees it: a message, a remedy, an exit code.

use std::io;
use std::path::Path;

use hosts::{Pending, RollbackFailure};
use serde::{Deserialize, Serialize};

use crate::remedy;

/// The reason why a command failed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// One line.
    pub(crate) message: String,
    /// Lines of another program's output, shown below the message.
    pub(crate) said: Vec<String>,
    pub(crate) help: Option<String>,
    pub(crate) exit_code: u8,
}

impl Failure {
    /// Returns a failure with exit code 2: wrong usage, or input that cannot be read or is malformed.
    pub(crate) fn usage(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), said: Vec::new(), help: None, exit_code: 2 }
    }

    /// Returns a failure with exit code 3: the request would not be safe, or would do nothing.
    pub(crate) fn refused(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), said: Vec::new(), help: None, exit_code: 3 }
    }

    /// Returns a function that makes a failure of an I/O error with the file or folder at `path`. `verb` is what could
    /// not be done.
    pub(crate) fn io(verb: &str, path: &Path) -> impl Fn(io::Error) -> Failure {
        let what = format!("cannot {verb} `{}`", path.display());
        move |error| Failure::usage(format!("{what}: {error}"))
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
    /// The same failure, where some files are still changed.
    fn not_rolled_back(self, rollback: &RollbackFailure) -> Failure {
        let (message, help) = (format!("{}; {rollback}", self.message), Some(remedy::help(&rollback.remedy())));
        Failure { message, said: self.said, help, exit_code: RollbackFailure::EXIT_CODE }
    }
}

/// Reports the result with `tell`. If that fails, takes everything back, since an exit code other than 0 promises that
/// every file is as it was.
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
