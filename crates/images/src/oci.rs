//! OCI layouts: indexes, manifests, configurations (OCI image-spec: image-layout.md, image-index.md, manifest.md,
//! config.md), and the same documents in Docker's media types.
//!
//! The documents have types here, with the fields that are read: the types of other crates accept any number of layers,
//! manifests and levels, and an image may be hostile ([`crate::limits`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;

use crate::digest::Digest;
use crate::error::{Checked, Problem};
use crate::image::{Descriptor, Document, Image, Layer, LayerLocation, Platform};
use crate::limits::{MOST_LAYERS, MOST_MANIFESTS, MOST_NESTED};
use crate::store::{Store, blob_name};

const INDEXES: [&str; 2] =
    ["application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json"];
const MANIFESTS: [&str; 2] =
    ["application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json"];
const CONFIGURATIONS: [&str; 2] =
    ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json"];
/// The beginnings of layers' media types. The compression follows.
const LAYERS: [&str; 4] = [
    "application/vnd.oci.image.layer.v1.tar",
    "application/vnd.oci.image.layer.nondistributable.v1.tar",
    "application/vnd.docker.image.rootfs.diff.tar",
    "application/vnd.docker.image.rootfs.foreign.diff.tar",
];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawIndex {
    schema_version: Option<u64>,
    manifests: Option<Vec<RawDescriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawManifest {
    schema_version: Option<u64>,
    config: RawDescriptor,
    layers: Option<Vec<RawDescriptor>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawDescriptor {
    media_type: Option<String>,
    digest: String,
    size: u64,
    urls: Option<Vec<String>>,
    annotations: Option<BTreeMap<String, String>>,
    platform: Option<RawPlatform>,
}

#[derive(Deserialize)]
struct RawPlatform {
    os: Option<String>,
    architecture: Option<String>,
    variant: Option<String>,
}

#[derive(Deserialize)]
struct RawConfiguration {
    #[serde(flatten)]
    platform: RawPlatform,
    config: Option<RawExecution>,
    rootfs: Option<RawRoot>,
}

#[derive(Deserialize)]
struct RawExecution {
    #[serde(rename = "Env")]
    env: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct RawRoot {
    diff_ids: Option<Vec<String>>,
}

/// The parts of a configuration that are used.
pub(crate) struct Configuration {
    pub(crate) platform: Option<Platform>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) diff_ids: Vec<Digest>,
}

impl RawDescriptor {
    fn checked(self) -> Checked<Descriptor> {
        Ok(Descriptor {
            media_type: self.media_type.unwrap_or_default(),
            digest: Digest::parse(&self.digest)?,
            size: self.size,
            platform: self.platform.and_then(RawPlatform::checked),
            annotations: self.annotations.unwrap_or_default(),
            urls: self.urls.unwrap_or_default(),
        })
    }
}

impl RawPlatform {
    fn checked(self) -> Option<Platform> {
        let given = |text: Option<String>| text.filter(|text| !text.is_empty());
        let (os, architecture) = (given(self.os), given(self.architecture));
        (os.is_some() || architecture.is_some()).then(|| Platform {
            os: os.unwrap_or_else(|| "unknown".to_owned()),
            architecture: architecture.unwrap_or_else(|| "unknown".to_owned()),
            variant: given(self.variant),
        })
    }
}

/// Reads a JSON document.
fn parsed<'d, T: Deserialize<'d>>(bytes: &'d [u8], what: &str) -> Checked<T> {
    serde_json::from_slice(bytes).map_err(|error| Problem::Json(format!("it is not an {what}: {error}")))
}

/// Reads a configuration.
pub(crate) fn configuration(bytes: &[u8]) -> Checked<Configuration> {
    let raw: RawConfiguration = parsed(bytes, "image configuration")?;
    let variables = raw.config.and_then(|config| config.env).unwrap_or_default();
    let environment = variables.iter().filter_map(|line| line.split_once('='));
    let diff_ids = raw.rootfs.and_then(|root| root.diff_ids).unwrap_or_default();
    Ok(Configuration {
        platform: raw.platform.checked(),
        environment: environment.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        diff_ids: diff_ids.iter().map(|digest| Digest::parse(digest)).collect::<Checked<_>>()?,
    })
}

/// The images and notes of a layout.
#[derive(Default)]
pub(crate) struct Contents {
    pub(crate) images: Vec<Image>,
    pub(crate) notes: Vec<String>,
}

/// A problem of one of the documents.
pub(crate) struct Fault {
    pub(crate) part: String,
    pub(crate) problem: Problem,
}

fn fault_in(part: impl Into<String>) -> impl FnOnce(Problem) -> Fault {
    let part = part.into();
    |problem| Fault { part, problem }
}

/// Reads the documents of an OCI layout.
pub(crate) fn layout(store: &Store) -> Result<Contents, Fault> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Version {
        image_layout_version: String,
    }
    let in_version = || fault_in("`oci-layout`");
    let bytes = store.document("oci-layout", None).map_err(in_version())?;
    let Version { image_layout_version: version } = parsed(&bytes, "image layout").map_err(in_version())?;
    if !version.starts_with("1.") {
        return Err(in_version()(Problem::Unsupported(format!("its version is `{version}`, not 1").into())));
    }
    let raw = store.document("index.json", None).map_err(fault_in("`index.json`"))?;
    let descriptor = Descriptor {
        media_type: INDEXES[0].to_owned(),
        digest: Digest::hash(&raw),
        size: raw.len() as u64,
        platform: None,
        annotations: BTreeMap::new(),
        urls: Vec::new(),
    };
    let mut reading =
        Reading { store, found: Contents::default(), seen: BTreeMap::new(), manifests: 0, missing: Vec::new() };
    reading.index(descriptor, raw, &[], "`index.json`")?;
    let Reading { mut found, missing, .. } = reading;
    if found.images.is_empty() {
        if let Some(descriptor) = missing.into_iter().next() {
            return Err(fault_in("`index.json`")(Problem::Missing(blob_name(descriptor.digest))));
        }
        let all = match found.notes.is_empty() {
            true => "its index names none".to_owned(),
            false => found.notes.join("; "),
        };
        return Err(fault_in("`index.json`")(Problem::NoImage(all)));
    }
    for descriptor in missing {
        let platform = descriptor.platform.map(|platform| format!(" for {platform}")).unwrap_or_default();
        found.notes.push(format!("the image{platform} ({}) is in the index only", descriptor.digest));
    }
    Ok(found)
}

struct Reading<'s> {
    store: &'s Store,
    found: Contents,
    /// The images by the digests of the manifests that were read.
    seen: BTreeMap<Digest, Option<usize>>,
    manifests: u64,
    missing: Vec<Descriptor>,
}

impl Reading<'_> {
    /// Reads an index that the indexes in `above` name, one in the other.
    fn index(
        &mut self,
        descriptor: Descriptor,
        raw: Vec<u8>,
        above: &[Arc<Document>],
        part: &str,
    ) -> Result<(), Fault> {
        let (index, value): (RawIndex, Value) = both(&raw, "image index").map_err(fault_in(part))?;
        one_kind(&value, &["config", "layers"], index.schema_version).map_err(fault_in(part))?;
        let mut chain = above.to_vec();
        chain.push(Arc::new(Document { descriptor, raw, value }));
        Problem::at_most("its depth", chain.len() as u64, "indexes one in the other", MOST_NESTED)
            .map_err(fault_in(part))?;
        for raw in index.manifests.unwrap_or_default() {
            self.manifests += 1;
            Problem::at_most("its index", self.manifests, "manifests", MOST_MANIFESTS).map_err(fault_in(part))?;
            self.descriptor(raw.checked().map_err(fault_in(part))?, &chain)?;
        }
        Ok(())
    }

    fn descriptor(&mut self, descriptor: Descriptor, chain: &[Arc<Document>]) -> Result<(), Fault> {
        if descriptor.is_attestation() {
            return Ok(());
        }
        if let Some(known) = self.seen.get(&descriptor.digest) {
            if let Some(image) = known.and_then(|number| self.found.images.get_mut(number)) {
                image.names.extend(names(&descriptor, chain));
                image.names.sort();
                image.names.dedup();
            }
            return Ok(());
        }
        let is_index = INDEXES.contains(&descriptor.media_type.as_str());
        let part = format!("{} {}", if is_index { "index" } else { "manifest" }, descriptor.digest);
        if chain.iter().any(|above| above.descriptor.digest == descriptor.digest) {
            return Err(fault_in(part)(Problem::Json("it is in a circle of indexes".to_owned())));
        }
        if !is_index && !MANIFESTS.contains(&descriptor.media_type.as_str()) {
            self.note(&descriptor, &format!("is of the media type `{}`", descriptor.media_type));
            return Ok(());
        }
        // A layout may lack what its index names: mostly an image for a different platform.
        let name = blob_name(descriptor.digest);
        if self.store.open(&name).map_err(fault_in(part.as_str()))?.is_none() {
            self.missing.push(descriptor);
            return Ok(());
        }
        let raw = document(self.store, &descriptor).map_err(fault_in(part.as_str()))?;
        match is_index {
            true => self.index(descriptor, raw, chain, &part),
            false => self.manifest(descriptor, raw, chain, &part),
        }
    }

    fn note(&mut self, descriptor: &Descriptor, why: &str) {
        self.found.notes.push(format!("{} is not a readable image: it {why}", descriptor.digest));
    }

    fn manifest(
        &mut self,
        descriptor: Descriptor,
        raw: Vec<u8>,
        chain: &[Arc<Document>],
        part: &str,
    ) -> Result<(), Fault> {
        let (manifest, value): (RawManifest, Value) = both(&raw, "image manifest").map_err(fault_in(part))?;
        one_kind(&value, &["manifests"], manifest.schema_version).map_err(fault_in(part))?;
        let config = manifest.config.checked().map_err(fault_in(part))?;
        self.seen.insert(descriptor.digest, None);
        if !CONFIGURATIONS.contains(&config.media_type.as_str()) {
            self.note(&descriptor, &format!("has a configuration of the media type `{}`", config.media_type));
            return Ok(());
        }
        let layers = manifest.layers.unwrap_or_default();
        Problem::at_most("its manifest", layers.len() as u64, "layers", MOST_LAYERS).map_err(fault_in(part))?;
        let layers: Vec<Descriptor> =
            layers.into_iter().map(RawDescriptor::checked).collect::<Checked<_>>().map_err(fault_in(part))?;
        // Signatures and attestations are also stored as images.
        if !layers.is_empty() && !layers.iter().any(|layer| layer.media_type.contains("tar")) {
            self.note(&descriptor, &format!("has layers of the media type `{}`", layers[0].media_type));
            return Ok(());
        }
        let in_config = || fault_in(format!("configuration {}", config.digest));
        let config_raw = document(self.store, &config).map_err(in_config())?;
        let read = configuration(&config_raw).map_err(in_config())?;
        if read.diff_ids.len() != layers.len() {
            return Err(in_config()(Problem::Json(format!(
                "found {} of `rootfs.diff_ids`, expected one for each of the {} layers",
                read.diff_ids.len(),
                layers.len()
            ))));
        }
        let value_of_config = parsed(&config_raw, "image configuration").map_err(in_config())?;
        let names = names(&descriptor, chain).collect::<BTreeSet<_>>().into_iter().collect();
        let layer = |(layer, diff_id): (Descriptor, Digest)| Layer {
            diff_id: Some(diff_id),
            place: LayerLocation::Blob,
            descriptor: Some(layer),
        };
        let image = Image {
            names,
            platform: read.platform.or_else(|| descriptor.platform.clone()),
            indexes: chain.to_vec(),
            environment: read.environment,
            layers: layers.into_iter().zip(read.diff_ids).map(layer).collect(),
            config: Some(Document { descriptor: config, raw: config_raw, value: value_of_config }),
            manifest: Some(Document { descriptor, raw, value }),
        };
        let digest = image.manifest.as_ref().map(|manifest| manifest.descriptor.digest);
        self.seen.extend(digest.map(|digest| (digest, Some(self.found.images.len()))));
        self.found.images.push(image);
        Ok(())
    }
}

/// Parses a document as a type, and as a value with all of its fields.
fn both<'d, T: Deserialize<'d>>(raw: &'d [u8], what: &str) -> Checked<(T, Value)> {
    Ok((parsed(raw, what)?, parsed(raw, what)?))
}

/// Refuses a document that different readers could take for different kinds of documents.
fn one_kind(value: &Value, others: &[&str], version: Option<u64>) -> Checked<()> {
    if version != Some(2) {
        let found = version.map_or("none".to_owned(), |version| version.to_string());
        return Err(Problem::Json(format!("found the `schemaVersion` {found}, expected 2")));
    }
    match others.iter().find(|name| value.get(name).is_some()) {
        Some(name) => Err(Problem::Json(format!("it is an index and a manifest at once: it has `{name}`"))),
        None => Ok(()),
    }
}

fn document(store: &Store, descriptor: &Descriptor) -> Checked<Vec<u8>> {
    let name = blob_name(descriptor.digest);
    let raw = store.document(&name, Some(descriptor.digest))?;
    match raw.len() as u64 == descriptor.size {
        true => Ok(raw),
        false => Err(Problem::Size { found: raw.len() as u64, expected: descriptor.size }),
    }
}

/// The names of an image: those of its descriptor, and of the indexes around it.
fn names<'d>(descriptor: &'d Descriptor, chain: &'d [Arc<Document>]) -> impl Iterator<Item = String> + 'd {
    let all = chain.iter().map(|index| &index.descriptor).chain([descriptor]);
    all.filter_map(|descriptor| {
        let known = |key: &str| descriptor.annotations.get(key);
        known("io.containerd.image.name").or_else(|| known("org.opencontainers.image.ref.name")).cloned()
    })
}

impl Descriptor {
    /// Whether it is a statement on another image, which BuildKit adds to an index.
    fn is_attestation(&self) -> bool {
        let unknown = self
            .platform
            .as_ref()
            .is_some_and(|platform| platform.os == "unknown" && platform.architecture == "unknown");
        unknown || self.annotations.get("vnd.docker.reference.type").is_some_and(|kind| kind == "attestation-manifest")
    }

    /// Refuses a layer that is not a tar, or not in the image.
    pub(crate) fn check_layer(&self) -> Checked<()> {
        let media_type = self.media_type.as_str();
        if media_type.ends_with("+encrypted") {
            return Err(Problem::Encrypted);
        }
        let rest = LAYERS
            .iter()
            .filter_map(|known| media_type.strip_prefix(known))
            .find(|rest| matches!(*rest, "" | "+gzip" | "+zstd" | ".gzip" | ".zstd"));
        match rest {
            Some(_) => Ok(()),
            None => Err(Problem::Unsupported(format!("it is of the media type `{media_type}`").into())),
        }
    }
}
