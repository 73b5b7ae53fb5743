//! A file that is left alone.

use std::path::PathBuf;

/// A file that looked like a host, and is left alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}
