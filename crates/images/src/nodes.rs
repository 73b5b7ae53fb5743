//! The nodes of a tree by the numbers of their paths: 32 bytes each, as there may be two million.

use crate::arena::{List, Place, Texts, put, taken};
use crate::error::Checked;
use crate::paths::Id;
use crate::spool::Part;
use crate::tree::{Kind, Node};

/// The fields of a path: of its node, and of the layers that were read.
#[derive(Debug, Clone, Copy)]
struct Record {
    /// In seconds since 1970, its halves: a number of 64 bits would be padded.
    mtime: [u32; 2],
    /// The number of its owner and group.
    owner: u32,
    /// A file's number, or the place of a link's target.
    content: u32,
    xattrs: Option<Place>,
    mode: u16,
    layer: u16,
    /// The uppermost layer that removes the path, with everything under it, from the layers below.
    hidden: u16,
    /// The uppermost layer that removes everything under the path from the layers below.
    covered: u16,
    /// The layer that is being read, if it has the path.
    own_layer: u16,
    own: Own,
    kind: Slot,
}

/// The kind of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Slot {
    /// There is no node at the path.
    Nothing,
    File,
    Folder,
    /// Only entries below this folder imply it.
    Implied,
    Symlink,
    Special,
}

/// An object of one layer at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Own {
    File,
    Folder,
    /// A folder that no entry describes.
    Implied,
    Symlink,
    Special,
}

/// No layer. An image has at most a thousand.
const NONE: u16 = u16::MAX;

const EMPTY: Record = Record {
    mtime: [0; 2],
    owner: 0,
    content: 0,
    xattrs: None,
    mode: 0,
    layer: NONE,
    hidden: NONE,
    covered: NONE,
    own_layer: NONE,
    own: Own::Special,
    kind: Slot::Nothing,
};

const _: () = assert!(size_of::<Record>() == 32);

/// A file's content.
#[derive(Debug, Clone, Copy)]
struct Content {
    size: u64,
    /// [`u64::MAX`] if it was not kept.
    offset: u64,
}

/// The nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    records: List<Record>,
    /// The contents of files, by their number.
    contents: List<Content>,
    /// Pairs of an owner and a group, of 32 bits each in Linux.
    owners: List<(u32, u32)>,
    /// Pairs with larger numbers, which a tar may have.
    large_owners: List<(u64, u64)>,
    /// The targets of links, and extended attributes.
    texts: Texts,
    /// The newest attributes: those of the next file are often the same.
    newest: Option<Place>,
}

/// The number of the newest owners that are looked through for the next one.
const NEWEST_OWNERS: usize = 8;
/// The bit in an owner's number for the pairs with larger numbers.
const LARGE: u32 = 1 << 31;

impl Nodes {
    /// Returns the nodes of a tree that has a root only.
    pub(crate) fn new() -> Nodes {
        let mut nodes = Nodes {
            records: List::new(),
            contents: List::new(),
            owners: List::new(),
            large_owners: List::new(),
            texts: Texts::new(),
            newest: None,
        };
        nodes.grow();
        nodes
    }

    /// Adds the next path, which has no node yet.
    pub(crate) fn grow(&mut self) {
        self.records.push(EMPTY);
    }

    /// Adds a file's content, and returns its number. `None`: it was not kept.
    pub(crate) fn add_content(&mut self, size: u64, part: Option<Part>) -> u32 {
        self.contents.push(Content { size, offset: part.map_or(u64::MAX, |part| part.offset) });
        self.contents.len() as u32 - 1
    }

    /// Returns the number of a node's file. `None` if it is not a file.
    pub(crate) fn file(&self, id: Id) -> Option<u32> {
        let record = self.records.at(id);
        (record.kind == Slot::File).then_some(record.content)
    }

    /// Whether a path has a node.
    pub(crate) fn is_there(&self, id: Id) -> bool {
        self.records.at(id).kind != Slot::Nothing
    }

    /// Whether a path has a folder.
    pub(crate) fn is_folder(&self, id: Id) -> bool {
        matches!(self.records.at(id).kind, Slot::Folder | Slot::Implied)
    }

    /// Whether a path has a folder that only entries below it imply.
    pub(crate) fn is_implied(&self, id: Id) -> bool {
        self.records.at(id).kind == Slot::Implied
    }

    /// The layer of a path's node.
    pub(crate) fn layer(&self, id: Id) -> usize {
        self.records.at(id).layer.into()
    }

    /// The target of a symbolic link. `None` if it is not one.
    pub(crate) fn target(&self, id: Id) -> Option<&[u8]> {
        let record = self.records.at(id);
        let place = if record.kind == Slot::Symlink { Place::of_number(record.content) } else { None };
        place.map(|place| self.texts.at(place))
    }

    /// Returns the location of a file's content. `None` if there is no file, or its content was not kept.
    pub(crate) fn part(&self, id: Id) -> Option<Part> {
        let content = self.contents.get(self.file(id)?.into())?;
        content.is_kept().then_some(Part { offset: content.offset, size: content.size })
    }

    /// Returns the node of a path.
    pub(crate) fn get(&self, id: Id) -> Option<Node> {
        let record = self.records.at(id);
        let kind = match record.kind {
            Slot::Nothing => return None,
            Slot::File => {
                let content = self.contents.get(record.content.into())?;
                Kind::File { size: content.size, number: record.content.into(), kept: content.is_kept() }
            }
            Slot::Folder | Slot::Implied => Kind::Folder,
            Slot::Symlink => Kind::Symlink(self.target(id)?.to_vec()),
            Slot::Special => Kind::Special,
        };
        let (uid, gid) = match record.owner & LARGE {
            0 => self.owners.get(record.owner.into()).map(|(uid, gid)| (u64::from(*uid), u64::from(*gid)))?,
            _ => *self.large_owners.get((record.owner & !LARGE).into())?,
        };
        let [low, high] = record.mtime;
        Some(Node {
            kind,
            mode: record.mode.into(),
            uid,
            gid,
            mtime: i64::from(high as i32) << 32 | i64::from(low),
            xattrs: record.xattrs.map(|place| attributes(self.texts.at(place))).unwrap_or_default(),
            layer: record.layer.into(),
            implied: record.kind == Slot::Implied,
        })
    }

    /// Gives a path a node. The content of a file is the one of its number.
    ///
    /// # Errors
    /// There are too many names.
    pub(crate) fn set(&mut self, id: Id, node: &Node) -> Checked<()> {
        let (kind, content) = match &node.kind {
            Kind::File { number, .. } => (Slot::File, *number as u32),
            Kind::Folder if node.implied => (Slot::Implied, 0),
            Kind::Folder => (Slot::Folder, 0),
            Kind::Symlink(target) => (Slot::Symlink, self.texts.push(target)?.number()),
            Kind::Special => (Slot::Special, 0),
        };
        let (owner, xattrs) = (self.owner(node.uid, node.gid), self.attributes(&node.xattrs)?);
        let record = self.records.at_mut(id);
        *record = Record {
            mtime: [node.mtime as u32, (node.mtime >> 32) as u32],
            owner,
            content,
            xattrs,
            mode: node.mode as u16 & 0o7777,
            layer: number_of(node.layer),
            kind,
            ..*record
        };
        Ok(())
    }

    fn owner(&mut self, uid: u64, gid: u64) -> u32 {
        let (Ok(uid), Ok(gid)) = (u32::try_from(uid), u32::try_from(gid)) else {
            self.large_owners.push((uid, gid));
            return LARGE | (self.large_owners.len() as u32 - 1);
        };
        let count = self.owners.len();
        let newest = (count.saturating_sub(NEWEST_OWNERS)..count).rev().map(|number| number as u32);
        for number in newest {
            if *self.owners.at(number) == (uid, gid) {
                return number;
            }
        }
        self.owners.push((uid, gid));
        count as u32
    }

    fn attributes(&mut self, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Checked<Option<Place>> {
        if xattrs.is_empty() {
            return Ok(None);
        }
        let mut text = Vec::new();
        for (name, value) in xattrs {
            put(name, &mut text);
            put(value, &mut text);
        }
        if self.newest.is_none_or(|newest| self.texts.at(newest) != text) {
            self.newest = Some(self.texts.push(&text)?);
        }
        Ok(self.newest)
    }

    /// Returns what a layer that is being read has at a path.
    pub(crate) fn own(&self, id: Id, layer: usize) -> Option<Own> {
        let record = self.records.at(id);
        (record.own_layer == number_of(layer)).then_some(record.own)
    }

    /// Notes what the layer that is being read has at a path.
    pub(crate) fn set_own(&mut self, id: Id, layer: usize, own: Own) {
        let record = self.records.at_mut(id);
        (record.own_layer, record.own) = (number_of(layer), own);
    }

    /// Removes a path, with everything under it, from the layers below this one.
    pub(crate) fn hide(&mut self, id: Id, layer: usize) {
        let hidden = &mut self.records.at_mut(id).hidden;
        if *hidden == NONE {
            *hidden = number_of(layer);
        }
    }

    /// Removes everything under a path from the layers below this one.
    pub(crate) fn cover(&mut self, id: Id, layer: usize) {
        let covered = &mut self.records.at_mut(id).covered;
        if *covered == NONE {
            *covered = number_of(layer);
        }
    }

    /// Whether a layer above this one removes a path.
    pub(crate) fn is_hidden(&self, id: Id, layer: usize) -> bool {
        is_above(self.records.at(id).hidden, layer)
    }

    /// Whether a layer above this one removes everything under a path.
    pub(crate) fn is_covered(&self, id: Id, layer: usize) -> bool {
        is_above(self.records.at(id).covered, layer)
    }
}

/// Layers are read from the top to the bottom.
fn is_above(noted: u16, layer: usize) -> bool {
    noted != NONE && noted != number_of(layer)
}

fn number_of(layer: usize) -> u16 {
    u16::try_from(layer).unwrap_or(NONE)
}

impl Content {
    fn is_kept(self) -> bool {
        self.offset != u64::MAX
    }
}

fn attributes(mut text: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut pair = || Some((taken(&mut text)?.to_vec(), taken(&mut text)?.to_vec()));
    std::iter::from_fn(&mut pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_what_was_set() {
        let mut nodes = Nodes::new();
        let attribute = || vec![(b"user.x".to_vec(), vec![0; 300]), (Vec::new(), b"y".to_vec())];
        let number = nodes.add_content(7, None);
        let kinds = [
            Kind::Folder,
            Kind::Symlink(b"../x".to_vec()),
            Kind::Special,
            Kind::File { size: 7, number: number.into(), kept: false },
        ];
        let numbers = [(0, i64::MIN), (1000, -1), (u64::from(u32::MAX), 0), (u64::MAX, i64::MAX)];
        for (at, (kind, (owner, mtime))) in kinds.into_iter().zip(numbers).enumerate() {
            let xattrs = if at % 2 == 0 { attribute() } else { Vec::new() };
            let node =
                Node { kind, mode: 0o4755, uid: owner, gid: owner / 2, mtime, xattrs, layer: at, implied: at == 0 };
            nodes.grow();
            let id = at as Id + 1;
            assert_eq!(nodes.get(id), None);
            nodes.set(id, &node).unwrap();
            assert_eq!(nodes.get(id), Some(node));
            assert!(!nodes.is_hidden(id, at));
            nodes.hide(id, 9);
            assert_eq!((nodes.is_hidden(id, 9), nodes.is_hidden(id, 8)), (false, true));
        }
    }
}
