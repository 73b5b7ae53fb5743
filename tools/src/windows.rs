//! Wine and mingw-w64's gcc for the slow tier, unpacked into a folder and never installed.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use fixtures::windows::{self, PACKAGES};

use crate::debian::Apt;
use crate::folder;

/// Fetches them, 170 MB, unless they exist.
///
/// # Errors
/// When a package cannot be fetched.
pub fn prepare() -> Result<()> {
    if let Some(reason) = windows::unavailable() {
        eprintln!("setup: WARNING: left out Wine: {reason}");
        return Ok(());
    }
    fs::create_dir_all(fixtures::tools()).context("cannot make the folder of tools")?;
    let _lock = folder::lock(&fixtures::tools().join(".windows.lock"))?;
    let folder = windows::folder();
    if folder.is_dir() {
        return Ok(());
    }
    folder::announce("Wine and gcc of mingw-w64 (170 MB, 1.4 GB unpacked)", || folder::place(&folder, fill))
}

fn fill(folder: &Path) -> Result<()> {
    let scratch = folder::Scratch::beside(&fixtures::tools().join("apt-windows"), "state")?;
    let apt = Apt::new(&scratch.0, std::iter::empty())?;
    let update = apt.update();
    for package in PACKAGES {
        let unpacked = apt.unpack(package, folder);
        unpacked.or_else(|error| update.as_ref().map_err(|of_lists| anyhow!("{of_lists:#}")).and(Err(error)))?;
    }
    // A script, and a link, that are right only where the packages are installed.
    let server = folder.join("usr/lib/wine/wineserver");
    fs::copy(server.with_file_name("wineserver64"), &server).context("the packages hold no wineserver64")?;
    let library = folder.join("usr/lib/x86_64-linux-gnu/wine/x86_64-windows/zlib1.dll");
    let _ = fs::remove_file(&library);
    fs::copy(folder.join("usr/x86_64-w64-mingw32/lib/zlib1.dll"), library).context("the packages hold no zlib1.dll")?;
    Ok(())
}
