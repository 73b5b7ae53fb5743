//! How an attempt to link and run a program failed.

/// In what way: two failures that are alike here have one cause, as far as can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// A file could not be written or read; it says nothing of the archive.
    Machine,
    /// The linker refused.
    Link,
    /// It was linked, and is not what it should be.
    Contents,
    /// It could not be started.
    Start,
    /// It ended with this exit code.
    Exit(i32),
    /// It died of this signal.
    Signal(i32),
    /// It had to be killed.
    Hang,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) manner: Manner,
    pub(crate) detail: String,
}

impl Failure {
    pub(crate) fn new(manner: Manner, detail: impl Into<String>) -> Self {
        Failure { manner, detail: detail.into() }
    }
}
