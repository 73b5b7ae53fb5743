//! The document of `allograft verify`.

use std::path::Path;

use inspector::verify::{Check, Difference, NotRun};
use serde::Serialize;

use super::text_of;

/// The findings of `verify`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Verified<'v> {
    /// Whether every check passed. What was not run does not count.
    ok: bool,
    /// Whether every check was run: `not_run` is empty.
    complete: bool,
    /// The grafts, sorted by path.
    hosts: Vec<Host>,
    /// The checks, in the order in which they ran.
    checks: Vec<Of<&'v Check>>,
    /// The symbols that differ from stock, in archives. Empty without a stock file.
    differences: Vec<Of<&'v Difference>>,
    /// The checks that could not be run here.
    not_run: Vec<Of<&'v NotRun>>,
}

/// A graft.
#[derive(Debug, Serialize)]
struct Host {
    /// Its path.
    path: String,
    /// The stock file that it was compared with.
    stock: Option<String>,
    /// Whether every check of it passed.
    ok: bool,
}

/// Something that was found out about a graft.
#[derive(Debug, Serialize)]
struct Of<T> {
    /// The graft's path.
    path: String,
    /// The finding.
    #[serde(flatten)]
    found: T,
}

impl<'v> Verified<'v> {
    /// Returns a document without grafts, whose `ok` and `complete` are true.
    pub(crate) fn new() -> Self {
        Verified { ok: true, complete: true, ..Verified::default() }
    }

    /// Adds a graft and the findings about it.
    pub(crate) fn add(
        &mut self,
        path: &Path,
        stock: Option<&Path>,
        checks: &'v [Check],
        differences: &'v [Difference],
        not_run: &'v [NotRun],
    ) {
        let path = text_of(path);
        let ok = checks.iter().all(|check| check.ok);
        self.ok &= ok;
        self.complete &= not_run.is_empty();
        self.checks.extend(of(&path, checks));
        self.differences.extend(of(&path, differences));
        self.not_run.extend(of(&path, not_run));
        self.hosts.push(Host { path, stock: stock.map(text_of), ok });
    }
}

fn of<'v, T>(path: &str, found: &'v [T]) -> impl Iterator<Item = Of<&'v T>> {
    found.iter().map(move |found| Of { path: path.to_owned(), found })
}
