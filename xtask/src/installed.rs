//! Programs of the package registry that commands need, built once into the folder of tools.

use std::path::PathBuf;

use anyhow::Result;
use tools::{command, folder};

/// Returns the path of a program at one version, which the first call builds with its own lock file and with the
/// arguments `features`.
///
/// # Errors
/// When it cannot be built.
pub(crate) fn program(name: &str, version: &str, features: &[&str]) -> Result<PathBuf> {
    let folder = fixtures::tools().join(name).join(version);
    let program = folder.join("bin").join(name);
    let _lock = folder::lock(&fixtures::tools().join(format!(".{name}.lock")))?;
    if !program.is_file() {
        let mut install = command::cargo(&["install", name, "--version", version, "--locked", "--debug", "--quiet"]);
        install.args(features).arg("--root").arg(folder);
        folder::announce(&format!("{name} (built once, a minute or two)"), || command::run(&mut install))?;
    }
    Ok(program)
}
