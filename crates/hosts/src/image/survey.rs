//! The hosts of an image: its static executables, musl's dynamic loader and its `libc.a`s, each planned, verified and
//! proven, and put into the image's new layer.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use format::Linked;
use images::{Image, Kind, Node, Source, Tree};

use super::layer::{Layer, LayerWriter};
use super::layout::unreadable;
use crate::digest::sha256;
use crate::error::skipped::Skipped;
use crate::error::{Error, IoContext};
use crate::file::signature::{Signature, signature_of};
use crate::host::planner::Planner;
use crate::outcome::{Action, Grafted};
use crate::packed::entry::is_libc;
use crate::prove::prepared;
use crate::prove::proven::Proven;
use crate::source::left_alone;

/// The size of the largest executable or archive that is read.
const MOST_HOST: u64 = 1 << 30;

/// The hosts in the images of a source.
pub(super) struct Survey<'p> {
    /// The image as the user named it.
    pub(super) path: &'p Path,
    /// The image that is written.
    pub(super) out: &'p Path,
    /// Whether the image was a graft.
    pub(super) again: bool,
    pub(super) hosts: Vec<Grafted>,
    pub(super) skipped: Vec<Skipped>,
    /// A kind of program that the donor does not go into.
    pub(super) no_form: Option<Linked>,
}

/// The graft of one file.
struct Graft {
    /// The graft; `None` for a dry run.
    proven: Option<Proven>,
    sha256: String,
}

/// The grafts of one image.
pub(super) struct Grafts {
    /// The new layer; `None` for a dry run.
    pub(super) layer: Option<Layer>,
    /// SHA-256 of each graft, by its path in the image.
    pub(super) files: BTreeMap<Vec<u8>, String>,
}

impl Survey<'_> {
    /// Grafts every host in an image. `None` if it has no host that can be grafted. `below` is the folder of its files
    /// in messages.
    ///
    /// # Errors
    /// The image cannot be read, or a graft does not pass verification.
    pub(super) fn image(
        &mut self,
        source: &Source,
        image: &Image,
        below: &Path,
        planner: &mut Planner<'_>,
    ) -> Result<Option<Grafts>, Error> {
        let keep = |path: &[u8], size: u64, start: &[u8]| size <= MOST_HOST && is_candidate(path, start);
        let tree = source.tree(image, &keep)?;
        let mut writing = None;
        let mut files = BTreeMap::new();
        // By inode: the first name of the file if it was grafted, else `None`.
        let mut seen: BTreeMap<u64, Option<Vec<u8>>> = BTreeMap::new();
        for (path, node) in tree.nodes() {
            let Kind::File { number, kept: true, .. } = node.kind else { continue };
            let (path, node) = (&path[..], &node);
            let first = match seen.get(&number) {
                None => {
                    let grafted = self.file(&tree, path, node, below, planner)?;
                    seen.insert(number, grafted.as_ref().map(|_| path.to_vec()));
                    let Some(Graft { proven, sha256 }) = grafted else { continue };
                    files.insert(path.to_vec(), sha256);
                    if let Some(graft) = proven {
                        let writing = writer_for(&mut writing, image).context(self.out, "write")?;
                        writing.file(&tree, path, node, &graft).context(self.out, "write")?;
                    }
                    continue;
                }
                Some(None) => continue,
                Some(Some(first)) => first.clone(),
            };
            files.extend(files.get(&first).cloned().map(|sha256| (path.to_vec(), sha256)));
            if let Some(writing) = &mut writing {
                writing.link(&tree, path, node, &first).context(self.out, "write")?;
            }
        }
        if files.is_empty() {
            return Ok(None);
        }
        let layer = writing.map(|writing| writing.finish(self.command())).transpose().context(self.out, "write")?;
        Ok(Some(Grafts { layer, files }))
    }

    /// Grafts a file of an image. `None` if it is left unchanged.
    fn file(
        &mut self,
        tree: &Tree,
        path: &[u8],
        node: &Node,
        below: &Path,
        planner: &mut Planner<'_>,
    ) -> Result<Option<Graft>, Error> {
        let inside = below.join(OsStr::from_bytes(path));
        let shown = self.path.join(&inside);
        let bytes = tree.read(path).map_err(|problem| unreadable(&shown, problem))?;
        if let Err(skipped) = left_alone::check(&shown, &bytes) {
            self.skipped.extend(skipped);
            return Ok(None);
        }
        match self.host(&shown, &inside, node, &bytes, planner) {
            Ok(done) => Ok(done),
            Err(error) if left_alone::is_left_alone(&error) => {
                if let Error::NoForm { kind, .. } = &error {
                    self.no_form = Some(*kind);
                }
                self.skipped.push(left_alone::skipped(&shown, &error, &bytes));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn host(
        &mut self,
        shown: &Path,
        inside: &Path,
        node: &Node,
        bytes: &[u8],
        planner: &mut Planner<'_>,
    ) -> Result<Option<Graft>, Error> {
        let host = prepared::read_inside(shown, bytes, node.mode)?;
        let is_archive = signature_of(bytes) == Signature::Archive;
        if let Some(reason) = host.skip_reason().filter(|_| is_archive) {
            self.skipped.push(Skipped::new(shown, reason));
            return Ok(None);
        }
        let prepared = prepared::prepare(&*host, shown, sha256(bytes), planner)?;
        let sha256 = prepared.graft_sha256().to_owned();
        if prepared.is_unchanged() {
            self.skipped.push(Skipped::new(shown, "it carries this graft already"));
            return Ok(None);
        }
        let before_sha256 = prepared.before_sha256.clone();
        let (mut grafted, ready) = prepared.elsewhere(self.out.join(inside), bytes, planner)?;
        grafted.stock_sha256 = Some(before_sha256);
        if self.again && grafted.action == Action::Grafted {
            grafted.action = Action::Replaced;
        }
        let proven = ready.map(|ready| ready.graft(bytes)).transpose()?;
        self.hosts.push(grafted);
        Ok(Some(Graft { proven, sha256 }))
    }

    /// The command that makes a layer, for the image's history: the donors that went in.
    fn command(&self) -> String {
        let mut names: Vec<String> = Vec::new();
        for host in &self.hosts {
            let brings = host.operation.brings();
            for note in [brings.malloc, brings.strings].into_iter().flatten() {
                let name = match note.options.as_str() {
                    "" => format!("{} {}", note.donor, note.version),
                    options => format!("{} {} ({options})", note.donor, note.version),
                };
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        format!("allograft graft # {}", names.join(", "))
    }
}

/// The layer that is being written; begins it if necessary. It is compressed like the image's top layer; on a layer
/// compressed with anything but gzip, it is compressed with gzip.
fn writer_for<'w>(writing: &'w mut Option<LayerWriter>, image: &Image) -> std::io::Result<&'w mut LayerWriter> {
    if writing.is_none() {
        // Older archives of `docker save` have no descriptors; their layers are plain tars.
        let top = image.layers.last().and_then(|layer| layer.descriptor.as_ref());
        let plain = top.is_none_or(|top| top.media_type.ends_with(".tar"));
        *writing = Some(LayerWriter::new(!plain)?);
    }
    writing.as_mut().ok_or_else(|| std::io::Error::other("no layer"))
}

fn is_candidate(path: &[u8], start: &[u8]) -> bool {
    match signature_of(start) {
        Signature::Executable => true,
        Signature::Archive => is_libc(path),
        _ => false,
    }
}

/// The folder of an image's files in messages: its platform, if the source has several images.
pub(super) fn below(source: &Source, image: &Image) -> PathBuf {
    match (&image.platform, source.images.len()) {
        (_, 1) => PathBuf::new(),
        (Some(platform), _) if source.images.iter().filter(|it| it.platform == image.platform).count() == 1 => {
            PathBuf::from(platform.to_string())
        }
        _ => PathBuf::from(image.digest().map(|digest| digest.hex()).unwrap_or_default()),
    }
}
