//! The rules for dependencies and for the oldest Rust, which CI checks.

use std::process::Command;

use anyhow::{Context, Result, bail};
use xtask::command;

use crate::installed;

/// The version of cargo-deny, which checks dependencies. It is built without the code that fetches advisories.
const CARGO_DENY: &str = "0.20.2";

/// Checks the licences, the sources and the versions of all dependencies against `deny.toml`. Uses a cargo-deny in the
/// folder of tools, which the first call builds (some minutes).
///
/// # Errors
/// When a dependency breaks a rule, or cargo-deny cannot be built.
pub(crate) fn dependencies() -> Result<()> {
    let program = installed::program("cargo-deny", CARGO_DENY, &["--no-default-features"])?;
    let mut check = Command::new(program);
    check.current_dir(xtask::workspace::root()).args(["--locked", "--offline", "--log-level", "warn"]);
    command::run(check.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]))
}

/// Builds everything with the oldest Rust that `Cargo.toml` states. If the running Rust is that one, the other steps
/// have done so.
///
/// # Errors
/// When it does not build, or rustup does not have that Rust.
pub(crate) fn oldest_rust() -> Result<()> {
    let stated = env!("CARGO_PKG_RUST_VERSION");
    let rustc = command::output(Command::new("rustc").arg("--version"))?;
    if is_version(&rustc, stated).with_context(|| format!("`rustc --version` says {rustc:?}"))? {
        return Ok(());
    }
    let toolchain = format!("+{stated}");
    let mut cargo = Command::new("cargo");
    cargo.current_dir(xtask::workspace::root()).arg(&toolchain);
    if command::output(cargo.arg("--version")).is_err() {
        bail!("Cargo.toml states Rust {stated}, and there is none: `rustup toolchain install {stated}`");
    }
    let mut check = Command::new("cargo");
    check.current_dir(xtask::workspace::root()).arg(toolchain);
    command::run(check.args(["check", "--workspace", "--all-targets", "--locked", "--quiet"]))
}

/// Whether the output of `rustc --version` (`rustc 1.95.0 (...)`) is the version `stated`, which may omit the last
/// part.
fn is_version(rustc: &str, stated: &str) -> Result<bool> {
    let version = rustc.split_whitespace().nth(1).context("there is no version in it")?;
    Ok(version == stated || version.strip_prefix(stated).is_some_and(|rest| rest.starts_with('.')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_parts() {
        assert!(is_version("rustc 1.95.0 (59807616e 2026-04-14)\n", "1.95").unwrap());
        assert!(is_version("rustc 1.95.1", "1.95.1").unwrap());
        assert!(!is_version("rustc 1.950.0", "1.95").unwrap());
        assert!(!is_version("rustc 1.96.0-nightly", "1.95").unwrap());
        assert!(is_version("rustc", "1.95").is_err());
    }
}
