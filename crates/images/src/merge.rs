//! Makes one tree from the layers of an image. Layers are read from the top to the bottom, so that an entry that a
//! layer above hides is dropped at once.
//!
//! (OCI image-spec, layer.md, "Applying Changesets" and "Whiteouts".)

use std::io::{self, Read, Write};

use foldhash::{HashMap, HashMapExt};

use crate::error::{Checked, Problem, shown};
use crate::limits::{MOST_ENTRIES, MOST_KEPT, MOST_NAME_BYTES};
use crate::nodes::{Nodes, Own};
use crate::paths::{Id, Paths, ROOT};
use crate::spool::{Part, Spooling};
use crate::tar::{Content, Entry, Kind as EntryKind};
use crate::tree::{Kind, Node, Tree};

/// The number of bytes of a file that are passed to [`Keep`].
pub const START: usize = 64;

/// Decides whether the content of a file is kept, by its path, its size, and its first bytes, at most [`START`].
pub type Keep<'k> = &'k dyn Fn(&[u8], u64, &[u8]) -> bool;

/// The layers that were merged so far.
pub(crate) struct Merge<'k> {
    keep: Keep<'k>,
    paths: Paths,
    nodes: Nodes,
    spool: Spooling,
    entries: u64,
    name_bytes: u64,
}

/// The layer that is being read.
pub(crate) struct Layer<'m, 'k> {
    merge: &'m mut Merge<'k>,
    number: usize,
    /// Whether names that start with `.wh.` are whiteouts.
    whiteouts: bool,
    /// The numbers of its files that a layer above hides.
    below: HashMap<Id, u32>,
}

impl<'k> Merge<'k> {
    pub(crate) fn new(keep: Keep<'k>) -> Checked<Merge<'k>> {
        let (paths, nodes) = (Paths::new()?, Nodes::new());
        Ok(Merge { keep, paths, nodes, spool: Spooling::new()?, entries: 0, name_bytes: 0 })
    }

    /// Begins the layer below those that were merged.
    pub(crate) fn layer(&mut self, number: usize, whiteouts: bool) -> Layer<'_, 'k> {
        Layer { merge: self, number, whiteouts, below: HashMap::new() }
    }

    pub(crate) fn finish(self) -> Checked<Tree> {
        let Merge { paths, nodes, spool, .. } = self;
        let paths = paths.sorted(|id| nodes.is_there(id));
        Ok(Tree { paths, nodes, spool: spool.finish()? })
    }

    /// Counts an entry with the length of its names.
    fn count(&mut self, bytes: usize) -> Checked<()> {
        self.entries += 1;
        self.name_bytes += bytes as u64;
        Problem::at_most("its table of contents", self.entries, "entries", MOST_ENTRIES)?;
        Problem::at_most("the length of all names together", self.name_bytes, "bytes", MOST_NAME_BYTES)
    }

    /// Returns the path of a name in a folder, added if it is new.
    fn path(&mut self, folder: Id, name: &[u8]) -> Checked<Id> {
        match self.paths.child(folder, name) {
            Some(id) => Ok(id),
            None => {
                self.nodes.grow();
                self.paths.add(folder, name)
            }
        }
    }

    /// Whether a layer above hides a path of this layer.
    fn is_hidden(&self, id: Id, layer: usize) -> bool {
        let nodes = &self.nodes;
        let is_above = |folder: Id| {
            nodes.is_hidden(folder, layer)
                || nodes.is_covered(folder, layer)
                || (nodes.is_there(folder) && nodes.layer(folder) != layer && !nodes.is_folder(folder))
        };
        nodes.is_hidden(id, layer) || nodes.is_covered(ROOT, layer) || self.paths.folders(id).any(is_above)
    }
}

/// The folders on a path, without the root, and the last part of each.
fn folders(path: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut start = 0;
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    ends.map(move |(at, _)| {
        let last = &path[start..at];
        start = at + 1;
        (&path[..at], last)
    })
}

/// The last part of a path.
fn last(path: &[u8]) -> &[u8] {
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    &path[start..]
}

impl Layer<'_, '_> {
    /// Adds an entry of the layer's tar.
    pub(crate) fn enter(&mut self, entry: Entry, content: &mut Content<'_>) -> Checked<()> {
        let target = match &entry.kind {
            EntryKind::Symlink(target) => target.len(),
            _ => 0,
        };
        // Each has its length before it.
        let attributes: usize = entry.xattrs.iter().map(|(name, value)| name.len() + value.len() + 2).sum();
        self.merge.count(entry.name.len() + target + attributes)?;
        if entry.name.is_empty() {
            return Ok(());
        }
        if self.whiteouts && self.is_whiteout(&entry)? {
            return Ok(());
        }
        let number = self.number;
        let mut folder = ROOT;
        for (path, name) in folders(&entry.name) {
            let known = self.merge.paths.child(folder, name);
            folder = match known.and_then(|id| Some((id, self.merge.nodes.own(id, number)?))) {
                Some((id, Own::Folder | Own::Implied)) => id,
                Some((_, Own::Symlink)) => return Err(Problem::Name("leads through a symbolic link")),
                Some(_) => return Err(Problem::Name("leads through a file")),
                None => {
                    self.merge.count(path.len())?;
                    let id = self.merge.path(folder, name)?;
                    self.merge.nodes.set_own(id, number, Own::Implied);
                    id
                }
            };
        }
        let (own, file) = match &entry.kind {
            EntryKind::File => (Own::File, Some(self.content(&entry, content)?)),
            EntryKind::HardLink(target) => match self.file(target) {
                Some(file) => (Own::File, Some(file)),
                None => return Err(Problem::HardLink(shown(target))),
            },
            EntryKind::Folder => (Own::Folder, None),
            EntryKind::Symlink(_) => (Own::Symlink, None),
            EntryKind::Special => (Own::Special, None),
        };
        let id = self.merge.path(folder, last(&entry.name))?;
        match (self.merge.nodes.own(id, number), own) {
            (None, _) | (Some(Own::Folder | Own::Implied), Own::Folder) => {}
            (Some(Own::Implied), _) => return Err(Problem::Name("is that of a folder with entries in it")),
            (Some(_), _) => return Err(Problem::Twice),
        }
        self.merge.nodes.set_own(id, number, own);
        self.see(entry, id, file)
    }

    /// Returns the number of a file of this layer. `None` if it has no file of that name.
    fn file(&self, path: &[u8]) -> Option<u32> {
        let nodes = &self.merge.nodes;
        let id = self.merge.paths.find(path)?;
        nodes.own(id, self.number).filter(|own| *own == Own::File)?;
        match self.below.get(&id) {
            Some(file) => Some(*file),
            None => nodes.file(id),
        }
    }

    /// Adds an entry if it is a whiteout, and returns whether it is one.
    fn is_whiteout(&mut self, entry: &Entry) -> Checked<bool> {
        let Some(gone) = last(&entry.name).strip_prefix(b".wh.") else { return Ok(false) };
        match gone {
            b".wh..opq" => {
                let folder = self.whiteout_folder(&entry.name)?;
                self.merge.nodes.cover(folder, self.number);
            }
            // AUFS's own files: links and locks, which no image should have.
            _ if gone.starts_with(b".wh.") => {}
            b"" | b"." | b".." => return Err(Problem::Name("is a whiteout of no name")),
            _ if entry.kind != EntryKind::File => {
                return Err(Problem::Name("is a whiteout's, but it is not a file"));
            }
            _ => {
                let folder = self.whiteout_folder(&entry.name)?;
                let id = self.merge.path(folder, gone)?;
                self.merge.nodes.hide(id, self.number);
            }
        }
        Ok(true)
    }

    /// Returns the folder of a whiteout. The layer itself need not have it.
    fn whiteout_folder(&mut self, name: &[u8]) -> Checked<Id> {
        let mut folder = ROOT;
        for (path, name) in folders(name) {
            folder = match self.merge.paths.child(folder, name) {
                Some(id) => id,
                None => {
                    self.merge.count(path.len())?;
                    self.merge.path(folder, name)?
                }
            };
        }
        Ok(folder)
    }

    /// Keeps a file's content, if it is wanted: hidden files too, since a hard link to one may be visible. Returns the
    /// number of the file.
    fn content(&mut self, entry: &Entry, content: &mut Content<'_>) -> Checked<u32> {
        let mut start = Vec::with_capacity(START);
        content.by_ref().take(START as u64).read_to_end(&mut start).map_err(Problem::reading)?;
        let mut part = None;
        if (self.merge.keep)(&entry.name, entry.size, &start) {
            Problem::at_most("the file", entry.size, "bytes", MOST_KEPT)?;
            part = Some(Part { offset: self.merge.spool.place(), size: entry.size });
            self.merge.spool.put(&start)?;
            // The rest of the announced size.
            let rest = entry.size - start.len() as u64;
            let mut into = Into { spool: &mut self.merge.spool, problem: None };
            if let Err(error) = io::copy(&mut content.take(rest), &mut into) {
                return Err(into.problem.unwrap_or_else(|| Problem::reading(error)));
            }
        }
        Ok(self.merge.nodes.add_content(entry.size, part))
    }

    /// Puts an entry into the tree, unless a layer above hides it. `file` is the number of a file.
    fn see(&mut self, entry: Entry, id: Id, file: Option<u32>) -> Checked<()> {
        let Entry { name, kind, mode, uid, gid, mtime, xattrs, .. } = entry;
        let kind = match (kind, file) {
            (EntryKind::Symlink(target), _) => Kind::Symlink(target),
            // Its size is that of its content.
            (_, Some(file)) => Kind::File { size: 0, number: file.into(), kept: false },
            (EntryKind::Folder, _) => Kind::Folder,
            _ => Kind::Special,
        };
        let is_folder = kind == Kind::Folder;
        let layer = self.number;
        let node = Node { kind, mode, uid, gid, mtime, xattrs, layer, implied: false };
        if self.merge.is_hidden(id, layer) {
            if !is_folder {
                self.merge.nodes.cover(id, layer);
            }
            self.below.extend(file.map(|file| (id, file)));
            return Ok(());
        }
        let nodes = &mut self.merge.nodes;
        match () {
            () if !nodes.is_there(id) => {
                self.imply(id)?;
                self.merge.nodes.set(id, &node)?;
            }
            () if nodes.is_implied(id) && is_folder => nodes.set(id, &node)?,
            () if nodes.is_implied(id) => {
                let above = nodes.layer(id) + 1;
                return Err(Problem::Unsupported(
                    format!(
                        "layer {above} has entries below `{}`, which is not a folder in layer {}: engines treat that \
                         differently",
                        shown(&name),
                        layer + 1
                    )
                    .into(),
                ));
            }
            () => {
                // The entry of the layer above stays; one that is not a folder hides everything under this one.
                if nodes.is_folder(id) && !is_folder {
                    nodes.cover(id, layer);
                }
                self.below.extend(file.map(|file| (id, file)));
            }
        }
        Ok(())
    }

    /// Adds the missing folders on a path.
    fn imply(&mut self, id: Id) -> Checked<()> {
        let Merge { paths, nodes, .. } = &mut *self.merge;
        let layer = self.number;
        for folder in paths.folders(id) {
            if !nodes.is_there(folder) {
                let kind = Kind::Folder;
                let xattrs = Vec::new();
                let node = Node { kind, mode: 0o755, uid: 0, gid: 0, mtime: 0, xattrs, layer, implied: true };
                nodes.set(folder, &node)?;
            }
        }
        Ok(())
    }
}

/// Writes into a spool, and keeps the problem apart from those of the reader.
struct Into<'s> {
    spool: &'s mut Spooling,
    problem: Option<Problem>,
}

impl Write for Into<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.spool.put(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(problem) => {
                self.problem = Some(problem);
                Err(io::ErrorKind::WriteZero.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
