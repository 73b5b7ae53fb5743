//! The sources of donors and libraries: the packages of the lock file, the donors' recipes, and Debian's source
//! packages.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::packages::{self, Package};
use crate::{command, folder, workspace};

/// A package of the lock file.
#[derive(Debug, Deserialize)]
pub struct Locked {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of the packed package. A package of this checkout has none.
    pub checksum: Option<String>,
}

/// The part of a donor's recipe that names its sources.
#[derive(Debug, Deserialize)]
pub struct Recipe {
    /// The donor's name.
    pub name: String,
    /// Upstream's version. `None` if the sources are in this checkout.
    pub version: Option<String>,
    /// The SPDX expression of its licence.
    pub license: String,
    /// The origin of its sources. `None` if they are in this checkout.
    pub upstream: Option<Upstream>,
}

/// The source of a donor.
#[derive(Debug, Deserialize)]
pub struct Upstream {
    /// The package that contains it.
    pub package: String,
    /// The archive, if it is a package of Debian. `None`: it is one of crates.io.
    pub debian: Option<Debian>,
}

/// The upstream part of a source package of Debian.
#[derive(Debug, Clone, Deserialize)]
pub struct Debian {
    /// Its version.
    pub version: String,
    /// The binary packages of each major version have this name before the number.
    pub series: String,
    /// SHA-256 of the archive.
    pub sha256: String,
    /// The files and folders that are unpacked.
    pub members: Vec<String>,
}

impl Debian {
    /// Returns the folder for the sources of `package`.
    pub fn folder(&self, package: &str) -> PathBuf {
        zigcc::sources_folder(&workspace::root()).join(format!("{package}-{version}", version = self.version))
    }
}

/// Whether all sources that cargo does not fetch exist.
///
/// # Errors
/// When a recipe cannot be read.
pub fn are_there() -> Result<bool> {
    Ok(missing()?.is_empty())
}

/// Returns the archives with a missing folder, or with a missing member that the recipe names: the folder may be of an
/// older recipe.
fn missing() -> Result<Vec<(String, Debian)>> {
    let upstreams = recipes(&workspace::root())?.into_iter().filter_map(|recipe| recipe.upstream);
    let archives = upstreams.filter_map(|upstream| Some((upstream.package, upstream.debian?)));
    let is_missing = |(package, debian): &(String, Debian)| {
        let folder = debian.folder(package);
        debian.members.iter().any(|member| !folder.join(member).exists())
    };
    Ok(archives.filter(is_missing).collect())
}

/// Fetches the donors' sources that cargo does not fetch, unless they exist.
///
/// # Errors
/// When one cannot be fetched, or has a different checksum.
pub fn install() -> Result<()> {
    for (package, debian) in missing()? {
        let destination = debian.folder(&package);
        fs::create_dir_all(destination.parent().context("the folder has no parent")?)?;
        let Debian { version, sha256, members, .. } = &debian;
        let archive = Package::DebianSource { name: &package, version, ending: "tar.xz", members };
        let fill = |folder: &Path| packages::unpack(archive, sha256, folder);
        folder::announce(&format!("{package} {version}, source"), || folder::place(&destination, fill))?;
    }
    command::run(&mut command::cargo(&["fetch", "--locked", "--quiet"]))
}

/// Returns the packages of the lock file in `checkout`.
///
/// # Errors
/// When it cannot be read.
pub fn locked(checkout: &Path) -> Result<Vec<Locked>> {
    #[derive(Deserialize)]
    struct Lock {
        package: Vec<Locked>,
    }
    let lock: Lock = parsed(&checkout.join("Cargo.lock"))?;
    Ok(lock.package)
}

/// Returns the recipes of the donors in `checkout`, by name.
///
/// # Errors
/// When one cannot be read, or no recipe exists.
pub fn recipes(checkout: &Path) -> Result<Vec<Recipe>> {
    let folder = checkout.join("crates/donors");
    let mut recipes: Vec<Recipe> = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read `{}`", folder.display()))? {
        let path = entry?.path().join("recipe.toml");
        if path.is_file() {
            recipes.push(parsed(&path)?);
        }
    }
    ensure!(!recipes.is_empty(), "`{}` has no donor", folder.display());
    recipes.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(recipes)
}

fn parsed<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))?;
    toml::from_str(&text).with_context(|| format!("`{}` is malformed", path.display()))
}
