//! Programs in a folder, to be named in help.

use std::path::PathBuf;

/// Linked programs under a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Programs {
    /// Their paths, sorted. They start with the given folder.
    pub paths: Vec<PathBuf>,
    /// Whether the search ended before it had seen all.
    pub more: bool,
}
