//! The document of a command that fails.

use serde::Serialize;

use crate::failure::Failure;

/// Printed in place of the command's own document when the command ends with an error.
#[derive(Debug, Serialize)]
pub(crate) struct Failed<'f> {
    /// The error that ended the command.
    error: Error<'f>,
}

/// An error.
#[derive(Debug, Serialize)]
struct Error<'f> {
    /// What failed, as on standard error. Further lines are what another program said.
    message: String,
    /// The remedy.
    help: &'f str,
    /// The exit code of the program.
    exit_code: u8,
}

impl<'f> From<&'f Failure> for Failed<'f> {
    fn from(failure: &'f Failure) -> Self {
        let (message, help) = (failure.whole(), failure.help.as_str());
        Failed { error: Error { message, help, exit_code: failure.exit_code } }
    }
}
