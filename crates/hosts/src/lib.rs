//! Recognises what can be grafted and applies a plan to it, atomically and undoably.
//!
//! The path, in [`graft`]: a target is recognised, its hosts come from a source, each is planned, edited, verified and
//! proven, and then all are placed, or none.
//!
//! | room | what lives there |
//! | --- | --- |
//! | `error` | why a host was not grafted or not given back, and what to do about it |
//! | `digest`, `watch` | SHA-256; callbacks for progress |
//! | `system` | the files of a system, with the root folder in which a program finds its libraries |
//! | `swift` | the manifest of a Swift SDK bundle; installed Swift SDKs |
//! | `file` | files on disk: signatures, names, temporary files, attributes, links, locks |
//! | `record` | the record of a graft, and the files beside a host |
//! | `request` | the donors to graft, the destination, the confirmations |
//! | `host` | archives and executables: plan, edit, verify |
//! | `outcome` | the result of a graft, to be reported |
//! | `prove` | grafts that may be placed: verified and, where they are programs, run |
//! | `examination` | grafts that were placed long ago: donors compared, and executables with the graft made again |
//! | `transaction` | renames in an order that survives a kill, and their rollback |
//! | `packed` | packed Swift SDK bundles, read and written as streams |
//! | `recognition` | the kind of a target, by its content |
//! | `source` | the hosts of a target: a file, a folder's `libc.a`s or programs, the contents of a bundle |
//! | `sink` | destinations: in place, a file, a folder, a bundle, a file made from a donor alone |
//! | `undo`, `image`, `graft` | the whole path: of an undo, of a container image, and of every other graft |
//! | `trials` | tests that need more than one room: kills, broken edits, foreign owners, counted reads |
//!
//! The rooms form layers, in this order: a room uses only rooms above it. A module is named by its full path, not
//! through a re-export of its room: a room that exported what its own users need would be in a cycle with them.
//! (`tools/src/modules.rs` counts cycles of rooms and of modules; the only one is `host` with its two implementations.)

mod digest;
mod error;
mod examination;
mod file;
mod graft;
mod host;
mod image;
mod outcome;
mod packed;
mod prove;
mod recognition;
mod record;
mod request;
mod sink;
mod source;
mod swift;
mod system;
mod transaction;
#[cfg(test)]
mod trials;
mod undo;
mod watch;

pub use digest::sha256;
pub use error::foreign::{ForeignWays, Replacement};
pub use error::host_kind::HostKind;
pub use error::needed::{Emit, NeededError};
pub use error::packed::PackedError;
pub use error::programs::Programs;
pub use error::remedy::{Obstacle, Remedy};
pub use error::rollback::RollbackFailure;
pub use error::skipped::Skipped;
pub use error::{Error, NOT_BUILT};
pub use examination::archive::{ExaminedArchive, compare_donor, examine_archive};
pub use examination::{Examined, Examiner, examine, examine_and_run};
pub use file::attributes::Attributes;
pub use file::bundle::Format;
pub use file::names::record_path as record_of;
pub use file::temporaries::{Ending, left_behind, remove_temporaries};
pub use format::StringFunction;
pub use graft::{graft, graft_under};
pub use host::archive::{ArchiveOperation, ForeignAllocator, Strings};
pub use host::donor_candidate::{DonorCandidate, donor_candidates, unmatched};
pub use host::executable::ExecutableOperation;
pub use host::needed::{NeededFile, needed_file};
pub use host::{Carried, Operation};
pub use image::origin::{ImageChanges, image_changes};
pub use image::undo as undo_image;
pub use outcome::{Action, Bundle, Grafted, Grafts};
pub use prove::self_test::self_test;
pub use recognition::{Target, is_executable};
pub use record::{Record, backup_among, backup_of, stock_of};
pub use request::{Candidate, Patience, Request};
pub use sink::emitted::{write, write_folder};
pub use source::contents::{UnpackedGraft, for_each_host, unpack_grafts};
pub use source::programs::beside_grafts;
pub use swift::{installed_swift_sdks, locate};
pub use system::System;
pub use system::privileges::is_privileged;
pub use system::root::in_root;
pub use transaction::pending::Pending;
pub use transplant::{Absence, Edits, StringEntry};
pub use undo::{Undone, UndoneAction, foreign_allocator_in, grafts_in, planned_undo, undo, undo_under};
pub use watch::{Locking, Progress, Watch};

/// The version that notes and records name.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
