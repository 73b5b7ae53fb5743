//! The layer that is put on top of an image: the grafts, and the folders that hold them, with unchanged attributes.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use images::{Kind, Node, Tree};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use super::document::AddedLayer;
use crate::prove::proven::Proven;

/// A layer that is being written to an unnamed file.
pub(super) struct LayerWriter {
    tar: Builder<Hashing<Packing>>,
    folders: BTreeSet<Vec<u8>>,
    gzip: bool,
}

/// A layer that was written.
pub(super) struct Layer {
    pub(super) file: File,
    pub(super) added: AddedLayer,
}

impl LayerWriter {
    /// Begins a layer, compressed by gzip or not at all.
    pub(super) fn new(gzip: bool) -> io::Result<LayerWriter> {
        let file = Hashing::new(tempfile::tempfile()?);
        let packing = match gzip {
            // No name and no time: two runs give the same bytes.
            true => Packing::Gzip(Box::new(GzEncoder::new(file, Compression::best()))),
            false => Packing::Plain(file),
        };
        Ok(LayerWriter { tar: Builder::new(Hashing::new(packing)), folders: BTreeSet::new(), gzip })
    }

    /// Adds a graft in place of a file, with the file's attributes in the tree. Its folders go first: a program that
    /// unpacks the layer would make missing ones with different owners and modes.
    pub(super) fn file(&mut self, tree: &Tree, path: &[u8], node: &Node, graft: &Proven) -> io::Result<()> {
        self.parents(tree, path)?;
        let content = graft.bytes();
        self.entry(path, node, EntryType::Regular, content.len() as u64, |tar, header, path| {
            append(tar, header, path, content)
        })
    }

    /// Adds a further name of the file at `first`, which is in this layer.
    pub(super) fn link(&mut self, tree: &Tree, path: &[u8], node: &Node, first: &[u8]) -> io::Result<()> {
        self.parents(tree, path)?;
        self.entry(path, node, EntryType::Link, 0, |tar, header, path| {
            tar.append_link(header, text(path)?, text(first)?)
        })
    }

    fn parents(&mut self, tree: &Tree, path: &[u8]) -> io::Result<()> {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        for end in ends {
            let folder = &path[..end];
            let Some(node) = tree.get(folder).filter(|node| node.kind == Kind::Folder && !node.implied) else {
                continue;
            };
            if self.folders.insert(folder.to_vec()) {
                let name = [folder, b"/"].concat();
                self.entry(&name, &node, EntryType::Directory, 0, |tar, header, path| append(tar, header, path, b""))?;
            }
        }
        Ok(())
    }

    fn entry(
        &mut self,
        path: &[u8],
        node: &Node,
        kind: EntryType,
        size: u64,
        append: impl FnOnce(&mut Builder<Hashing<Packing>>, &mut Header, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if !node.xattrs.is_empty() {
            let name = |name: &[u8]| text(name).map(|name| format!("SCHILY.xattr.{name}"));
            let attributes = node.xattrs.iter().map(|(key, value)| Ok((name(key)?, value.as_slice())));
            let attributes = attributes.collect::<io::Result<Vec<_>>>()?;
            let attributes = attributes.iter().map(|(key, value)| (key.as_str(), *value));
            self.tar.append_pax_extensions(attributes)?;
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(node.mode);
        header.set_uid(node.uid);
        header.set_gid(node.gid);
        header.set_mtime(u64::try_from(node.mtime).unwrap_or(0));
        header.set_size(size);
        append(&mut self.tar, &mut header, path)
    }

    /// Ends the layer.
    pub(super) fn finish(self, created_by: String) -> io::Result<Layer> {
        let gzip = self.gzip;
        let Hashing { inner, hash, .. } = self.tar.into_inner()?;
        let Hashing { inner: file, hash: of_blob, size } = match inner {
            Packing::Gzip(encoder) => encoder.finish()?,
            Packing::Plain(file) => file,
        };
        let added = AddedLayer { diff_id: hex(hash), blob: hex(of_blob), size, gzip, created_by };
        Ok(Layer { file, added })
    }
}

fn append(tar: &mut Builder<Hashing<Packing>>, header: &mut Header, path: &[u8], content: &[u8]) -> io::Result<()> {
    tar.append_data(header, text(path)?, content)
}

/// A name of an image as text.
fn text(name: &[u8]) -> io::Result<&str> {
    let wrong = || io::Error::other(format!("the name `{}` is not UTF-8", String::from_utf8_lossy(name)));
    std::str::from_utf8(name).map_err(|_| wrong())
}

fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A writer of the blob.
enum Packing {
    Gzip(Box<GzEncoder<Hashing<File>>>),
    Plain(Hashing<File>),
}

impl Write for Packing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Packing::Gzip(encoder) => encoder.write(bytes),
            Packing::Plain(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Packing::Gzip(encoder) => encoder.flush(),
            Packing::Plain(file) => file.flush(),
        }
    }
}

/// Hashes and counts what is written.
struct Hashing<W> {
    inner: W,
    hash: Sha256,
    size: u64,
}

impl<W> Hashing<W> {
    fn new(inner: W) -> Self {
        Hashing { inner, hash: Sha256::new(), size: 0 }
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.inner.write(bytes)?;
        self.hash.update(&bytes[..length]);
        self.size += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
