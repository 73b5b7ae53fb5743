//! A host is an archive or an executable: two implementations of one trait. Plan, edit and verify are its methods.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `archive` | a static archive |
//! | `executable` | a linked executable |
//! | `tuned_donor` | a linked donor with options and notes, for executables |
//! | `donor_candidate` | the donors that a grafted executable may hold |
//! | `dynamic` | checks of a dynamic program before a donor is merged into it |
//! | `needed` | the shared object that a dynamic program loads: its name, its file, the check of the file |
//! | `live` | whether a loader belongs to the running system |
//! | `planner` | the donors of a request, for each architecture that comes up |
//! | `stock` | stock archives, to take members from |

pub(crate) mod archive;
pub(crate) mod donor_candidate;
mod dynamic;
pub(crate) mod executable;
mod live;
pub(crate) mod needed;
pub(crate) mod planner;
pub(crate) mod stock;
mod tuned_donor;

use std::sync::Arc;

use format::{Arch, Note};
use inspector::verify::Verified;

use crate::error::Error;
use crate::host::archive::ArchiveOperation;
use crate::host::executable::ExecutableOperation;
use crate::host::planner::Planner;

/// The notes that a host carries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Carried {
    /// The allocator's note.
    pub malloc: Option<Note>,
    /// The note of the string functions.
    pub strings: Option<Note>,
}

impl Carried {
    /// Whether the host is a graft.
    pub fn anything(&self) -> bool {
        self.malloc.is_some() || self.strings.is_some()
    }
}

/// The edits of a host.
#[derive(Debug, Clone)]
pub enum Operation {
    /// Members of an archive are exchanged.
    Archive(Arc<ArchiveOperation>),
    /// An executable's functions are redirected.
    Executable(Arc<ExecutableOperation>),
}

impl Operation {
    /// The host's architecture.
    pub fn arch(&self) -> Arch {
        match self {
            Operation::Archive(archive) => archive.arch,
            Operation::Executable(executable) => executable.edits.arch(),
        }
    }

    /// The donors that the host carries afterwards.
    pub fn brings(&self) -> Carried {
        match self {
            Operation::Archive(archive) => Carried {
                malloc: archive.malloc.as_ref().map(|plan| plan.donor.clone()),
                strings: archive.strings.plan().map(|plan| plan.donor.clone()),
            },
            Operation::Executable(executable) => {
                Carried { malloc: Some(executable.malloc.clone()), strings: executable.strings.clone() }
            }
        }
    }
}

/// Edited bytes, not yet verified.
pub(crate) struct Edited(Vec<u8>);

impl Edited {
    pub(crate) fn new(bytes: Vec<u8>) -> Edited {
        #[cfg(test)]
        let bytes = crate::trials::broken::tampered(bytes);
        Edited(bytes)
    }

    /// The unverified bytes, for checks that need them before `verify`.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Hands the bytes to the verifier.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// A file that has been recognised and parsed.
pub(crate) trait Host {
    /// The notes that it carries.
    fn carried(&self) -> &Carried;

    /// The reason to leave this file alone in a folder; `None` for files that can be grafted.
    fn skip_reason(&self) -> Option<&'static str>;

    /// Whether a graft of this kind can only be replaced by starting from its stock file.
    fn needs_stock(&self) -> bool;

    /// Whether it can be the stock file of a graft.
    fn is_stock(&self) -> bool;

    /// Plans the graft, and makes it.
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(Operation, Edited), Error>;

    /// Remakes a planned graft.
    fn edit(&self, operation: &Operation) -> Result<Edited, Error>;

    /// Verifies a graft of this host by the independent reader.
    fn verify(&self, operation: &Operation, edited: Edited) -> Result<Verified, Error>;

    /// Remarks on a graft for the user: clauses whose subject is the host.
    fn remarks(&self, operation: &Operation) -> Result<Vec<String>, Error>;
}
