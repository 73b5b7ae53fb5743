//! Reads a loader's built-in paths from its own file, and the files that configure it: `ld.so.preload`, `ld.so.conf`,
//! musl's file of folders.

use std::collections::HashSet;

use crate::loader::tree::Tree;

/// The most files that `ld.so.conf` may include, one in the other or side by side.
const MOST_INCLUDED: usize = 1000;

/// A dynamic loader, with the paths that were built into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// glibc's.
    Glibc {
        /// The folders that are always searched, each with a slash at its end.
        folders: Vec<Vec<u8>>,
        /// The path of the cache.
        cache: Vec<u8>,
        /// The path of the list of preloads.
        preload: Vec<u8>,
        /// Processors that `$PLATFORM` may name, beside the architecture.
        processors: Vec<Vec<u8>>,
    },
    /// musl's, which is its libc too.
    Musl {
        /// The path of the list of folders, below the folder that musl is installed in.
        list: Vec<u8>,
        /// The folders that are searched if there is no such list.
        folders: Vec<Vec<u8>>,
    },
}

impl Kind {
    /// Reads the kind from the loader's file. The error says that the loader is unknown.
    pub(super) fn parse(loader: &[u8]) -> Result<Kind, String> {
        let texts = texts(loader);
        let ending = |end: &[u8]| texts.iter().find(|(_, text)| text.starts_with(b"/") && text.ends_with(end));
        let has = |wanted: &[u8]| texts.iter().any(|(_, text)| *text == wanted);
        // musl ldso/dynlink.c; the text may be the end of a format, `%.*s/etc/ld-musl-x86_64.path`.
        if let Some(list) = texts.iter().find_map(|(_, text)| {
            let start = memchr::memmem::find(text, b"/etc/ld-musl-")?;
            text.ends_with(b".path").then(|| text[start..].to_owned())
        }) {
            let defaults: &[u8] = b"/lib:/usr/local/lib:/usr/lib";
            if !has(defaults) {
                return Err("it is musl's, with other folders than musl's own".to_owned());
            }
            return Ok(Kind::Musl {
                list,
                folders: defaults.split(|&byte| byte == b':').map(<[u8]>::to_owned).collect(),
            });
        }
        let (Some((_, cache)), Some((_, preload)), true) =
            (ending(b"/ld.so.cache"), ending(b"/ld.so.preload"), has(b"glibc-ld.so.cache1.1"))
        else {
            return Err("it is neither glibc's loader nor musl's".to_owned());
        };
        // glibc elf/dl-load.c, `system_dirs`: texts one behind the other, each with a slash at its end.
        let mut runs: Vec<Vec<Vec<u8>>> = Vec::new();
        let mut end = 0;
        for (start, text) in &texts {
            let folder = text.starts_with(b"/") && text.ends_with(b"/") && memchr::memmem::find(text, b"lib").is_some();
            if folder && *start == end && end != 0 {
                runs.last_mut().into_iter().for_each(|run| run.push(text.to_vec()));
            } else if folder {
                runs.push(vec![text.to_vec()]);
            }
            end = if folder { start + text.len() + 1 } else { 0 };
        }
        runs.dedup();
        // glibc sysdeps/x86/cpu-features.c, until 2.36.
        let known: [&[u8]; 2] = [b"haswell", b"xeon_phi"];
        let processors = known.into_iter().filter(|name| has(name)).map(<[u8]>::to_owned).collect();
        match <[_; 1]>::try_from(runs) {
            Ok([folders]) => Ok(Kind::Glibc { folders, cache: cache.to_vec(), preload: preload.to_vec(), processors }),
            Err(_) => Err("it is glibc's, and does not show which folders it searches".to_owned()),
        }
    }

    /// Returns the value of `$LIB`: the last part of glibc's own folder, or Debian's `lib/x86_64-linux-gnu`.
    pub(super) fn library_folder(folders: &[Vec<u8>]) -> Vec<u8> {
        let first = folders.first().map(Vec::as_slice).unwrap_or_default();
        let inside: &[u8] = first.strip_prefix(b"/").and_then(|rest| rest.strip_suffix(b"/")).unwrap_or_default();
        match memchr::memmem::find(inside, b"-linux-gnu").is_some() {
            true => inside.to_owned(),
            false => inside.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_owned(),
        }
    }
}

/// Returns the texts of a file without blanks that end in a NUL, with their places.
fn texts(data: &[u8]) -> Vec<(usize, &[u8])> {
    let mut texts = Vec::new();
    let mut start = 0;
    for end in memchr::memchr_iter(0, data) {
        let piece = &data[start..end];
        let graphic = piece.iter().rposition(|byte| !byte.is_ascii_graphic()).map_or(0, |before| before + 1);
        if graphic < piece.len() {
            texts.push((start + graphic, &piece[graphic..]));
        }
        start = end + 1;
    }
    texts
}

/// Returns the files that `ld.so.preload` lists (glibc elf/rtld.c): between blanks and colons, without comments.
pub fn preloads(text: &[u8]) -> Vec<&[u8]> {
    text.split(|&byte| byte == b'\n')
        .map(|line| line.split(|&byte| byte == b'#').next().unwrap_or_default())
        .flat_map(|line| line.split(|byte| b": \t".contains(byte)))
        .filter(|name| !name.is_empty())
        .collect()
}

/// Returns the folders that `ld.so.conf` and the files that it includes list for ldconfig (glibc elf/ldconfig.c,
/// `parse_conf`). Unreadable files are left out: the loader itself does not read it either.
pub(super) fn configured(tree: &dyn Tree, path: &[u8]) -> Vec<Vec<u8>> {
    let mut folders = Vec::new();
    let mut waiting = vec![path.to_owned()];
    let mut seen = HashSet::new();
    while let Some(path) = waiting.pop() {
        // Files may include each other in a circle.
        if seen.len() == MOST_INCLUDED || !seen.insert(path.clone()) {
            continue;
        }
        let Ok(Some(file)) = tree.find(&path) else { continue };
        let Ok(text) = tree.read(&file) else { continue };
        let mut included = Vec::new();
        for line in text.split(|&byte| byte == b'\n') {
            let line = line.split(|&byte| byte == b'#').next().unwrap_or_default().trim_ascii();
            let Some(patterns) =
                line.strip_prefix(b"include").filter(|rest| rest.starts_with(b" ") || rest.starts_with(b"\t"))
            else {
                // An old form gives the kind of library behind the folder.
                let folder = line.split(|&byte| byte == b'=').next().unwrap_or_default().trim_ascii();
                if folder.starts_with(b"/") {
                    folders.push(folder.to_owned());
                }
                continue;
            };
            for pattern in patterns.split(u8::is_ascii_whitespace).filter(|pattern| !pattern.is_empty()) {
                included.extend(matches(tree, &absolute(&path, pattern)));
            }
        }
        included.reverse();
        waiting.extend(included);
    }
    folders
}

fn absolute(from: &[u8], path: &[u8]) -> Vec<u8> {
    if path.starts_with(b"/") {
        return path.to_owned();
    }
    [folder_of(from), b"/", path].concat()
}

/// Returns the folder that a path is in, without a slash at its end.
pub(super) fn folder_of(path: &[u8]) -> &[u8] {
    path.iter().rposition(|&byte| byte == b'/').map_or(&[], |end| &path[..end])
}

/// Returns the files that match a pattern, in order. Only stars in the file's name are supported: real configurations
/// have no others.
fn matches(tree: &dyn Tree, pattern: &[u8]) -> Vec<Vec<u8>> {
    let folder = folder_of(pattern);
    let name = &pattern[folder.len() + 1..];
    if !name.contains(&b'*') {
        return vec![pattern.to_owned()];
    }
    let mut names = tree.list(folder).unwrap_or_default();
    names.sort();
    names.retain(|found| !found.starts_with(b".") && is_like(found, name));
    names.into_iter().map(|name| [folder, b"/", &name].concat()).collect()
}

/// Whether a name is like a pattern with stars.
fn is_like(name: &[u8], pattern: &[u8]) -> bool {
    let mut parts = pattern.split(|&byte| byte == b'*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let parts: Vec<&[u8]> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        match memchr::memmem::find(rest, part) {
            Some(place) => rest = &rest[place + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Returns the folders of musl's list: between colons and line ends.
pub(super) fn musl_folders(text: &[u8]) -> Vec<Vec<u8>> {
    // A NUL ends it, as `getdelim` reads it.
    let text = text.split(|&byte| byte == 0).next().unwrap_or_default();
    text.split(|byte| b":\n".contains(byte)).filter(|folder| !folder.is_empty()).map(<[u8]>::to_owned).collect()
}

/// Returns a path for messages, which are escaped where they are printed.
pub(super) fn shown(path: &[u8]) -> String {
    format!("`{}`", String::from_utf8_lossy(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::tests::MemoryTree;

    #[test]
    fn this_machines_loader_tells_its_folders() {
        let Ok(loader) = std::fs::read("/lib64/ld-linux-x86-64.so.2") else {
            // Not x86_64's glibc. The generated loaders of the other tests cover these systems.
            return;
        };
        let Kind::Glibc { folders, cache, preload, .. } = Kind::parse(&loader).unwrap() else { panic!("glibc") };
        assert!(folders.len() >= 2 && folders.iter().all(|folder| folder.ends_with(b"/")), "{folders:?}");
        assert_eq!((&cache[..], &preload[..]), (&b"/etc/ld.so.cache"[..], &b"/etc/ld.so.preload"[..]));
    }

    #[test]
    fn what_the_loader_puts_for_lib() {
        let lib = |first: &str| String::from_utf8(Kind::library_folder(&[first.as_bytes().to_vec()])).unwrap();
        assert_eq!(lib("/lib/x86_64-linux-gnu/"), "lib/x86_64-linux-gnu");
        assert_eq!(lib("/lib64/"), "lib64");
        assert_eq!(lib("/nix/store/abc-glibc/lib/"), "lib");
    }

    #[test]
    fn preloads_are_between_blanks_and_colons() {
        let text = b"# all\n/lib/a.so /lib/b.so:c.so\t# no\n\n/lib/d.so";
        assert_eq!(preloads(text), [&b"/lib/a.so"[..], b"/lib/b.so", b"c.so", b"/lib/d.so"]);
    }

    #[test]
    fn included_files_are_read_and_circles_end() {
        let tree = MemoryTree::new()
            .with("/etc/ld.so.conf", b"include ld.so.conf.d/*.conf\n/opt/own # ours\n")
            .with("/etc/ld.so.conf.d/b.conf", b"/opt/b\n")
            .with("/etc/ld.so.conf.d/a.conf", b"# first\n/opt/a\ninclude /etc/ld.so.conf\n")
            .with("/etc/ld.so.conf.d/c.txt", b"/opt/c\n");
        let folders = configured(&tree, b"/etc/ld.so.conf");
        assert_eq!(folders, [b"/opt/own".to_vec(), b"/opt/a".to_vec(), b"/opt/b".to_vec()]);
    }

    #[test]
    fn stars() {
        assert!(is_like(b"a.conf", b"*.conf") && is_like(b"ab.conf", b"a*.c*f") && is_like(b"a", b"a"));
        assert!(!is_like(b"a.conf", b"*.d") && !is_like(b"ab", b"a") && !is_like(b"a", b"a*a"));
    }

    #[test]
    fn musls_list_ends_with_a_nul() {
        assert_eq!(musl_folders(b"/lib\n/opt/lib:/x\0/y"), [b"/lib".to_vec(), b"/opt/lib".to_vec(), b"/x".to_vec()]);
    }
}
