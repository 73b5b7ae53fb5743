//! The paths of a tree. Each is its folder and its last part, so that a folder's name is kept once and not with each of
//! its files: two million whole paths would need more memory than everything else.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::arena::{List, Place, Texts};
use crate::error::Checked;

/// The number of a path, in the order of its first mention.
pub(crate) type Id = u32;

/// The path of the root.
pub(crate) const ROOT: Id = 0;

/// Paths that are added.
pub(crate) struct Paths {
    names: Names,
    table: HashTable<Id>,
    hasher: RandomState,
}

/// The folder and the last part of each path.
#[derive(Debug)]
struct Names {
    parts: List<(Id, Place)>,
    texts: Texts,
}

impl Names {
    fn folder(&self, id: Id) -> Id {
        self.parts.at(id).0
    }

    fn last(&self, id: Id) -> &[u8] {
        self.texts.at(self.parts.at(id).1)
    }

    fn is(&self, id: Id, folder: Id, name: &[u8]) -> bool {
        self.folder(id) == folder && self.last(id) == name
    }

    fn path(&self, id: Id) -> Vec<u8> {
        let mut parts = Vec::new();
        let mut at = id;
        while at != ROOT {
            parts.push(self.last(at));
            at = self.folder(at);
        }
        parts.reverse();
        parts.join(&b'/')
    }
}

impl Paths {
    /// Returns the paths that consist of the root.
    pub(crate) fn new() -> Checked<Paths> {
        let mut names = Names { parts: List::new(), texts: Texts::new() };
        let nothing = names.texts.push(b"")?;
        names.parts.push((ROOT, nothing));
        // Seeded at random: the names may be hostile.
        Ok(Paths { names, table: HashTable::new(), hasher: RandomState::default() })
    }

    /// Returns the path of a name in a folder.
    pub(crate) fn child(&self, folder: Id, name: &[u8]) -> Option<Id> {
        let hash = self.hasher.hash_one((folder, name));
        self.table.find(hash, |id| self.names.is(*id, folder, name)).copied()
    }

    /// Adds the path of a name in a folder, which must be new.
    pub(crate) fn add(&mut self, folder: Id, name: &[u8]) -> Checked<Id> {
        let Paths { names, table, hasher } = self;
        let place = names.texts.push(name)?;
        let id = names.parts.len() as Id;
        names.parts.push((folder, place));
        let hash = |id: &Id| hasher.hash_one((names.folder(*id), names.last(*id)));
        table.insert_unique(hash(&id), id, hash);
        Ok(id)
    }

    /// Returns the path with these parts.
    pub(crate) fn find(&self, path: &[u8]) -> Option<Id> {
        path.split(|byte| *byte == b'/').try_fold(ROOT, |folder, name| self.child(folder, name))
    }

    /// Returns the folders that contain a path, the deepest first, without the root.
    pub(crate) fn folders(&self, id: Id) -> impl Iterator<Item = Id> {
        let above = |id: &Id| Some(self.names.folder(*id)).filter(|above| *above != ROOT);
        std::iter::successors(above(&id), above)
    }

    /// Sorts the paths for which `is_there` is true.
    pub(crate) fn sorted(self, is_there: impl Fn(Id) -> bool) -> Sorted {
        let Paths { names, table, .. } = self;
        let count = table.len();
        // Not needed any more, and large.
        drop(table);
        let all = 1..=count as Id;
        let mut ids = Vec::with_capacity(all.clone().filter(|id| is_there(*id)).count());
        ids.extend(all.filter(|id| is_there(*id)));
        ids.sort_unstable_by(|one, other| {
            let folders = names.folder(*one).cmp(&names.folder(*other));
            folders.then_with(|| names.last(*one).cmp(names.last(*other)))
        });
        Sorted { names, ids }
    }
}

/// Paths that are looked up.
#[derive(Debug)]
pub(crate) struct Sorted {
    names: Names,
    /// By folder, then by name.
    ids: Vec<Id>,
}

impl Sorted {
    /// Returns the paths in a folder, sorted by name.
    pub(crate) fn children(&self, folder: Id) -> &[Id] {
        let start = self.ids.partition_point(|id| self.names.folder(*id) < folder);
        let rest = &self.ids[start..];
        &rest[..rest.partition_point(|id| self.names.folder(*id) == folder)]
    }

    /// Returns the path of a name in a folder.
    pub(crate) fn child(&self, folder: Id, name: &[u8]) -> Option<Id> {
        let key = |id: &Id| self.names.folder(*id).cmp(&folder).then_with(|| self.names.last(*id).cmp(name));
        self.ids.binary_search_by(key).ok().map(|at| self.ids[at])
    }

    /// Returns the path with these parts.
    pub(crate) fn find(&self, path: &[u8]) -> Option<Id> {
        path.split(|byte| *byte == b'/').try_fold(ROOT, |folder, name| self.child(folder, name))
    }

    /// Returns the folder that contains a path. The root contains itself.
    pub(crate) fn folder(&self, id: Id) -> Id {
        self.names.folder(id)
    }

    /// Returns the last part of a path.
    pub(crate) fn last(&self, id: Id) -> &[u8] {
        self.names.last(id)
    }

    /// Returns the bytes of a path.
    pub(crate) fn path(&self, id: Id) -> Vec<u8> {
        self.names.path(id)
    }

    /// Returns all paths, sorted by their bytes. Only paths for which `is_folder` is true may have others below them.
    pub(crate) fn walk<F: Fn(Id) -> bool>(&self, is_folder: F) -> Walk<'_, F> {
        let mut walk = Walk { paths: self, is_folder, levels: Vec::new() };
        walk.enter(ROOT);
        walk
    }
}

/// A path, or everything below it.
#[derive(Debug, Clone, Copy)]
struct Step(u32);

/// The bit for everything below a path. There are fewer paths than that.
const BELOW: u32 = 1 << 31;

impl Step {
    fn id(self) -> Id {
        self.0 & !BELOW
    }

    fn is_below(self) -> bool {
        self.0 & BELOW != 0
    }
}

/// See [`Sorted::walk`].
pub(crate) struct Walk<'p, F> {
    paths: &'p Sorted,
    is_folder: F,
    levels: Vec<std::vec::IntoIter<Step>>,
}

impl<F: Fn(Id) -> bool> Walk<'_, F> {
    /// Continues with the paths below a folder. A folder's own path sorts by its name, and the paths below it by its
    /// name and a slash: `a`, `a-b`, `a/c`.
    fn enter(&mut self, folder: Id) {
        let children = self.paths.children(folder);
        let folders = children.iter().filter(|id| (self.is_folder)(**id));
        let mut steps = Vec::with_capacity(children.len() + folders.clone().count());
        steps.extend(children.iter().map(|id| Step(*id)));
        steps.extend(folders.map(|id| Step(id | BELOW)));
        let key = |step: &Step| self.paths.last(step.id()).iter().chain(step.is_below().then_some(&b'/'));
        steps.sort_unstable_by(|one, other| key(one).cmp(key(other)));
        self.levels.push(steps.into_iter());
    }
}

impl<F: Fn(Id) -> bool> Iterator for Walk<'_, F> {
    type Item = Id;

    fn next(&mut self) -> Option<Id> {
        loop {
            match self.levels.last_mut()?.next() {
                Some(step) if step.is_below() => self.enter(step.id()),
                Some(step) => return Some(step.id()),
                None => drop(self.levels.pop()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added(paths: &mut Paths, path: &[u8]) -> Id {
        let step = |folder, name: &[u8]| match paths.child(folder, name) {
            Some(id) => id,
            None => paths.add(folder, name).unwrap(),
        };
        path.split(|byte| *byte == b'/').fold(ROOT, step)
    }

    #[test]
    fn paths_are_found_and_sorted_by_their_bytes() {
        let names = ["a", "a-b", "a/b", "a/b-c", "a/b/c", "a.b", "a0", "z", "a/b/c/d", "b/x", "b"];
        let mut paths = Paths::new().unwrap();
        for name in names {
            let id = added(&mut paths, name.as_bytes());
            assert_eq!(paths.find(name.as_bytes()), Some(id));
        }
        assert_eq!(paths.find(b"a/c"), None);
        assert_eq!(paths.find(b"a//b"), None);
        let deepest = paths.find(b"a/b/c/d").unwrap();
        let folders: Vec<Id> = ["a/b/c", "a/b", "a"].iter().map(|name| paths.find(name.as_bytes()).unwrap()).collect();
        assert_eq!(paths.folders(deepest).collect::<Vec<_>>(), folders);
        let hidden = paths.find(b"z").unwrap();
        let sorted = paths.sorted(|id| id != hidden);
        let mut expected: Vec<&str> = names.into_iter().filter(|name| *name != "z").collect();
        expected.sort();
        let walked: Vec<Vec<u8>> = sorted.walk(|_| true).map(|id| sorted.path(id)).collect();
        assert_eq!(walked, expected.iter().map(|name| name.as_bytes().to_vec()).collect::<Vec<_>>());
        assert_eq!(sorted.find(b"z"), None);
        let inside = sorted.children(sorted.find(b"a").unwrap());
        assert_eq!(inside.iter().map(|id| sorted.last(*id)).collect::<Vec<_>>(), [&b"b"[..], b"b-c"]);
        assert_eq!(sorted.folder(sorted.find(b"b/x").unwrap()), sorted.find(b"b").unwrap());
    }
}
