//! Other people's projects for tests: their sources.

use std::fs;

use anyhow::{Context, Result};
use fixtures::projects;

use crate::packages::{self, Package};
use crate::setup;

/// Fetches those that do not exist, less than 3 MB.
///
/// # Errors
/// When one cannot be fetched, or has another checksum.
pub fn prepare() -> Result<()> {
    fs::create_dir_all(fixtures::tools().join("projects")).context("cannot make the folder of projects")?;
    let _lock = setup::lock(&fixtures::tools().join(".projects.lock"))?;
    for project in projects::ALL {
        let folder = project.folder();
        if folder.is_dir() {
            continue;
        }
        let projects::Project { name, version, ending, sha256 } = project;
        let archive = Package::DebianSource { name, version, ending, members: &[] };
        let fill = |folder: &std::path::Path| packages::unpack(archive, sha256, folder);
        setup::announce(&format!("{name} {version}, source"), || setup::place(&folder, fill))?;
    }
    Ok(())
}
