//! Faults of a packed bundle.

use std::borrow::Cow;

use images::Problem;

/// A problem of a packed bundle.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackedError {
    /// It ends before its content does.
    #[error("it ends too early: {0}")]
    Truncated(String),
    /// Bytes that the format does not permit.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// A name that would leave the folder into which the bundle is unpacked, or goes through a link.
    #[error("the entry's name {0}")]
    Name(&'static str),
    /// Two entries of one name: tools differ on which one they unpack.
    #[error("the entry appears twice")]
    Twice,
    /// A size or number beyond every real bundle's.
    #[error("{what} is {found} {unit}, more than the {limit} allowed")]
    TooLarge {
        /// The thing that is measured.
        what: &'static str,
        /// Its size or number.
        found: u64,
        /// Its unit.
        unit: &'static str,
        /// The limit.
        limit: u64,
    },
    /// A form of entry that is refused, since a copy of it might not mean what it meant.
    #[error("{0}, which is not supported in a packed bundle")]
    Unsupported(Cow<'static, str>),
    /// It has no manifest of a Swift SDK.
    #[error(
        "it is not a Swift SDK bundle: no folder in it has an `info.json` that names an artifact of type `swiftSDK`"
    )]
    NoSwiftSdk,
}

impl PackedError {
    /// Refuses more than `limit` of something.
    pub(crate) fn at_most(what: &'static str, found: u64, unit: &'static str, limit: u64) -> Result<(), PackedError> {
        if found > limit { Err(PackedError::TooLarge { what, found, unit, limit }) } else { Ok(()) }
    }

    /// Converts a problem that the tar reader found.
    pub(crate) fn of_tar(problem: Problem) -> PackedError {
        match problem {
            Problem::Truncated(what) => PackedError::Truncated(what),
            Problem::Name(what) => PackedError::Name(what),
            Problem::Unsupported(what) => PackedError::Unsupported(what),
            Problem::TooLarge { what, found, unit, limit } => PackedError::TooLarge { what, found, unit, limit },
            Problem::Damaged(what) => PackedError::Damaged(what),
            other => PackedError::Damaged(other.to_string()),
        }
    }

    /// Whether the file is malformed; otherwise it is refused, because touching it would not be safe.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, PackedError::Truncated(_) | PackedError::Damaged(_))
    }

    pub(crate) fn help(&self) -> &'static str {
        match self {
            PackedError::Truncated(_) => "get the whole file again and compare its checksum",
            PackedError::Damaged(_) => "get the file again and compare its checksum",
            PackedError::Name(_) | PackedError::Twice | PackedError::TooLarge { .. } => {
                "no toolchain makes such a bundle: do not unpack it; get it from where it is published"
            }
            PackedError::Unsupported(_) => "unpack it, graft the folder, and pack that again",
            PackedError::NoSwiftSdk => {
                "unpack it, and graft the folder or a file in it; a compressed image is unpacked first: `gunzip FILE`"
            }
        }
    }
}

/// Names the entry of a bundle in a message.
pub(super) fn in_entry(entry: &Option<String>) -> String {
    entry.as_ref().map(|entry| format!(", entry `{}`", entry.escape_debug())).unwrap_or_default()
}
