//! Makes one tree from the layers of an image. Layers are read from the top to the bottom, so that an entry that a
//! layer above hides is dropped at once.
//!
//! (OCI image-spec, layer.md, "Applying Changesets" and "Whiteouts".)

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};

use crate::error::{Checked, Problem, shown};
use crate::limits::{MOST_ENTRIES, MOST_KEPT, MOST_NAME_BYTES};
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
    nodes: BTreeMap<Vec<u8>, Node>,
    contents: Vec<NumberedFile>,
    spool: Spooling,
    /// Paths that are removed from the layers below, with everything under them.
    hidden: HashSet<Vec<u8>>,
    /// Folders whose content in the layers below is hidden.
    covered: HashSet<Vec<u8>>,
    entries: u64,
    name_bytes: u64,
}

/// A numbered file.
#[derive(Debug, Clone, Copy)]
struct NumberedFile {
    size: u64,
    part: Option<Part>,
}

/// An object of one layer at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Own {
    File(u64),
    Folder,
    /// A folder that no entry describes.
    Implied,
    Symlink,
    Special,
}

/// The layer that is being read.
pub(crate) struct Layer<'m, 'k> {
    merge: &'m mut Merge<'k>,
    number: usize,
    /// Whether names that start with `.wh.` are whiteouts.
    whiteouts: bool,
    own: HashMap<Vec<u8>, Own>,
    hidden: Vec<Vec<u8>>,
    covered: Vec<Vec<u8>>,
}

impl<'k> Merge<'k> {
    pub(crate) fn new(keep: Keep<'k>) -> Checked<Merge<'k>> {
        Ok(Merge {
            keep,
            nodes: BTreeMap::new(),
            contents: Vec::new(),
            spool: Spooling::new()?,
            hidden: HashSet::new(),
            covered: HashSet::new(),
            entries: 0,
            name_bytes: 0,
        })
    }

    /// Begins the layer below those that were merged.
    pub(crate) fn layer(&mut self, number: usize, whiteouts: bool) -> Layer<'_, 'k> {
        Layer { merge: self, number, whiteouts, own: HashMap::new(), hidden: Vec::new(), covered: Vec::new() }
    }

    pub(crate) fn finish(self) -> Checked<Tree> {
        Ok(Tree {
            nodes: self.nodes,
            contents: self.contents.iter().map(|kept| kept.part).collect(),
            spool: self.spool.finish()?,
        })
    }

    /// Counts an entry with the length of its names.
    fn count(&mut self, bytes: usize) -> Checked<()> {
        self.entries += 1;
        self.name_bytes += bytes as u64;
        Problem::at_most("its table of contents", self.entries, "entries", MOST_ENTRIES)?;
        Problem::at_most("the length of all names together", self.name_bytes, "bytes", MOST_NAME_BYTES)
    }

    /// Whether a layer above hides a path of this layer.
    fn is_hidden(&self, path: &[u8], layer: usize) -> bool {
        let above = |path: &[u8]| {
            self.hidden.contains(path)
                || self.covered.contains(path)
                || self.nodes.get(path).is_some_and(|node| node.layer != layer && node.kind != Kind::Folder)
        };
        self.hidden.contains(path) || self.covered.contains(&b""[..]) || parents(path).any(above)
    }
}

/// The folders on a path, without the root.
fn parents(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| &path[..at])
}

impl Layer<'_, '_> {
    /// Adds an entry of the layer's tar.
    pub(crate) fn enter(&mut self, entry: Entry, content: &mut Content<'_>) -> Checked<()> {
        let target = match &entry.kind {
            EntryKind::Symlink(target) => target.len(),
            _ => 0,
        };
        let attributes: usize = entry.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.merge.count(entry.name.len() + target + attributes)?;
        if entry.name.is_empty() {
            return Ok(());
        }
        if self.whiteouts && self.is_whiteout(&entry)? {
            return Ok(());
        }
        for parent in parents(&entry.name) {
            match self.own.get(parent) {
                Some(Own::Folder | Own::Implied) => {}
                None => {
                    self.merge.count(parent.len())?;
                    self.own.insert(parent.to_owned(), Own::Implied);
                }
                Some(Own::Symlink) => return Err(Problem::Name("leads through a symbolic link")),
                Some(_) => return Err(Problem::Name("leads through a file")),
            }
        }
        let own = match &entry.kind {
            EntryKind::File => Own::File(self.content(&entry, content)?),
            EntryKind::HardLink(target) => match self.own.get(target) {
                Some(Own::File(number)) => Own::File(*number),
                _ => return Err(Problem::HardLink(shown(target))),
            },
            EntryKind::Folder => Own::Folder,
            EntryKind::Symlink(_) => Own::Symlink,
            EntryKind::Special => Own::Special,
        };
        match (self.own.insert(entry.name.clone(), own), own) {
            (None, _) | (Some(Own::Folder | Own::Implied), Own::Folder) => {}
            (Some(Own::Implied), _) => return Err(Problem::Name("is that of a folder with entries in it")),
            (Some(_), _) => return Err(Problem::Twice),
        }
        self.see(entry, own)
    }

    /// Adds an entry if it is a whiteout, and returns whether it is one.
    fn is_whiteout(&mut self, entry: &Entry) -> Checked<bool> {
        let start = entry.name.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        let (folder, name) = entry.name.split_at(start);
        let folder = folder.strip_suffix(b"/").unwrap_or(folder);
        let Some(gone) = name.strip_prefix(b".wh.") else { return Ok(false) };
        match gone {
            b".wh..opq" => self.covered.push(folder.to_owned()),
            // AUFS's own files: links and locks, which no image should have.
            _ if gone.starts_with(b".wh.") => {}
            b"" | b"." | b".." => return Err(Problem::Name("is a whiteout of no name")),
            _ if entry.kind != EntryKind::File => {
                return Err(Problem::Name("is a whiteout's, but it is not a file"));
            }
            _ => self.hidden.push(entry.name[..start].iter().chain(gone).copied().collect()),
        }
        Ok(true)
    }

    /// Keeps a file's content, if it is wanted: hidden files too, since a hard link to one may be visible. Returns the
    /// number of the file.
    fn content(&mut self, entry: &Entry, content: &mut Content<'_>) -> Checked<u64> {
        let number = self.merge.contents.len() as u64;
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
        self.merge.contents.push(NumberedFile { size: entry.size, part });
        Ok(number)
    }

    /// Puts an entry into the tree, unless a layer above hides it.
    fn see(&mut self, entry: Entry, own: Own) -> Checked<()> {
        let Entry { name, kind, mode, uid, gid, mtime, xattrs, .. } = entry;
        let kind = match (kind, own) {
            (EntryKind::Symlink(target), _) => Kind::Symlink(target),
            (_, Own::File(number)) => {
                let NumberedFile { size, part } = usize::try_from(number)
                    .ok()
                    .and_then(|number| self.merge.contents.get(number).copied())
                    .unwrap_or(NumberedFile { size: 0, part: None });
                Kind::File { size, number, kept: part.is_some() }
            }
            (EntryKind::Folder, _) => Kind::Folder,
            _ => Kind::Special,
        };
        let is_folder = kind == Kind::Folder;
        let node = Node { kind, mode, uid, gid, mtime, xattrs, layer: self.number, implied: false };
        if self.merge.is_hidden(&name, self.number) {
            if !is_folder {
                self.covered.push(name);
            }
            return Ok(());
        }
        match self.merge.nodes.get_mut(&name) {
            Some(known) if known.kind != Kind::Folder => {
                // The entry of the layer above stays, and hides everything under this one.
            }
            Some(known) if known.implied && is_folder => *known = node,
            Some(known) if known.implied => {
                let layer = known.layer + 1;
                return Err(Problem::Unsupported(
                    format!(
                        "layer {layer} has entries below `{}`, which is not a folder in layer {}: engines treat that \
                     differently",
                        shown(&name),
                        self.number + 1
                    )
                    .into(),
                ));
            }
            Some(_) if is_folder => {}
            Some(_) => self.covered.push(name),
            None => {
                self.imply(&name);
                self.merge.nodes.insert(name, node);
            }
        }
        Ok(())
    }

    /// Adds the missing folders on a path.
    fn imply(&mut self, name: &[u8]) {
        for parent in parents(name) {
            if !self.merge.nodes.contains_key(parent) {
                let layer = self.number;
                let node = Node {
                    kind: Kind::Folder,
                    mode: 0o755,
                    uid: 0,
                    gid: 0,
                    mtime: 0,
                    xattrs: Vec::new(),
                    layer,
                    implied: true,
                };
                self.merge.nodes.insert(parent.to_owned(), node);
            }
        }
    }

    /// Ends the layer: its whiteouts now apply to the layers below.
    pub(crate) fn finish(self) {
        self.merge.hidden.extend(self.hidden);
        self.merge.covered.extend(self.covered);
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
