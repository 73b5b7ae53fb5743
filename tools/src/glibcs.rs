//! The GNU C library of several releases of Debian for the slow tier, unpacked into folders.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};
use fixtures::glibcs::{self, PACKAGES, RELEASES, Release};

use crate::debian::Apt;
use crate::folder;

/// Unpacks the missing ones, 6 MB each beside the lists of packages.
///
/// # Errors
/// When a package cannot be fetched.
pub fn prepare() -> Result<()> {
    if let Some(reason) = glibcs::unavailable() {
        eprintln!("setup: WARNING: left out newer releases of glibc: {reason}");
        return Ok(());
    }
    let folder = fixtures::root().join("debian-glibcs");
    fs::create_dir_all(&folder).context("cannot make the folder of glibcs")?;
    let _lock = folder::lock(&folder.join(".lock"))?;
    for release in RELEASES.into_iter().filter(|release| !release.loader().is_file()) {
        let what = format!("glibc of Debian's {}", release.debian);
        folder::announce(&what, || folder::place(&release.root(), |root| fill(release, root)))?;
    }
    Ok(())
}

fn fill(release: Release, root: &Path) -> Result<()> {
    let scratch = folder::Scratch::beside(&fixtures::tools().join("apt-glibcs"), "state")?;
    let apt = Apt::of_release(&scratch.0, release.debian)?;
    let updated = apt.update();
    for package in PACKAGES {
        // Not every release has updates of its own, so the test is whether the packages arrive.
        apt.unpack(package, root).map_err(|error| match &updated {
            Ok(()) => error,
            Err(update) => error.context(format!("{update:#}")),
        })?;
    }
    // A different package has these links, by which the linker's script for libc.so finds the libraries.
    for name in ["lib", "lib64"] {
        if !root.join(name).exists() {
            symlink(format!("usr/{name}"), root.join(name))?;
        }
    }
    Ok(())
}
