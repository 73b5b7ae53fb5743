//! Other people's projects for tests: their sources.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use fixtures::projects::{self, Project};
use serde_json::Value;

use crate::packages::{self, Package};
use crate::{command, folder};

/// Fetches missing source packages of Debian, less than 6 MB.
///
/// # Errors
/// When one cannot be fetched, or has a different checksum.
pub fn prepare() -> Result<()> {
    fetch(projects::ALL.into_iter().filter(|project| project.ending.is_some()))
}

/// Fetches missing crates, with the packages that their lock files name, some 20 MB.
///
/// # Errors
/// As [`prepare`].
pub fn prepare_crates() -> Result<()> {
    fetch(projects::ALL.into_iter().filter(|project| project.ending.is_none()))
}

/// Fetches missing projects.
///
/// # Errors
/// As [`prepare`].
pub fn fetch(wanted: impl IntoIterator<Item = Project>) -> Result<()> {
    fs::create_dir_all(fixtures::tools().join("projects")).context("cannot make the folder of projects")?;
    let _lock = folder::lock(&fixtures::tools().join(".projects.lock"))?;
    for project in wanted {
        let folder = project.folder();
        if folder.is_dir() {
            continue;
        }
        let Project { name, version, ending, sha256 } = project;
        let fill = |folder: &Path| match ending {
            Some(ending) => {
                packages::unpack(Package::DebianSource { name, version, ending, members: &[] }, sha256, folder)
            }
            None => crate_source(project, folder),
        };
        folder::announce(&format!("{name} {version}, source"), || folder::place(&folder, fill))?;
    }
    Ok(())
}

/// Has cargo fetch a crate and the packages in its lock file, and moves the crate's files into `folder`.
fn crate_source(project: Project, folder: &Path) -> Result<()> {
    let Project { name, version, sha256, .. } = project;
    // Below the checkout, cargo would take these packages for members of its workspace.
    let scratch = folder::Scratch::beside(&std::env::temp_dir().join(name), "crate")?;
    let home = scratch.0.join("fetched");
    fs::create_dir_all(home.join("src"))?;
    fs::write(home.join("src/lib.rs"), "")?;
    fs::write(
        home.join("Cargo.toml"),
        format!(
            "[package]\nname = \"fetched\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n\
             [target.'cfg(any())'.dependencies]\n{name} = \"={version}\"\n"
        ),
    )?;
    let cargo = |words: &[&str], folder: &Path| -> Result<()> {
        let mut cargo: Command = command::cargo(words);
        command::output(cargo.current_dir(folder)).map(drop)
    };
    cargo(&["vendor", "--quiet", "--versioned-dirs", "vendor"], &home)?;
    let source = home.join("vendor").join(format!("{name}-{version}"));
    let checksums = source.join(".cargo-checksum.json");
    let said = fs::read(&checksums).with_context(|| format!("cargo fetched no {name} {version}"))?;
    let said: Value = serde_json::from_slice(&said)?;
    if said["package"] != sha256 {
        bail!("{name} {version} has the checksum {}, expected {sha256}", said["package"]);
    }
    fs::remove_file(checksums)?;
    cargo(&["fetch", "--quiet", "--locked"], &source)?;
    command::output(Command::new("cp").arg("-a").arg(source.join(".")).arg(folder)).map(drop)
}
