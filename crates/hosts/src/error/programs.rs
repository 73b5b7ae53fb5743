//! Programs in a folder that has no `libc.a` to graft.

use std::path::PathBuf;

/// Linked programs under a folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Programs {
    /// Their paths, sorted. They start with the given folder.
    pub paths: Vec<PathBuf>,
    /// Whether the search ended before it had seen all.
    pub more: bool,
}

/// Returns how many there are, as the end of a message; an empty text without any.
pub(super) fn beside(programs: &Programs) -> String {
    match (programs.paths.len(), programs.more) {
        (0, _) => String::new(),
        (1, false) => ", but 1 program".to_owned(),
        (count, false) => format!(", but {count} programs"),
        (count, true) => format!(", but over {count} programs"),
    }
}
