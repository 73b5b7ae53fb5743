//! Recognises what can be grafted and applies a plan to it, atomically and undoably.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `recognise` | what a target is, told by its content |
//! | `walk` | the `libc.a`s and the grafts under a folder |
//! | `graft` | a target becomes grafts: one host, or all of a folder |
//! | `executable` | a linked executable becomes a graft |
//! | `expected` | what a grafted executable should hold |
//! | `rehearsal` | what a grafted executable has to do first |
//! | `operation` | bytes to plan to graft: the allocator's step and that of the string functions |
//! | `place` | the order in which backup, record and host are written, and what a killed run leaves |
//! | `transaction` | renames that are taken back together |
//! | `undo` | the stock host again |
//! | `packed` | packed Swift SDK bundles, read and written as streams |
//! | `bundle` | what a Swift SDK bundle says of itself |
//! | `swift` | installed Swift SDKs |
//! | `stock` | what an archive has lost, from stock archives |
//! | `root` | paths in the root folder of an image |
//! | `conditions` | what most callers need not say |
//! | `tree` | a copy of a folder with grafts in it (`-o`) |
//! | `pending` | what has been done and can still be taken back |
//! | `record` | the files beside a host |
//! | `companion` | whether those are ours |
//! | `names` | hard links, and the exchange of two names |
//! | `emitted` | a file made from a donor alone |
//! | `live` | the temporary files of this process, for the end that a signal brings |
//! | `error` | why a host was not grafted or not given back |
//! | `remedy` | what to do about it |
//! | `lock` | one allograft at a time in a folder |
//! | `attributes` | owner, mode, times and extended attributes of a file |
//! | `digest` | SHA-256 |

mod attributes;
mod bundle;
mod companion;
mod conditions;
mod digest;
mod emitted;
mod error;
mod executable;
mod expected;
#[cfg(test)]
mod foreign_owner;
mod graft;
#[cfg(test)]
mod killed;
mod live;
mod lock;
mod names;
mod operation;
mod packed;
mod pending;
mod place;
mod recognise;
mod record;
mod rehearsal;
mod remedy;
mod root;
#[cfg(test)]
mod samples;
mod stock;
mod swift;
mod transaction;
mod tree;
mod undo;
mod walk;

pub use attributes::Attributes;
pub use conditions::{Conditions, Locking, Progress};
pub use digest::sha256;
pub use emitted::{write, write_under};
pub use error::Error;
pub use executable::{
    GraftedExecutable, Inserts, graft_executable, graft_executable_to, is_executable, plan_executable,
};
pub use expected::{Candidate, candidates};
pub use format::StringFunction;
pub use graft::{ALLOGRAFT as VERSION, Action, Bundle, Grafted, Grafts, Request, Skipped, graft, graft_under};
pub use live::{Ending, remove_temporaries};
pub use operation::{Another, Carried, Operation, Strings};
pub use packed::{Fault, Format, Unpacked, each_host, unpack_grafts};
pub use pending::Pending;
pub use record::Record;
pub use rehearsal::self_test;
pub use remedy::{Obstacle, Remedy};
pub use root::in_root;
pub use swift::locate;
pub use transaction::Stuck;
pub use transplant::{Absence, StringEntry};
pub use undo::{Undone, UndoneAction, another_allocator_in, grafts_in, stock_of, undo, undo_under};
