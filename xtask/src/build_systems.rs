//! Build systems for tests, from their wheels.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};
use fixtures::build_systems::{self, BuildSystem};

use crate::packages::{self, Package};
use crate::setup;

/// Fetches those that do not exist. The wheels with programs are for this project's main architecture only.
///
/// # Errors
/// When a wheel cannot be fetched.
pub fn install() -> Result<()> {
    let here = |system: &BuildSystem| system.platform.is_none() || std::env::consts::ARCH == "x86_64";
    for system in build_systems::ALL.into_iter().filter(here) {
        if system.program().is_file() {
            continue;
        }
        let home = system.folder();
        let fill = |folder: &std::path::Path| {
            packages::unpack(Package::Wheel(system.wheel, system.platform), system.sha256, folder)?;
            let program = folder.join(system.program().strip_prefix(&home)?);
            if let Some(text) = system.launcher {
                fs::write(&program, text)?;
            }
            let programs = program.parent().and_then(|folder| fs::read_dir(folder).ok());
            for entry in programs.with_context(|| format!("{} holds no program", system.wheel))? {
                // Python's zipfile drops the permission to execute.
                fs::set_permissions(entry?.path(), fs::Permissions::from_mode(0o755))?;
            }
            Ok(())
        };
        setup::announce(system.wheel, || setup::place(&home, fill))?;
    }
    Ok(())
}
