//! The files of an image as a process in it sees them.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Bound;

use crate::error::{Problem, shown};
use crate::limits::MOST_LINKS;
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
    pub(crate) nodes: BTreeMap<Vec<u8>, Node>,
    /// Where the contents of files are, by their number.
    pub(crate) contents: Vec<Option<Part>>,
    pub(crate) spool: Spool,
}

impl Tree {
    /// Returns all nodes with their paths, sorted by path.
    pub fn nodes(&self) -> impl Iterator<Item = (&[u8], &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_slice(), node))
    }

    /// Returns the node at a path, without following a link in its last part.
    pub fn get(&self, path: &[u8]) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// Resolves the symbolic links in a path; none of them leaves the root. `None` if the target does not exist.
    pub fn resolve(&self, path: &[u8]) -> Option<Vec<u8>> {
        let mut inside: Vec<u8> = Vec::new();
        let parts = |path: &[u8]| -> Vec<Vec<u8>> {
            let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".");
            parts.rev().map(<[u8]>::to_vec).collect()
        };
        let mut waiting = parts(path);
        let mut links = 0;
        while let Some(part) = waiting.pop() {
            if !inside.is_empty() && self.nodes.get(&inside)?.kind != Kind::Folder {
                return None;
            }
            let above = inside.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
            if part == b".." {
                inside.truncate(above);
                continue;
            }
            let length = inside.len();
            if length > 0 {
                inside.push(b'/');
            }
            inside.extend(&part);
            match &self.nodes.get(&inside)?.kind {
                Kind::Symlink(target) => {
                    links += 1;
                    if links > MOST_LINKS || waiting.len() > MOST_PARTS {
                        return None;
                    }
                    inside.truncate(if target.starts_with(b"/") { 0 } else { length });
                    waiting.extend(parts(target));
                }
                _ => continue,
            }
        }
        Some(inside)
    }

    /// Returns the names in a folder, sorted.
    pub fn list<'t>(&'t self, folder: &[u8]) -> impl Iterator<Item = &'t [u8]> + use<'t> {
        let mut start = folder.to_vec();
        if !start.is_empty() {
            start.push(b'/');
        }
        let length = start.len();
        let from = (Bound::Included(start.clone()), Bound::Unbounded);
        let below = self.nodes.range::<Vec<u8>, _>(from).map(|(path, _)| path.as_slice());
        let below = below.take_while(move |path| path.starts_with(&start)).map(move |path| &path[length..]);
        below.filter(|rest| !rest.is_empty() && !rest.contains(&b'/'))
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
        let not_kept = || Problem::NotKept(shown(path));
        match self.nodes.get(path).map(|node| &node.kind) {
            Some(Kind::File { number, .. }) => {
                let part = usize::try_from(*number).ok().and_then(|number| self.contents.get(number).copied());
                part.flatten().ok_or_else(not_kept)
            }
            _ => Err(not_kept()),
        }
    }
}

/// The limit on the parts of a path that are still to be resolved.
const MOST_PARTS: usize = 1 << 16;
