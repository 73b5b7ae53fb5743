//! The files of a system, in whose root folder a dynamic program finds its libraries. The inspector reads no file
//! itself: it asks this implementation of its trait `Tree`.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `root` | paths in the root folder of an image |
//! | `privileges` | programs with other rights than their callers |

pub(crate) mod privileges;
pub(crate) mod root;

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use inspector::{ProgramFile, Tree, TreeFile};

use crate::system::root::in_root;

/// The variable that gives QEMU the root folder of the program that it runs.
pub(crate) const EMULATED_ROOT: &str = "QEMU_LD_PREFIX";

/// The limit on the names of one folder that are read.
const MOST_NAMES: usize = 100_000;

/// A root folder: the system's own, or an image's.
#[derive(Debug)]
pub struct System {
    root: PathBuf,
}

impl System {
    /// Returns the system with this root folder; without one, the running system.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn new(root: Option<&Path>) -> io::Result<System> {
        Ok(System { root: fs::canonicalize(root.unwrap_or(Path::new("/")))? })
    }

    /// Returns a program's place in this system, to which `$ORIGIN` in its dynamic section refers.
    ///
    /// # Errors
    /// The file is missing, or not in the root folder.
    pub fn place(&self, program: &Path) -> io::Result<ProgramFile> {
        let path = fs::canonicalize(program)?;
        let metadata = fs::metadata(&path)?;
        Ok(ProgramFile { file: self.found(&path, &metadata)?, privileged: metadata.mode() & 0o6000 != 0 })
    }

    /// Resolves an absolute path in the root folder; `None` if it does not exist.
    fn resolved(&self, path: &[u8]) -> Result<Option<PathBuf>, String> {
        match in_root(&self.root, Path::new(OsStr::from_bytes(path))) {
            Ok(path) => Ok(Some(path)),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn found(&self, path: &Path, metadata: &fs::Metadata) -> io::Result<TreeFile> {
        let inside = path.strip_prefix(&self.root).map_err(|_| io::Error::other("it is not in the root folder"))?;
        Ok(TreeFile {
            path: [b"/", inside.as_os_str().as_bytes()].concat(),
            identity: (metadata.dev(), metadata.ino()),
        })
    }
}

impl Tree for System {
    fn find(&self, path: &[u8]) -> Result<Option<TreeFile>, String> {
        let Some(path) = self.resolved(path)? else { return Ok(None) };
        let metadata = fs::symlink_metadata(&path).map_err(|error| error.to_string())?;
        if !metadata.is_file() {
            return Ok(None);
        }
        self.found(&path, &metadata).map(Some).map_err(|error| error.to_string())
    }

    fn read(&self, file: &TreeFile) -> Result<Vec<u8>, String> {
        // Resolved again, since another process may have put a link there meanwhile.
        let path = self.resolved(&file.path)?.ok_or("it is gone")?;
        fs::read(&path).map_err(|error| error.to_string())
    }

    fn list(&self, folder: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let Some(folder) = self.resolved(folder)? else { return Ok(Vec::new()) };
        let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
        let names = entries.take(MOST_NAMES + 1).map(|entry| entry.map(|entry| entry.file_name().into_vec()));
        let names = names.collect::<io::Result<Vec<_>>>().map_err(|error| error.to_string())?;
        match names.len() > MOST_NAMES {
            true => Err(format!("it has more than {MOST_NAMES} names")),
            false => Ok(names),
        }
    }

    fn is_folder(&self, path: &[u8]) -> Result<bool, String> {
        let Some(path) = self.resolved(path)? else { return Ok(false) };
        // Resolved just now: a link here means that another process has changed it.
        fs::symlink_metadata(&path).map(|metadata| metadata.is_dir()).map_err(|error| error.to_string())
    }
}

/// The paths that a program sees under an emulator with a root folder: those in the folder and, where it lacks one, the
/// running system's (qemu, util/path.c).
#[derive(Debug)]
pub(crate) struct EmulatedTree {
    pub(crate) root: System,
    pub(crate) here: System,
}

impl Tree for EmulatedTree {
    fn find(&self, path: &[u8]) -> Result<Option<TreeFile>, String> {
        match self.root.find(path)? {
            Some(found) => Ok(Some(found)),
            None => self.here.find(path),
        }
    }

    fn read(&self, file: &TreeFile) -> Result<Vec<u8>, String> {
        let in_root = self.root.find(&file.path)?.is_some_and(|found| found.identity == file.identity);
        if in_root { self.root.read(file) } else { self.here.read(file) }
    }

    fn list(&self, folder: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        Ok([self.root.list(folder)?, self.here.list(folder)?].concat())
    }

    fn is_folder(&self, path: &[u8]) -> Result<bool, String> {
        Ok(self.root.is_folder(path)? || self.here.is_folder(path)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_stay_in_the_root_and_circles_end() {
        let outer = tempfile::tempdir().expect("a folder");
        let root = outer.path().join("root");
        fs::create_dir_all(root.join("usr/lib")).expect("folders");
        fs::write(outer.path().join("secret"), "outside").expect("a file");
        fs::write(root.join("usr/lib/real.so"), "inside").expect("a file");
        symlink("usr/lib", root.join("lib")).expect("a link");
        symlink("/lib/real.so", root.join("usr/lib/absolute.so")).expect("a link");
        symlink("../../../secret", root.join("usr/lib/above.so")).expect("a link");
        symlink("circle.so", root.join("usr/lib/circle.so")).expect("a link");
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("usr/lib/pipe.so"), rustix::fs::Mode::RUSR).expect("a pipe");
        let system = System::new(Some(&root)).expect("a system");
        let found = system.find(b"/lib/absolute.so").expect("known").expect("a file");
        assert_eq!(found.path, b"/usr/lib/real.so");
        assert_eq!(system.read(&found).expect("its bytes"), b"inside");
        for missing in ["/lib/above.so", "/lib/none.so", "/lib", "/lib/real.so/x", "/lib/pipe.so", "/lib/circle.so"] {
            assert_eq!(system.find(missing.as_bytes()), Ok(None), "{missing}");
        }
        assert_eq!((system.is_folder(b"/lib"), system.is_folder(b"/lib/real.so")), (Ok(true), Ok(false)));
        assert_eq!((system.is_folder(b"/none"), system.list(b"/none")), (Ok(false), Ok(Vec::new())));
        assert!(system.place(&outer.path().join("secret")).is_err());
        assert_eq!(system.place(&root.join("lib/real.so")).expect("a place").file, found);
    }
}
