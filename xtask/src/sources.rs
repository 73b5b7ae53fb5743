//! Where sources come from: the packages of the lock file, and the donors' recipes.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

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

/// The part of a donor's recipe that says what it is made of.
#[derive(Debug, Deserialize)]
pub struct Recipe {
    /// The donor's name.
    pub name: String,
    /// Upstream's version. `None` if the sources are in this checkout.
    pub version: Option<String>,
    /// The SPDX expression of its licence.
    pub license: String,
    /// Where its sources come from. `None` if they are in this checkout.
    pub upstream: Option<Upstream>,
}

/// The source of a donor.
#[derive(Debug, Deserialize)]
pub struct Upstream {
    /// The package that brings it.
    pub package: String,
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
/// When one cannot be read, or there is none.
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
