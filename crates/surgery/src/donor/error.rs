//! What can be wrong with a donor's object, or with what is asked of it.

use super::DonorKind;
use crate::object::ObjectError;

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
    #[error("the donor's object has {found} sections `{name}`, expected 1", found = if *found == 0 { "no" } else { "several" })]
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
    /// A note of another layout.
    #[error("the note `{section}` has {what} {found}, expected {expected}")]
    NoteLayout {
        /// The note's section.
        section: &'static str,
        /// Which field.
        what: &'static str,
        /// Its value.
        found: String,
        /// The value that it should have.
        expected: String,
    },
    /// A line of the note without an equals sign, or text that is none.
    #[error("the note has the line {line}, expected `key=value`")]
    NoteLine {
        /// Quoted.
        line: String,
    },
    /// A key that a note must have.
    #[error("the note lacks the key `{key}`")]
    NoteKey {
        /// The key.
        key: &'static str,
    },
    /// A note that is too long for its 512 bytes.
    #[error("the note takes {needed} bytes with these options, expected at most {room}")]
    NoteRoom {
        /// Bytes that it takes.
        needed: usize,
        /// Bytes that there are.
        room: usize,
    },
    /// A value that would break the note's lines.
    #[error("the note's `{key}` would be {value}, which has a line break or a NUL byte")]
    NoteValue {
        /// The key.
        key: &'static str,
        /// Quoted.
        value: String,
    },
    /// Options of another layout.
    #[error("the section `.rodata.allograft.options` has {what} {found}, expected {expected}")]
    OptionsLayout {
        /// Which field.
        what: String,
        /// Its value.
        found: String,
        /// The value that it should have.
        expected: String,
    },
    /// An option that the donor does not have.
    #[error("unknown option `{name}`; known: {known}")]
    UnknownOption {
        /// What was asked for.
        name: String,
        /// All that there are, with commas.
        known: String,
    },
    /// A value out of range.
    #[error("option `{name}` cannot be {value}: it takes {min} to {max}")]
    OutOfRange {
        /// The option.
        name: String,
        /// What was asked for.
        value: i64,
        /// Its least value.
        min: i64,
        /// Its greatest value.
        max: i64,
    },
}

/// A field of a known layout that has another value.
pub(super) fn layout(kind: DonorKind, what: &'static str, found: impl ToString, expected: impl ToString) -> DonorError {
    DonorError::NoteLayout {
        section: kind.note_section(),
        what,
        found: found.to_string(),
        expected: expected.to_string(),
    }
}
