//! Builds every donor's object for every architecture, and writes the catalogue that `src/lib.rs` includes.

mod foundry;
mod recipe;
mod template;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{env, fs};

use format::{Arch, DonorKind};
use foundry::{Foundry, FoundryError};
use recipe::{Profile, Recipe};
use zigcc::Zig;

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
    for watched in ["build", "glue", "transplant", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={watched}");
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
        foundry.cast(recipe, *arch)?;
        if recipe.is_shared(*arch) { foundry.cast_library(recipe, *arch) } else { Ok(()) }
    })?;

    let (allocators, strings): (Vec<&Recipe>, Vec<&Recipe>) =
        recipes.iter().partition(|recipe| recipe.kind == DonorKind::Malloc);
    let blobs: Vec<(&Recipe, Option<&Recipe>, Arch)> =
        allocators.iter().flat_map(|recipe| blobs(recipe, &strings)).collect();
    in_parallel(&blobs, |(recipe, strings, arch)| foundry.cast_blob(recipe, *strings, *arch))?;
    write_if_changed(&out.join("catalogue.rs"), &catalogue(&allocators, &strings, &foundry))?;
    write_if_changed(&out.join("strings.rs"), &catalogue(&strings, &[], &foundry))
}

/// Returns the blobs of an allocator for linked executables: the allocator alone, and with string functions.
fn blobs<'a>(recipe: &'a Recipe, strings: &[&'a Recipe]) -> Vec<(&'a Recipe, Option<&'a Recipe>, Arch)> {
    let arches: Vec<Arch> = recipe.arches().filter(|arch| recipe.transplants(*arch)).collect();
    let alone = arches.iter().map(|arch| (recipe, None, *arch));
    let both = strings.iter().flat_map(|strings| {
        let arches = arches.iter().filter(|arch| strings.transplants(**arch));
        arches.map(|arch| (recipe, Some(*strings), *arch))
    });
    alone.chain(both).collect()
}

/// Returns the source of a catalogue: one entry for each recipe, ordered by name.
fn catalogue(recipes: &[&Recipe], strings: &[&Recipe], foundry: &Foundry) -> String {
    let mut text = String::from("&[\n");
    for recipe in recipes {
        let Recipe { kind, name, version, license, character, .. } = recipe;
        text += &format!(
            "Donor {{ kind: DonorKind::{kind:?}, name: {name:?}, version: {version:?}, license: {license:?}, character: {character:?}, objects: &[\n"
        );
        for arch in recipe.arches() {
            text += &format!("(Arch::{arch:?}, include_bytes!({:?})),\n", foundry.object_path(recipe, arch));
        }
        text += "], blobs: &[\n";
        let linked = if recipe.kind == DonorKind::Malloc { blobs(recipe, strings) } else { Vec::new() };
        for (_, _, arch) in linked.iter().filter(|(_, strings, _)| strings.is_none()) {
            text += &format!("(Arch::{arch:?}, include_bytes!({:?})),\n", foundry.blob_path(recipe, None, *arch));
        }
        text += "], blobs_with_strings: &[\n";
        for (_, strings, arch) in linked.iter().filter(|(_, strings, _)| strings.is_some()) {
            text += &format!("(Arch::{arch:?}, include_bytes!({:?})),\n", foundry.blob_path(recipe, *strings, *arch));
        }
        text += "], libraries: &[\n";
        for arch in recipe.arches().filter(|arch| recipe.is_shared(*arch)) {
            text += &format!("(Arch::{arch:?}, include_bytes!({:?})),\n", foundry.library_path(recipe, arch));
        }
        text += "], profiles: &[\n";
        for (name, Profile { about, options }) in &recipe.profiles {
            let options: Vec<(&String, &i64)> = options.iter().collect();
            text += &format!("Profile {{ name: {name:?}, about: {about:?}, options: &{options:?} }},\n");
        }
        text += "] },\n";
    }
    text + "]\n"
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

fn write_if_changed(path: &Path, text: &str) -> Result<(), FoundryError> {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    fs::write(path, text).map_err(|source| FoundryError::File { path: path.to_owned(), source })
}
