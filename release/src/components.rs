//! The contents of a release's executables: the donors, and the packages that are compiled into them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::Deserialize;
use tools::sources::{self, Recipe, Upstream};

use crate::payload::printed;

/// A part of the executables.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The SPDX expression of its licence.
    pub license: String,
    /// Its kind.
    pub kind: Kind,
    /// The package that holds its sources. `None` if this checkout holds them.
    pub package: Option<Package>,
}

/// The kind of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A donor: grafted programs carry it, too.
    Donor,
    /// A library in Rust.
    Library,
}

/// A package that has been fetched and checked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Package {
    /// The registry that has it.
    pub registry: Registry,
    /// Its name there.
    pub name: String,
    /// Its version there.
    pub version: String,
    /// SHA-256 of the packed package, from the lock file or the donor's recipe.
    pub sha256: String,
    /// The folder with its files.
    pub folder: PathBuf,
}

/// The origin of a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Registry {
    /// crates.io.
    Crates,
    /// Debian's source packages.
    Debian,
}

/// Returns the components of the programs in `checkout`: the donors, then the libraries, each sorted by name. The
/// packages must have been fetched.
///
/// # Errors
/// When cargo cannot list the packages, or a donor's sources are not among them.
pub fn components(checkout: &Path) -> Result<Vec<Component>> {
    let metadata = Metadata::read(checkout, &[])?;
    let packages = packages(checkout, &metadata)?;
    let mut components = donors(checkout, &packages)?;
    // All architectures link these libraries. Donors' sources are dependencies on no platform.
    let native = Metadata::read(checkout, &["--filter-platform", "x86_64-unknown-linux-musl"])?;
    let linked = linked(&native)?;
    for package in metadata.packages.iter().filter(|package| linked.contains(package.id.as_str())) {
        // Our own crates are part of the program.
        let Some(source) = packages.get(package.id.as_str()) else { continue };
        components.push(Component {
            name: package.name.clone(),
            version: package.version.clone(),
            license: package.license.clone().with_context(|| format!("`{}` states no licence", package.name))?,
            kind: Kind::Library,
            package: Some(source.clone()),
        });
    }
    components
        .sort_by(|one, other| (one.kind, &one.name, &one.version).cmp(&(other.kind, &other.name, &other.version)));
    Ok(components)
}

/// The part of `cargo metadata` that is read here.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Listed>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Listed {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Debug, Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

impl Listed {
    /// Whether it only runs at compile time, and is not in any program.
    fn is_macro(&self) -> bool {
        self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
    }
}

impl Metadata {
    fn read(checkout: &Path, more: &[&str]) -> Result<Metadata> {
        let mut cargo = Command::new("cargo");
        cargo.args(["metadata", "--format-version", "1", "--locked", "--offline", "--manifest-path"]);
        let text = printed(cargo.arg(checkout.join("Cargo.toml")).args(more))?;
        serde_json::from_str(&text).context("`cargo metadata` prints something else than expected")
    }
}

/// Returns the identifiers of the packages that are linked into the program.
fn linked(metadata: &Metadata) -> Result<BTreeSet<&str>> {
    let packages: BTreeMap<&str, &Listed> = metadata.packages.iter().map(|it| (it.id.as_str(), it)).collect();
    let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|it| (it.id.as_str(), it)).collect();
    let program = metadata.packages.iter().find(|package| package.name == "allograft" && package.source.is_none());
    let mut waiting = vec![program.context("there is no package `allograft`")?.id.as_str()];
    let mut linked = BTreeSet::new();
    while let Some(id) = waiting.pop() {
        if packages[id].is_macro() || !linked.insert(id) {
            continue;
        }
        let compiled = |it: &&Dependency| it.dep_kinds.iter().any(|kind| kind.kind.is_none());
        waiting.extend(nodes[id].deps.iter().filter(compiled).map(|it| it.pkg.as_str()));
    }
    Ok(linked)
}

/// Returns the packages from crates.io, by identifier.
fn packages<'m>(checkout: &Path, metadata: &'m Metadata) -> Result<BTreeMap<&'m str, Package>> {
    let locked = sources::locked(checkout)?;
    let mut packages = BTreeMap::new();
    for listed in metadata.packages.iter().filter(|package| package.source.is_some()) {
        let locked = locked.iter().find(|it| it.name == listed.name && it.version == listed.version);
        let sha256 = locked.and_then(|locked| locked.checksum.clone());
        packages.insert(
            listed.id.as_str(),
            Package {
                registry: Registry::Crates,
                name: listed.name.clone(),
                version: listed.version.clone(),
                sha256: sha256.with_context(|| format!("the lock file has no checksum of `{}`", listed.name))?,
                folder: listed.manifest_path.parent().context("a manifest is in a folder")?.to_owned(),
            },
        );
    }
    Ok(packages)
}

fn donors(checkout: &Path, packages: &BTreeMap<&str, Package>) -> Result<Vec<Component>> {
    let donor = |recipe: Recipe| {
        let found = |upstream: Upstream| {
            if let Some(debian) = upstream.debian {
                let folder = debian.folder(&upstream.package);
                let (name, version, sha256) = (upstream.package, debian.version, debian.sha256);
                return Ok(Package { registry: Registry::Debian, name, version, sha256, folder });
            }
            let found = packages.values().find(|it| it.name == upstream.package).cloned();
            found.with_context(|| format!("`{}` is not locked, and has the source of a donor", upstream.package))
        };
        Ok(Component {
            name: recipe.name,
            version: recipe.version.unwrap_or_else(|| env!("CARGO_PKG_VERSION").to_owned()),
            license: recipe.license,
            kind: Kind::Donor,
            package: recipe.upstream.map(found).transpose()?,
        })
    };
    sources::recipes(checkout)?.into_iter().map(donor).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_donor_and_every_library_has_its_source() {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let components = components(checkout).unwrap();
        let find = |kind, name: &str| components.iter().find(|it| it.kind == kind && it.name == name);
        let mimalloc = find(Kind::Donor, "mimalloc").unwrap();
        let package = mimalloc.package.as_ref().unwrap();
        assert_eq!((mimalloc.license.as_str(), package.name.as_str()), ("MIT", "libmimalloc-sys2"));
        assert_eq!(package.sha256.len(), 64);
        assert!(package.folder.join("c_src/mimalloc/LICENSE").is_file());
        assert!(find(Kind::Donor, "strings").unwrap().package.is_none());
        let libraries =
            [("clap", true), ("object", true), ("serde_derive", false), ("proptest", false), ("winapi", false)];
        for (library, linked) in libraries {
            assert_eq!(find(Kind::Library, library).is_some(), linked, "{library}");
        }
        // A package with a donor's sources is not a library.
        assert!(find(Kind::Library, "libmimalloc-sys2").is_none());
    }
}
