//! Recognises what can be grafted and applies a plan to it, atomically and undoably.
//!
//! The way through, in [`graft`]: a target is recognised, its hosts come from a source, each is planned, edited,
//! verified and proven, and then all are placed, or none.
//!
//! | room | what lives there |
//! | --- | --- |
//! | `request`, `outcome` | what is asked for, and what was done |
//! | `graft`, `undo` | the ways through, there and back |
//! | `target` | what a target is, by its content, and the file itself, which is read once |
//! | `source` | the hosts of a target; the `libc.a`s and the grafts under a folder |
//! | `host` | one host from its bytes to a graft that is ready to be placed: archives and executables |
//! | `prove` | grafts that may be placed: verified and, where they are programs, run |
//! | `sink` | where `-o` may write: a copy of a folder, a file made from a donor alone |
//! | `packed` | packed Swift SDK bundles, read and written as streams |
//! | `image` | container images: a layer with the grafts on top |
//! | `transaction` | the files that take names, in which order, and how all of it is taken back |
//! | `record` | the files beside a host, and whether those are ours |
//! | `system` | the files of a system, with the root folder in which a program finds its libraries |
//! | `swift` | what a Swift SDK bundle says of itself; installed Swift SDKs |
//! | `error` | why a host was not grafted or not given back, and what to do about it |
//! | `digest`, `watch` | SHA-256; whom to tell of progress |
//! | `trials` | tests that need more than one room: kills, broken edits, foreign owners, counted reads |
//!
//! The rooms form layers: `error` uses none of the others, and `graft` and `undo` use all. Modules are named by their
//! full paths, not through re-exports of a room: a room that exported what its own users need would be in a cycle with
//! them. (A tidy test counts the largest cycle.)

mod digest;
mod error;
mod graft;
mod host;
mod image;
mod outcome;
mod packed;
mod prove;
mod record;
mod request;
mod sink;
mod source;
mod swift;
mod system;
mod target;
mod transaction;
#[cfg(test)]
mod trials;
mod undo;
mod watch;

pub use digest::sha256;
pub use error::needed::{Emit, NeededError};
pub use error::packed::PackedError;
pub use error::remedy::{Obstacle, Remedy};
pub use error::rollback::RollbackFailure;
pub use error::skipped::Skipped;
pub use error::{Error, NOT_BUILT};
pub use format::StringFunction;
pub use graft::{graft, graft_under};
pub use host::archive::{ArchiveOperation, ForeignAllocator, Strings};
pub use host::executable::ExecutableOperation;
pub use host::needed::{NeededFile, needed_file};
pub use host::possible_donor::{PossibleDonor, possible_donors, unmatched};
pub use host::{Carried, Operation};
pub use image::undo as undo_image;
pub use outcome::{Action, Bundle, Grafted, Grafts};
pub use packed::contents::{FoundGraft, each_host, unpack_grafts};
pub use packed::format::Format;
pub use prove::patience::Patience;
pub use prove::self_test::self_test;
pub use record::Record;
pub use request::{Candidate, Request};
pub use sink::emitted::write;
pub use swift::locate;
pub use system::System;
pub use system::privileges::is_privileged;
pub use system::root::in_root;
pub use target::{Target, is_executable};
pub use transaction::attributes::Attributes;
pub use transaction::pending::Pending;
pub use transaction::temporaries::{Ending, remove_temporaries};
pub use transplant::{Absence, Edits, StringEntry};
pub use undo::{Undone, UndoneAction, foreign_allocator_in, grafts_in, stock_of, undo, undo_under};
pub use watch::{Locking, Progress, Watch};

/// The version that notes and records name.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
