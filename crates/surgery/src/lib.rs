//! Grafts of static archives: bytes in, edits out. No files, no processes.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`archive`] | static archives: read, and edited by ordinal |
//! | [`donor`] | donor objects: their notes and options |
//! | [`plan`] | the members to remove and the donor to insert, or the reason to refuse |

#![forbid(unsafe_code)]

pub mod archive;
pub mod donor;
pub mod plan;
