//! What can be wrong with a donor's object, or with what is asked of it.

use format::{NoteError, OptionsError};

use relocatable::ObjectError;

/// Why an object is no donor, or cannot be tuned as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DonorError {
    /// No object at all.
    #[error("the donor's object is empty")]
    Empty,
    /// Not an object, or one of another architecture.
    #[error("the donor's object: {0}")]
    Object(#[from] ObjectError),
    /// A section that is missing, or there twice.
    #[error(
        "the donor's object has {found} sections `{name}`, expected 1",
        found = if *found == 0 { "no" } else { "several" }
    )]
    SectionCount {
        /// The section.
        name: &'static str,
        /// How many there are; 2 stands for more than one.
        found: usize,
    },
    /// The note's section has another type, or is not loaded.
    #[error(
        "the donor's note section has type {kind} and flags {flags:#x}, expected type 7 (note) and flag 0x2 (allocated)"
    )]
    NoteSection {
        /// `sh_type`.
        kind: u32,
        /// `sh_flags`.
        flags: u64,
    },
    /// A note that cannot be read or written.
    #[error(transparent)]
    Note(#[from] NoteError),
    /// Options that cannot be read, or set as asked.
    #[error(transparent)]
    Options(#[from] OptionsError),
}
