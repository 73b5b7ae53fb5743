//! Why a dynamic program cannot load its donor.

use std::path::PathBuf;

use format::Arch;

use super::remedy::Remedy;

/// Why a program cannot load its donor, or could not rely on it.
#[derive(Debug, thiserror::Error)]
pub enum NeededError {
    /// The target is no dynamic program.
    #[error("`{}` is no dynamic program: nothing loads a shared object for it", .path.display())]
    NotDynamic {
        /// The target.
        path: PathBuf,
    },
    /// The loader would find no such file.
    #[error("`{}` would not start: {why}", .path.display())]
    Missing {
        /// The program.
        path: PathBuf,
        /// A clause.
        why: String,
        /// How to make the file.
        emit: Box<Emit>,
    },
    /// The file is another one.
    #[error("`{}` would load `{}`, which is {found}; expected {expected}", .path.display(), .library.display())]
    Another {
        /// The program.
        path: PathBuf,
        /// The file.
        library: PathBuf,
        /// What it is.
        found: String,
        /// What it should be.
        expected: String,
        /// How to make it.
        emit: Box<Emit>,
    },
    /// The program runs with rights that others than its owner would have through the file.
    #[error("`{}` has other rights than its callers (setuid, setgid or capabilities), and {why}", .path.display())]
    Privileged {
        /// The program.
        path: PathBuf,
        /// A clause.
        why: String,
    },
}

/// How the shared object is made.
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
    /// Whether the file has to lie in a folder that the loader searches.
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
