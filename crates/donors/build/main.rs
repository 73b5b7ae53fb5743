//! Builds every donor's objects for the architectures that this build is to have, and writes the catalogue that
//! `src/lib.rs` includes.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `recipe` | a donor's recipe |
//! | `template` | headers that upstream's configure script would make |
//! | `foundry` | compiles and links one file of a donor |
//! | `part` | the files that are made, or taken from the store, together |
//! | `catalogue` | the Rust source that embeds them |

mod catalogue;
mod foundry;
mod part;
mod recipe;
mod template;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::{env, fs};

use catalogue::Catalogue;
use format::{Arch, DEFAULT_DONORS, DonorKind};
use foundry::{Foundry, FoundryError};
use part::{Part, Workshop};
use recipe::Recipe;
use zigcc::store::Store;
use zigcc::{Zig, arches};

/// The architectures whose dynamic programs a donor is merged into.
const MERGED: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

/// The environment variable with the names of the allocators to build, with commas between them: a demonstration needs
/// two of ten. The program still lists the others, but refuses them.
const DONORS: &str = "ALLOGRAFT_DONORS";

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
    let (allocators, strings): (Vec<&Recipe>, Vec<&Recipe>) =
        recipes.iter().partition(|recipe| recipe.kind == DonorKind::Malloc);
    let [strings] = strings[..] else { return Err(FoundryError::Strings { count: strings.len() }) };
    let arches = arches::chosen()?;
    let zig = Zig::find(&zigcc::tools_folder(&home), &zigcc::build_folder(&home).join("zig-cache"))?;
    let foundry = Foundry::new(zig, &home, &out)?;
    let workshop = Workshop::new(Store::open(), &home, &embedded, &foundry, strings)?;

    let mut parts: Vec<Part<'_>> = Vec::new();
    let chosen = chosen(&allocators)?;
    let allocators_chosen = || allocators.iter().filter(|recipe| chosen.contains(&recipe.name));
    for arch in &arches {
        // The slowest to compile come first, so that no processor is idle at the end.
        parts.extend(allocators_chosen().filter(|recipe| recipe.supports(*arch)).map(|it| Part::Donor(it, *arch)));
        parts.extend(strings.supports(*arch).then_some(Part::Donor(strings, *arch)));
        parts.extend(MERGED.contains(arch).then_some(Part::Tests(*arch)));
    }
    for arch in Arch::ALL.into_iter().filter(|arch| arches::others_have_defaults() && !arches.contains(arch)) {
        let find = |name: &str| allocators_chosen().find(|recipe| recipe.name == name && recipe.supports(arch));
        parts.extend(DEFAULT_DONORS.into_iter().filter_map(find).map(|recipe| Part::Donor(recipe, arch)));
        parts.extend(strings.supports(arch).then_some(Part::Donor(strings, arch)));
        parts.extend(MERGED.contains(&arch).then_some(Part::Tests(arch)));
    }
    parts.extend(allocators_chosen().copied().chain([strings]).map(Part::Licence));
    in_parallel(&parts, |part| workshop.make(part))?;

    // Cargo sets it for the crate that this script is of.
    let is_plain = env::var_os("OPT_LEVEL").is_some_and(|level| level == "0");
    let catalogue = Catalogue { foundry: &foundry, parts: &parts, strings, embedded: &embedded, is_plain };
    write(&embedded.join("merged_tests.rs"), catalogue.merged_tests(&MERGED)?.as_bytes())?;
    write(&embedded.join("loader_tests.rs"), catalogue.loader_tests(&MERGED)?.as_bytes())?;
    write(&embedded.join("catalogue.rs"), catalogue.donors(&allocators)?.as_bytes())?;
    write(&embedded.join("strings.rs"), catalogue.donors(&[strings])?.as_bytes())
}

/// Returns the names of the allocators to build: those of the variable [`DONORS`], or all.
fn chosen(allocators: &[&Recipe]) -> Result<Vec<String>, FoundryError> {
    println!("cargo::rerun-if-env-changed={DONORS}");
    let wanted = env::var(DONORS).unwrap_or_default();
    let all = || allocators.iter().map(|recipe| recipe.name.clone());
    if wanted.is_empty() {
        return Ok(all().collect());
    }
    let names: Vec<String> = wanted.split(',').map(|name| name.trim().to_owned()).collect();
    match names.iter().find(|name| !all().any(|known| known == **name)) {
        Some(unknown) => Err(FoundryError::Unknown { variable: DONORS, name: unknown.clone() }),
        None => Ok(names),
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
