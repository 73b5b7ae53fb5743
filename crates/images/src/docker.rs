//! Reads the archives of `docker save` and `podman save`: a tar with a `manifest.json` (moby image/spec/spec.md,
//! "Combined Image JSON + Filesystem Changeset Format"). They are recognised by their documents, not by names of 64
//! digits: makers name configurations and layers as they like.

use serde::Deserialize;

use crate::digest::Digest;
use crate::error::{Checked, Problem, shown};
use crate::image::{Descriptor, Document, Image, Layer, LayerLocation};
use crate::limits::MOST_LAYERS;
use crate::oci::{Contents, Fault, configuration};
use crate::store::Store;
use crate::tar::plain_name;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct RawImage {
    config: String,
    repo_tags: Option<Vec<String>>,
    layers: Option<Vec<String>>,
}

/// Reads the documents of an archive.
pub(crate) fn archive(store: &Store) -> Result<Contents, Fault> {
    let fault_in = |part: &str| {
        let part = part.to_owned();
        |problem| Fault { part, problem }
    };
    let list = "`manifest.json`";
    let raw = store.document("manifest.json", None).map_err(fault_in(list))?;
    let images: Vec<RawImage> = serde_json::from_slice(&raw)
        .map_err(|error| fault_in(list)(Problem::Json(format!("it is not a list of images: {error}"))))?;
    if images.is_empty() {
        return Err(fault_in(list)(Problem::NoImage("it lists none".to_owned())));
    }
    Problem::at_most("its list", images.len() as u64, "images", crate::limits::MOST_MANIFESTS)
        .map_err(fault_in(list))?;
    let mut found = Contents::default();
    for image in images {
        let name = plain(&image.config).map_err(fault_in(list))?;
        let part = format!("configuration `{name}`");
        let read = image_of(store, image, &name).map_err(fault_in(&part))?;
        found.images.push(read);
    }
    Ok(found)
}

fn image_of(store: &Store, image: RawImage, name: &str) -> Checked<Image> {
    let raw = store.document(name, digest_of(name))?;
    let read = configuration(&raw)?;
    let layers = image.layers.unwrap_or_default();
    Problem::at_most("its list", layers.len() as u64, "layers", MOST_LAYERS)?;
    if layers.len() != read.diff_ids.len() {
        return Err(Problem::Json(format!(
            "found {} of `rootfs.diff_ids`, expected one for each of the {} layers",
            read.diff_ids.len(),
            layers.len()
        )));
    }
    let value = serde_json::from_slice(&raw)
        .map_err(|error| Problem::Json(format!("it is not an image configuration: {error}")))?;
    let descriptor = Descriptor {
        media_type: "application/vnd.docker.container.image.v1+json".to_owned(),
        digest: Digest::hash(&raw),
        size: raw.len() as u64,
        platform: None,
        annotations: Default::default(),
        urls: Vec::new(),
    };
    let layer = |(layer, diff_id): (&String, Digest)| {
        Ok(Layer { descriptor: None, diff_id: Some(diff_id), place: LayerLocation::Named(plain(layer)?) })
    };
    Ok(Image {
        names: image.repo_tags.unwrap_or_default(),
        platform: read.platform,
        indexes: Vec::new(),
        manifest: None,
        environment: read.environment,
        layers: layers.iter().zip(read.diff_ids).map(layer).collect::<Checked<_>>()?,
        config: Some(Document { descriptor, raw, value }),
    })
}

fn plain(name: &str) -> Checked<String> {
    Ok(shown(&plain_name(name.as_bytes())?))
}

/// The digest that a name promises: `blobs/sha256/HEX`, or `HEX.json` of a configuration.
pub(crate) fn digest_of(name: &str) -> Option<Digest> {
    let hex = name.strip_prefix("blobs/sha256/").or_else(|| name.strip_suffix(".json"))?;
    Digest::of_hex(hex)
}
