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
    /// It is a program, not a profile.
    #[error("it is not a pprof profile: it is a program")]
    IsProgram,
    /// It has more of something, a plural, than is read.
    #[error("it has more {0} than are read")]
    TooMany(&'static str),
    /// It is a profile of something else: of samples of these types.
    #[error("it is a profile of {0}, expected one of the heap (inuse_space or alloc_space, in bytes)")]
    Foreign(String),
    /// It has negative values, as the difference of two profiles has.
    #[error("it has negative values: it is the difference of two profiles")]
    Difference,
    /// A part of it, a noun, is named by its number and missing.
    #[error("it names {0} {1}, which it does not contain")]
    Missing(&'static str, u64),
    /// The file that the user named is not the profile's program, for a reason that is a clause.
    #[error("`{0}` is not the profile's program: {1}")]
    Program(String, String),
    /// The profile to compare with is the later one.
    #[error("it was written before the profile that it should have grown from")]
    Swapped,
}
