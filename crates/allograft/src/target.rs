//! Targets with a name of their own, `rust:TRIPLE` and `swift:ID`, and paths inside an image.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::output::printable;
use crate::rust::Rustc;

/// Returns the path of a typed target: a path, perhaps in the root folder of an image; the `libc.a` of a Rust target
/// (`rust:TRIPLE`, `rust:TRIPLE@TOOLCHAIN`); an installed Swift SDK (`swift:ID`).
///
/// # Errors
/// When rustc cannot be run, the target or the SDK is not installed, or the path leads out of the root.
pub(crate) fn located(target: &Path, root: Option<&Path>) -> Result<PathBuf, Failure> {
    check_address(target)?;
    if let Some(root) = root {
        return Ok(hosts::in_root(root, target)?);
    }
    match target.to_str().and_then(|text| text.strip_prefix("rust:")) {
        Some(name) => in_rust(name),
        None => Ok(hosts::locate(target)?),
    }
}

/// Refuses the address of an image in a registry: `docker://alpine`, `https://...`.
fn check_address(target: &Path) -> Result<(), Failure> {
    match target.to_str().filter(|text| text.contains("://") && !target.exists()) {
        None => Ok(()),
        Some(text) => Err(Failure::usage(format!("`{}` is an address, and only files are read", printable(text)))
            .with_help(
                "save it first: an image by `skopeo copy docker://NAME oci:FOLDER` or `docker save -o FILE NAME`",
            )),
    }
}

fn in_rust(name: &str) -> Result<PathBuf, Failure> {
    let (triple, rustc) = match name.split_once('@') {
        Some((triple, toolchain)) => (triple, Rustc::of_toolchain(toolchain)),
        None => (name, Rustc::active()),
    };
    rustc.libc(triple)
}
