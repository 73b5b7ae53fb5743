//! An image: its documents, its environment, its layers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::digest::Digest;
use crate::spool::Part;

/// The descriptor of a blob (OCI image-spec, descriptor.md).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// Its media type.
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// Its platform, for manifests and indexes.
    pub platform: Option<Platform>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The addresses where it can be downloaded.
    pub urls: Vec<String>,
}

/// A JSON document of an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// Its descriptor. A document that nothing names has one made from its bytes.
    pub descriptor: Descriptor,
    /// Its bytes, which have that digest.
    pub raw: Vec<u8>,
    /// Their contents.
    pub value: Value,
}

/// The platform of an image (OCI image-spec, image-index.md, "platform").
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Platform {
    /// Go's name of the system: `linux`.
    pub os: String,
    /// Go's name of the architecture: `amd64`, `arm64`.
    pub architecture: String,
    /// The generation of the architecture: `v8`.
    pub variant: Option<String>,
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)?;
        match &self.variant {
            Some(variant) => write!(f, "/{variant}"),
            None => Ok(()),
        }
    }
}

/// An image for one platform, a root file system, or a package.
#[derive(Debug, Clone)]
pub struct Image {
    /// Its names in the file: `docker.io/library/alpine:3.20`.
    pub names: Vec<String>,
    /// Its platform. `None` for root file systems and packages.
    pub platform: Option<Platform>,
    /// The indexes on the path to it, `index.json` first. Empty without indexes.
    pub indexes: Vec<Arc<Document>>,
    /// Its manifest. `None` in archives of older releases of Docker.
    pub manifest: Option<Document>,
    /// Its configuration. `None` for root file systems and packages.
    pub config: Option<Document>,
    /// The variables of `config.Env`, in their order.
    pub environment: Vec<(String, String)>,
    /// Its layers, the lowest first.
    pub layers: Vec<Layer>,
}

impl Image {
    /// Returns the digest that identifies it: of its manifest, or of its configuration where there is no manifest.
    pub fn digest(&self) -> Option<Digest> {
        let document = self.manifest.as_ref().or(self.config.as_ref())?;
        Some(document.descriptor.digest)
    }

    /// Returns the value of a variable that its processes start with: the last one, if it is set several times.
    pub fn variable(&self, name: &str) -> Option<&str> {
        let found = self.environment.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// A layer.
#[derive(Debug, Clone)]
pub struct Layer {
    /// Its descriptor in the manifest. `None` without a manifest.
    pub descriptor: Option<Descriptor>,
    /// The digest of its tar, uncompressed.
    pub diff_id: Option<Digest>,
    pub(crate) place: LayerLocation,
}

/// The location of a layer.
#[derive(Debug, Clone)]
pub(crate) enum LayerLocation {
    /// It is the blob of its descriptor.
    Blob,
    /// It is the file of that name in the archive.
    Named(String),
    /// It is that part of the file, a tar.
    Part(Part),
    /// It is the whole file, a zip.
    Zip,
}
