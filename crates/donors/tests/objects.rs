//! Rules for every allocator's object and recipe.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use surgery::donor::DonorObject;

#[test]
fn allocators_define_the_family_and_nothing_else() {
    let expected: BTreeSet<&str> = format::family::donated().collect();
    for donor in donors::all() {
        for (arch, object) in donor.arches().filter_map(|arch| Some((arch, donor.object(arch)?))) {
            let symbols = relocatable::symbols(object).unwrap_or_else(|error| panic!("{}: {error}", donor.name));
            let shared = symbols.iter().filter(|symbol| symbol.defined && symbol.is_shared());
            let names: Vec<String> = shared.map(|symbol| String::from_utf8_lossy(symbol.name).into_owned()).collect();
            let names: BTreeSet<&str> = names.iter().map(String::as_str).collect();
            assert_eq!(names, expected, "{} for {arch:?}", donor.name);
        }
    }
}

#[test]
fn profiles_hold_options_of_their_donors() {
    for donor in donors::all() {
        for profile in donor.profiles {
            assert!(donors::PROFILES.contains(&profile.name), "{} of {}", profile.name, donor.name);
            assert!(!profile.about.is_empty(), "{} of {}", profile.name, donor.name);
            let settings: Vec<(String, i64)> =
                profile.options.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            for (arch, object) in donor.arches().filter_map(|arch| Some((arch, donor.object(arch)?))) {
                let tuned = DonorObject::parse(object).and_then(|object| object.tuned(&settings, "0"));
                if let Err(error) = tuned {
                    panic!("profile `{}` of `{}` for {arch:?}: {error}", profile.name, donor.name);
                }
            }
        }
        assert_eq!(donor.profile(donors::DEFAULT_PROFILE), Some(&[][..]), "{}", donor.name);
        assert_eq!(donor.profile("no such profile"), None);
    }
}

#[test]
fn every_shared_object_unpacks_and_takes_the_objects_options() {
    let mut found = 0;
    for donor in donors::all() {
        for arch in donor.arches() {
            let Some(library) = donor.library(arch) else { continue };
            let parsed = DonorObject::parse_library(library).unwrap_or_else(|error| panic!("{}: {error}", donor.name));
            assert_eq!((parsed.arch(), parsed.note().donor.as_str()), (arch, donor.name));
            let names = |options: Vec<format::DonorOption>| -> Vec<String> {
                options.into_iter().map(|option| option.name).collect()
            };
            assert_eq!(names(parsed.options()), names(donor.options().expect("options")), "{}", donor.name);
            found += 1;
        }
    }
    assert!(found >= 10, "{found}");
}

/// Returns the folders of donors, and their recipes.
fn recipes() -> Vec<(PathBuf, toml::Table)> {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = std::fs::read_dir(home).unwrap().map(|entry| entry.unwrap().path());
    let read = |folder: PathBuf| {
        let text = std::fs::read_to_string(folder.join("recipe.toml")).ok()?;
        let recipe = text.parse().unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        Some((folder, recipe))
    };
    folders.filter_map(read).collect()
}

/// The page on adding a donor must explain every key.
#[test]
fn the_page_on_donors_knows_every_key_of_a_recipe() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/contributing/donor.md");
    let page = std::fs::read_to_string(page).unwrap();
    for (folder, recipe) in recipes() {
        let upstream = recipe.get("upstream").and_then(toml::Value::as_table);
        let keys = recipe.keys().filter(|key| !["upstream", "profiles", "arch"].contains(&key.as_str()));
        for key in keys.chain(upstream.into_iter().flat_map(toml::Table::keys)) {
            assert!(page.contains(&format!("`{key}`")), "the page lacks `{key}` of {}", folder.display());
        }
    }
    assert!(!page.contains("shared = true"), "it is a list of architectures");
}

/// A version in the form of `git describe` names a commit. The text that the build checks in the package's sources must
/// name it too, since upstream's own files state the same release at many commits.
#[test]
fn a_commit_in_a_version_is_what_the_build_checks() {
    let mut commits = 0;
    for (folder, recipe) in recipes() {
        let Some((_, commit)) = recipe.get("version").and_then(|it| it.as_str()).and_then(|it| it.rsplit_once("-g"))
        else {
            continue;
        };
        let evidence = recipe["upstream"]["evidence"]["text"].as_str().unwrap();
        assert!(evidence.contains(commit), "{}: `{evidence}` does not say {commit}", folder.display());
        commits += 1;
    }
    assert!(commits > 0, "rpmalloc's version names a commit");
}
