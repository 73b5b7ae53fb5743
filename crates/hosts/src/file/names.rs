//! The names of the files beside a host. They are in its folder, since hard links and renames do not cross file
//! systems.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const BACKUP: &str = ".allograft-stock";
const RECORD: &str = ".allograft.json";

fn beside(host: &Path, suffix: &str) -> PathBuf {
    let mut name = host.file_name().unwrap_or_default().to_os_string();
    name.push(suffix);
    host.with_file_name(name)
}

/// The path of the backup of `host`, whether or not it exists.
pub(crate) fn backup_path(host: &Path) -> PathBuf {
    beside(host, BACKUP)
}

/// The path of the record of `host`, whether or not it exists.
pub fn record_path(host: &Path) -> PathBuf {
    beside(host, RECORD)
}

/// The host whose backup or record has the name `path`; `None` for every other name.
pub(crate) fn host_of_sidecar(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.as_bytes();
    let host = [BACKUP, RECORD].iter().find_map(|suffix| name.strip_suffix(suffix.as_bytes()))?;
    if host.is_empty() { None } else { Some(path.with_file_name(OsStr::from_bytes(host))) }
}

/// Whether `path` has the name of a backup.
pub(crate) fn is_backup(path: &Path) -> bool {
    host_of_sidecar(path).is_some_and(|host| path == backup_path(&host))
}

/// The host of the backup at `path`; `None` if that is not the name of one.
pub(crate) fn host_of_backup(path: &Path) -> Option<PathBuf> {
    host_of_sidecar(path).filter(|_| is_backup(path))
}

/// The folder that holds `path`; `.` for a bare name.
pub(crate) fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sidecars_know_their_host() {
        let host = Path::new("/sdk/lib/libc.a");
        assert_eq!(host_of_sidecar(&backup_path(host)).as_deref(), Some(host));
        assert_eq!(host_of_sidecar(&record_path(host)).as_deref(), Some(host));
        assert_eq!(host_of_sidecar(host), None);
        assert_eq!(host_of_backup(&backup_path(host)).as_deref(), Some(host));
        assert_eq!((host_of_backup(&record_path(host)), host_of_backup(host)), (None, None));
        assert_eq!(host_of_sidecar(Path::new("/sdk/.allograft-stock")), None);
    }
}
