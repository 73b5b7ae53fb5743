//! The Rust source that embeds the donors' files: one entry for each recipe, ordered by name.

use std::path::{Path, PathBuf};

use format::Arch;

use crate::foundry::{Foundry, FoundryError};
use crate::part::{Part, Product, compressed, decompress, plain};
use crate::recipe::{Profile, Recipe};

/// The source's writer.
pub(crate) struct Catalogue<'a> {
    pub(crate) foundry: &'a Foundry,
    /// The parts of this build. Donors list all their architectures in any case.
    pub(crate) parts: &'a [Part<'a>],
    pub(crate) strings: &'a Recipe,
    /// The folder of the compressed files, where this writes the files themselves for an unoptimised build.
    pub(crate) embedded: &'a Path,
    /// Whether the build is unoptimised.
    pub(crate) is_plain: bool,
}

impl Catalogue<'_> {
    /// Returns the source of the donors' entries. It is a block, with an item for each file before the entries.
    ///
    /// # Errors
    /// A compressed file cannot be read.
    pub(crate) fn donors(&self, recipes: &[&Recipe]) -> Result<String, FoundryError> {
        let (mut items, mut entries) = (Items::default(), String::new());
        for recipe in recipes {
            let Recipe { kind, name, version, license, character, .. } = recipe;
            let mut list = |product| self.list(&mut items, recipe, product);
            let objects = list(Product::Object);
            let blobs = list(Product::Blob { strings: false });
            let blobs_with_strings = list(Product::Blob { strings: true });
            let loaders = list(Product::Loader { strings: false });
            let loaders_with_strings = list(Product::Loader { strings: true });
            let libraries = list(Product::Library);
            let windows = list(Product::Windows);
            let loader_options: Vec<(&String, &i64)> = recipe.loader_options().iter().collect();
            let has_text = self.parts.iter().any(|part| matches!(part, Part::Licence(it) if it.name == recipe.name));
            let text = match has_text {
                true => items.file(&self.foundry.licence_path(recipe)),
                false => items.nothing(),
            };
            let homepage = recipe.upstream.as_ref().map(|upstream| upstream.homepage.as_str());
            entries += &format!(
                "Donor {{ kind: DonorKind::{kind:?}, name: {name:?}, version: {version:?}, license: {license:?},\n\
                 homepage: {homepage:?}, license_text: {text}, character: {character:?},\n\
                 objects: {objects}, blobs: {blobs}, blobs_with_strings: {blobs_with_strings},\n\
                 loaders: {loaders}, loaders_with_strings: {loaders_with_strings}, loader_options: &{loader_options:?},\n\
                 libraries: {libraries}, windows: {windows}, profiles: &[\n"
            );
            for (name, Profile { about, options }) in &recipe.profiles {
                let options: Vec<(&String, &i64)> = options.iter().collect();
                entries += &format!("Profile {{ name: {name:?}, about: {about:?}, options: &{options:?} }},\n");
            }
            entries += "] },\n";
        }
        Ok(format!("{{\n{}&[\n{entries}]\n}}\n", self.source(&items)?))
    }

    /// Returns the source of the items.
    fn source(&self, items: &Items) -> Result<String, FoundryError> {
        let mut source = String::new();
        for (number, file) in items.files.iter().enumerate() {
            let call = match file {
                None => "new(&[])".to_owned(),
                Some((path, like)) if self.is_plain => {
                    let like = like.and_then(|like| items.files[like].as_ref()).map(|(like, _)| like.as_path());
                    decompress(path, like, self.embedded)?;
                    format!("plain({})", included(&plain(path)))
                }
                Some((path, None)) => format!("new({})", included(&compressed(path))),
                Some((path, Some(like))) => format!("like(&FILE_{like}, {})", included(&compressed(path))),
            };
            source += &format!("static FILE_{number}: Compressed = Compressed::{call};\n");
        }
        Ok(source)
    }

    /// Adds the files of a product, one for each architecture that the donor has it for, and returns an expression for
    /// all of them.
    fn list(&self, items: &mut Items, recipe: &Recipe, product: Product) -> String {
        let mut entries = Vec::new();
        let has = |arch: &Arch| Product::all(recipe, self.strings, *arch).contains(&product);
        for arch in recipe.arches().filter(has) {
            let path = |product: Product| product.path(self.foundry, recipe, self.strings, arch);
            let file = match product.alone() {
                _ if !self.has(recipe, arch) => "None".to_owned(),
                same if same == product => format!("Some({})", items.file(&path(product))),
                alone => format!("Some({})", items.file_like(&path(product), &path(alone))),
            };
            entries.push(format!("(Arch::{arch:?}, {file})"));
        }
        format!("&[{}]", entries.join(", "))
    }

    fn has(&self, recipe: &Recipe, arch: Arch) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Donor(it, of) if it.name == recipe.name && *of == arch))
    }

    fn has_tests(&self, arch: Arch) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Tests(of) if *of == arch))
    }

    /// Returns the source of the programs that test a grafted loader: for each architecture the program and its
    /// library.
    ///
    /// # Errors
    /// As for [`Catalogue::donors`].
    pub(crate) fn loader_tests(&self, arches: &[Arch]) -> Result<String, FoundryError> {
        let (mut items, mut entries) = (Items::default(), String::new());
        for arch in arches.iter().filter(|arch| self.has_tests(**arch)) {
            let [program, library] = self.foundry.loader_test_paths(*arch).map(|path| items.file(&path));
            entries += &format!("LoaderTest {{ arch: Arch::{arch:?}, program: {program}, library: {library} }},\n");
        }
        Ok(format!("{{\n{}&[\n{entries}]\n}}\n", self.source(&items)?))
    }

    /// Returns the source of the libraries that test a merged program: one for each architecture.
    ///
    /// # Errors
    /// As for [`Catalogue::donors`].
    pub(crate) fn merged_tests(&self, arches: &[Arch]) -> Result<String, FoundryError> {
        let (mut items, mut entries) = (Items::default(), String::new());
        for arch in arches.iter().filter(|arch| self.has_tests(**arch)) {
            let file = items.file(&self.foundry.merged_test_path(*arch));
            entries += &format!("(Arch::{arch:?}, Some({file})), ");
        }
        Ok(format!("{{\n{}&[{entries}]\n}}\n", self.source(&items)?))
    }
}

/// The embedded files of a catalogue, the first as `FILE_0`.
#[derive(Default)]
struct Items {
    /// Each file's path, and the number of the one that its compressed bytes refer to. `None` for a file that this
    /// build leaves out.
    files: Vec<Option<(PathBuf, Option<usize>)>>,
}

impl Items {
    /// Adds a file, and returns an expression for it.
    fn file(&mut self, path: &Path) -> String {
        self.add(Some((path.to_owned(), None)))
    }

    /// Adds a file that was compressed with the help of the file `like`, which has been added before. Returns an
    /// expression for it.
    fn file_like(&mut self, path: &Path, like: &Path) -> String {
        let is_it = |file: &Option<(PathBuf, _)>| file.as_ref().is_some_and(|(path, _)| path == like);
        let other = self.files.iter().position(is_it).expect("the other file comes first");
        self.add(Some((path.to_owned(), Some(other))))
    }

    /// Adds an empty file in place of one that this build leaves out.
    fn nothing(&mut self) -> String {
        self.add(None)
    }

    fn add(&mut self, file: Option<(PathBuf, Option<usize>)>) -> String {
        self.files.push(file);
        format!("&FILE_{}", self.files.len() - 1)
    }
}

/// Returns an expression for an embedded file's bytes.
fn included(name: &str) -> String {
    format!("include_bytes!(concat!(env!(\"OUT_DIR\"), \"/embedded/{name}\"))")
}
