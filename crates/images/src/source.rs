//! Recognises the format of a file or folder, and reads the images in it. Only the content decides, never a name.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::compression::{self, Compression};
use crate::digest::{Digest, Hashing};
use crate::docker;
use crate::error::{Checked, Error, Problem};
use crate::image::{Image, Layer, LayerLocation};
use crate::limits::Unpacked;
use crate::merge::{Keep, Merge};
use crate::oci;
use crate::package;
use crate::spool::{Part, Range};
use crate::store::{self, Opened, Store};
use crate::tar::{self, Content, Entry, Fault, Kind as EntryKind, Stream};
use crate::tree::Tree;

/// The format of a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// An OCI layout: a folder, or a tar of it.
    OciLayout,
    /// An archive of `docker save`.
    DockerArchive,
    /// A root file system, as a tar.
    RootTar,
    /// A Debian package.
    Debian,
    /// An Alpine package.
    Alpine,
    /// A zip, such as a Python wheel.
    Zip,
}

/// A file or folder with images in it.
#[derive(Debug)]
pub struct Source {
    /// Its path, as given by the caller.
    pub path: PathBuf,
    /// Its format.
    pub form: Format,
    /// The images in it, in its own order.
    pub images: Vec<Image>,
    /// Contents that were not read, each as a clause of a sentence.
    pub notes: Vec<String>,
    store: Store,
}

/// The first bytes of packages of apk 3 (apk-tools, src/adb.h).
const ADB: &[u8] = b"ADB";

/// The kind of a tar, by its first entries.
enum Tar {
    /// It may be an archive of images.
    Images,
    Root,
    Alpine,
    /// A packed bundle of Swift SDKs.
    SwiftBundle,
}

/// Opens the file or folder at `path`. `None` if it is not an image, a root file system or a package.
///
/// # Errors
///
/// It is of such a kind, but damaged, or it cannot be read.
pub fn open(path: &Path) -> Result<Option<Source>, Error> {
    if path.is_dir() {
        if !path.join("oci-layout").is_file() || !path.join("index.json").is_file() {
            return Ok(None);
        }
        let store = Store::new(store::BlobStorage::Folder(path.to_owned()));
        return documents(path, Format::OciLayout, store).map(Some);
    }
    let file = store::opened(path)?;
    let mut start = Vec::new();
    (&file)
        .take(512)
        .read_to_end(&mut start)
        .map_err(|source| Problem::Io { action: "read", source }.into_error(path))?;
    if start.starts_with(ADB) {
        let what = "it is a package of apk 3 (ADB)".to_owned();
        return Err(Problem::Unsupported(what.into()).into_error(path));
    }
    if package::is_debian(&start) {
        let part = package::data_of(&file).map_err(|problem| problem.into_error(path))?;
        return Ok(Some(single(path, Format::Debian, file, LayerLocation::Part(part))));
    }
    if start.starts_with(b"PK\x03\x04") {
        return match package::is_swift_bundle(&file).map_err(|problem| problem.into_error(path))? {
            true => Ok(None),
            false => Ok(Some(single(path, Format::Zip, file, LayerLocation::Zip))),
        };
    }
    let size = file.metadata().map_err(|source| Problem::Io { action: "read", source }.into_error(path))?.len();
    let whole = Part { offset: 0, size };
    let compression = Compression::recognise(&start);
    if compression == Compression::Plain && !tar::is_header(&start) {
        return Ok(None);
    }
    let Some(tar) = recognised(&file, whole, compression).map_err(|fault| fault.into_error(path, None))? else {
        return Ok(None);
    };
    let form = match tar {
        Tar::SwiftBundle => return Ok(None),
        Tar::Alpine => Format::Alpine,
        Tar::Root => Format::RootTar,
        Tar::Images => {
            let store = match compression {
                Compression::Plain => Store::archive(file),
                _ => Store::unpacked(&file),
            };
            let store = store.map_err(|fault| fault.into_error(path, None))?;
            return match form_of(&store) {
                Some(form) => documents(path, form, store).map(Some),
                None => {
                    let file = store::opened(path)?;
                    Ok(Some(single(path, Format::RootTar, file, LayerLocation::Part(whole))))
                }
            };
        }
    };
    Ok(Some(single(path, form, file, LayerLocation::Part(whole))))
}

/// Returns the format of an archive. Docker's newer archives have both, and then the layout has more information.
fn form_of(store: &Store) -> Option<Format> {
    let store::BlobStorage::Archive { names, .. } = &store.place else { return None };
    if names.has("oci-layout") && names.has("index.json") {
        return Some(Format::OciLayout);
    }
    names.has("manifest.json").then_some(Format::DockerArchive)
}

fn documents(path: &Path, form: Format, store: Store) -> Result<Source, Error> {
    let found = match form {
        Format::DockerArchive => docker::archive(&store),
        _ => oci::layout(&store),
    };
    let oci::Contents { images, notes } = found.map_err(|fault| fault.problem.in_part(path, fault.part))?;
    Ok(Source { path: path.to_owned(), form, images, notes, store })
}

fn single(path: &Path, form: Format, file: File, place: LayerLocation) -> Source {
    let image = Image {
        names: Vec::new(),
        platform: None,
        indexes: Vec::new(),
        manifest: None,
        config: None,
        environment: Vec::new(),
        layers: vec![Layer { descriptor: None, diff_id: None, place }],
    };
    let store = Store::new(store::BlobStorage::File(file));
    Source { path: path.to_owned(), form, images: vec![image], notes: Vec::new(), store }
}

/// Reads the first entries of a tar, until its kind is known. `None` if the file is not a tar.
fn recognised(file: &File, whole: Part, compression: Compression) -> Result<Option<Tar>, Fault> {
    let count = Unpacked::default();
    let mut seen = FirstEntries::default();
    let see = &mut |entry: Entry, content: &mut Content<'_>| seen.see(&entry, content);
    let read = match compression {
        Compression::Plain => tar::each(&mut Range::new(file, whole), see),
        _ => {
            let unpacked = compression::unpacked(count.packed(Range::new(file, whole)));
            let (_, reader) = unpacked.map_err(Problem::reading)?;
            let mut reader = count.plain(reader);
            let mut start = Vec::new();
            let first = reader.by_ref().take(512).read_to_end(&mut start);
            if first.is_err() || !tar::is_header(&start) {
                return Ok(None);
            }
            tar::each(&mut Stream(start.chain(reader)), see)
        }
    };
    match (seen.tar.take(), read) {
        (Some(tar), _) => Ok(Some(tar)),
        (None, Err(fault)) => Err(fault),
        (None, Ok(())) => Ok(Some(if seen.others { Tar::Root } else { Tar::Images })),
    }
}

/// The facts about the first entries of a tar.
#[derive(Default)]
struct FirstEntries {
    /// The folder that contains all entries, if there is only one.
    folder: Option<Vec<u8>>,
    /// Whether an entry was seen that archives of images never have.
    others: bool,
    tar: Option<Tar>,
}

impl FirstEntries {
    /// Reads an entry. The error ends the reading, once the tar's kind is known.
    fn see(&mut self, entry: &Entry, content: &mut Content<'_>) -> Checked<()> {
        let first = entry.name.split(|byte| *byte == b'/').next().unwrap_or_default();
        if entry.kind == EntryKind::Folder || (!self.others && is_of_archive(&entry.name)) {
            return Ok(());
        }
        if !self.others && entry.kind == EntryKind::File && (first.starts_with(b".SIGN.") || first == b".PKGINFO") {
            return self.is(Tar::Alpine);
        }
        self.others = true;
        if entry.kind == EntryKind::File && package::is_manifest(&entry.name) {
            let mut text = Vec::new();
            content.take(package::MOST_MANIFEST).read_to_end(&mut text).map_err(Problem::reading)?;
            if package::names_swift_sdk(&text) {
                return self.is(Tar::SwiftBundle);
            }
        }
        match &self.folder {
            Some(folder) if folder == first => Ok(()),
            None => {
                self.folder = Some(first.to_vec());
                Ok(())
            }
            Some(_) => self.is(Tar::Root),
        }
    }

    fn is(&mut self, tar: Tar) -> Checked<()> {
        self.tar = Some(tar);
        Err(Problem::Damaged("it is known what it is".to_owned()))
    }
}

/// Whether an archive of images may have a file of that name: `oci-layout`, blobs; configurations and layers, with any
/// names, at the root or in a folder each.
fn is_of_archive(name: &[u8]) -> bool {
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').collect();
    match parts.as_slice() {
        [b"oci-layout" | b"repositories"] => true,
        [file] => [&b".json"[..], b".tar", b".tar.gz"].iter().any(|ending| file.ends_with(ending)),
        [b"blobs", ..] => true,
        [_, file] => matches!(*file, b"layer.tar" | b"VERSION" | b"json"),
        _ => false,
    }
}

impl Source {
    /// Reads the layers of one of the images, each once, and returns the files that a process in it sees. Contents are
    /// kept if `keep` returns true.
    ///
    /// # Errors
    /// A layer is missing, cannot be read, differs from its digest, or would do harm.
    pub fn tree(&self, image: &Image, keep: Keep<'_>) -> Result<Tree, Error> {
        let mut merge = Merge::new(keep).map_err(|problem| problem.into_error(&self.path))?;
        let count = Unpacked::default();
        let whiteouts = matches!(self.form, Format::OciLayout | Format::DockerArchive);
        for (number, layer) in image.layers.iter().enumerate().rev() {
            let mut into = merge.layer(number, whiteouts);
            let part = || whiteouts.then(|| part_of(number, layer));
            self.layer(layer, &count, &mut into).map_err(|fault| fault.into_error(&self.path, part()))?;
        }
        merge.finish().map_err(|problem| problem.into_error(&self.path))
    }

    /// Opens a blob that a descriptor names: a packed layer, or a document. Its bytes are not checked.
    ///
    /// # Errors
    /// It is missing, or has a different size.
    pub fn blob(&self, descriptor: &crate::Descriptor) -> Result<impl Read + '_, Error> {
        let opened = self.store.blob(descriptor.digest, descriptor.size);
        opened
            .map(|opened| opened.reader)
            .map_err(|problem| problem.in_part(&self.path, format!("blob {}", descriptor.digest)))
    }

    fn opened<'s>(&'s self, layer: &'s Layer) -> Checked<Opened<'s>> {
        match (&layer.place, &layer.descriptor, &self.store.place) {
            (LayerLocation::Named(name), ..) => self.store.open(name)?.ok_or_else(|| Problem::Missing(name.clone())),
            (LayerLocation::Blob, Some(descriptor), _) => {
                descriptor.check_layer()?;
                match self.store.blob(descriptor.digest, descriptor.size) {
                    Err(Problem::Missing(_)) if !descriptor.urls.is_empty() => {
                        Err(Problem::Foreign(descriptor.urls[0].clone()))
                    }
                    other => other,
                }
            }
            (LayerLocation::Part(part), _, store::BlobStorage::File(file)) => {
                Ok(Opened { reader: Box::new(Range::new(file, *part)), size: part.size })
            }
            _ => Err(Problem::Unsupported("a layer without a place".into())),
        }
    }

    fn layer(&self, layer: &Layer, count: &Unpacked, into: &mut crate::merge::Layer<'_, '_>) -> Result<(), Fault> {
        if let (LayerLocation::Zip, store::BlobStorage::File(file)) = (&layer.place, &self.store.place) {
            return package::zip(file, into);
        }
        let opened = self.opened(layer)?;
        let expected = match &layer.place {
            LayerLocation::Named(name) => docker::digest_of(name),
            _ => layer.descriptor.as_ref().map(|descriptor| descriptor.digest),
        };
        // Both digests of an uncompressed layer are its tar's.
        let mut packed = match expected.or(layer.diff_id) {
            Some(_) => Hashing::new(opened.reader),
            None => Hashing::counting(opened.reader),
        };
        let mut compression = Compression::Plain;
        let read = unpacked(&mut packed, count, layer.diff_id, &mut compression, into);
        // A wrong digest is reported first: then other faults are only its consequence.
        let (found, size) = packed.finish().map_err(Problem::reading)?;
        if size < opened.size {
            return Err(Problem::Truncated("its file was cut while it was read".to_owned()).into());
        }
        if let (Some(found), Some(expected)) = (found, expected)
            && found != expected
        {
            return Err(Problem::Digest { found, expected: expected.into() }.into());
        }
        let plain = read?;
        let plain = if compression == Compression::Plain { found } else { plain };
        match (plain, layer.diff_id) {
            (Some(found), Some(expected)) if found != expected => {
                Err(Problem::Digest { found, expected: expected.into() }.into())
            }
            _ => Ok(()),
        }
    }
}

/// Reads a layer's tar. Returns the digest of the uncompressed stream, if there is one to compare with.
fn unpacked(
    packed: &mut Hashing<Box<dyn Read + '_>>,
    count: &Unpacked,
    diff_id: Option<Digest>,
    compression: &mut Compression,
    into: &mut crate::merge::Layer<'_, '_>,
) -> Result<Option<Digest>, Fault> {
    let (found, reader) = compression::unpacked(count.packed(packed)).map_err(Problem::reading)?;
    *compression = found;
    let reader = count.plain(reader);
    let mut plain = match diff_id {
        Some(_) if found != Compression::Plain => Hashing::new(reader),
        _ => Hashing::counting(reader),
    };
    tar::each(&mut Stream(&mut plain), &mut |entry, content: &mut Content<'_>| into.enter(entry, content))?;
    Ok(plain.finish().map_err(Problem::reading)?.0)
}

fn part_of(number: usize, layer: &Layer) -> String {
    let digest = layer.descriptor.as_ref().map(|descriptor| descriptor.digest).or(layer.diff_id);
    match digest {
        Some(digest) => format!("layer {} ({digest})", number + 1),
        None => format!("layer {}", number + 1),
    }
}
