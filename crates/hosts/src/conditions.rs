//! Under which conditions a target is grafted: what most callers need not say.

use std::io;
use std::path::{Path, PathBuf};

/// What most callers need not say.
#[derive(Clone, Copy, Default)]
pub struct Conditions<'a> {
    /// Told, often, how far work on a large file has got.
    pub progress: Option<&'a dyn Fn(Progress)>,
    /// Replace another allocator that somebody has put into a `libc.a`.
    pub force: bool,
    /// Stock archives to take members from that such a `libc.a` has lost, or folders that hold them.
    pub stock: &'a [PathBuf],
    /// The root folder of an image in which the target lies: symbolic links in a folder start there.
    pub root: Option<&'a Path>,
    /// Told when another allograft has to be waited for, or cannot be kept out.
    pub locking: Option<&'a dyn Fn(Locking<'_>)>,
}

/// What is to be known of a folder that only one allograft should work in at a time.
#[derive(Debug, Clone, Copy)]
pub enum Locking<'a> {
    /// Another one works there, for more than a second already; it is waited for.
    Waiting(&'a Path),
    /// The folder cannot be locked, for this reason; the work goes on.
    Unlocked(&'a Path, &'a io::Error),
}

/// How far work on a large file has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, as a participle: "reading", "packing".
    pub doing: &'static str,
    /// Bytes done.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}

impl<'a> Conditions<'a> {
    pub(crate) fn tell(&self, locking: Locking<'_>) {
        if let Some(tell) = self.locking {
            tell(locking);
        }
    }

    pub(crate) fn report(&self) -> Report<'a> {
        Report(self.progress)
    }
}

/// Whom to tell of progress.
#[derive(Clone, Copy)]
pub(crate) struct Report<'a>(Option<&'a dyn Fn(Progress)>);

impl Report<'_> {
    pub(crate) fn tell(&self, doing: &'static str, done: u64, total: u64) {
        if let Some(tell) = self.0 {
            tell(Progress { doing, done, total });
        }
    }
}
