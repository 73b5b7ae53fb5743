//! Compilers of other languages for the slow tier, unpacked into a folder: a Debian that is entered and never
//! installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use fixtures::toolchains::{self, PACKAGES, RELEASE};

use crate::debian::Apt;
use crate::packages::{self, Package};
use crate::{folder, zig};

/// Fetches missing compilers, some 1.1 GB of downloads.
///
/// # Errors
/// When a package cannot be fetched.
pub fn prepare() -> Result<()> {
    if let Some(reason) = toolchains::unavailable() {
        eprintln!("setup: WARNING: left out the compilers of other languages: {reason}");
        return Ok(());
    }
    let folder = toolchains::folder();
    fs::create_dir_all(fixtures::tools()).context("cannot make the folder of tools")?;
    let _lock = folder::lock(&fixtures::tools().join(".toolchains.lock"))?;
    zig::install_others()?;
    bazel()?;
    if folder.join("complete").is_file() {
        return Ok(());
    }
    let what = "Swift, Go, OCaml, Nim and C++ (730 MB, 3.9 GB unpacked)";
    folder::announce(what, || folder::place(&folder, fill))
}

/// Fetches only Bazel, 42 MB, if it does not exist.
///
/// # Errors
/// When its package cannot be fetched.
pub fn prepare_bazel() -> Result<()> {
    if let Some(reason) = fixtures::bazel::unavailable() {
        eprintln!("setup: WARNING: left out Bazel: {reason}");
        return Ok(());
    }
    fs::create_dir_all(fixtures::tools()).context("cannot make the folder of tools")?;
    let _lock = folder::lock(&fixtures::tools().join(".toolchains.lock"))?;
    bazel()
}

/// Fetches Bazel, a single self-contained program.
fn bazel() -> Result<()> {
    let program = toolchains::bazel();
    if program.is_file() {
        return Ok(());
    }
    let home = program.ancestors().nth(2).context("Bazel's folder has no parent")?;
    let (package, sha256) = toolchains::BAZEL;
    let fill = |folder: &Path| {
        packages::unpack(Package::Npm(package), sha256, folder)?;
        // npm's archive drops the permission to execute.
        let program = folder.join(program.strip_prefix(home)?);
        fs::set_permissions(program, fs::Permissions::from_mode(0o755)).context("the package holds no Bazel")
    };
    folder::announce(&format!("{package} (42 MB)"), || folder::place(home, fill))
}

fn fill(folder: &Path) -> Result<()> {
    let scratch = folder::Scratch::beside(&fixtures::tools().join("apt-toolchains"), "state")?;
    let apt = Apt::of_release(&scratch.0, RELEASE)?;
    let update = apt.update();
    apt.unpack_whole(&PACKAGES, folder).or_else(|error| update.and(Err(error)))?;
    // That release has no Nim; the machine's own release may have one.
    let own = Apt::new(&scratch.0, std::iter::empty())?;
    if let Err(error) = own.update().and_then(|()| own.unpack("nim", folder)) {
        eprintln!("setup: WARNING: left out Nim: {error:#}");
    }
    for name in ["mnt", "proc", "dev"] {
        fs::create_dir_all(folder.join(name))?;
    }
    for name in ["null", "zero", "full", "random", "urandom"] {
        fs::write(folder.join("dev").join(name), "")?;
    }
    Ok(fs::write(folder.join("complete"), "")?)
}
