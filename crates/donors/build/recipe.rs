//! A donor's recipe: where its source comes from and how it is compiled.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::foundry::FoundryError;

/// One `recipe.toml`, beside the donor's glue `donor.c`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    /// What it replaces.
    #[serde(default)]
    pub(crate) kind: Kind,
    /// What users call it.
    pub(crate) name: String,
    /// Upstream's version, checked against `evidence`; where the sources are ours, this crate's own.
    #[serde(default = "own_version")]
    pub(crate) version: String,
    /// SPDX expression of the donor's own licence.
    pub(crate) license: String,
    /// One line on when to take it.
    pub(crate) character: String,
    /// Where upstream's sources are. None: beside the recipe.
    #[serde(default)]
    pub(crate) upstream: Option<Upstream>,
    /// Preprocessor definitions.
    #[serde(default)]
    pub(crate) define: Vec<String>,
    /// More arguments for the compiler.
    #[serde(default)]
    pub(crate) flags: Vec<String>,
    /// What the object may define for others to see; of an allocator, the malloc family.
    #[serde(default)]
    pub(crate) exports: Vec<String>,
    /// The donor's own folder, from where the recipe was read.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
}

/// What a donor replaces.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    /// The malloc family.
    #[default]
    Malloc,
    /// String functions.
    Strings,
}

fn own_version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// Sources that cargo fetches.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upstream {
    /// The package that they arrive in.
    pub(crate) package: String,
    /// Upstream's tree inside the package.
    pub(crate) source: PathBuf,
    /// A line of upstream's that states the version.
    pub(crate) evidence: Evidence,
    /// Include folders, relative to `source`.
    pub(crate) include: Vec<PathBuf>,
}

/// Where upstream's source says which version it is.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Evidence {
    /// Relative to the source.
    pub(crate) file: PathBuf,
    /// Text that has to stand in that file.
    pub(crate) text: String,
}

impl Recipe {
    /// Every recipe below `home`, in order of the folders' names.
    pub(crate) fn all(home: &Path) -> Result<Vec<Recipe>, FoundryError> {
        let mut folders: Vec<PathBuf> = fs::read_dir(home)
            .map_err(|source| FoundryError::File { path: home.to_owned(), source })?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|folder| folder.join("recipe.toml").is_file())
            .collect();
        folders.sort();
        folders.into_iter().map(Recipe::read).collect()
    }

    fn read(folder: PathBuf) -> Result<Recipe, FoundryError> {
        let path = folder.join("recipe.toml");
        let text = fs::read_to_string(&path).map_err(|source| FoundryError::File { path: path.clone(), source })?;
        let mut recipe: Recipe =
            toml::from_str(&text).map_err(|error| FoundryError::Recipe { path, message: error.to_string() })?;
        recipe.folder = folder;
        Ok(recipe)
    }
}
