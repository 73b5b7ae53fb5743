//! The files of this machine, some of which are missing or cannot be read.

use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use inspector::{Tree, TreeFile};

/// The files, one of which may be missing or unreadable.
pub(crate) struct Disk {
    pub(crate) missing: Option<PathBuf>,
    pub(crate) unreadable: Option<PathBuf>,
}

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

impl Tree for Disk {
    fn find(&self, at: &[u8]) -> Result<Option<TreeFile>, String> {
        let Ok(found) = fs::canonicalize(path(at)) else { return Ok(None) };
        if self.missing.as_deref() == Some(&found) || !found.is_file() {
            return Ok(None);
        }
        let metadata = fs::metadata(&found).map_err(|error| error.to_string())?;
        let identity = (metadata.dev(), metadata.ino());
        Ok(Some(TreeFile { path: found.into_os_string().into_vec(), identity }))
    }

    fn read(&self, file: &TreeFile) -> Result<Vec<u8>, String> {
        let at = path(&file.path);
        if self.unreadable.as_deref() == Some(&at) {
            return Err("Permission denied".to_owned());
        }
        fs::read(at).map_err(|error| error.to_string())
    }

    fn list(&self, folder: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let Ok(entries) = fs::read_dir(path(folder)) else { return Ok(Vec::new()) };
        Ok(entries.flatten().map(|entry| entry.file_name().into_vec()).collect())
    }

    fn is_folder(&self, at: &[u8]) -> Result<bool, String> {
        Ok(Path::new(&path(at)).is_dir())
    }
}
