//! `cargo xtask upstream`: the version of each donor beside the newest that the registry has.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use xtask::{command, sources, workspace};

/// Prints one line for each donor with sources of others: what allograft has, the locked package, and the newest one.
///
/// # Errors
/// When the registry does not answer, and arguments.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if let Some(extra) = arguments.first() {
        bail!("`upstream` takes no arguments, and got `{extra}`");
    }
    let locked = sources::locked(&workspace::root())?;
    let mut newest: BTreeMap<String, String> = BTreeMap::new();
    let (mut all, mut older) = (0, 0);
    for recipe in sources::recipes(&workspace::root())? {
        // Our own functions have no upstream.
        let Some((version, package)) = recipe.version.zip(recipe.upstream.map(|upstream| upstream.package)) else {
            continue;
        };
        let locked = locked.iter().find(|locked| locked.name == package);
        let locked = &locked.with_context(|| format!("`Cargo.lock` has no `{package}`"))?.version;
        if !newest.contains_key(&package) {
            newest.insert(package.clone(), newest_of(&package)?);
        }
        let newest = &newest[&package];
        let said = if newest == locked { "the newest".to_owned() } else { format!("{newest} is newer") };
        (all, older) = (all + 1, older + usize::from(newest != locked));
        println!("{:<16} {version:<20} {package} {locked}: {said}", recipe.name);
    }
    println!("{all} donors, {older} of which have a newer package");
    Ok(())
}

/// Returns the newest version of a package. cargo is asked outside the workspace, where it knows no locked version.
fn newest_of(package: &str) -> Result<String> {
    let mut info = command::cargo(&["info", "--quiet", package]);
    let said = command::output(info.current_dir(std::env::temp_dir()))?;
    let version = said.lines().find_map(|line| line.strip_prefix("version: "));
    Ok(version.with_context(|| format!("cargo names no version of `{package}`"))?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_donor_has_a_locked_package() {
        let locked = sources::locked(&workspace::root()).unwrap();
        let recipes = sources::recipes(&workspace::root()).unwrap();
        let packages: Vec<String> =
            recipes.into_iter().filter_map(|recipe| recipe.upstream).map(|upstream| upstream.package).collect();
        assert!(packages.len() >= 10, "{packages:?}");
        for package in packages {
            assert!(locked.iter().any(|locked| locked.name == package && locked.checksum.is_some()), "{package}");
        }
    }
}
