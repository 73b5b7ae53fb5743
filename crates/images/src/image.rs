//! An image: its documents, its environment, its layers.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

use crate::digest::Digest;
use crate::spool::Part;

/// What is said of a blob where it is named (OCI image-spec, descriptor.md).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// What it is.
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its size in bytes.
    pub size: u64,
    /// What it runs on, of manifests and indexes.
    pub platform: Option<Platform>,
    /// What else is said of it.
    pub annotations: BTreeMap<String, String>,
    /// Where it can be had.
    pub urls: Vec<String>,
}

/// A JSON document of an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// What is said of it where it is named; of a document that nothing names, made from its bytes.
    pub descriptor: Descriptor,
    /// Its bytes, which have that digest.
    pub raw: Vec<u8>,
    /// What they say.
    pub value: Value,
}

/// What an image runs on (OCI image-spec, image-index.md, "platform").
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Platform {
    /// As Go calls it: `linux`.
    pub os: String,
    /// As Go calls it: `amd64`, `arm64`.
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
    /// Its names where it lies: `docker.io/library/alpine:3.20`.
    pub names: Vec<String>,
    /// What it runs on. None for root file systems and packages.
    pub platform: Option<Platform>,
    /// The indexes that lead to it, `index.json` first. Empty if there is none.
    pub indexes: Vec<Arc<Document>>,
    /// Its manifest. None if it has none, as in archives of older releases of Docker.
    pub manifest: Option<Document>,
    /// Its configuration. None for root file systems and packages.
    pub config: Option<Document>,
    /// The variables of `config.Env`, in their order.
    pub environment: Vec<(String, String)>,
    /// Its layers, the lowest first.
    pub layers: Vec<Layer>,
}

impl Image {
    /// Returns the digest by which it is named: of its manifest, or of its configuration where there is no manifest.
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
    /// What the manifest says of it. None where there is no manifest.
    pub descriptor: Option<Descriptor>,
    /// The digest of its tar, uncompressed.
    pub diff_id: Option<Digest>,
    pub(crate) place: Place,
}

/// Where a layer lies.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// It is the blob of its descriptor.
    Blob,
    /// It is the file of that name in the archive.
    Named(String),
    /// It is that part of the file, a tar.
    Part(Part),
    /// It is the whole file, a zip.
    Zip,
}
