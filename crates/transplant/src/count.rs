//! How often files were parsed, for tests of other crates: a graft parses each file once.

use std::cell::RefCell;

thread_local! {
    /// The sizes of the files that this thread has parsed, in bytes.
    pub(crate) static PARSED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// Returns the sizes of the files that this thread has parsed since the last call, in bytes.
pub fn parsed() -> Vec<usize> {
    PARSED.take()
}
