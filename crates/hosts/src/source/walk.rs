//! Finds the hosts under a folder: `libc.a`s by name, grafts by their records.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::error::skipped::Skipped;
use crate::error::{Error, IoContext};
use crate::file::names::host_of_sidecar;
use crate::file::temporaries::is_temporary;
use crate::system::root::resolve;

/// The hosts in a folder, sorted by path. Paths start with the folder as the user typed it.
#[derive(Debug, Default)]
pub(crate) struct FolderHosts {
    /// Files called `libc.a`, and files to which symbolic links of this name point; each one once.
    pub(crate) archives: BTreeSet<PathBuf>,
    /// Files that have a backup or a record beside them.
    pub(crate) with_sidecars: BTreeSet<PathBuf>,
    /// Symbolic links called `libc.a` that point out of the folder or to no file.
    pub(crate) skipped: Vec<Skipped>,
}

/// Walks `folder`. With `image`, symbolic links are resolved in that root folder. Links to folders are not followed:
/// folders inside are walked anyway, and folders outside are not part of the target.
pub(crate) fn walk(folder: &Path, image: Option<&Path>) -> Result<FolderHosts, Error> {
    let image = image.map(|image| image.canonicalize().context(image, "read")).transpose()?;
    let root = folder.canonicalize().context(folder, "read")?;
    let mut found = FolderHosts::default();
    let mut links = BTreeMap::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(current) = waiting.pop() {
        for entry in fs::read_dir(&current).context(&current, "read")? {
            let entry = entry.context(&current, "read")?;
            let (path, name) = (entry.path(), entry.file_name());
            let kind = entry.file_type().context(&path, "read")?;
            if is_temporary(&name) {
                continue;
            }
            if kind.is_dir() {
                waiting.push(path);
            } else if name == OsStr::new("libc.a") {
                if kind.is_symlink() {
                    let real = match &image {
                        None => path.canonicalize(),
                        Some(image) => in_image(image, &root.join(path.strip_prefix(folder).unwrap_or(&path))),
                    };
                    links.insert(path.clone(), real);
                } else if kind.is_file() {
                    found.archives.insert(path);
                }
            } else if let Some(host) = host_of_sidecar(&path)
                && kind.is_file()
                && fs::symlink_metadata(&host).is_ok_and(|host| host.is_file())
            {
                found.with_sidecars.insert(host);
            }
        }
    }
    for (path, real) in links {
        let reason = match real.as_deref().map(|real| real.strip_prefix(&root)) {
            Ok(Ok(inside)) if root.join(inside).is_file() => {
                found.archives.insert(folder.join(inside));
                continue;
            }
            Ok(Ok(_)) => "a symbolic link to a folder",
            Ok(Err(_)) => "a symbolic link that points out of the folder",
            Err(_) => "a symbolic link to no file",
        };
        found.skipped.push(Skipped::new(path, reason));
    }
    Ok(found)
}

/// Resolves `path`, which is in the image.
fn in_image(image: &Path, path: &Path) -> io::Result<PathBuf> {
    let outside = || io::Error::from(io::ErrorKind::NotFound);
    resolve(image, path.strip_prefix(image).map_err(|_| outside())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_of_an_image_start_at_its_root() {
        let outer = tempfile::tempdir().unwrap();
        let image = outer.path().join("image");
        fs::create_dir_all(image.join("usr/lib")).unwrap();
        fs::create_dir_all(image.join("opt")).unwrap();
        fs::write(image.join("usr/lib/libc-1.2.a"), "").unwrap();
        symlink("/usr/lib/libc-1.2.a", image.join("usr/lib/libc.a")).unwrap();
        symlink("/usr/lib/libc.a", image.join("opt/libc.a")).unwrap();
        let found = walk(&image.join("usr"), Some(&image)).unwrap();
        assert_eq!(found.archives.into_iter().collect::<Vec<_>>(), [image.join("usr/lib/libc-1.2.a")]);
        let found = walk(&image.join("opt"), Some(&image)).unwrap();
        assert!(found.archives.is_empty() && found.skipped.len() == 1, "it points out of the folder");
        let found = walk(&image, None).unwrap();
        assert!(found.archives.is_empty() && found.skipped.len() == 2, "not what the build machine has there");
    }

    #[test]
    fn each_archive_once_and_nothing_outside() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        for folder in ["root/b/lib", "root/a", "root/c", "root/d", "outside"] {
            fs::create_dir_all(outer.path().join(folder)).unwrap();
        }
        for file in ["root/b/lib/libc.a", "root/a/libc-1.2.a", "outside/libc.a", "root/a/libc.a.allograft-stock"] {
            fs::write(outer.path().join(file), "").unwrap();
        }
        symlink("libc-1.2.a", root.join("a/libc.a")).unwrap();
        symlink("../a/libc.a", root.join("c/libc.a")).unwrap();
        symlink("../outside", root.join("out")).unwrap();
        symlink("..", root.join("b/lib/up")).unwrap();
        symlink("../../outside/libc.a", root.join("d/libc.a")).unwrap();
        let found = walk(&root, None).unwrap();
        assert_eq!(
            found.archives.into_iter().collect::<Vec<_>>(),
            [root.join("a/libc-1.2.a"), root.join("b/lib/libc.a")]
        );
        assert_eq!(found.skipped.len(), 1);
        assert_eq!(found.skipped[0].path, root.join("d/libc.a"));
        assert!(found.with_sidecars.is_empty(), "a backup whose host is missing or a link is nobody's");
    }
}
