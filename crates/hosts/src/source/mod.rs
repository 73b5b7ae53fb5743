//! The sources of hosts: a file, or a folder that holds some.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `walk` | the `libc.a`s and the grafts under a folder |
//! | `programs` | the linked programs under a folder |
//! | `left_alone` | programs of a folder or an image that cannot be grafted, with the reasons |
//! | `contents` | the hosts in a packed bundle, to be checked |

pub(crate) mod contents;
pub(crate) mod left_alone;
pub(crate) mod programs;
pub(crate) mod walk;

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::error::skipped::Skipped;
use crate::file::host_file::HostFile;
use crate::file::signature::signature;
use crate::host::planner::Planner;
use crate::prove::prepared;
use crate::source::programs::{candidates, programs};
use crate::source::walk::walk;

/// Files to graft.
pub(crate) enum Hosts {
    /// A file that the user named.
    File(Box<HostFile>),
    /// Files in a folder.
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Its kind.
        kind: FolderKind,
        /// Possible hosts, sorted by path.
        files: Vec<PathBuf>,
        skipped: Vec<Skipped>,
    },
}

/// The kind of a folder, by its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderKind {
    /// It has files called `libc.a`: a toolchain, a sysroot, an SDK. These are its hosts; its programs are tools.
    Toolchain,
    /// It has none: an installation, whose programs are its hosts.
    Installation {
        /// The number of scripts among its programs.
        scripts: usize,
    },
}

impl Hosts {
    /// Every `libc.a` under a folder, which may be in the root folder of an image; in a folder without any, every
    /// program.
    pub(crate) fn folder(folder: &Path, root: Option<&Path>) -> Result<Hosts, Error> {
        let found = walk(folder, root)?;
        let folder = folder.to_owned();
        if found.archives.is_empty() && found.skipped.is_empty() {
            let programs::Candidates { files, skipped, scripts } = candidates(&folder, root)?;
            let kind = FolderKind::Installation { scripts };
            return Ok(Hosts::Folder { folder, kind, files, skipped });
        }
        let mut skipped = found.skipped;
        let mut files = Vec::new();
        for path in found.archives {
            match signature(&path)?.found() {
                None => files.push(path),
                Some(found) => skipped.push(Skipped::new(path, found)),
            }
        }
        Ok(Hosts::Folder { folder, kind: FolderKind::Toolchain, files, skipped })
    }

    /// The folder, if its programs are the hosts.
    pub(crate) fn installation(&self) -> Option<&Path> {
        match self {
            Hosts::Folder { folder, kind: FolderKind::Installation { .. }, .. } => Some(folder),
            _ => None,
        }
    }

    /// The number of scripts among the programs of an installation.
    pub(crate) fn scripts(&self) -> usize {
        match self {
            Hosts::Folder { kind: FolderKind::Installation { scripts }, .. } => *scripts,
            Hosts::Folder { .. } | Hosts::File(_) => 0,
        }
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
    /// A host cannot be grafted, and it is not a program in a folder; or the folder has none that can.
    pub(crate) fn each<'p, T>(
        self,
        planner: &mut Planner<'p>,
        mut take: impl FnMut(HostFile, &mut Planner<'p>) -> Result<T, Error>,
    ) -> Result<(Vec<T>, Vec<Skipped>), Error> {
        let (folder, kind, files, mut skipped) = match self {
            Hosts::File(file) => return Ok((vec![take(file.current()?, planner)?], Vec::new())),
            Hosts::Folder { folder, kind, files, skipped } => (folder, kind, files, skipped),
        };
        let mut taken = Vec::new();
        for path in files {
            let file = HostFile::open(path)?;
            match kind {
                FolderKind::Toolchain => {
                    let reason = prepared::read(file.path(), file.bytes()?)?.skip_reason();
                    match reason {
                        Some(reason) => skipped.push(Skipped::new(file.path(), reason)),
                        None => taken.push(take(file, planner)?),
                    }
                }
                FolderKind::Installation { .. } => match left_alone::check(file.path(), file.bytes()?) {
                    Err(program) => skipped.extend(program),
                    Ok(()) => {
                        let path = file.path().to_owned();
                        match take(file, planner) {
                            Ok(one) => taken.push(one),
                            Err(error) if left_alone::is_left_alone(&error) => {
                                let file = HostFile::open(path)?;
                                skipped.push(left_alone::skipped(file.path(), &error, file.bytes()?));
                            }
                            Err(error) => return Err(error),
                        }
                    }
                },
            }
        }
        skipped.sort_by(|one, other| one.path.cmp(&other.path));
        if !taken.is_empty() {
            return Ok((taken, skipped));
        }
        Err(match (kind, skipped.is_empty()) {
            (_, true) => Error::NoHostInFolder { folder },
            (FolderKind::Toolchain, false) => Error::NothingGraftable { programs: programs(&folder)?, folder, skipped },
            (FolderKind::Installation { .. }, false) => Error::NoProgramGraftable { folder, skipped },
        })
    }
}
