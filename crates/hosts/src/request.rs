//! A request: the host, the donors and the destination.

use std::ffi::OsString;
use std::path::PathBuf;

/// The donors to graft, the destination, and the ways of doing it.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The allocator; `None`: the host keeps its own.
    pub donor: Option<&'static donors::Donor>,
    /// Whether the string functions are grafted. `None`: into archives, where an allocator still is if they cannot be,
    /// and not into executables.
    pub strings: Option<bool>,
    /// Options of the allocator to bake in: name and value.
    pub settings: Vec<(String, i64)>,
    /// Where to write, leaving the target untouched; `None`: in place, with a backup.
    pub out: Option<PathBuf>,
    /// Plan and verify only.
    pub dry_run: bool,
    /// Replace another allocator that somebody has put into a `libc.a`.
    pub force: bool,
    /// Stock archives to take members from that such a `libc.a` has lost, or folders that hold them.
    pub stock: Vec<PathBuf>,
    /// The root folder of an image in which the target lies: symbolic links in a folder start there.
    pub root: Option<PathBuf>,
    /// Of an executable: the arguments with which stock and graft are run and compared before anything is placed.
    pub arguments: Option<Vec<OsString>>,
    /// Of an executable for another architecture: graft it although its self-test cannot be run here.
    pub untested: bool,
}
