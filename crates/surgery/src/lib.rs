//! Grafts of static archives: bytes in, edits out. No files, no processes.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`archive`] | static archives: read, and edited by ordinal |
//! | [`donor`] | donor objects: what they say about themselves, and how options are written into them |
//! | [`plan`] | which members of an archive go, what comes in their place, or why that must not be done |

#![forbid(unsafe_code)]

pub mod archive;
pub mod donor;
pub mod plan;
