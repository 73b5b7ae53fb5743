//! The reasons why a file cannot be read as a heap profile.

use std::io;

/// The reason why a heap profile is not read.
#[derive(Debug, thiserror::Error)]
pub enum HeapError {
    /// The file cannot be read.
    #[error("cannot read it: {0}")]
    Io(io::Error),
    /// It is packed by gzip, and damaged or cut off.
    #[error("its gzip stream is damaged or ends early: {0}")]
    Packed(io::Error),
    /// It is neither gzip nor a protocol buffer of the right form.
    #[error("it is not a pprof profile: {0}")]
    Malformed(&'static str),
    /// It has more of something than is read.
    #[error("it has more than {limit} {what}, which is more than is read")]
    TooMany {
        /// A plural.
        what: &'static str,
        /// The greatest number that is read.
        limit: usize,
    },
    /// It is a profile of something else.
    #[error("it is a profile of {found}, expected one of the heap (inuse_space or alloc_space, in bytes)")]
    Foreign {
        /// The types of its samples.
        found: String,
    },
    /// It has negative values, as the difference of two profiles has.
    #[error("it has negative values: it is the difference of two profiles")]
    Difference,
    /// A sample or a location names a part that is missing.
    #[error("it names {what} {id}, which it does not contain")]
    Missing {
        /// A noun.
        what: &'static str,
        /// Its number in the file.
        id: u64,
    },
    /// The file that the user named is not the profile's program.
    #[error("`{path}` is not the profile's program: {reason}")]
    Program {
        /// The file that the user named.
        path: String,
        /// A clause.
        reason: String,
    },
    /// The profile to compare with is the later one.
    #[error("it was written before the profile that it should have grown from")]
    Swapped,
}
