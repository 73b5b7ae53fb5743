//! Tests that need more than one room.

pub(crate) mod broken;
mod foreign_owner;
mod help;
mod killed;
mod once;
pub(crate) mod samples;
mod waiting;
