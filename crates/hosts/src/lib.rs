//! Recognises what can be grafted and applies a plan to it, atomically and undoably.
//!
//! The way through, in [`graft`]: a target is recognised, its hosts come from a source, each is planned, edited,
//! verified and proven, and then all are placed, or none.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `request`, `outcome` | what is asked for, and what was done |
//! | `graft` | the way through |
//! | `recognise` | what a target is, told by its content |
//! | `source`, `walk` | the hosts of a target; the `libc.a`s and the grafts under a folder |
//! | `host` | one host from its bytes to a graft that is ready to be placed |
//! | `host_file` | a file that is read once |
//! | `archive` | a static archive as a host |
//! | `executable`, `linked_donor` | a linked executable as a host, and the donor that goes into it |
//! | `planner` | the donors of a request, options filled in |
//! | `proof` | grafts that may be placed: verified and, where they are programs, run |
//! | `self_test` | how a grafted executable is run |
//! | `patience` | how long that may take |
//! | `dynamic` | what is asked of a dynamic program before a donor is merged into it |
//! | `needed` | the shared object that a dynamic program loads: its name, the file, whether that is the donor |
//! | `system` | the files of a system, in whose root folder a dynamic program finds its libraries |
//! | `loader_test` | how a grafted dynamic loader is run |
//! | `merged_test` | how a merged dynamic program is run |
//! | `live` | whether a loader is that of the running system |
//! | `out` | where `-o` may write |
//! | `place` | the order in which backup, record and host are written, and what a killed run leaves |
//! | `staged` | files that are ready to take a name |
//! | `transaction`, `pending` | renames that are taken back together, until the result has been told |
//! | `tree` | a copy of a folder with grafts in it |
//! | `packed` | packed Swift SDK bundles, read and written as streams |
//! | `image` | container images: a layer with the grafts on top |
//! | `emitted` | a file made from a donor alone |
//! | `undo` | the stock host again |
//! | `possible_donor` | which donor a grafted executable may hold |
//! | `bundle`, `swift` | what a Swift SDK bundle says of itself; installed Swift SDKs |
//! | `stock` | what an archive has lost, from stock archives |
//! | `root` | paths in the root folder of an image |
//! | `record`, `sidecar` | the files beside a host, and whether those are ours |
//! | `attributes`, `names`, `digest` | mode, owner and the like of a file; hard links and exchanged names; SHA-256 |
//! | `lock`, `temporaries` | one allograft at a time in a folder; the temporary files of this process |
//! | `watch` | whom to tell of progress |
//! | `error`, `remedy` | why a host was not grafted or not given back, and what to do about it |

mod archive;
mod attributes;
#[cfg(test)]
mod broken;
mod bundle;
mod digest;
mod dynamic;
mod emitted;
mod error;
mod executable;
#[cfg(test)]
mod foreign_owner;
mod graft;
mod host;
mod host_file;
mod image;
#[cfg(test)]
mod killed;
mod linked_donor;
mod live;
mod loader_test;
mod lock;
mod merged_test;
mod names;
mod needed;
#[cfg(test)]
mod once;
mod out;
mod outcome;
mod packed;
mod patience;
mod pending;
mod place;
mod planner;
mod possible_donor;
mod proof;
mod recognise;
mod record;
mod remedy;
mod request;
mod root;
#[cfg(test)]
mod samples;
mod self_test;
mod sidecar;
mod source;
mod staged;
mod stock;
mod swift;
mod system;
mod temporaries;
mod transaction;
mod tree;
mod undo;
mod walk;
mod watch;

pub use archive::{ArchiveOperation, ForeignAllocator, Strings};
pub use attributes::Attributes;
pub use digest::sha256;
pub use emitted::write;
pub use error::{Error, NOT_BUILT};
pub use executable::{ExecutableOperation, is_privileged};
pub use format::StringFunction;
pub use graft::{graft, graft_under};
pub use host::{Carried, Operation};
pub use image::undo as undo_image;
pub use needed::{Emit, NeededError, NeededFile, needed_file};
pub use outcome::{Action, Bundle, Grafted, Grafts, Skipped};
pub use packed::{Format, FoundGraft, PackedError, each_host, unpack_grafts};
pub use patience::Patience;
pub use pending::Pending;
pub use possible_donor::{PossibleDonor, possible_donors, unmatched};
pub use recognise::{Target, is_executable};
pub use record::Record;
pub use remedy::{Obstacle, Remedy};
pub use request::{Candidate, Request};
pub use root::in_root;
pub use self_test::self_test;
pub use swift::locate;
pub use system::System;
pub use temporaries::{Ending, remove_temporaries};
pub use transaction::RollbackFailure;
pub use transplant::{Absence, Edits, StringEntry};
pub use undo::{Undone, UndoneAction, foreign_allocator_in, grafts_in, stock_of, undo, undo_under};
pub use watch::{Locking, Progress, Watch};

/// The version that notes and records name.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
