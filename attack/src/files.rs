//! The files of a folder: names, modes and contents. Times and inodes differ between runs that do the same.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Part of the name of each file that allograft puts beside a host: backups, records, temporaries.
const BESIDE: &str = ".allograft";

/// The role of a path in a flow's folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The user's own file: never torn, and never changed by a run that says that it did nothing.
    Host,
    /// A file that allograft keeps for itself: it has to be right after the next run.
    Beside,
    /// A file of another program, such as cargo's own: not looked at, nor is what is below it.
    Foreign,
}

/// Returns the role of a path, which is relative to the folder.
pub(crate) type RoleOf = fn(&Path) -> Role;

/// The roles where allograft works on hosts in place.
pub(crate) fn in_place(path: &Path) -> Role {
    if path.as_os_str().to_string_lossy().contains(BESIDE) { Role::Beside } else { Role::Host }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Entry {
    Folder,
    Link(PathBuf),
    File { mode: u32, content: Vec<u8> },
}

/// Everything below a folder, by its path in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Files(pub(crate) BTreeMap<PathBuf, Entry>);

impl Files {
    /// Reads all of a folder but the files of other programs.
    pub(crate) fn read(folder: &Path, role: RoleOf) -> io::Result<Files> {
        let mut files = BTreeMap::new();
        let mut waiting = vec![folder.to_owned()];
        while let Some(at) = waiting.pop() {
            for entry in fs::read_dir(&at)? {
                let path = entry?.path();
                let name = path.strip_prefix(folder).map_err(io::Error::other)?.to_owned();
                if role(&name) == Role::Foreign {
                    continue;
                }
                let metadata = fs::symlink_metadata(&path)?;
                let entry = if metadata.is_dir() {
                    waiting.push(path.clone());
                    Entry::Folder
                } else if metadata.is_symlink() {
                    Entry::Link(fs::read_link(&path)?)
                } else {
                    Entry::File { mode: metadata.permissions().mode() & 0o7777, content: fs::read(&path)? }
                };
                files.insert(name, entry);
            }
        }
        Ok(Files(files))
    }

    /// Writes them into a folder, which is emptied first.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        match fs::remove_dir_all(folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir_all(folder)?,
        }
        self.make(folder, |_| true)
    }

    /// Writes them into a folder that has the files `now`: what is the same there stays.
    pub(crate) fn write_over(&self, now: &Files, folder: &Path) -> io::Result<()> {
        let differs = |name: &PathBuf| self.0.get(name) != now.0.get(name);
        // A folder's name sorts before those in it: they are removed first.
        for (name, entry) in now.0.iter().rev().filter(|(name, _)| differs(name)) {
            let path = folder.join(name);
            if *entry == Entry::Folder { fs::remove_dir(path)? } else { fs::remove_file(path)? }
        }
        self.make(folder, differs)
    }

    /// Makes those of the entries that are wanted.
    fn make(&self, folder: &Path, is_wanted: impl Fn(&PathBuf) -> bool) -> io::Result<()> {
        // A folder's name sorts before those in it.
        for (name, entry) in self.0.iter().filter(|(name, _)| is_wanted(name)) {
            let path = folder.join(name);
            match entry {
                Entry::Folder => fs::create_dir(path)?,
                Entry::Link(to) => symlink(to, path)?,
                Entry::File { mode, content } => {
                    fs::write(&path, content)?;
                    fs::set_permissions(path, Permissions::from_mode(*mode))?;
                }
            }
        }
        Ok(())
    }

    /// Returns how many names each of the files in a folder has: a name more is not seen in their contents.
    pub(crate) fn links(&self, folder: &Path) -> io::Result<Vec<u64>> {
        let files = self.0.iter().filter(|(_, entry)| matches!(entry, Entry::File { .. }));
        files.map(|(name, _)| Ok(fs::symlink_metadata(folder.join(name))?.nlink())).collect()
    }

    /// Names the hosts that are as in none of the `states`.
    pub(crate) fn torn(&self, states: &[&Files], role: RoleOf) -> Vec<String> {
        let all = states.iter().copied().chain([self]);
        let names: std::collections::BTreeSet<&PathBuf> =
            all.flat_map(|files| files.0.keys()).filter(|path| role(path) == Role::Host).collect();
        let is_whole = |path: &PathBuf| states.iter().any(|files| files.0.get(path) == self.0.get(path));
        names.into_iter().filter(|path| !is_whole(path)).map(|path| self.described(path)).collect()
    }

    /// Returns those of the files that are the same in `other`.
    pub(crate) fn without_changes(&self, other: &Files) -> Files {
        let kept = self.0.iter().filter(|(path, entry)| other.0.get(*path) == Some(*entry));
        Files(kept.map(|(path, entry)| (path.clone(), entry.clone())).collect())
    }

    /// Names the differences.
    pub(crate) fn differences(&self, expected: &Files) -> Vec<String> {
        let names: std::collections::BTreeSet<&PathBuf> =
            [self, expected].iter().flat_map(|files| files.0.keys()).collect();
        let differs = |path: &&&PathBuf| self.0.get(**path) != expected.0.get(**path);
        names.iter().filter(differs).map(|path| self.described(path)).collect()
    }

    fn described(&self, path: &Path) -> String {
        let what = match self.0.get(path) {
            None => "is missing".to_owned(),
            Some(Entry::File { mode, content }) => format!("has {} bytes and the mode {mode:o}", content.len()),
            Some(Entry::Folder) => "is a folder".to_owned(),
            Some(Entry::Link(to)) => format!("is a link to `{}`", to.display()),
        };
        format!("`{}` {what}", path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Files {
        let entry = |(name, text): &(&str, &str)| {
            (PathBuf::from(name), Entry::File { mode: 0o644, content: text.as_bytes().to_vec() })
        };
        Files(files.iter().map(entry).collect())
    }

    #[test]
    fn a_host_is_whole_as_before_or_as_after() {
        let (begin, end) = (of(&[("a", "stock"), ("b", "stock")]), of(&[("a", "graft"), ("b", "graft")]));
        let between = of(&[("a", "graft"), ("b", "stock"), ("a.allograft-stock", "sto")]);
        assert!(between.torn(&[&begin, &end], in_place).is_empty() && !between.torn(&[&begin], in_place).is_empty());
        assert_eq!(
            of(&[("a", "gra"), ("b", "stock")]).torn(&[&begin, &end], in_place),
            ["`a` has 3 bytes and the mode 644"]
        );
        assert_eq!(of(&[("b", "stock")]).torn(&[&begin, &end], in_place), ["`a` is missing"]);
        assert_eq!(of(&[("a", "stock"), ("b", "stock"), ("c", "")]).torn(&[&begin, &end], in_place).len(), 1);
        assert_eq!(between.differences(&end).len(), 2);
    }

    #[test]
    fn files_are_written_as_they_were_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut files = of(&[("sub/a", "1")]);
        files.0.insert("sub".into(), Entry::Folder);
        files.0.insert("link".into(), Entry::Link("sub/a".into()));
        files.write(folder.path()).unwrap();
        fs::write(folder.path().join("more"), "").unwrap();
        files.write(folder.path()).unwrap();
        assert_eq!(Files::read(folder.path(), in_place).unwrap(), files);
    }

    #[test]
    fn files_are_written_over_others() {
        let folder = tempfile::tempdir().unwrap();
        let with = |entry: Entry, files: &[(&str, &str)]| {
            let mut files = of(files);
            files.0.insert("a".into(), entry);
            files
        };
        let states = [
            of(&[("kept", "1"), ("a", "stock")]),
            of(&[("kept", "1"), ("a", "graft"), ("a.allograft-stock", "stock")]),
            with(Entry::Folder, &[("kept", "1")]),
            with(Entry::Link("kept".into()), &[("kept", "1")]),
            with(Entry::Folder, &[("kept", "2"), ("a/b", "3")]),
            Files::default(),
        ];
        for (from, to) in states.iter().flat_map(|from| states.iter().map(move |to| (from, to))) {
            from.write(folder.path()).unwrap();
            to.write_over(from, folder.path()).unwrap();
            assert_eq!(Files::read(folder.path(), in_place).unwrap(), *to, "over {from:?}");
        }
    }

    /// A file with a second name is not changed by what is written under that name.
    #[test]
    fn a_second_name_of_a_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (begin, now) = (of(&[("a", "1"), ("b", "2")]), of(&[("a", "1"), ("b", "1")]));
        of(&[("a", "1")]).write(folder.path()).unwrap();
        fs::hard_link(folder.path().join("a"), folder.path().join("b")).unwrap();
        assert_eq!(now.links(folder.path()).unwrap(), [2, 2]);
        begin.write_over(&now, folder.path()).unwrap();
        assert_eq!(Files::read(folder.path(), in_place).unwrap(), begin);
        assert_eq!(begin.links(folder.path()).unwrap(), [1, 1]);
    }
}
