//! Packages from the registries of Python and npm: downloaded with their own tools, checked, unpacked.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::{command, setup};

/// A package and its version.
#[derive(Debug, Clone, Copy)]
pub enum Package<'p> {
    /// `NAME==VERSION`, and the tag of the wheel's platform if there are wheels for several.
    Wheel(&'p str, Option<&'p str>),
    /// `NAME@VERSION`.
    Npm(&'p str),
}

/// Unpacks the package, which must have that SHA-256 in hexadecimal digits, into `folder`.
///
/// # Errors
/// When the package cannot be fetched, or has another checksum.
pub fn unpack(package: Package<'_>, sha256: &str, folder: &Path) -> Result<()> {
    let downloads = setup::Scratch::beside(folder, "download")?;
    let downloads = downloads.0.as_path();
    match package {
        Package::Wheel(requirement, platform) => wheel(requirement, platform, downloads)?,
        Package::Npm(name) => npm(name, downloads)?,
    }
    let archive = fs::read_dir(downloads)?.next().context("nothing was downloaded")??.path();
    let found: String = Sha256::digest(fs::read(&archive)?).iter().map(|byte| format!("{byte:02x}")).collect();
    if found != sha256 {
        bail!("{package:?} has the checksum {found}, expected {sha256}");
    }
    let module = if archive.extension() == Some(OsStr::new("whl")) { "zipfile" } else { "tarfile" };
    command::output(Command::new("python3").args(["-m", module, "-e"]).arg(&archive).arg(folder)).map(drop)
}

fn wheel(requirement: &str, platform: Option<&str>, downloads: &Path) -> Result<()> {
    // Neither a cache nor a check for a newer pip: both need a home folder.
    let flags = "-m pip download --quiet --no-input --no-cache-dir --disable-pip-version-check --no-deps \
                 --only-binary=:all: --python-version 3.12";
    let mut pip = Command::new("python3");
    pip.args(flags.split_whitespace());
    if let Some(platform) = platform {
        pip.args(["--platform", platform]);
    }
    pip.arg("--dest").arg(downloads).arg(requirement);
    command::output(&mut pip).with_context(|| format!("python3 with pip is needed to download {requirement}")).map(drop)
}

fn npm(name: &str, downloads: &Path) -> Result<()> {
    let mut npm = Command::new("npm");
    npm.args(["pack", "--silent", "--pack-destination"]).arg(downloads).arg(name).current_dir(downloads);
    command::output(&mut npm).with_context(|| format!("npm is needed to download {name}")).map(drop)
}
