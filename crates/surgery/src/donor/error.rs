//! Errors of a donor's object, and of the options that are requested of it.

use format::{NoteError, OptionsError};

use relocatable::ObjectError;

/// Why an object is not a donor, or cannot take the requested options.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DonorError {
    /// The object is empty.
    #[error("the donor's object is empty")]
    Empty,
    /// Not an object, or one for a different architecture.
    #[error("the donor's object: {0}")]
    Object(#[from] ObjectError),
    /// A section is missing, or occurs twice.
    #[error(
        "the donor's object has {found} sections `{name}`, expected 1",
        found = if *found == 0 { "no" } else { "several" }
    )]
    SectionCount {
        /// The section.
        name: &'static str,
        /// Their number; 2 means more than one.
        found: usize,
    },
    /// The note's section has a different type, or is not loaded.
    #[error(
        "the donor's note section has type {kind} and flags {flags:#x}, expected type 7 (note) and flag 0x2 (allocated)"
    )]
    NoteSection {
        /// `sh_type`.
        kind: u32,
        /// `sh_flags`.
        flags: u64,
    },
    /// The note cannot be read or written.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// The options cannot be read, or cannot be set as requested.
    #[error(transparent)]
    Options(#[from] OptionsError),
}
