//! Why a dynamic program cannot load its donor.

use std::path::PathBuf;

use format::Arch;

use super::remedy::Remedy;

/// Why a program cannot load its donor, or could not rely on it.
#[derive(Debug, thiserror::Error)]
pub enum NeededError {
    /// The target is not a dynamic program.
    #[error("`{}` is not a dynamic program, so no loader would load a shared object for it", .path.display())]
    NotDynamic {
        /// The target.
        path: PathBuf,
    },
    /// The loader would not find the file.
    #[error("`{}` would not start: {why}", .path.display())]
    Missing {
        /// The program.
        path: PathBuf,
        /// A clause.
        why: String,
        /// The arguments to make the file.
        emit: Box<Emit>,
    },
    /// The loader would find a file that is not this donor.
    #[error("`{}` would load `{}`, which is {found}; expected {expected}", .path.display(), .library.display())]
    Another {
        /// The program.
        path: PathBuf,
        /// The file.
        library: PathBuf,
        /// A description of the file found.
        found: String,
        /// A description of the file expected.
        expected: String,
        /// The arguments to make it.
        emit: Box<Emit>,
    },
    /// The program runs with its owner's rights, and other users could gain them by replacing the donor's file.
    #[error("`{}` has other rights than its callers (setuid, setgid or capabilities), and {why}", .path.display())]
    Privileged {
        /// The program.
        path: PathBuf,
        /// A clause.
        why: String,
    },
}

/// The arguments with which `emit` makes the shared object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Emit {
    /// The donor's name.
    pub donor: String,
    /// Its options, `key=value` with spaces between.
    pub options: String,
    /// The architecture.
    pub arch: Arch,
    /// The libc, as in a target triple.
    pub libc: &'static str,
    /// The file to write.
    pub library: PathBuf,
    /// Whether the file has to be in a folder that the loader searches.
    pub searched: bool,
}

impl NeededError {
    /// 2: wrong usage; 3: it would not be safe.
    pub(super) fn exit_code(&self) -> u8 {
        if matches!(self, NeededError::NotDynamic { .. }) { 2 } else { 3 }
    }

    pub(super) fn remedy(&self) -> Remedy {
        match self {
            NeededError::NotDynamic { .. } => Remedy::WithoutNeeded,
            NeededError::Missing { emit, .. } | NeededError::Another { emit, .. } => Remedy::Emit((**emit).clone()),
            NeededError::Privileged { .. } => Remedy::NeedTrusted,
        }
    }
}
