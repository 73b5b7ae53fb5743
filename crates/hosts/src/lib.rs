//! Recognises what can be grafted and applies a plan to it, atomically and undoably.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `recognise` | what a target is, told by its content |
//! | `walk` | the `libc.a`s and the grafts under a folder |
//! | `graft` | a target becomes grafts: one host, or all of a folder |
//! | `operation` | bytes to plan to graft: the allocator's step and that of the string functions |
//! | `place` | the order in which backup, record and host are written, and what a killed run leaves |
//! | `transaction` | renames that are taken back together |
//! | `undo` | the stock host again |
//! | `tree` | a copy of a folder with grafts in it (`-o`) |
//! | `record` | the files beside a host |
//! | `lock`, `attributes`, `digest`, `error` | what their names say |

mod attributes;
mod digest;
mod error;
mod graft;
#[cfg(test)]
mod killed;
mod lock;
mod operation;
mod place;
mod recognise;
mod record;
#[cfg(test)]
mod samples;
mod transaction;
mod tree;
mod undo;
mod walk;

pub use error::Error;
pub use graft::{Action, Grafted, Grafts, Request, Skipped, graft};
pub use operation::{Carried, Operation, Strings};
pub use record::Record;
pub use undo::{Undone, UndoneAction, grafts_in, stock_of, undo};
