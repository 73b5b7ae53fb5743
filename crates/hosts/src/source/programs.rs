//! The linked programs under a folder. They are the hosts of a folder that has no `libc.a`, such as an installation;
//! for a folder whose `libc.a`s cannot be grafted, a message names them.

use std::fs::{self, DirEntry};
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use inspector::Kind;

use crate::error::programs::Programs;
use crate::error::skipped::Skipped;
use crate::error::{Error, IoContext};
use crate::file::names::host_of_sidecar;
use crate::file::signature::{SCRIPT, Signature, signature};
use crate::file::temporaries::is_temporary;
use crate::system::root::resolve;

/// Enough for a message; the folder may be a whole system.
const MOST: usize = 100;

/// The possible hosts of a folder of programs.
#[derive(Debug, Default)]
pub(crate) struct Candidates {
    /// Linked files, sorted. They start with the folder as the user typed it.
    pub(crate) files: Vec<PathBuf>,
    /// Files that cannot be read, and symbolic links to programs outside of the folder.
    pub(crate) skipped: Vec<Skipped>,
    /// The number of scripts, which are not linked.
    pub(crate) scripts: usize,
}

/// Returns the linked files under `folder`, which may be in the root folder of an image. Links inside of the folder are
/// left out: their files have names of their own.
///
/// # Errors
/// A folder cannot be read, or `folder` is the root folder of the running system.
pub(crate) fn candidates(folder: &Path, image: Option<&Path>) -> Result<Candidates, Error> {
    let real = folder.canonicalize().context(folder, "read")?;
    if real == Path::new("/") {
        return Err(Error::Unsupported {
            path: folder.to_owned(),
            kind: "the root folder of this system",
            reason: "it is not certain that each of its programs is to be grafted",
            help: "name the folder of some of its programs, such as /usr/local/bin, or one program",
        });
    }
    let image = image.map(|image| image.canonicalize().context(image, "read")).transpose()?;
    let mut found = Candidates::default();
    let Candidates { files, skipped, scripts } = &mut found;
    let mut skip = |path: PathBuf, reason: String| skipped.push(Skipped::new(path, reason));
    let take = |path: PathBuf, is_link: bool| {
        if is_link {
            let inside = real.join(path.strip_prefix(folder).unwrap_or(&path));
            let target = match &image {
                None => path.canonicalize().ok(),
                Some(image) => inside.strip_prefix(image).ok().and_then(|inside| resolve(image, inside).ok()),
            };
            if target.is_some_and(|target| !target.starts_with(&real) && is_program(&target)) {
                skip(path, "a symbolic link to a program outside of the folder".to_owned());
            }
        } else {
            match signature(&path) {
                Ok(Signature::Executable) => files.push(path),
                Ok(Signature::Unknown(SCRIPT)) => *scripts += 1,
                Ok(_) => {}
                Err(Error::Io { source, .. }) => skip(path, format!("it cannot be read: {source}")),
                Err(error) => skip(path, error.to_string()),
            }
        }
        ControlFlow::Continue(())
    };
    each_file(folder, |path| entries(path).context(path, "read"), take)?;
    found.files.sort();
    Ok(found)
}

/// Counts what is left in a folder of programs beside its grafts: the linked programs, and the scripts.
///
/// # Errors
/// The folder, or one in it, cannot be read.
pub fn beside_grafts(folder: &Path, grafts: &[PathBuf]) -> Result<(usize, usize), Error> {
    let Candidates { files, scripts, .. } = candidates(folder, None)?;
    Ok((files.iter().filter(|path| !grafts.contains(path) && is_program(path)).count(), scripts))
}

/// Returns some of the programs under `folder`. Symbolic links are not followed. Files and folders that cannot be read
/// are not counted: this only tells what else there is.
///
/// # Errors
/// `folder` itself cannot be read.
pub(crate) fn programs(folder: &Path) -> Result<Programs, Error> {
    let mut programs = Programs::default();
    let read = |path: &Path| match entries(path) {
        Err(error) if path == folder => Err(error).context(folder, "read"),
        entries => Ok(entries.unwrap_or_default()),
    };
    let take = |path: PathBuf, is_link: bool| {
        if is_link || !is_program(&path) {
            return ControlFlow::Continue(());
        }
        if programs.paths.len() == MOST {
            programs.more = true;
            return ControlFlow::Break(());
        }
        programs.paths.push(path);
        ControlFlow::Continue(())
    };
    each_file(folder, read, take)?;
    programs.paths.sort();
    Ok(programs)
}

fn entries(folder: &Path) -> io::Result<Vec<DirEntry>> {
    fs::read_dir(folder)?.collect()
}

/// Calls `take` with every file and every symbolic link under `folder`, and whether it is a link, until it breaks off.
/// Temporary files, backups and records are left out. `read` returns what is in a folder.
fn each_file(
    folder: &Path,
    read: impl Fn(&Path) -> Result<Vec<DirEntry>, Error>,
    mut take: impl FnMut(PathBuf, bool) -> ControlFlow<()>,
) -> Result<(), Error> {
    let mut waiting = vec![folder.to_owned()];
    while let Some(current) = waiting.pop() {
        for entry in read(&current)? {
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            if is_temporary(&entry.file_name()) {
                continue;
            }
            if kind.is_dir() {
                waiting.push(path);
            } else if (kind.is_file() || kind.is_symlink())
                && !is_sidecar(&path)
                && take(path, kind.is_symlink()).is_break()
            {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Whether the file has the name of a backup or a record, and its host is there.
fn is_sidecar(path: &Path) -> bool {
    host_of_sidecar(path).is_some_and(|host| fs::symlink_metadata(host).is_ok_and(|host| host.is_file()))
}

fn is_program(path: &Path) -> bool {
    let is_linked = matches!(signature(path), Ok(Signature::Executable));
    let report = is_linked.then(|| inspector::inspect(&fs::read(path).ok()?).ok()).flatten();
    report.is_some_and(|report| report.kind == Kind::Executable)
}
