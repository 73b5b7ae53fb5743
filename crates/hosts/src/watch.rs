//! Callbacks while the work goes on: progress, and locks that are waited for. This crate prints nothing, so the caller
//! decides what is shown.

use std::io;
use std::path::Path;

/// Callbacks for the caller's progress display; none by default.
#[derive(Clone, Copy, Default)]
pub struct Watch<'a> {
    /// Called often, with the progress of the work on a large file.
    pub progress: Option<&'a dyn Fn(Progress)>,
    /// Called when another allograft has to be waited for, or cannot be kept out.
    pub locking: Option<&'a dyn Fn(Locking<'_>)>,
}

/// The state of the lock on a folder, in which only one allograft should work at a time.
#[derive(Debug, Clone, Copy)]
pub enum Locking<'a> {
    /// Another allograft has held the lock for more than a second; this one is waiting.
    Waiting(&'a Path),
    /// The folder cannot be locked, for this reason; the work goes on.
    Unlocked(&'a Path, &'a io::Error),
}

/// The progress of the work on a large file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The activity, as a participle: "reading", "packing".
    pub doing: &'static str,
    /// Bytes done.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

impl Watch<'_> {
    pub(crate) fn locking(&self, locking: Locking<'_>) {
        if let Some(tell) = self.locking {
            tell(locking);
        }
    }

    pub(crate) fn progress(&self, doing: &'static str, done: u64, total: u64) {
        if let Some(tell) = self.progress {
            tell(Progress { doing, done, total });
        }
    }
}
