//! The entries of a packed bundle, with the checks that every name and link has to pass. A doubtful name is refused,
//! since programs that unpack the bundle differ on what they make of it.

use std::collections::BTreeMap;
use std::ops::Bound;

use images::tar::Kind;

use crate::error::packed::PackedError;

/// Entries by their names: `/` between parts, none at the ends, no `.` parts.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    all: BTreeMap<Vec<u8>, Kind>,
    name_bytes: usize,
}

/// The `libc.a`s of a bundle.
pub(crate) struct Libcs {
    /// The files, each once and sorted.
    pub(crate) files: Vec<Vec<u8>>,
    /// Links of this name that do not resolve to a file of the bundle, with the reason.
    pub(crate) skipped: Vec<(Vec<u8>, &'static str)>,
}

/// A hundred times as many as an SDK has.
const MOST_ENTRIES: u64 = 2_000_000;
const MOST_NAME_BYTES: u64 = 64 << 20;

impl Entries {
    /// Adds an entry. `name` is a result of [`plain_name`].
    pub(crate) fn enter(&mut self, name: &[u8], kind: Kind) -> Result<(), PackedError> {
        self.name_bytes += name.len();
        PackedError::at_most("its table of contents", self.all.len() as u64 + 1, "entries", MOST_ENTRIES)?;
        PackedError::at_most("the length of all names together", self.name_bytes as u64, "bytes", MOST_NAME_BYTES)?;
        for (at, _) in name.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            match self.all.get(&name[..at]) {
                None | Some(Kind::Folder) => {}
                Some(Kind::Symlink(_)) => return Err(PackedError::Name("goes through a symbolic link")),
                Some(_) => return Err(PackedError::Name("goes through a file")),
            }
        }
        if kind != Kind::Folder {
            let mut below = name.to_vec();
            below.push(b'/');
            let next = self.all.range::<[u8], _>((Bound::Included(&below[..]), Bound::Unbounded)).next();
            if next.is_some_and(|(other, _)| other.starts_with(&below)) {
                return Err(PackedError::Name("is that of a folder with entries in it"));
            }
        }
        if let Kind::HardLink(of) = &kind
            && !matches!(self.all.get(of), Some(Kind::File | Kind::HardLink(_)))
        {
            return Err(PackedError::Name("is that of a hard link to no file before it"));
        }
        match self.all.insert(name.to_vec(), kind.clone()) {
            None => Ok(()),
            // A folder may be listed twice.
            Some(Kind::Folder) if kind == Kind::Folder => Ok(()),
            Some(_) => Err(PackedError::Twice),
        }
    }

    /// The files called `libc.a`, and the files that links of this name resolve to.
    pub(crate) fn libcs(&self) -> Libcs {
        let (mut files, mut skipped) = (Vec::new(), Vec::new());
        for name in self.all.keys().filter(|name| is_libc(name)) {
            match self.file(name) {
                Ok(file) => files.push(file),
                Err(Some(reason)) => skipped.push((name.clone(), reason)),
                Err(None) => {}
            }
        }
        files.sort();
        files.dedup();
        Libcs { files, skipped }
    }

    /// The file that a name resolves to, or the reason why it resolves to none; folders and devices have no reason.
    fn file(&self, name: &[u8]) -> Result<Vec<u8>, Option<&'static str>> {
        let mut name = name.to_vec();
        // More links in a row count as a circle. (Linux: MAXSYMLINKS.)
        for _ in 0..40 {
            name = match self.all.get(&name) {
                Some(Kind::File) => return Ok(name),
                Some(Kind::HardLink(of)) => of.clone(),
                Some(Kind::Symlink(target)) => {
                    follow(&name, target).ok_or(Some("a symbolic link that points out of the bundle"))?
                }
                Some(Kind::Folder | Kind::Special) => return Err(None),
                None => return Err(Some("a symbolic link to no file, or through another link")),
            };
        }
        Err(Some("a symbolic link to no file"))
    }
}

/// Whether an entry is called `libc.a`.
pub(crate) fn is_libc(name: &[u8]) -> bool {
    name.rsplit(|byte| *byte == b'/').next() == Some(b"libc.a")
}

/// An entry's name without `.` parts and slashes at its end; empty for the outermost folder.
pub(crate) fn plain_name(name: &[u8]) -> Result<Vec<u8>, PackedError> {
    if name.starts_with(b"/") {
        return Err(PackedError::Name("is absolute"));
    }
    if name.contains(&0) {
        return Err(PackedError::Name("holds a zero byte"));
    }
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if parts.contains(&&b".."[..]) {
        return Err(PackedError::Name("holds `..`"));
    }
    Ok(parts.join(&b'/'))
}

/// The name that the symbolic link `name` points to; `None` if it is outside the bundle.
fn follow(name: &[u8], target: &[u8]) -> Option<Vec<u8>> {
    if target.starts_with(b"/") {
        return None;
    }
    let mut parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').collect();
    parts.pop();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join(&b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(plain_name(b"./a//b/./c/").unwrap(), b"a/b/c");
        assert_eq!(plain_name(b"./").unwrap(), b"");
        for wrong in [&b"/etc/passwd"[..], b"a/../../b", b"..", b"a\0b"] {
            assert!(plain_name(wrong).is_err());
        }
    }

    #[test]
    fn libcs_by_every_kind_of_link() {
        let mut entries = Entries::default();
        let link = |target: &[u8]| Kind::Symlink(target.to_vec());
        for (name, kind) in [
            (&b"x/lib/libc-1.2.a"[..], Kind::File),
            (b"x/lib/libc.a", link(b"libc-1.2.a")),
            (b"x/lib64/libc.a", link(b"../lib/libc.a")),
            (b"y/libc.a", Kind::File),
            (b"y/musl/libc.a", Kind::HardLink(b"y/libc.a".to_vec())),
            (b"z/libc.a", link(b"../../outside/libc.a")),
            (b"z/one/libc.a", link(b"/usr/lib/libc.a")),
            (b"z/two/libc.a", link(b"libc.a")),
            (b"z/three/libc.a", link(b"missing.a")),
            (b"z/four/libc.a", Kind::Folder),
        ] {
            entries.enter(name, kind).unwrap();
        }
        let Libcs { files, skipped } = entries.libcs();
        assert_eq!(files, [&b"x/lib/libc-1.2.a"[..], b"y/libc.a"]);
        assert_eq!(skipped.len(), 4);
    }

    #[test]
    fn what_would_be_unpacked_elsewhere_than_it_seems() {
        let mut entries = Entries::default();
        entries.enter(b"a/link", Kind::Symlink(b"/etc".to_vec())).unwrap();
        entries.enter(b"a/file", Kind::File).unwrap();
        entries.enter(b"a/folder", Kind::Folder).unwrap();
        entries.enter(b"a/folder", Kind::Folder).unwrap();
        entries.enter(b"b/c/d", Kind::File).unwrap();
        let mut refused = |name: &[u8], kind| entries.enter(name, kind).unwrap_err();
        assert!(matches!(refused(b"a/link/passwd", Kind::File), PackedError::Name(_)));
        assert!(matches!(refused(b"a/file/more", Kind::File), PackedError::Name(_)));
        assert!(matches!(refused(b"b/c", Kind::Symlink(b"/etc".to_vec())), PackedError::Name(_)));
        assert!(matches!(refused(b"e", Kind::HardLink(b"missing".to_vec())), PackedError::Name(_)));
        assert_eq!(refused(b"a/file", Kind::File), PackedError::Twice);
        assert_eq!(refused(b"a/folder", Kind::Symlink(b"/etc".to_vec())), PackedError::Twice);
    }
}
