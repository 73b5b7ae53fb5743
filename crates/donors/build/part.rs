//! Parts: files that are made together, of one donor for one architecture, or taken from the store, where an earlier
//! build has put them. A part is the unit of the store and of parallel work.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use format::{Arch, Compressed, DonorKind};
use zigcc::store::{Key, Store};

use crate::foundry::{DEFINE, Foundry, FoundryError, Target};
use crate::recipe::Recipe;

/// Files that are made together.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Part<'a> {
    /// A donor's objects, blobs and shared object for an architecture.
    Donor(&'a Recipe, Arch),
    /// The programs that test grafted loaders and merged programs of an architecture.
    Tests(Arch),
    /// The text of a donor's licence.
    Licence(&'a Recipe),
}

/// A file of a donor for an architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Product {
    /// The relocatable object.
    Object,
    /// The shared object.
    Library,
    /// The object for Windows.
    Windows,
    /// The donor linked for linked executables, alone or with string functions.
    Blob { strings: bool },
    /// The donor linked for musl's loader, alone or with string functions.
    Loader { strings: bool },
}

impl Product {
    /// Returns the products of a donor for an architecture that it supports. A product with string functions follows
    /// the one without, with which it is compressed.
    pub(crate) fn all(recipe: &Recipe, strings: &Recipe, arch: Arch) -> Vec<Product> {
        let mut products = vec![Product::Object];
        products.extend(recipe.is_shared(arch).then_some(Product::Library));
        products.extend((recipe.windows && arch == Arch::X86_64).then_some(Product::Windows));
        if recipe.kind == DonorKind::Malloc {
            let both = strings.transplants(arch);
            let blob = recipe.transplants(arch);
            products.extend(blob.then_some(Product::Blob { strings: false }));
            products.extend((blob && both).then_some(Product::Blob { strings: true }));
            let loader = recipe.has_loader(arch);
            products.extend(loader.then_some(Product::Loader { strings: false }));
            products.extend((loader && both).then_some(Product::Loader { strings: true }));
        }
        products
    }

    fn has_strings(self) -> bool {
        matches!(self, Product::Blob { strings: true } | Product::Loader { strings: true })
    }

    /// Returns the product without string functions.
    pub(crate) fn alone(self) -> Product {
        match self {
            Product::Blob { .. } => Product::Blob { strings: false },
            Product::Loader { .. } => Product::Loader { strings: false },
            other => other,
        }
    }

    /// Returns the path of the file.
    pub(crate) fn path(self, foundry: &Foundry, recipe: &Recipe, strings: &Recipe, arch: Arch) -> PathBuf {
        let strings = self.has_strings().then_some(strings);
        match self {
            Product::Object => foundry.object_path(recipe, arch, Target::Program),
            Product::Library => foundry.library_path(recipe, arch),
            Product::Windows => foundry.windows_path(recipe),
            Product::Blob { .. } => foundry.blob_path(recipe, strings, arch),
            Product::Loader { .. } => foundry.loader_path(recipe, strings, arch),
        }
    }
}

/// A file to embed, and the file that its compressed bytes refer to.
struct Embedded {
    path: PathBuf,
    like: Option<PathBuf>,
}

/// Makes parts.
pub(crate) struct Workshop<'a> {
    store: Store,
    /// The folder of the compressed files.
    embedded: &'a Path,
    foundry: &'a Foundry,
    strings: &'a Recipe,
    /// The hash of the sources that all parts share.
    key: Key,
    /// The architectures for which the object with the string functions has been compiled.
    compiled: Mutex<BTreeSet<Arch>>,
}

impl<'a> Workshop<'a> {
    /// # Errors
    /// When the sources cannot be read.
    pub(crate) fn new(
        store: Store,
        home: &Path,
        embedded: &'a Path,
        foundry: &'a Foundry,
        strings: &'a Recipe,
    ) -> Result<Workshop<'a>, FoundryError> {
        let folders = ["build", "glue", "transplant", "windows", "../format/src", "../relocatable/src"];
        let unreadable = |source| FoundryError::File { path: home.to_owned(), source };
        let mut key = Key::new(&folders.map(|folder| home.join(folder))).map_err(unreadable)?;
        key.text(&std::env::var(DEFINE).unwrap_or_default());
        key.text(&compressor(home)?);
        Ok(Workshop { store, embedded, foundry, strings, key, compiled: Mutex::default() })
    }

    /// Puts the compressed files of a part into the folder of embedded ones.
    ///
    /// # Errors
    /// When they are not in the store, and cannot be built.
    pub(crate) fn make(&self, part: &Part<'_>) -> Result<(), FoundryError> {
        let key = self.key_of(part)?;
        let files = self.files(part);
        let names: Vec<String> = files.iter().map(|file| compressed(&file.path)).collect();
        let unwritten = |source| FoundryError::File { path: self.embedded.to_owned(), source };
        if self.store.fetch(&key, &names, self.embedded).map_err(unwritten)? {
            return Ok(());
        }
        match *part {
            Part::Donor(recipe, arch) => self.cast(recipe, arch)?,
            Part::Tests(arch) => {
                self.foundry.cast_loader_test(arch)?;
                self.foundry.cast_merged_test(arch)?;
            }
            Part::Licence(recipe) => self.foundry.write_licence(recipe)?,
        }
        files.iter().try_for_each(|file| compress(file, self.embedded))?;
        self.store.keep(&key, &names, self.embedded);
        Ok(())
    }

    fn key_of(&self, part: &Part<'_>) -> Result<Key, FoundryError> {
        let mut key = self.key.clone();
        let mut add =
            |folder: &Path| key.folder(folder).map_err(|source| FoundryError::File { path: folder.to_owned(), source });
        if let Part::Donor(recipe, _) | Part::Licence(recipe) = part {
            add(&recipe.folder)?;
            add(&recipe.glue())?;
            // Debian's sources are pinned by the recipe.
            if recipe.upstream.as_ref().is_some_and(|upstream| upstream.debian.is_none()) {
                add(&self.foundry.source(recipe)?)?;
            }
            if matches!(part, Part::Licence(_)) {
                recipe
                    .license_files
                    .iter()
                    .map(|file| recipe.folder.join(file))
                    .try_for_each(|file| if file.is_file() { add(&file) } else { Ok(()) })?;
            }
            add(&self.strings.folder)?;
        }
        key.text(&match part {
            Part::Donor(_, arch) => format!("donor {arch}"),
            Part::Tests(arch) => format!("tests {arch}"),
            Part::Licence(_) => "licence".to_owned(),
        });
        Ok(key)
    }

    fn files(&self, part: &Part<'_>) -> Vec<Embedded> {
        let alone = |path| Embedded { path, like: None };
        match *part {
            Part::Donor(recipe, arch) => {
                let path = |product: Product| product.path(self.foundry, recipe, self.strings, arch);
                let embedded = |product: Product| Embedded {
                    path: path(product),
                    like: product.has_strings().then(|| path(product.alone())),
                };
                Product::all(recipe, self.strings, arch).into_iter().map(embedded).collect()
            }
            Part::Tests(arch) => {
                let [program, library] = self.foundry.loader_test_paths(arch);
                [program, library, self.foundry.merged_test_path(arch)].map(alone).into()
            }
            Part::Licence(recipe) => vec![alone(self.foundry.licence_path(recipe))],
        }
    }

    /// Makes all products of a donor for an architecture.
    fn cast(&self, recipe: &Recipe, arch: Arch) -> Result<(), FoundryError> {
        let products = Product::all(recipe, self.strings, arch);
        if recipe.kind == DonorKind::Strings || products.iter().any(|product| product.has_strings()) {
            self.cast_strings(arch)?;
        }
        if recipe.kind == DonorKind::Malloc {
            self.foundry.cast(recipe, arch, Target::Program)?;
        }
        if products.contains(&Product::Loader { strings: false }) {
            self.foundry.cast(recipe, arch, Target::Loader)?;
        }
        for product in products {
            let strings = product.has_strings().then_some(self.strings);
            match product {
                Product::Object => {}
                Product::Library => self.foundry.cast_library(recipe, arch)?,
                Product::Windows => self.foundry.cast_windows(recipe)?,
                Product::Blob { .. } => self.foundry.cast_blob(recipe, strings, arch)?,
                Product::Loader { .. } => self.foundry.cast_loader(recipe, strings, arch)?,
            }
        }
        Ok(())
    }

    /// Compiles the string functions, once for all parts that are linked with them.
    fn cast_strings(&self, arch: Arch) -> Result<(), FoundryError> {
        let mut compiled = self.compiled.lock().map_err(|_| FoundryError::Worker)?;
        if compiled.insert(arch) {
            self.foundry.cast(self.strings, arch, Target::Program)?;
        }
        Ok(())
    }
}

/// Returns the lock file's entry for the compression library: a different version may give different bytes.
fn compressor(home: &Path) -> Result<String, FoundryError> {
    let path = home.join("../../Cargo.lock");
    let text = fs::read_to_string(&path).map_err(|source| FoundryError::File { path, source })?;
    Ok(text.split("[[package]]").filter(|package| package.contains("\"lzma-rust2\"")).collect())
}

/// Returns the name of a file's compressed form, which the program embeds.
pub(crate) fn compressed(path: &Path) -> String {
    format!("{}.lzma", plain(path))
}

/// Writes the file beside its compressed form in the folder `embedded`.
pub(crate) fn decompress(path: &Path, like: Option<&Path>, embedded: &Path) -> Result<(), FoundryError> {
    let read = |path: &Path| fs::read(path).map_err(|source| FoundryError::File { path: path.to_owned(), source });
    let (from, to) = (embedded.join(compressed(path)), embedded.join(plain(path)));
    let like = like.map(|like| read(&embedded.join(plain(like)))).transpose()?;
    let bytes = Compressed::decompress(&read(&from)?, like.as_deref());
    crate::write(&to, &bytes.map_err(|source| FoundryError::File { path: from, source })?)
}

/// Returns the name of a file that is embedded without compression.
pub(crate) fn plain(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Writes the compressed form of a file into the folder `embedded`.
fn compress(file: &Embedded, embedded: &Path) -> Result<(), FoundryError> {
    let unreadable = |source| FoundryError::File { path: file.path.clone(), source };
    let bytes = fs::read(&file.path).map_err(unreadable)?;
    let like = file.like.as_ref().map(fs::read).transpose().map_err(unreadable)?;
    let bytes = Compressed::compress(&bytes, like.as_deref()).map_err(unreadable)?;
    crate::write(&embedded.join(compressed(&file.path)), &bytes)
}
