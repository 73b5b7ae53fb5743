//! Resolves paths in the root folder of an image: absolute symbolic links start at that root, and no link leaves it. On
//! the build machine, the same link would point to the build machine's own files.

use std::path::{Component, Path, PathBuf};
use std::{fs, io};

use crate::error::{Error, IoContext};

/// More links in a row count as a circle. (Linux: MAXSYMLINKS.)
const MOST_LINKS: usize = 40;

/// Resolves `path`, which is relative to the folder `root`, as a process with that root folder would: absolute links
/// start there, and `..` does not leave it. In the result, no part below `root` is a symbolic link.
pub fn in_root(root: &Path, path: &Path) -> Result<PathBuf, Error> {
    resolve(root, path).context(&root.join(path.strip_prefix("/").unwrap_or(path)), "read")
}

pub(crate) fn resolve(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut inside = PathBuf::new();
    let mut waiting: Vec<PathBuf> = parts(path);
    let mut links = 0;
    while let Some(part) = waiting.pop() {
        if part == Path::new("..") {
            inside.pop();
            continue;
        }
        let next = root.join(&inside).join(&part);
        if !fs::symlink_metadata(&next)?.is_symlink() {
            inside.push(part);
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(rustix::io::Errno::LOOP.into());
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            inside = PathBuf::new();
        }
        waiting.extend(parts(&target));
    }
    Ok(root.join(inside))
}

/// Names and `..`, the last one first.
fn parts(path: &Path) -> Vec<PathBuf> {
    let name = |part: Component<'_>| match part {
        Component::Normal(_) | Component::ParentDir => Some(PathBuf::from(part.as_os_str())),
        _ => None,
    };
    path.components().rev().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_stay_inside() {
        let outer = tempfile::tempdir().unwrap();
        let root = outer.path().join("root");
        fs::create_dir_all(root.join("usr/lib")).unwrap();
        fs::write(root.join("usr/lib/libc.a"), "inside").unwrap();
        fs::write(outer.path().join("libc.a"), "outside").unwrap();
        symlink("usr/lib", root.join("lib")).unwrap();
        symlink("/usr/lib/libc.a", root.join("absolute")).unwrap();
        symlink("../../../libc.a", root.join("usr/lib/above")).unwrap();
        symlink("circle", root.join("circle")).unwrap();
        let resolved = |path: &str| resolve(&root, Path::new(path)).ok();
        let libc = Some(root.join("usr/lib/libc.a"));
        for path in ["usr/lib/libc.a", "/usr/lib/libc.a", "/lib/libc.a", "absolute", "../../usr/./lib/libc.a"] {
            assert_eq!(resolved(path), libc, "{path}");
        }
        assert_eq!(resolved("/"), Some(root.join("")));
        // The root has no /libc.a.
        assert_eq!(resolved("usr/lib/above"), None);
        assert_eq!(resolved("circle"), None);
        assert_eq!(resolved("missing"), None);
    }
}
