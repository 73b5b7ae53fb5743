//! Programs on the command path.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Returns the program that a shell would start for a name without a slash. As there, a file without the right to be
/// executed hides no program in a later folder.
pub fn find(name: impl AsRef<OsStr>) -> Option<PathBuf> {
    find_in(&std::env::var_os("PATH")?, name.as_ref())
}

fn find_in(folders: &OsStr, name: &OsStr) -> Option<PathBuf> {
    let is_program =
        |path: &PathBuf| path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    std::env::split_paths(folders).map(|folder| folder.join(name)).find(is_program)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn what_cannot_be_executed_hides_no_program() {
        let folder = tempfile::tempdir().unwrap();
        let folders = ["folder", "text", "first", "second"].map(|name| folder.path().join(name));
        for path in &folders {
            fs::create_dir(path).unwrap();
        }
        fs::create_dir(folders[0].join("tool")).unwrap();
        for (path, mode) in folders[1..].iter().zip([0o644, 0o755, 0o755]) {
            fs::write(path.join("tool"), "").unwrap();
            fs::set_permissions(path.join("tool"), Permissions::from_mode(mode)).unwrap();
        }
        let found = |folders: &[PathBuf]| find_in(&std::env::join_paths(folders).unwrap(), OsStr::new("tool"));
        assert_eq!(found(&folders), Some(folders[2].join("tool")));
        assert_eq!(found(&folders[..2]), None);
    }
}
