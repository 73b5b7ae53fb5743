//! The sources of hosts: a file, or a folder that holds some.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `walk` | the `libc.a`s and the grafts under a folder |
//! | `programs` | the linked programs under a folder |
//! | `contents` | the hosts in a packed bundle, to be checked |

pub(crate) mod contents;
pub(crate) mod programs;
pub(crate) mod walk;

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::error::skipped::Skipped;
use crate::file::host_file::HostFile;
use crate::file::signature::signature;
use crate::host::planner::Planner;
use crate::prove::prepared;
use crate::source::programs::programs;
use crate::source::walk::walk;

/// Files to graft.
pub(crate) enum Hosts {
    /// A file that the user named.
    File(Box<HostFile>),
    /// Files in a folder.
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Possible hosts, sorted by path.
        files: Vec<PathBuf>,
        skipped: Vec<Skipped>,
    },
}

impl Hosts {
    /// Every `libc.a` under a folder, which may be in the root folder of an image.
    pub(crate) fn folder(folder: &Path, root: Option<&Path>) -> Result<Hosts, Error> {
        let found = walk(folder, root)?;
        let mut skipped = found.skipped;
        let mut files = Vec::new();
        for path in found.archives {
            match signature(&path)?.found() {
                None => files.push(path),
                Some(found) => skipped.push(Skipped { path, reason: found.to_owned() }),
            }
        }
        Ok(Hosts::Folder { folder: folder.to_owned(), files, skipped })
    }

    /// The paths of the possible hosts.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        let (one, several) = match self {
            Hosts::File(file) => (Some(file.path()), &[][..]),
            Hosts::Folder { files, .. } => (None, files.as_slice()),
        };
        one.into_iter().chain(several.iter().map(PathBuf::as_path))
    }

    /// Calls `take` with each host. Returns the results, and the files that were left alone. A file that was opened
    /// earlier is opened again if its name belongs to a different file now.
    ///
    /// # Errors
    /// A host cannot be grafted, or the folder has none that can.
    pub(crate) fn each<'p, T>(
        self,
        planner: &mut Planner<'p>,
        mut take: impl FnMut(HostFile, &mut Planner<'p>) -> Result<T, Error>,
    ) -> Result<(Vec<T>, Vec<Skipped>), Error> {
        let (folder, files, mut skipped) = match self {
            Hosts::File(file) => return Ok((vec![take(file.current()?, planner)?], Vec::new())),
            Hosts::Folder { folder, files, skipped } => (folder, files, skipped),
        };
        let mut taken = Vec::new();
        for path in files {
            let file = HostFile::open(path)?;
            let reason = prepared::read(file.path(), file.bytes()?)?.skip_reason();
            match reason {
                Some(reason) => {
                    skipped.push(Skipped { path: file.path().to_owned(), reason: reason.to_owned() });
                }
                None => taken.push(take(file, planner)?),
            }
        }
        skipped.sort_by(|one, other| one.path.cmp(&other.path));
        match taken.is_empty() {
            true if skipped.is_empty() => Err(Error::NoHost { programs: programs(&folder)?, folder }),
            true => Err(Error::NothingGraftable { programs: programs(&folder)?, folder, skipped }),
            false => Ok((taken, skipped)),
        }
    }
}
