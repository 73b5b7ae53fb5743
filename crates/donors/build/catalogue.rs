//! The Rust source that embeds the donors' files: one entry for each recipe, ordered by name.

use std::path::Path;

use format::Arch;

use crate::foundry::Foundry;
use crate::part::{Part, Product, compressed};
use crate::recipe::{Profile, Recipe};

/// The source's writer.
pub(crate) struct Catalogue<'a> {
    pub(crate) foundry: &'a Foundry,
    /// The parts of this build. Donors list all their architectures in any case.
    pub(crate) parts: &'a [Part<'a>],
    pub(crate) strings: &'a Recipe,
}

impl Catalogue<'_> {
    /// Returns the source of the donors' entries. It is a block, with an item for each file before the entries.
    pub(crate) fn donors(&self, recipes: &[&Recipe]) -> String {
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
        format!("{{\n{}&[\n{entries}]\n}}\n", items.source)
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
    pub(crate) fn loader_tests(&self, arches: &[Arch]) -> String {
        let (mut items, mut entries) = (Items::default(), String::new());
        for arch in arches.iter().filter(|arch| self.has_tests(**arch)) {
            let [program, library] = self.foundry.loader_test_paths(*arch).map(|path| items.file(&path));
            entries += &format!("LoaderTest {{ arch: Arch::{arch:?}, program: {program}, library: {library} }},\n");
        }
        format!("{{\n{}&[\n{entries}]\n}}\n", items.source)
    }

    /// Returns the source of the libraries that test a merged program: one for each architecture.
    pub(crate) fn merged_tests(&self, arches: &[Arch]) -> String {
        let (mut items, mut entries) = (Items::default(), String::new());
        for arch in arches.iter().filter(|arch| self.has_tests(**arch)) {
            let file = items.file(&self.foundry.merged_test_path(*arch));
            entries += &format!("(Arch::{arch:?}, Some({file})), ");
        }
        format!("{{\n{}&[{entries}]\n}}\n", items.source)
    }
}

/// The embedded files of a catalogue.
#[derive(Default)]
struct Items {
    source: String,
    /// The compressed forms, the first as `FILE_0`.
    names: Vec<String>,
}

impl Items {
    /// Adds a file, and returns an expression for it.
    fn file(&mut self, path: &Path) -> String {
        self.add(path, "new(")
    }

    /// Adds a file that was compressed with the help of the file `like`, which has been added before. Returns an
    /// expression for it.
    fn file_like(&mut self, path: &Path, like: &Path) -> String {
        let other = self.names.iter().position(|name| *name == compressed(like));
        let other = other.expect("the other file comes first");
        self.add(path, &format!("like(&FILE_{other}, "))
    }

    /// Adds an empty file in place of one that this build leaves out.
    fn nothing(&mut self) -> String {
        let count = self.names.len();
        self.source += &format!("static FILE_{count}: Compressed = Compressed::new(&[]);\n");
        self.names.push(String::new());
        format!("&FILE_{count}")
    }

    fn add(&mut self, path: &Path, call: &str) -> String {
        let (count, name) = (self.names.len(), compressed(path));
        self.source += &format!(
            "static FILE_{count}: Compressed =\n\
             Compressed::{call}include_bytes!(concat!(env!(\"OUT_DIR\"), \"/embedded/{name}\")));\n"
        );
        self.names.push(name);
        format!("&FILE_{count}")
    }
}
