//! A host is an archive or an executable: two implementations of one trait. Plan, edit and verify are its methods.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `archive` | a static archive |
//! | `executable` | a linked executable |
//! | `linked_donor` | the donor that goes into an executable |
//! | `possible_donor` | which donor a grafted executable may hold |
//! | `dynamic` | checks of a dynamic program before a donor is merged into it |
//! | `needed` | the shared object that a dynamic program loads: its name, the file, whether that is the donor |
//! | `live` | whether a loader is that of the running system |
//! | `planner` | the donors of a request, for each architecture that comes up |
//! | `stock` | stock archives, to take members from |

pub(crate) mod archive;
mod dynamic;
pub(crate) mod executable;
mod linked_donor;
mod live;
pub(crate) mod needed;
pub(crate) mod planner;
pub(crate) mod possible_donor;
pub(crate) mod stock;

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
    /// Of an allocator.
    pub malloc: Option<Note>,
    /// Of string functions.
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

/// A file that has been recognised and taken apart.
pub(crate) trait Host {
    /// The notes in it.
    fn carried(&self) -> &Carried;

    /// Why a folder's file of this kind is left alone, if it is none of ours.
    fn skip_reason(&self) -> Option<&'static str>;

    /// Whether a graft of this kind can only be made anew from its stock file.
    fn needs_stock(&self) -> bool;

    /// Whether it can be the stock file of a graft.
    fn is_stock(&self) -> bool;

    /// Plans the graft, and makes it.
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(Operation, Edited), Error>;

    /// Makes a planned graft again.
    fn edit(&self, operation: &Operation) -> Result<Edited, Error>;

    /// Has the independent reader look at a graft of this host.
    fn verify(&self, operation: &Operation, edited: Edited) -> Result<Verified, Error>;

    /// Remarks on a graft for the user: clauses whose subject is the host.
    fn remarks(&self, operation: &Operation) -> Result<Vec<String>, Error>;
}
