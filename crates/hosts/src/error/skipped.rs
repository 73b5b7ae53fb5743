//! A file that is left alone.

use std::path::PathBuf;

/// A `libc.a` that a folder holds and that is none of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}
