//! A donor's recipe: the origin of its source and the way to compile it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use format::{Arch, DonorKind};
use serde::Deserialize;

use crate::foundry::FoundryError;
use crate::template::Template;

/// One `recipe.toml`, beside the donor's glue.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Recipe {
    /// The functions that it replaces.
    #[serde(default)]
    pub(crate) kind: DonorKind,
    /// Its name for users.
    pub(crate) name: String,
    /// Upstream's version, checked against `evidence`; this crate's own if allograft has the sources.
    #[serde(default = "own_version")]
    pub(crate) version: String,
    /// SPDX expression of the donor's own licence.
    pub(crate) license: String,
    /// The files with the licence's text, below upstream's source. If upstream's package has none: beside the recipe.
    pub(crate) license_files: Vec<PathBuf>,
    /// One line on when to choose it.
    pub(crate) character: String,
    /// The place of upstream's sources. `None`: they are beside the recipe.
    #[serde(default)]
    pub(crate) upstream: Option<Upstream>,
    /// The file with the glue, relative to the recipe: `donor.c`, or the glue of the donor that this one is a variant
    /// of.
    #[serde(default = "own_glue")]
    glue: PathBuf,
    /// Files beside the glue that are compiled separately.
    #[serde(default)]
    units: Vec<PathBuf>,
    /// Preprocessor definitions.
    #[serde(default)]
    define: Vec<String>,
    /// Further arguments for the compiler.
    #[serde(default)]
    flags: Vec<String>,
    /// The architectures that upstream supports. All if the recipe names none.
    #[serde(default)]
    arches: Vec<String>,
    /// The settings for one architecture, by its name.
    #[serde(default)]
    arch: BTreeMap<String, Particular>,
    /// The architectures for which it can be put into a linked executable.
    #[serde(default)]
    transplants: Vec<String>,
    /// The settings for the dynamic loader. `None` if the donor is not put into one.
    #[serde(default)]
    loader: Option<Loader>,
    /// The symbols that the object may export; for an allocator, the malloc family.
    #[serde(default)]
    pub(crate) exports: Vec<String>,
    /// Sets of options, by name.
    #[serde(default)]
    pub(crate) profiles: BTreeMap<String, Profile>,
    /// The architectures for which it is also built as a shared object.
    #[serde(default)]
    shared: Vec<String>,
    /// Whether it is also built for Windows, from `windows.c` beside the recipe.
    #[serde(default)]
    pub(crate) windows: bool,
    /// The donor's own folder, which holds the recipe.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
}

/// The additions for one architecture.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Particular {
    #[serde(default)]
    define: Vec<String>,
    #[serde(default)]
    flags: Vec<String>,
}

/// `[loader]`: the donor in the dynamic loader, and so in every dynamic program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Loader {
    /// The architectures.
    arches: Vec<String>,
    /// Values of the donor's options that differ there, as `--set` accepts them.
    #[serde(default)]
    options: BTreeMap<String, i64>,
}

/// `[profiles.NAME]`: a set of options with one purpose.
#[derive(Debug, Deserialize)]
pub(crate) struct Profile {
    /// Its purpose, in one line.
    pub(crate) about: String,
    /// Values of the donor's options, as `--set` accepts them. The crate's tests check them against the object.
    #[serde(flatten)]
    pub(crate) options: BTreeMap<String, i64>,
}

/// The profiles that a recipe may have. `default` sets nothing, and every donor has it.
const PROFILES: [&str; 3] = ["small", "fast", "secure"];

/// A file that is compiled.
#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) role: Role,
    pub(crate) path: PathBuf,
}

/// The role of a unit in its donor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Holds the note, the options and the family.
    Donor,
    /// One of allograft's own files, compiled separately from the glue, for example in another language.
    Beside,
    /// One of upstream's files, unchanged. `prelude.h` of the donor's folder is included before it.
    Upstream,
}

impl Unit {
    pub(crate) fn is_cxx(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "cc" || extension == "cpp")
    }
}

fn own_glue() -> PathBuf {
    "donor.c".into()
}

fn own_version() -> String {
    env!("CARGO_PKG_VERSION").to_owned()
}

/// Sources that cargo or `cargo xtask setup` downloads.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Upstream {
    /// The project's page or repository.
    pub(crate) homepage: String,
    /// The package that contains them: of crates.io, or of Debian if there is `debian`.
    pub(crate) package: String,
    /// Debian's source archive. `None`: cargo fetches the package.
    #[serde(default)]
    pub(crate) debian: Option<Debian>,
    /// Upstream's folder inside the package.
    pub(crate) source: PathBuf,
    /// A line of upstream's source that states the version.
    pub(crate) evidence: Evidence,
    /// Include folders, relative to `source`.
    pub(crate) include: Vec<PathBuf>,
    /// Files that are compiled separately, relative to `source`. The glue includes the others.
    #[serde(default)]
    pub(crate) units: Vec<PathBuf>,
    /// Headers that upstream's configure script would make.
    #[serde(default)]
    pub(crate) templates: Vec<Template>,
    /// The values of the names in the templates.
    #[serde(default)]
    pub(crate) substitute: BTreeMap<String, String>,
}

/// The upstream part of a source package of Debian. `cargo xtask setup` fetches and checks it, and unpacks `members`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Debian {
    /// Its version.
    pub(crate) version: String,
    /// The binary packages of each major version have this name before the number.
    #[serde(rename = "series")]
    _series: String,
    /// SHA-256 of the archive.
    #[serde(rename = "sha256")]
    _sha256: String,
    /// The files and folders to unpack.
    #[serde(rename = "members")]
    _members: Vec<PathBuf>,
}

/// The place in upstream's source that states its version.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Evidence {
    /// The file, relative to the source.
    pub(crate) file: PathBuf,
    /// A text that the file must contain.
    pub(crate) text: String,
}

impl Recipe {
    /// Returns every recipe below `home`, in the order of the folders' names.
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
        let known = |name: &&String| Arch::ALL.iter().any(|arch| arch.name() == name.as_str());
        if let Some(unknown) = recipe
            .arches
            .iter()
            .chain(recipe.arch.keys())
            .chain(&recipe.transplants)
            .chain(&recipe.shared)
            .chain(recipe.loader.iter().flat_map(|loader| &loader.arches))
            .find(|name| !known(name))
        {
            let message = format!("there is no architecture `{unknown}`");
            return Err(FoundryError::Recipe { path: folder.join("recipe.toml"), message });
        }
        if let Some(unknown) = recipe.profiles.keys().find(|name| !PROFILES.contains(&name.as_str())) {
            let message = format!("there is no profile `{unknown}`");
            return Err(FoundryError::Recipe { path: folder.join("recipe.toml"), message });
        }
        recipe.folder = folder;
        Ok(recipe)
    }

    /// Returns the architectures that the donor is built for, in the order of the list.
    pub(crate) fn arches(&self) -> impl Iterator<Item = Arch> {
        let named = |arch: &Arch| self.arches.is_empty() || self.arches.iter().any(|name| name == arch.name());
        Arch::ALL.into_iter().filter(named)
    }

    /// Whether it is built as a blob for executables of `arch`.
    pub(crate) fn transplants(&self, arch: Arch) -> bool {
        self.transplants.iter().any(|name| name == arch.name())
    }

    /// Whether it is built for an architecture.
    pub(crate) fn supports(&self, arch: Arch) -> bool {
        self.arches().any(|of| of == arch)
    }

    /// Whether it is built for the dynamic loader of an architecture.
    pub(crate) fn has_loader(&self, arch: Arch) -> bool {
        self.loader.iter().flat_map(|loader| &loader.arches).any(|name| name == arch.name())
    }

    /// Returns the folder with the glue.
    pub(crate) fn glue(&self) -> PathBuf {
        let glue = self.folder.join(&self.glue);
        glue.parent().unwrap_or(&self.folder).to_owned()
    }

    /// Returns the options that differ in the dynamic loader.
    pub(crate) fn loader_options(&self) -> &BTreeMap<String, i64> {
        static NONE: BTreeMap<String, i64> = BTreeMap::new();
        self.loader.as_ref().map_or(&NONE, |loader| &loader.options)
    }

    /// Whether it is built as a shared object for `arch`.
    pub(crate) fn is_shared(&self, arch: Arch) -> bool {
        self.shared.iter().any(|name| name == arch.name())
    }

    /// Returns the units to compile, the glue first. `source` is upstream's folder.
    pub(crate) fn units(&self, source: &Path) -> Vec<Unit> {
        let unit = |role, path| Unit { role, path };
        let mut units = vec![unit(Role::Donor, self.folder.join(&self.glue))];
        units.extend(self.units.iter().map(|path| unit(Role::Beside, self.folder.join(path))));
        let upstream = self.upstream.iter().flat_map(|upstream| &upstream.units);
        units.extend(upstream.map(|path| unit(Role::Upstream, source.join(path))));
        units
    }

    /// Returns the preprocessor definitions for `arch`.
    pub(crate) fn define_for(&self, arch: Arch) -> impl Iterator<Item = &String> {
        self.define.iter().chain(self.arch.get(arch.name()).into_iter().flat_map(|particular| &particular.define))
    }

    /// Returns the compiler's arguments for `arch`.
    pub(crate) fn flags_for(&self, arch: Arch) -> impl Iterator<Item = &String> {
        self.flags.iter().chain(self.arch.get(arch.name()).into_iter().flat_map(|particular| &particular.flags))
    }
}
