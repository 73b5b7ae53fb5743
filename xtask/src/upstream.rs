//! `cargo xtask upstream`: the version of each donor beside the newest that the registry has.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use xtask::{command, workspace};

/// What a recipe says of a donor's source.
#[derive(Debug, Deserialize)]
struct Recipe {
    name: String,
    version: Option<String>,
    upstream: Option<Upstream>,
}

#[derive(Debug, Deserialize)]
struct Upstream {
    package: String,
}

/// The packages of a lock file.
#[derive(Debug, Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Debug, Deserialize)]
struct Locked {
    name: String,
    version: String,
}

/// Prints one line for each donor with sources of others: what allograft has, the locked package, and the newest one.
///
/// # Errors
/// When the registry does not answer, and arguments.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if let Some(extra) = arguments.first() {
        bail!("`upstream` takes no arguments, and got `{extra}`");
    }
    let lock = read("Cargo.lock")?;
    let lock: Lock = toml::from_str(&lock).context("`Cargo.lock` is malformed")?;
    let recipes = recipes()?;
    let mut newest: BTreeMap<&str, String> = BTreeMap::new();
    for (_, _, package) in &recipes {
        if !newest.contains_key(package.as_str()) {
            newest.insert(package, newest_of(package)?);
        }
    }
    let mut older = 0;
    for (name, version, package) in &recipes {
        let locked = lock.package.iter().find(|locked| locked.name == *package);
        let locked = &locked.with_context(|| format!("`Cargo.lock` has no `{package}`"))?.version;
        let newest = &newest[package.as_str()];
        let said = if newest == locked { "the newest".to_owned() } else { format!("{newest} is newer") };
        older += usize::from(newest != locked);
        println!("{name:<16} {version:<20} {package} {locked}: {said}");
    }
    println!("{} donors, {older} of which have a newer package", recipes.len());
    Ok(())
}

/// Returns the name, the version and the package of each donor, by name.
fn recipes() -> Result<Vec<(String, String, String)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(workspace::root().join("crates/donors"))? {
        let path = entry?.path().join("recipe.toml");
        if !path.is_file() {
            continue;
        }
        let text = fs::read_to_string(&path)?;
        let recipe: Recipe = toml::from_str(&text).with_context(|| format!("`{}`", workspace::shown(&path)))?;
        // Our own functions have no upstream.
        if let Some((version, upstream)) = recipe.version.zip(recipe.upstream) {
            found.push((recipe.name, version, upstream.package));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the newest version of a package. cargo is asked outside the workspace, where it knows no locked version.
fn newest_of(package: &str) -> Result<String> {
    let mut info = command::cargo(&["info", "--quiet", package]);
    let said = command::output(info.current_dir(std::env::temp_dir()))?;
    let version = said.lines().find_map(|line| line.strip_prefix("version: "));
    Ok(version.with_context(|| format!("cargo names no version of `{package}`"))?.trim().to_owned())
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(workspace::root().join(path)).with_context(|| format!("cannot read `{path}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_donor_has_a_locked_package() {
        let lock: Lock = toml::from_str(&read("Cargo.lock").unwrap()).unwrap();
        let recipes = recipes().unwrap();
        assert!(recipes.len() >= 10, "{recipes:?}");
        for (name, version, package) in recipes {
            assert!(lock.package.iter().any(|locked| locked.name == package), "{name} {version}: {package}");
        }
    }
}
