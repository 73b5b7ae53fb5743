//! Files of results: written as a whole or not at all, and never elsewhere than where they were asked for.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Where names of this process's own streams, and devices, are.
const DEVICES: &str = "/dev";

/// Checks that a file may be written at a path: a new one, or in place of a regular file. A symbolic link would choose
/// another place, and a pipe might wait for a reader for ever. `/dev/stdout` and its like are the user's choice.
///
/// # Errors
/// Something else is there, or the path cannot be read.
pub(crate) fn check(path: &Path) -> io::Result<()> {
    if path.starts_with(DEVICES) {
        return Ok(());
    }
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let problem = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_symlink() => "it is a symbolic link, and nothing is written through links",
        () if kind.is_dir() => return Err(io::ErrorKind::IsADirectory.into()),
        () => "it is neither a file nor a new name",
    };
    Err(io::Error::other(problem))
}

/// Writes a file, in place of a regular file of that name.
///
/// # Errors
/// As for [`check`], and if it cannot be written.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    check(path)?;
    if path.starts_with(DEVICES) {
        return fs::write(path, bytes);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The mode that the umask allows. Files of `tempfile` are private otherwise.
    let permissions = fs::Permissions::from_mode(0o666);
    let file = tempfile::Builder::new().permissions(permissions).tempfile_in(folder)?;
    fs::write(file.path(), bytes)?;
    file.persist(path).map(|_| ()).map_err(|error| error.error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn only_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("victim"), "kept").unwrap();
        symlink("victim", path("link")).unwrap();
        symlink("nothing", path("dangling")).unwrap();
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        fs::create_dir(path("folder")).unwrap();
        for name in ["link", "dangling", "pipe", "folder"] {
            let before = fs::symlink_metadata(path(name)).unwrap().file_type();
            assert!(write(&path(name), b"new").is_err(), "{name}");
            assert_eq!(fs::symlink_metadata(path(name)).unwrap().file_type(), before, "{name}");
        }
        assert!(!path("nothing").exists());
        for name in ["victim", "fresh"] {
            write(&path(name), b"new").unwrap();
            assert_eq!(fs::read(path(name)).unwrap(), b"new");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 6, "nothing is left over");
        write(Path::new("/dev/null"), b"new").unwrap();
    }
}
