//! The result of a graft, for the program to report.

use std::path::PathBuf;

use serde::Serialize;

use crate::error::skipped::Skipped;
use crate::file::bundle::Format;
use crate::host::{Carried, Operation};

/// The action taken on a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// Stock was grafted.
    Grafted,
    /// A graft was replaced by one with other donors or options.
    Replaced,
    /// It already carried exactly these donors with these options.
    Unchanged,
    /// Only planned (`dry_run`).
    Planned,
}

impl Action {
    /// The action of replacing a host. `graft`: the host was a graft before.
    pub(crate) fn on(graft: bool, unchanged: bool) -> Action {
        match (graft, unchanged) {
            (_, true) => Action::Unchanged,
            (true, false) => Action::Replaced,
            (false, false) => Action::Grafted,
        }
    }
}

/// One host of a target.
#[derive(Debug)]
pub struct Grafted {
    /// The graft: the host itself or, with `out`, the file that was written.
    pub path: PathBuf,
    /// With `out`: the host that was read.
    pub source: Option<PathBuf>,
    /// The action taken.
    pub action: Action,
    /// The donors that it carried before.
    pub before: Carried,
    /// With `out`: what the file at `path` carried before, if it was a graft.
    pub replaced: Carried,
    /// Whether the graft equals the host that was read.
    pub unchanged: bool,
    /// The edits.
    pub operation: Operation,
    /// SHA-256 of the stock host, where it is known.
    pub stock_sha256: Option<String>,
    /// SHA-256 of the graft.
    pub graft_sha256: String,
    /// The backup that `undo` restores, if there is one (with `dry_run`: will be).
    pub backup: Option<PathBuf>,
    /// The trials before the graft was placed, with their outcomes.
    pub tried: Vec<String>,
    /// Whether the self-test is missing from the trials, because it was waived.
    pub untested: bool,
    /// The attributes of the stock file that the backup could not keep, as clauses whose subject is the backup.
    pub backup_lacks: Vec<String>,
    /// Remarks for the user: clauses whose subject is the host.
    pub notes: Vec<String>,
}

/// All hosts of a target.
#[derive(Debug)]
pub struct Grafts {
    /// Sorted by path. Never empty.
    pub hosts: Vec<Grafted>,
    /// Sorted by path.
    pub skipped: Vec<Skipped>,
    /// The packed bundle that holds the hosts, if one does.
    pub bundle: Option<Bundle>,
    /// The container image that was written, if the hosts are in one.
    pub image: Option<PathBuf>,
    /// The folder with the grafts, if it is one of programs.
    pub installation: Option<PathBuf>,
    /// The number of scripts in that folder, which are not linked.
    pub scripts: usize,
    /// The names of the Swift SDKs whose bundle the target is, packed or not.
    pub swift_sdks: Vec<String>,
    /// For copies of a folder: remarks on its other files, as clauses whose subject is the copy.
    pub notes: Vec<String>,
}

impl Grafts {
    /// The result for hosts that are in neither a bundle nor an image.
    pub(crate) fn new(hosts: Vec<Grafted>, skipped: Vec<Skipped>) -> Grafts {
        Grafts {
            hosts,
            skipped,
            bundle: None,
            image: None,
            installation: None,
            scripts: 0,
            swift_sdks: Vec::new(),
            notes: Vec::new(),
        }
    }
}

/// The action taken on a packed bundle.
#[derive(Debug)]
pub struct Bundle {
    /// The bundle or, with `out`, the file that was written.
    pub path: PathBuf,
    /// With `out`: the bundle that was read.
    pub source: Option<PathBuf>,
    /// Its format.
    pub format: Format,
    /// The names of the Swift SDKs in it.
    pub swift_sdks: Vec<String>,
    /// The action taken.
    pub action: Action,
    /// SHA-256 of the file at `path`, which `swift sdk install --checksum` takes; `None` if the file is only planned.
    pub sha256: Option<String>,
    /// SHA-256 of the tar in it before compression, which is independent of the compressor; `None` for a zip, and if
    /// the file was not written.
    pub tar_sha256: Option<String>,
    /// SHA-256 of the stock bundle, where it is known.
    pub stock_sha256: Option<String>,
    /// The backup that `undo` restores, if there is one (with `dry_run`: will be).
    pub backup: Option<PathBuf>,
    /// The attributes of the stock bundle that the backup could not keep, as clauses whose subject is the backup.
    pub backup_lacks: Vec<String>,
    /// Remarks for the user: clauses whose subject is the bundle.
    pub notes: Vec<String>,
}
