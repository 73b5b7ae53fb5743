//! A Debian with many programs for the slow tier, unpacked into a folder and never installed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use fixtures::system::{self, PACKAGES, RELEASE};

use crate::debian::Apt;
use crate::folder;

/// Unpacks it, unless it exists.
///
/// # Errors
/// When a package cannot be fetched.
pub fn prepare() -> Result<()> {
    if let Some(reason) = system::unavailable() {
        eprintln!("setup: WARNING: left out a Debian with many programs: {reason}");
        return Ok(());
    }
    let folder = system::folder();
    fs::create_dir_all(fixtures::tools()).context("cannot make the folder of tools")?;
    let _lock = folder::lock(&fixtures::tools().join(".system.lock"))?;
    if system::is_complete() {
        return Ok(());
    }
    folder::announce("a Debian with many programs", || folder::place(&folder, fill))
}

/// Unpacks it, unless it exists, for a caller that cannot do without it.
///
/// # Errors
/// As [`prepare`]; also when it is not available here, or programs cannot be started in it.
pub fn require() -> Result<()> {
    available(system::unavailable())?;
    prepare()
}

fn available(reason: Option<String>) -> Result<()> {
    match reason {
        None => Ok(()),
        Some(reason) => bail!("a Debian with many programs is needed, and not available here: {reason}"),
    }
}

fn fill(folder: &Path) -> Result<()> {
    let scratch = folder::Scratch::beside(&fixtures::tools().join("apt-system"), "state")?;
    let apt = Apt::of_release(&scratch.0, RELEASE)?;
    let update = apt.update();
    apt.unpack_whole(&PACKAGES, folder).or_else(|error| update.and(Err(error)))?;
    // In a namespace, programs that only some users may read cannot be started by the others.
    readable(folder)?;
    Ok(fs::write(folder.join("complete"), PACKAGES.join("\n"))?)
}

/// Makes all files readable for all users, and so for the one who unpacked them.
pub(crate) fn readable(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            continue;
        }
        let mode = entry.metadata()?.permissions().mode();
        let least = if kind.is_dir() { 0o755 } else { 0o444 };
        if mode & least != least {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(mode | least))?;
        }
        if kind.is_dir() {
            readable(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `prepare` only warns, and the experiments then died of a file that was missing.
    #[test]
    fn a_missing_debian_is_an_error_with_its_reason_for_those_who_need_it() {
        let error = available(Some("no apt".to_owned())).unwrap_err().to_string();
        assert_eq!(error, "a Debian with many programs is needed, and not available here: no apt");
        assert!(available(None).is_ok());
    }
}
