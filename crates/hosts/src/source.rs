//! Where hosts come from: a file, or a folder that holds some.

use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::host::{self, Prepared};
use crate::outcome::Skipped;
use crate::planner::Planner;
use crate::recognise::{read, signature};
use crate::walk::walk;

/// Files to graft.
pub(crate) struct Hosts {
    /// The folder that they were found in; `None`: the user named the file.
    folder: Option<PathBuf>,
    /// Possible hosts, sorted by path.
    pub(crate) files: Vec<PathBuf>,
    skipped: Vec<Skipped>,
}

impl Hosts {
    /// A file that the user named.
    pub(crate) fn file(path: PathBuf) -> Hosts {
        Hosts { folder: None, files: vec![path], skipped: Vec::new() }
    }

    /// Every `libc.a` under a folder, which may lie in the root folder of an image.
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
        Ok(Hosts { folder: Some(folder.to_owned()), files, skipped })
    }

    /// Prepares the graft of each host, one after the other, and hands it to `take` with the host's bytes. Returns what
    /// `take` makes of them, and what was left alone.
    ///
    /// # Errors
    /// One of them cannot be grafted, or none in the folder can.
    pub(crate) fn each<'p, T>(
        self,
        planner: &mut Planner<'p>,
        mut take: impl FnMut(Prepared, &[u8], &mut Planner<'p>) -> Result<T, Error>,
    ) -> Result<(Vec<T>, Vec<Skipped>), Error> {
        let (mut taken, mut skipped) = (Vec::new(), self.skipped);
        for path in self.files {
            let bytes = read(&path)?;
            let host = host::read(&path, &bytes)?;
            match self.folder.as_ref().and_then(|_| host.skip_reason()) {
                Some(reason) => skipped.push(Skipped { path: path.clone(), reason: reason.to_owned() }),
                None => taken.push(take(host::prepare(&*host, &path, &bytes, planner)?, &bytes, planner)?),
            }
        }
        skipped.sort_by(|one, other| one.path.cmp(&other.path));
        match self.folder {
            Some(folder) if taken.is_empty() && skipped.is_empty() => Err(Error::NoHost { folder }),
            Some(folder) if taken.is_empty() => Err(Error::NothingGraftable { folder, skipped }),
            _ => Ok((taken, skipped)),
        }
    }
}
