//! The document of commands whose result is a text: `man` and `completions`.

use serde::Serialize;

/// A manual page, or a completion script.
#[derive(Debug, Serialize)]
pub(crate) struct Text<'t> {
    /// The text that is printed without `--json`.
    pub(crate) text: &'t str,
}
