//! Bytes in, edits out: static archives, relocatable objects, donors, and the plan of a graft. No files, no processes.

#![forbid(unsafe_code)]

pub mod archive;
pub mod donor;
pub mod object;
pub mod plan;
