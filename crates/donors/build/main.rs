//! Builds every donor's object for every architecture, and writes the catalogue that `src/lib.rs` includes.

mod foundry;
mod recipe;
mod template;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{env, fs};

use format::{Arch, Compressed, DonorKind};
use foundry::{Form, Foundry, FoundryError};
use recipe::{Profile, Recipe};
use zigcc::Zig;

/// The architectures whose dynamic programs a donor is merged into.
const MERGED: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

fn main() {
    if let Err(error) = build() {
        // Cargo shows a build script's panic together with everything it printed. With an exit code it shows only the
        // message.
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), FoundryError> {
    let home = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for watched in ["build", "glue", "transplant", "windows", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    let embedded = out.join("embedded");
    let file = |source| FoundryError::File { path: embedded.clone(), source };
    if zigcc::embedded(&home, &embedded).map_err(file)? {
        return Ok(());
    }
    println!("cargo::rerun-if-env-changed=ALLOGRAFT_ZIG");
    println!("cargo::rerun-if-env-changed={}", foundry::DEFINE);

    let recipes = Recipe::all(&home)?;
    for recipe in &recipes {
        println!("cargo::rerun-if-changed={}", recipe.folder.display());
    }
    let zig = Zig::find(&zigcc::tools_folder(&home), &zigcc::build_folder(&home).join("zig-cache"))?;
    let foundry = Foundry::new(zig, &home, &out)?;

    let jobs: Vec<(&Recipe, Arch)> =
        recipes.iter().flat_map(|recipe| recipe.arches().map(move |arch| (recipe, arch))).collect();
    in_parallel(&jobs, |(recipe, arch)| {
        foundry.cast(recipe, *arch, Form::Program)?;
        compress(&foundry.object_path(recipe, *arch, Form::Program), &embedded)?;
        if recipe.is_shared(*arch) {
            foundry.cast_library(recipe, *arch)?;
            compress(&foundry.library_path(recipe, *arch), &embedded)?;
        }
        Ok(())
    })?;

    let windows: Vec<&Recipe> = recipes.iter().filter(|recipe| recipe.windows).collect();
    in_parallel(&windows, |recipe| {
        foundry.cast_windows(recipe)?;
        compress(&foundry.windows_path(recipe), &embedded)
    })?;

    for recipe in &recipes {
        foundry.write_licence(recipe)?;
        compress(&foundry.licence_path(recipe), &embedded)?;
    }

    let (allocators, strings): (Vec<&Recipe>, Vec<&Recipe>) =
        recipes.iter().partition(|recipe| recipe.kind == DonorKind::Malloc);
    let blobs: Vec<(&Recipe, Option<&Recipe>, Arch)> =
        allocators.iter().flat_map(|recipe| blobs(recipe, &strings)).collect();
    in_parallel(&blobs, |(recipe, strings, arch)| foundry.cast_blob(recipe, *strings, *arch))?;
    in_parallel(&blobs, |(recipe, strings, arch)| {
        compress_pair(strings.is_some(), |both| foundry.blob_path(recipe, strings.filter(|_| both), *arch), &embedded)
    })?;
    let own: Vec<(&Recipe, Arch)> =
        allocators.iter().flat_map(|recipe| recipe.loaders().map(move |arch| (*recipe, arch))).collect();
    in_parallel(&own, |(recipe, arch)| foundry.cast_for_loader(recipe, *arch))?;
    let loaders: Vec<(&Recipe, Option<&Recipe>, Arch)> =
        allocators.iter().flat_map(|recipe| with_and_without(recipe, &strings, recipe.loaders())).collect();
    in_parallel(&loaders, |(recipe, strings, arch)| foundry.cast_loader(recipe, *strings, *arch))?;
    in_parallel(&loaders, |(recipe, strings, arch)| {
        compress_pair(strings.is_some(), |both| foundry.loader_path(recipe, strings.filter(|_| both), *arch), &embedded)
    })?;
    let mut tested: Vec<Arch> = Arch::ALL.into_iter().collect();
    tested.retain(|arch| own.iter().any(|(_, of)| of == arch));
    for arch in &tested {
        foundry.cast_loader_test(*arch)?;
        foundry.loader_test_paths(*arch).iter().try_for_each(|path| compress(path, &embedded))?;
    }
    for arch in &MERGED {
        foundry.cast_merged_test(*arch)?;
        compress(&foundry.merged_test_path(*arch), &embedded)?;
    }
    write(&embedded.join("merged_tests.rs"), merged_tests(&MERGED, &foundry).as_bytes())?;
    write(&embedded.join("loader_tests.rs"), loader_tests(&tested, &foundry).as_bytes())?;
    write(&embedded.join("catalogue.rs"), catalogue(&allocators, &strings, &foundry).as_bytes())?;
    write(&embedded.join("strings.rs"), catalogue(&strings, &[], &foundry).as_bytes())
}

/// Returns the name of a file's compressed form, which is what the program embeds.
fn compressed(path: &Path) -> String {
    format!("{}.lzma", path.file_name().unwrap_or_default().to_string_lossy())
}

/// Writes the compressed form of a file into the folder `embedded`.
fn compress(path: &Path, embedded: &Path) -> Result<(), FoundryError> {
    compress_like(path, None, embedded)
}

/// The same with a file that it repeats much of.
fn compress_like(path: &Path, like: Option<&Path>, embedded: &Path) -> Result<(), FoundryError> {
    let read = |path: &Path| fs::read(path).map_err(|source| FoundryError::File { path: path.to_owned(), source });
    let (bytes, like) = (read(path)?, like.map(read).transpose()?);
    let compressed_bytes = Compressed::of(&bytes, like.as_deref());
    let compressed_bytes = compressed_bytes.map_err(|source| FoundryError::File { path: path.to_owned(), source })?;
    write(&embedded.join(compressed(path)), &compressed_bytes)
}

/// Compresses an allocator that is linked alone, or `with_strings`: then with the one alone at hand. `path` returns the
/// path of either.
fn compress_pair(with_strings: bool, path: impl Fn(bool) -> PathBuf, embedded: &Path) -> Result<(), FoundryError> {
    let alone = with_strings.then(|| path(false));
    compress_like(&path(with_strings), alone.as_deref(), embedded)
}

/// A blob: the allocator, string functions if it has some, the architecture.
type Blob<'a> = (&'a Recipe, Option<&'a Recipe>, Arch);

/// Returns the blobs of an allocator for linked executables.
fn blobs<'a>(recipe: &'a Recipe, strings: &[&'a Recipe]) -> Vec<Blob<'a>> {
    with_and_without(recipe, strings, recipe.arches().filter(|arch| recipe.transplants(*arch)))
}

/// Returns the blobs of an allocator for these architectures: the allocator alone, and with string functions.
fn with_and_without<'a>(
    recipe: &'a Recipe,
    strings: &[&'a Recipe],
    arches: impl Iterator<Item = Arch>,
) -> Vec<Blob<'a>> {
    let arches: Vec<Arch> = arches.collect();
    let alone = arches.iter().map(|arch| (recipe, None, *arch));
    let both = strings.iter().flat_map(|strings| {
        let arches = arches.iter().filter(|arch| strings.transplants(**arch));
        arches.map(|arch| (recipe, Some(*strings), *arch))
    });
    alone.chain(both).collect()
}

/// Returns the source of a catalogue: one entry for each recipe, ordered by name. It is a block, with an item for each
/// file before the entries.
fn catalogue(recipes: &[&Recipe], strings: &[&Recipe], foundry: &Foundry) -> String {
    let (mut items, mut entries) = (Items::default(), String::new());
    for recipe in recipes {
        let Recipe { kind, name, version, license, character, .. } = recipe;
        let linked = if recipe.kind == DonorKind::Malloc { blobs(recipe, strings) } else { Vec::new() };
        let (both, alone): (Vec<_>, Vec<_>) = linked.into_iter().partition(|(_, strings, _)| strings.is_some());
        let blob = |(recipe, strings, arch): Blob<'_>| (arch, foundry.blob_path(recipe, strings, arch));
        let loaders = with_and_without(recipe, strings, recipe.loaders());
        let (loaders_both, loaders): (Vec<_>, Vec<_>) =
            loaders.into_iter().partition(|(_, strings, _)| strings.is_some());
        let loader = |(recipe, strings, arch): Blob<'_>| (arch, foundry.loader_path(recipe, strings, arch));
        let shared = recipe.arches().filter(|arch| recipe.is_shared(*arch));
        let program = |arch| foundry.object_path(recipe, arch, Form::Program);
        let objects = items.list(recipe.arches().map(|arch| (arch, program(arch))));
        let loaders = items.list(loaders.into_iter().map(loader));
        let like = |(recipe, _, arch): Blob<'_>| foundry.loader_path(recipe, None, arch);
        let loaders_both = items.list_like(loaders_both.into_iter().map(|it| (loader(it), like(it))));
        let loader_options: Vec<(&String, &i64)> = recipe.loader_options().iter().collect();
        let like = |(recipe, _, arch): Blob<'_>| foundry.blob_path(recipe, None, arch);
        let alone = items.list(alone.into_iter().map(blob));
        let both = items.list_like(both.into_iter().map(|it| (blob(it), like(it))));
        let libraries = items.list(shared.map(|arch| (arch, foundry.library_path(recipe, arch))));
        let windows = recipe.windows.then_some((Arch::X86_64, foundry.windows_path(recipe)));
        let windows = items.list(windows.into_iter());
        let text = items.file(&foundry.licence_path(recipe));
        let homepage = recipe.upstream.as_ref().map(|upstream| upstream.homepage.as_str());
        entries += &format!(
            "Donor {{ kind: DonorKind::{kind:?}, name: {name:?}, version: {version:?}, license: {license:?},\n\
             homepage: {homepage:?},\n\
             license_text: {text}, character: {character:?}, objects: {objects}, blobs: {alone},\n\
             blobs_with_strings: {both}, loaders: {loaders}, loaders_with_strings: {loaders_both}, loader_options: &{loader_options:?},\n\
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

/// Returns the source of the programs that test a grafted loader: for each architecture the program and its library.
fn loader_tests(arches: &[Arch], foundry: &Foundry) -> String {
    let (mut items, mut entries) = (Items::default(), String::new());
    for arch in arches {
        let [program, library] = foundry.loader_test_paths(*arch).map(|path| items.file(&path));
        entries += &format!("LoaderTest {{ arch: Arch::{arch:?}, program: {program}, library: {library} }},\n");
    }
    format!("{{\n{}&[\n{entries}]\n}}\n", items.source)
}

/// Returns the source of the libraries that test a merged program: one for each architecture.
fn merged_tests(arches: &[Arch], foundry: &Foundry) -> String {
    let mut items = Items::default();
    let entries = items.list(arches.iter().map(|arch| (*arch, foundry.merged_test_path(*arch))));
    format!("{{\n{}{entries}\n}}\n", items.source)
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

    /// Adds a file that was compressed with another one at hand, which has been added. Returns an expression for it.
    fn file_like(&mut self, path: &Path, like: &Path) -> String {
        let other = self.names.iter().position(|name| *name == compressed(like));
        let other = other.expect("the other file comes first");
        self.add(path, &format!("like(&FILE_{other}, "))
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

    /// Adds a file for each architecture, and returns an expression for all of them.
    fn list(&mut self, files: impl Iterator<Item = (Arch, PathBuf)>) -> String {
        let entries: Vec<String> =
            files.map(|(arch, path)| format!("(Arch::{arch:?}, {})", self.file(&path))).collect();
        format!("&[{}]", entries.join(", "))
    }

    /// The same for files that were each compressed with another one at hand.
    fn list_like(&mut self, files: impl Iterator<Item = ((Arch, PathBuf), PathBuf)>) -> String {
        let entries: Vec<String> =
            files.map(|((arch, path), like)| format!("(Arch::{arch:?}, {})", self.file_like(&path, &like))).collect();
        format!("&[{}]", entries.join(", "))
    }
}

/// Runs `work` on every job, on as many threads as cargo granted. Stops at the first error.
fn in_parallel<T: Sync>(jobs: &[T], work: impl Fn(&T) -> Result<(), FoundryError> + Sync) -> Result<(), FoundryError> {
    let threads = env::var("NUM_JOBS").ok().and_then(|count| count.parse().ok()).unwrap_or(1);
    let queue = Mutex::new(jobs.iter());
    let next = || queue.lock().ok().and_then(|mut jobs| jobs.next());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    while let Some(job) = next() {
                        work(job)?;
                    }
                    Ok(())
                })
            })
            .collect();
        workers.into_iter().try_for_each(|worker| worker.join().unwrap_or(Err(FoundryError::Worker)))
    })
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), FoundryError> {
    fs::write(path, bytes).map_err(|source| FoundryError::File { path: path.to_owned(), source })
}
