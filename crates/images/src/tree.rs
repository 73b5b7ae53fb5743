//! The files of an image as a process in it sees them.

use std::fs::File;

use crate::error::{Problem, shown};
use crate::limits::MOST_LINKS;
use crate::nodes::Nodes;
use crate::paths::{ROOT, Sorted};
use crate::spool::{Part, Range, Spool};

/// A file, folder, link or device of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its kind.
    pub kind: Kind,
    /// The permissions, with the bits for setuid, setgid and sticky.
    pub mode: u32,
    /// The owner's number.
    pub uid: u64,
    /// The group's number.
    pub gid: u64,
    /// The time of its last change, in seconds since 1970.
    pub mtime: i64,
    /// Its extended attributes, such as `security.capability`.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The number of its layer, from 0 for the lowest.
    pub layer: usize,
    /// Whether only entries below this folder imply it.
    pub implied: bool,
}

/// The kind of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A file.
    File {
        /// Its size in bytes.
        size: u64,
        /// Files with several names (hard links) have the same number.
        number: u64,
        /// Whether its content can be read.
        kept: bool,
    },
    /// A folder.
    Folder,
    /// A symbolic link, with its target unchanged.
    Symlink(Vec<u8>),
    /// A device or a pipe.
    Special,
}

impl Node {
    /// Whether a program runs with the rights of its owner or group, or with capabilities of its file.
    pub fn is_privileged(&self) -> bool {
        self.mode & 0o6000 != 0 || self.xattrs.iter().any(|(name, _)| name == b"security.capability")
    }
}

/// The files of an image. Paths have no slash at their ends: `usr/bin/env`; the root is empty.
#[derive(Debug)]
pub struct Tree {
    pub(crate) paths: Sorted,
    pub(crate) nodes: Nodes,
    pub(crate) spool: Spool,
}

impl Tree {
    /// Returns all nodes with their paths, sorted by path.
    pub fn nodes(&self) -> impl Iterator<Item = (Vec<u8>, Node)> {
        let ids = self.paths.walk(|id| self.nodes.is_folder(id));
        ids.filter_map(|id| Some((self.paths.path(id), self.nodes.get(id)?)))
    }

    /// Returns the node at a path, without following a link in its last part.
    pub fn get(&self, path: &[u8]) -> Option<Node> {
        self.nodes.get(self.paths.find(path)?)
    }

    /// Resolves the symbolic links in a path; none of them leaves the root. `None` if the target does not exist.
    pub fn resolve(&self, path: &[u8]) -> Option<Vec<u8>> {
        let parts = |path: &[u8]| -> Vec<Vec<u8>> {
            let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
            parts.rev().map(<[u8]>::to_vec).collect()
        };
        let mut inside = ROOT;
        let mut waiting = parts(path);
        let mut links = 0;
        while let Some(part) = waiting.pop() {
            if inside != ROOT && !self.nodes.is_folder(inside) {
                return None;
            }
            if part == b".." {
                inside = self.paths.folder(inside);
                continue;
            }
            let child = self.paths.child(inside, &part)?;
            match self.nodes.target(child) {
                Some(target) => {
                    links += 1;
                    if links > MOST_LINKS || waiting.len() > MOST_PARTS {
                        return None;
                    }
                    if target.starts_with(b"/") {
                        inside = ROOT;
                    }
                    waiting.extend(parts(target));
                }
                None => inside = child,
            }
        }
        Some(self.paths.path(inside))
    }

    /// Returns the names in a folder, sorted.
    pub fn list<'t>(&'t self, folder: &[u8]) -> impl Iterator<Item = &'t [u8]> + use<'t> {
        let folder = if folder.is_empty() { Some(ROOT) } else { self.paths.find(folder) };
        let children = folder.map(|folder| self.paths.children(folder)).unwrap_or_default();
        children.iter().map(|id| self.paths.last(*id))
    }

    /// Reads the file at a path without symbolic links.
    ///
    /// # Errors
    /// There is no file whose content was kept, or it cannot be read.
    pub fn read(&self, path: &[u8]) -> Result<Vec<u8>, Problem> {
        self.spool.read(self.part(path)?)
    }

    /// Returns a reader of the file at a path without symbolic links.
    ///
    /// # Errors
    /// There is no file whose content was kept.
    pub fn open(&self, path: &[u8]) -> Result<impl std::io::Read + '_, Problem> {
        let file: &File = self.spool.file();
        Ok(Range::new(file, self.part(path)?))
    }

    fn part(&self, path: &[u8]) -> Result<Part, Problem> {
        let part = self.paths.find(path).and_then(|id| self.nodes.part(id));
        part.ok_or_else(|| Problem::NotKept(shown(path)))
    }
}

/// The limit on the parts of a path that are still to be resolved.
const MOST_PARTS: usize = 1 << 16;
