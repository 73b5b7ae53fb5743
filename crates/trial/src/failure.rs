//! A failed attempt to link and run a program.

/// The kind of a failure. Two failures of one kind have the same cause, as far as that can be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// A file could not be written or read. The archive is not the cause.
    Machine,
    /// The linker failed.
    Link,
    /// It was linked, but its contents are wrong.
    Contents,
    /// It could not be started.
    Start,
    /// It ended with this exit code.
    Exit(i32),
    /// A signal ended it.
    Signal(i32),
    /// It exceeded the time limit and was killed.
    Hang,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) kind: FailureKind,
    pub(crate) detail: String,
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, detail: impl Into<String>) -> Self {
        Failure { kind, detail: detail.into() }
    }
}
