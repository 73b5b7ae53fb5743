//! Compares the new image with the stock image: only the grafts differ. Both are read from disk as any reader of images
//! would, so that a fault of the writer shows.

use std::collections::BTreeMap;

use images::{Image, Kind, Node, Source, Tree};

use super::layout::unreadable;
use crate::digest::sha256;
use crate::error::Error;

/// Compares every image of `new` with its counterpart in `stock`. `grafts` has, for each image, the SHA-256 of each
/// graft by its path; `None` for an image that has to be unchanged.
///
/// # Errors
/// Another file or attribute differs, or a graft is not the proven one.
pub(super) fn check(stock: &Source, new: &Source, grafts: &[Option<&BTreeMap<Vec<u8>, String>>]) -> Result<(), Error> {
    let differs = |what: String| Error::ImageChanged { path: new.path.clone(), reason: what };
    if stock.images.len() != new.images.len() {
        let (found, expected) = (new.images.len(), stock.images.len());
        return Err(differs(format!("the new one holds {found} images, expected {expected}")));
    }
    for ((before, after), grafts) in stock.images.iter().zip(&new.images).zip(grafts) {
        match grafts {
            None if before.digest() == after.digest() && before.names == after.names => {}
            None => return Err(differs("an image without a graft has changed".to_owned())),
            Some(grafts) => image(stock, before, new, after, grafts).map_err(|error| match error {
                Mismatch::Differs(what) => differs(what),
                Mismatch::Error(error) => *error,
            })?,
        }
    }
    Ok(())
}

enum Mismatch {
    Differs(String),
    Error(Box<Error>),
}

impl From<images::Error> for Mismatch {
    fn from(error: images::Error) -> Mismatch {
        Mismatch::Error(Box::new(error.into()))
    }
}

fn image(
    stock: &Source,
    before: &Image,
    new: &Source,
    after: &Image,
    grafts: &BTreeMap<Vec<u8>, String>,
) -> Result<(), Mismatch> {
    if before.names != after.names || before.platform != after.platform || before.environment != after.environment {
        return Err(Mismatch::Differs("the name, platform or environment of an image has changed".to_owned()));
    }
    let (old, layers) = (digests(before), digests(after));
    if layers.len() != old.len() + 1 || layers[..old.len()] != old[..] {
        return Err(Mismatch::Differs("an image's layers are not those of stock and one more".to_owned()));
    }
    let one = stock.tree(before, &|_, _, _| false)?;
    let other = new.tree(after, &|path, _, _| grafts.contains_key(path))?;
    let shown = |path: &[u8]| String::from_utf8_lossy(path).into_owned();
    if let Some(path) = difference(&one, &other, grafts) {
        return Err(Mismatch::Differs(format!("`{}` differs from stock, and is not a graft", shown(&path))));
    }
    for (path, expected) in grafts {
        let bytes = other.read(path);
        let bytes = bytes.map_err(|problem| Mismatch::Error(Box::new(unreadable(&new.path, problem))))?;
        if sha256(&bytes) != *expected {
            return Err(Mismatch::Differs(format!("`{}` is not the proven graft", shown(path))));
        }
    }
    Ok(())
}

fn digests(image: &Image) -> Vec<Option<String>> {
    image.layers.iter().map(|layer| layer.diff_id.map(|digest| digest.to_string())).collect()
}

/// Returns the first path that is in only one of the trees, has different attributes, or has a different content
/// without being a graft.
fn difference(one: &Tree, other: &Tree, grafts: &BTreeMap<Vec<u8>, String>) -> Option<Vec<u8>> {
    let mut others = other.nodes();
    for (path, before) in one.nodes() {
        match others.next() {
            Some((same, after)) if same == path && is_same(&before, &after, grafts.contains_key(&path)) => {}
            _ => return Some(path),
        }
    }
    others.next().map(|(path, _)| path)
}

fn is_same(before: &Node, after: &Node, is_graft: bool) -> bool {
    let attributes = |node: &Node| (node.mode, node.uid, node.gid, node.mtime, node.xattrs.clone());
    let kind = match (&before.kind, &after.kind) {
        (Kind::File { .. }, Kind::File { .. }) if is_graft => true,
        (Kind::File { size, .. }, Kind::File { size: found, .. }) => size == found && before.layer == after.layer,
        (one, other) => one == other,
    };
    kind && attributes(before) == attributes(after)
}
