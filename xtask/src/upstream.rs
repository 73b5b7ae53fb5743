//! `cargo xtask upstream`: the version of each donor beside the newest that its registry has.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use tools::debian::Apt;
use tools::sources::{self, Upstream};
use tools::{command, folder, workspace};

/// The release of Debian whose packages are the newest that are complete for every architecture.
const DEBIAN: &str = "testing";

/// Prints one line for each donor with sources of others: what allograft has, the locked package, and the newest one.
///
/// # Errors
/// When a registry does not answer, and arguments.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if let Some(extra) = arguments.first() {
        bail!("`upstream` takes no arguments, and got `{extra}`");
    }
    let locked = sources::locked(&workspace::root())?;
    let mut newest: BTreeMap<String, String> = BTreeMap::new();
    let (mut all, mut older) = (0, 0);
    for recipe in sources::recipes(&workspace::root())? {
        // Our own functions have no upstream.
        let Some((version, Upstream { package, debian })) = recipe.version.zip(recipe.upstream) else {
            continue;
        };
        if !newest.contains_key(&package) {
            let found = match &debian {
                Some(debian) => newest_in_debian(&debian.series)?,
                None => newest_of(&package)?,
            };
            newest.insert(package.clone(), found);
        }
        let locked = match &debian {
            Some(debian) => &debian.version,
            None => {
                let locked = locked.iter().find(|locked| locked.name == package);
                &locked.with_context(|| format!("`Cargo.lock` has no `{package}`"))?.version
            }
        };
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

/// Returns the newest version of a series of packages in Debian.
fn newest_in_debian(series: &str) -> Result<String> {
    let scratch = folder::Scratch::beside(&fixtures::tools().join("apt-upstream"), "state")?;
    let apt = Apt::of_release(&scratch.0, DEBIAN)?;
    // Third-party sources of the machine may be unreachable. What counts is whether the package is listed.
    let updated = apt.update();
    apt.newest(series).or_else(|error| updated.and(Err(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_donor_has_a_locked_package() {
        let locked = sources::locked(&workspace::root()).unwrap();
        let recipes = sources::recipes(&workspace::root()).unwrap();
        let upstreams: Vec<Upstream> = recipes.into_iter().filter_map(|recipe| recipe.upstream).collect();
        assert!(upstreams.len() >= 10, "{}", upstreams.len());
        for Upstream { package, debian } in upstreams {
            let in_lock_file = || locked.iter().any(|locked| locked.name == package && locked.checksum.is_some());
            assert!(debian.map_or_else(in_lock_file, |debian| debian.sha256.len() == 64), "{package}");
        }
    }
}
