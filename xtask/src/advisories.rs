//! Known faults of dependencies, from RustSec's database of advisories: a dated list, since no registry has the
//! database, and CI has no network but for registries.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use semver::{Version, VersionReq};
use serde::Deserialize;
use tools::workspace;

/// The lock files: of the product and its tests, of the fuzzers, and of the programs that are measured.
const LOCKS: [&str; 4] = ["Cargo.lock", "fuzz/Cargo.lock", "suite/real/Cargo.lock", "suite/rust/Cargo.lock"];
const LIST: &str = "xtask/src/advisories.tsv";

#[derive(Deserialize)]
struct Lock {
    package: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: Version,
}

/// The part of an advisory in TOML.
#[derive(Deserialize)]
struct Document {
    advisory: Advisory,
    versions: Versions,
}

#[derive(Deserialize)]
struct Advisory {
    id: String,
    package: String,
    date: String,
    withdrawn: Option<String>,
}

#[derive(Deserialize)]
struct Versions {
    patched: Vec<String>,
    #[serde(default)]
    unaffected: Vec<String>,
}

/// `cargo xtask advisories FOLDER`: writes the list anew, from a checkout of the database.
///
/// # Errors
/// The folder is not such a checkout, an advisory cannot be read, or a locked version is affected.
pub(crate) fn update(arguments: &[String]) -> Result<()> {
    let [folder] = arguments else { bail!("`cargo xtask advisories` takes the folder of a checkout of advisory-db") };
    let names: BTreeSet<String> = locked()?.into_iter().map(|package| package.name).collect();
    let crates = Path::new(folder).join("crates");
    ensure!(crates.is_dir(), "`{folder}` has no folder `crates`: it is no checkout of advisory-db");
    let (mut lines, mut newest) = (BTreeSet::new(), String::new());
    for package in fs::read_dir(crates)? {
        for path in fs::read_dir(package?.path())? {
            let path = path?.path();
            let text = fs::read_to_string(&path)?;
            let head = text.split("```").nth(1).and_then(|block| block.strip_prefix("toml"));
            let head = head.with_context(|| format!("`{}` does not begin with TOML", path.display()))?;
            let document: Document = toml::from_str(head).with_context(|| format!("in `{}`", path.display()))?;
            let Document { advisory: Advisory { id, package, date, withdrawn }, versions } = document;
            if withdrawn.is_none() && names.contains(&package) {
                let sound = [versions.patched, versions.unaffected].concat().join(" | ");
                lines.insert(format!("{package}\t{id}\t{sound}\n"));
            }
            newest = newest.max(date);
        }
    }
    let head = "# The newest advisory is of";
    let list =
        format!("{head} {newest}. Package, advisory, versions that it does not affect\n{}", String::from_iter(lines));
    fs::write(workspace::root().join(LIST), list)?;
    check()
}

/// Checks that no advisory of the list is about a version that is locked.
///
/// # Errors
/// One is, or a file cannot be read.
pub(crate) fn check() -> Result<()> {
    let list = fs::read_to_string(workspace::root().join(LIST))?;
    let affected = affected(&list, &locked()?)?;
    ensure!(affected.is_empty(), "dependencies with known faults: {}", affected.join(", "));
    Ok(())
}

fn locked() -> Result<Vec<Package>> {
    let mut packages = Vec::new();
    for path in LOCKS {
        let text = fs::read_to_string(workspace::root().join(path)).with_context(|| format!("cannot read `{path}`"))?;
        packages.extend(toml::from_str::<Lock>(&text).with_context(|| format!("in `{path}`"))?.package);
    }
    Ok(packages)
}

/// Returns the packages that an advisory of the list affects.
fn affected(list: &str, packages: &[Package]) -> Result<Vec<String>> {
    let mut affected = Vec::new();
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        let mut fields = line.split('\t');
        let (Some(name), Some(id), Some(sound)) = (fields.next(), fields.next(), fields.next()) else {
            bail!("`{line}` has not three fields")
        };
        let sound: Vec<VersionReq> = sound
            .split(" | ")
            .filter(|range| !range.is_empty())
            .map(|range| VersionReq::parse(range).with_context(|| format!("`{range}` of {id}")))
            .collect::<Result<_>>()?;
        let hit = packages.iter().filter(|package| package.name == name);
        let hit = hit.filter(|package| !sound.iter().any(|range| range.matches(&package.version)));
        affected.extend(hit.map(|package| format!("{name} {} ({id})", package.version)));
    }
    Ok(affected)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_locked_version_has_a_known_fault() {
        check().unwrap();
    }

    #[test]
    fn versions_outside_of_all_ranges_are_affected() {
        let package = |version: &str| Package { name: "tar".to_owned(), version: version.parse().unwrap() };
        let list = "# day\ntar\tRUSTSEC-1\t>= 0.4.45 | < 0.2.0\nother\tRUSTSEC-2\t\n";
        let of = |version| affected(list, &[package(version)]).unwrap();
        assert_eq!(of("0.4.44"), ["tar 0.4.44 (RUSTSEC-1)"]);
        assert!(of("0.4.45").is_empty() && of("0.1.9").is_empty());
        assert!(affected("tar\tRUSTSEC-1", &[]).is_err());
    }
}
