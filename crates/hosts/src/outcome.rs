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
    /// A graft has other donors, or other options, now.
    Replaced,
    /// It carries exactly these donors with these options already.
    Unchanged,
    /// Nothing yet (`dry_run`): this is what would be done.
    Planned,
}

impl Action {
    /// What replacing a host amounts to that was a graft before, or stock.
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
    /// Whether the graft is what the host was already.
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
    /// Whether there is no self-test among them, since it was waived.
    pub untested: bool,
    /// What the backup could not keep of the stock file: clauses whose subject is the backup.
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
    /// The packed bundle that the hosts lie in, if they do.
    pub bundle: Option<Bundle>,
    /// The container image that was written, if the hosts lie in one.
    pub image: Option<PathBuf>,
    /// The names of the Swift SDKs whose bundle the target is, packed or not.
    pub swift_sdks: Vec<String>,
    /// For copies of a folder: remarks on its other files, as clauses whose subject is the copy.
    pub notes: Vec<String>,
}

impl Grafts {
    /// Hosts that lie in nothing that is worth telling of.
    pub(crate) fn of(hosts: Vec<Grafted>, skipped: Vec<Skipped>) -> Grafts {
        Grafts { hosts, skipped, bundle: None, image: None, swift_sdks: Vec::new(), notes: Vec::new() }
    }
}

/// The action taken on a packed bundle.
#[derive(Debug)]
pub struct Bundle {
    /// The bundle or, with `out`, the file that was written.
    pub path: PathBuf,
    /// With `out`: the bundle that was read.
    pub source: Option<PathBuf>,
    /// How it is packed.
    pub format: Format,
    /// The names of the Swift SDKs in it.
    pub swift_sdks: Vec<String>,
    /// The action taken.
    pub action: Action,
    /// SHA-256 of the file at `path`, which `swift sdk install --checksum` takes; not known of one that is only
    /// planned.
    pub sha256: Option<String>,
    /// SHA-256 of the tar in it before compression, which is independent of the compressor; `None` for one that was
    /// not written, and for a zip.
    pub tar_sha256: Option<String>,
    /// SHA-256 of the stock bundle, where it is known.
    pub stock_sha256: Option<String>,
    /// The backup that `undo` restores, if there is one (with `dry_run`: will be).
    pub backup: Option<PathBuf>,
    /// What the backup could not keep of the stock bundle: clauses whose subject is the backup.
    pub backup_lacks: Vec<String>,
    /// Remarks for the user: clauses whose subject is the bundle.
    pub notes: Vec<String>,
}
