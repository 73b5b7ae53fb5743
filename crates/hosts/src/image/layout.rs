//! Copies an OCI layout, in a folder or in a tar, with changes: files replaced, blobs added or left out. All other
//! content keeps its bytes and, in a tar, its place, so that `undo` can restore stock byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use images::tar::{Next, ReadError, next};

use crate::error::{Error, IoContext};
use crate::sink::folder;

/// The documents of a layout that have fixed names. The second is for `docker load`.
pub(super) const DOCUMENTS: [&str; 2] = ["index.json", "manifest.json"];
pub(super) const INDEX: &str = DOCUMENTS[0];
pub(super) const LIST: &str = DOCUMENTS[1];

/// A problem with a file of the image at `path`.
pub(super) fn unreadable(path: &Path, problem: images::Problem) -> Error {
    images::Error { path: path.into(), part: None, entry: None, problem }.into()
}

/// The size of a tar's blocks, as an offset.
const BLOCK: u64 = images::tar::BLOCK as u64;

/// The changes to make when a layout is copied.
#[derive(Default)]
pub(super) struct Changes<'c> {
    /// The files with new content, by their names.
    pub(super) replaced: BTreeMap<String, Replacement>,
    /// New blobs, by their names.
    pub(super) added: BTreeMap<String, Blob<'c>>,
    /// The names of blobs that are left out.
    pub(super) dropped: BTreeSet<String>,
}

/// The replacement of a file.
#[derive(Debug)]
pub(super) struct Replacement {
    /// In a tar: its header; `None` keeps the existing header with the new size.
    pub(super) header: Option<Vec<u8>>,
    /// Its content.
    pub(super) content: Vec<u8>,
}

/// A new blob.
pub(super) enum Blob<'c> {
    Bytes(Vec<u8>),
    File(&'c File),
}

impl Blob<'_> {
    fn size(&self) -> io::Result<u64> {
        match self {
            Blob::Bytes(bytes) => Ok(bytes.len() as u64),
            Blob::File(file) => Ok(file.metadata()?.len()),
        }
    }

    fn copy(&self, to: &mut impl Write) -> io::Result<()> {
        match self {
            Blob::Bytes(bytes) => to.write_all(bytes),
            Blob::File(file) => {
                let mut file = *file;
                file.seek(SeekFrom::Start(0))?;
                io::copy(&mut file, to).map(drop)
            }
        }
    }
}

/// The names of blobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    /// The names of an OCI layout (OCI image-spec, image-layout.md, "Blobs").
    Oci,
    /// The names of older archives of `docker save`: a configuration is `HEX.json`, and a layer may have any name.
    Docker,
}

impl Naming {
    /// Returns the name of a document with that SHA-256.
    pub(super) fn document(self, hex: &str) -> String {
        match self {
            Naming::Oci => format!("blobs/sha256/{hex}"),
            Naming::Docker => format!("{hex}.json"),
        }
    }

    /// Returns the name of a layer with that SHA-256.
    pub(super) fn layer(self, hex: &str) -> String {
        match self {
            Naming::Oci => format!("blobs/sha256/{hex}"),
            Naming::Docker => format!("{hex}.tar"),
        }
    }

    /// Whether `name` is a blob's name, in either form.
    pub(super) fn is_known(name: &str) -> bool {
        let bare = name.strip_prefix("blobs/sha256/").or_else(|| name.strip_suffix(".json"));
        let hex = bare.or_else(|| name.strip_suffix(".tar")).unwrap_or_default();
        hex.len() == 64 && hex.bytes().all(|digit| digit.is_ascii_hexdigit())
    }
}

/// Checks that the blobs of the layout in a folder are in that folder. Behind a symbolic link they would be written and
/// removed in a folder that is not the layout's.
///
/// # Errors
/// A folder of blobs is a symbolic link.
pub(super) fn holds_its_blobs(layout: &Path) -> Result<(), Error> {
    for folder in ["blobs", "blobs/sha256"] {
        let path = layout.join(folder);
        if fs::symlink_metadata(&path).context(&path, "read")?.is_symlink() {
            let reason = format!("its `{folder}` is a symbolic link: copy the layout with `cp -rL`");
            return Err(Error::ImageChanged { path: layout.to_owned(), reason });
        }
    }
    Ok(())
}

/// Copies the layout in a folder to the empty folder `to`. Returns the attributes that the copy could not keep, as
/// clauses whose subject is the copy.
pub(super) fn copy_folder(from: &Path, to: &Path, changes: &Changes<'_>) -> Result<Vec<String>, Error> {
    folder::copied(from, to, || {
        for (name, replacement) in &changes.replaced {
            let path = to.join(name);
            let mode = fs::metadata(&path).context(&path, "read")?.permissions();
            fs::remove_file(&path).context(&path, "replace")?;
            fs::write(&path, &replacement.content).context(&path, "write")?;
            fs::set_permissions(&path, mode).context(&path, "write")?;
        }
        for name in &changes.dropped {
            let path = to.join(name);
            fs::remove_file(&path).context(&path, "remove")?;
        }
        for (name, blob) in &changes.added {
            let path = to.join(name);
            let made = path.parent().map_or(Ok(()), fs::create_dir_all);
            let written = made.and_then(|()| File::create(&path)).and_then(|mut file| blob.copy(&mut file));
            written.context(&path, "write")?;
        }
        Ok(())
    })
}

/// An entry of a tar: the offsets of its extensions, its header and its content.
struct Entry {
    name: Vec<u8>,
    start: u64,
    header: u64,
    content: u64,
    size: u64,
    has_extended_size: bool,
}

impl Entry {
    fn end(&self) -> u64 {
        self.content + self.size.next_multiple_of(BLOCK)
    }
}

/// The entries of a tar.
fn entries(file: &File) -> io::Result<Vec<Entry>> {
    let mut reader = file;
    let (mut found, mut at) = (Vec::new(), 0);
    loop {
        reader.seek(SeekFrom::Start(at))?;
        let start = at;
        let entry = match next(&mut reader, &mut at) {
            Ok(Next::Entry(entry)) => entry,
            Ok(Next::End(_)) => return Ok(found),
            Err(ReadError::Io(error)) => return Err(error),
            Err(ReadError::Fault(fault)) => return Err(io::Error::new(io::ErrorKind::InvalidData, fault.problem)),
        };
        let entry = Entry {
            name: entry.name.strip_prefix(b"./").map_or(entry.name.clone(), <[u8]>::to_vec),
            start,
            header: at - BLOCK,
            content: at,
            size: entry.size,
            has_extended_size: entry.has_extended_size,
        };
        at = entry.end();
        found.push(entry);
    }
}

/// Returns the header and the content of the file `name` in a tar; `None` if there is no such file, or more than one.
pub(super) fn in_tar(file: &File, name: &str) -> io::Result<Option<Replacement>> {
    let mut found = entries(file)?.into_iter().filter(|entry| entry.name == name.as_bytes());
    let (Some(entry), None) = (found.next(), found.next()) else { return Ok(None) };
    let mut header = vec![0; BLOCK as usize];
    file.read_exact_at(&mut header, entry.header)?;
    let mut content = Vec::new();
    copy_range(file, entry.content, entry.content + entry.size, &mut content)?;
    Ok(Some(Replacement { header: Some(header), content }))
}

/// Copies the layout in a tar. New blobs come after the last entry.
pub(super) fn copy_tar(from: &File, to: &mut impl Write, changes: &Changes<'_>) -> io::Result<()> {
    let mut done = 0;
    for entry in entries(from)? {
        let name = String::from_utf8_lossy(&entry.name);
        if let Some(replacement) = changes.replaced.get(&*name) {
            copy_range(from, done, entry.header, to)?;
            let header = match &replacement.header {
                Some(header) => header.clone(),
                None => resized(from, &entry, replacement.content.len() as u64)?,
            };
            to.write_all(&header)?;
            padded(to, &replacement.content)?;
        } else if changes.dropped.contains(&*name) {
            copy_range(from, done, entry.start, to)?;
        } else {
            copy_range(from, done, entry.end(), to)?;
        }
        done = entry.end();
    }
    for (name, blob) in &changes.added {
        let size = blob.size()?;
        to.write_all(header_of(name, size)?.as_bytes())?;
        blob.copy(to)?;
        fill(to, size)?;
    }
    let length = from.metadata()?.len();
    copy_range(from, done.min(length), length, to)
}

/// The header of an entry with its size changed.
fn resized(from: &File, entry: &Entry, size: u64) -> io::Result<Vec<u8>> {
    if entry.has_extended_size {
        let name = String::from_utf8_lossy(&entry.name);
        return Err(io::Error::other(format!("the size of `{name}` is in a header of an extension")));
    }
    let mut header = tar::Header::new_old();
    from.read_exact_at(header.as_mut_bytes(), entry.header)?;
    header.set_size(size);
    header.set_cksum();
    Ok(header.as_bytes().to_vec())
}

fn header_of(name: &str, size: u64) -> io::Result<tar::Header> {
    let mut header = tar::Header::new_ustar();
    header.set_path(name)?;
    header.set_entry_type(tar::EntryType::Regular);
    header.set_mode(0o644);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_cksum();
    Ok(header)
}

fn padded(to: &mut impl Write, content: &[u8]) -> io::Result<()> {
    to.write_all(content)?;
    fill(to, content.len() as u64)
}

/// Pads content of that size to a whole block.
fn fill(to: &mut impl Write, size: u64) -> io::Result<()> {
    let missing = size.next_multiple_of(BLOCK) - size;
    io::copy(&mut io::repeat(0).take(missing), to).map(drop)
}

fn copy_range(from: &File, start: u64, end: u64, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; 1 << 16];
    let mut at = start;
    while at < end {
        let length = usize::try_from(end - at).unwrap_or(usize::MAX).min(buffer.len());
        let part = &mut buffer[..length];
        from.read_exact_at(part, at)?;
        to.write_all(part)?;
        at += length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tar as other programs may write it: a long name, an extended attribute, names that begin with `./`, a file
    /// that fills its last block, and more blocks of zeroes than needed.
    fn sample() -> File {
        let mut tar = tar::Builder::new(Vec::new());
        let mut put = |name: &str, content: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o640);
            header.set_size(content.len() as u64);
            tar.append_data(&mut header, name, content).expect("memory");
        };
        put(&format!("blobs/{}name", "long/".repeat(40)), b"one");
        put("./index.json", b"{\"a\":1}");
        put("blobs/sha256/full", &[7; 512]);
        let mut bytes = tar.into_inner().expect("memory");
        bytes.extend([0; 4096]);
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&bytes).expect("a file that can be written to");
        file
    }

    fn copied(from: &File, changes: &Changes<'_>) -> Vec<u8> {
        let mut to = Vec::new();
        copy_tar(from, &mut to, changes).expect("a copy");
        to
    }

    fn content(mut file: &File) -> Vec<u8> {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0)).expect("a file");
        file.read_to_end(&mut bytes).expect("a file");
        bytes
    }

    #[test]
    fn changes_to_a_tar_are_taken_back_byte_for_byte() {
        let stock = sample();
        assert!(copied(&stock, &Changes::default()) == content(&stock), "a copy without changes");
        let found = in_tar(&stock, "index.json").expect("a tar").expect("an index");
        assert_eq!(found.content, b"{\"a\":1}");
        let name = Naming::Oci.document(&"a".repeat(64));
        let mut changes = Changes::default();
        let longer = Replacement { header: None, content: vec![b' '; 2000] };
        changes.replaced.insert("index.json".to_owned(), longer);
        changes.added.insert(name.clone(), Blob::Bytes(b"new".to_vec()));
        let mut graft = tempfile::tempfile().expect("a file");
        graft.write_all(&copied(&stock, &changes)).expect("a file that can be written to");
        assert_eq!(in_tar(&graft, &name).expect("a tar").expect("a blob").content, b"new");
        assert_eq!(in_tar(&graft, "index.json").expect("a tar").expect("an index").content.len(), 2000);
        let mut back = Changes::default();
        back.replaced.insert("index.json".to_owned(), found);
        back.dropped.insert(name);
        assert!(copied(&graft, &back) == content(&stock), "taken back");
    }

    #[test]
    fn names_of_blobs() {
        let hex = "0".repeat(64);
        for naming in [Naming::Oci, Naming::Docker] {
            assert!(Naming::is_known(&naming.document(&hex)) && Naming::is_known(&naming.layer(&hex)), "{naming:?}");
        }
        for name in ["", "index.json", "blobs/sha256/", "blobs/sha256/../x", &format!("x/{hex}.json"), &hex] {
            assert!(!Naming::is_known(name), "{name}");
        }
    }
}
