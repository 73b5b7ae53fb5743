//! The documents of an image with one more layer: its configuration, its manifest, the indexes that name it.
//!
//! (OCI image-spec: config.md, manifest.md, image-index.md; the same documents in Docker's media types; and the list of
//! images in archives that `docker load` reads, moby image/spec/spec.md.)

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::layout::Naming;
use crate::digest::sha256;

/// The layer's date if a configuration has none: never the current time, so that two runs give the same bytes.
const EPOCH: &str = "1970-01-01T00:00:00Z";

/// A layer as a configuration and a manifest name it.
#[derive(Debug)]
pub(super) struct AddedLayer {
    /// SHA-256 of its tar, in hexadecimal.
    pub(super) diff_id: String,
    /// SHA-256 of its blob, in hexadecimal.
    pub(super) blob: String,
    pub(super) size: u64,
    /// Whether the blob is packed by gzip.
    pub(super) gzip: bool,
    /// The command that makes the layer.
    pub(super) created_by: String,
}

/// A document that replaces a stock one.
#[derive(Debug, Clone)]
pub(super) struct NewDocument {
    /// SHA-256 in hexadecimal.
    pub(super) hex: String,
    pub(super) raw: Vec<u8>,
}

impl NewDocument {
    fn new(value: &Value) -> NewDocument {
        let raw = value.to_string().into_bytes();
        NewDocument { hex: sha256(&raw), raw }
    }

    fn digest(&self) -> String {
        format!("sha256:{}", self.hex)
    }
}

/// Appends `item` to the list `name` of an object; makes the list if it is missing. `None` if `object` is not an
/// object, or `name` not a list.
fn push(object: &mut Value, name: &str, item: Value) -> Option<()> {
    let list = object.as_object_mut()?.entry(name).or_insert_with(|| Value::Array(Vec::new()));
    if list.is_null() {
        *list = Value::Array(Vec::new());
    }
    list.as_array_mut()?.push(item);
    Some(())
}

/// Returns the configuration with the layer, and with its date unchanged. `None` if `stock` is not a configuration.
pub(super) fn configuration(stock: &Value, added: &AddedLayer) -> Option<NewDocument> {
    let mut value = stock.clone();
    push(value.get_mut("rootfs")?, "diff_ids", json!(format!("sha256:{}", added.diff_id)))?;
    let created = stock.get("created").and_then(Value::as_str).unwrap_or(EPOCH);
    let entry = json!({ "created": created, "created_by": added.created_by, "comment": "allograft" });
    push(&mut value, "history", entry)?;
    Some(NewDocument::new(&value))
}

/// Returns the manifest with the layer and the new configuration. `None` if `stock` is not a manifest.
pub(super) fn manifest(stock: &Value, config: &NewDocument, added: &AddedLayer) -> Option<NewDocument> {
    let mut value = stock.clone();
    let descriptor = value.get_mut("config")?.as_object_mut()?;
    let is_docker = descriptor.get("mediaType")?.as_str()?.starts_with("application/vnd.docker.");
    descriptor.insert("digest".to_owned(), json!(config.digest()));
    descriptor.insert("size".to_owned(), json!(config.raw.len()));
    let media_type = match (is_docker, added.gzip) {
        (true, true) => "application/vnd.docker.image.rootfs.diff.tar.gzip",
        (true, false) => "application/vnd.docker.image.rootfs.diff.tar",
        (false, true) => "application/vnd.oci.image.layer.v1.tar+gzip",
        (false, false) => "application/vnd.oci.image.layer.v1.tar",
    };
    let digest = format!("sha256:{}", added.blob);
    push(&mut value, "layers", json!({ "mediaType": media_type, "digest": digest, "size": added.size }))?;
    Some(NewDocument::new(&value))
}

/// Returns the index with the descriptor of each replaced document updated; `None` if it names none of them. `new` maps
/// old digests to new documents.
pub(super) fn index(stock: &Value, new: &BTreeMap<String, NewDocument>) -> Option<Value> {
    let mut value = stock.clone();
    let mut changed = false;
    for descriptor in value.get_mut("manifests")?.as_array_mut()? {
        let Some(descriptor) = descriptor.as_object_mut() else { continue };
        let found = descriptor.get("digest").and_then(Value::as_str).and_then(|digest| new.get(digest));
        if let Some(found) = found {
            descriptor.insert("digest".to_owned(), json!(found.digest()));
            descriptor.insert("size".to_owned(), json!(found.raw.len()));
            changed = true;
        }
    }
    changed.then_some(value)
}

/// Returns an index as a document.
pub(super) fn document(value: &Value) -> NewDocument {
    NewDocument::new(value)
}

/// Returns the list of images (`manifest.json`) with the new configurations and layers; `None` if it is not such a
/// list, or names no stock configuration of `new`. `new` maps the digests of stock configurations to the new
/// configuration and layer.
pub(super) fn list(stock: &[u8], naming: Naming, new: &BTreeMap<String, (NewDocument, String)>) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(stock).ok()?;
    let mut changed = false;
    for image in value.as_array_mut()? {
        let name = image.get("Config")?.as_str()?.to_owned();
        let hex = name.strip_prefix("blobs/sha256/").or_else(|| name.strip_suffix(".json"))?;
        if let Some((config, layer)) = new.get(&format!("sha256:{hex}")) {
            push(image, "Layers", json!(naming.layer(layer)))?;
            image.as_object_mut()?.insert("Config".to_owned(), json!(naming.document(&config.hex)));
            changed = true;
        }
    }
    changed.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn added() -> AddedLayer {
        AddedLayer {
            diff_id: "1".repeat(64),
            blob: "2".repeat(64),
            size: 7,
            gzip: true,
            created_by: "allograft graft".to_owned(),
        }
    }

    #[test]
    fn a_layer_comes_on_top_and_the_rest_stays() {
        let stock = json!({ "created": "2020-01-02T03:04:05Z", "x": [1], "rootfs": { "diff_ids": ["sha256:a"] } });
        let config = configuration(&stock, &added()).expect("a configuration");
        let value: Value = serde_json::from_slice(&config.raw).expect("JSON");
        assert_eq!(value["rootfs"]["diff_ids"][1], format!("sha256:{}", "1".repeat(64)));
        assert_eq!((&value["history"][0]["created"], &value["x"][0]), (&stock["created"], &1.into()));
        let stock = json!({ "config": { "mediaType": "application/vnd.oci.image.config.v1+json" }, "layers": null });
        let new = manifest(&stock, &config, &added()).expect("a manifest");
        let value: Value = serde_json::from_slice(&new.raw).expect("JSON");
        assert_eq!(value["config"]["digest"], format!("sha256:{}", config.hex));
        assert_eq!(value["layers"][0]["mediaType"], "application/vnd.oci.image.layer.v1.tar+gzip");
        assert!(configuration(&json!([]), &added()).is_none() && manifest(&json!({}), &config, &added()).is_none());
    }

    #[test]
    fn indexes_keep_names_and_platforms() {
        let new = NewDocument::new(&json!({}));
        let known = BTreeMap::from([("sha256:a".to_owned(), new.clone())]);
        let stock = json!({ "manifests": [
            { "digest": "sha256:a", "size": 1, "annotations": { "n": "v" } },
            { "digest": "sha256:b", "size": 1 },
        ] });
        let changed = index(&stock, &known).expect("a change");
        assert_eq!(changed["manifests"][0]["digest"], format!("sha256:{}", new.hex));
        assert_eq!(
            (&changed["manifests"][0]["size"], &changed["manifests"][0]["annotations"]["n"]),
            (&2.into(), &"v".into())
        );
        assert_eq!(changed["manifests"][1], stock["manifests"][1]);
        assert!(index(&json!({ "manifests": [] }), &known).is_none());
    }
}
