//! Targets that have a name of their own: `rust:TRIPLE`, `swift:ID`; and paths inside of an image.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::rust::Rustc;

/// The path that is meant by a target as it was typed: in the root folder of an image, in a Rust toolchain
/// (`rust:TRIPLE`, `rust:TRIPLE@TOOLCHAIN`), of an installed Swift SDK (`swift:ID`), or itself.
///
/// # Errors
/// When rustc cannot be asked, or the target or the SDK is not installed; when the path leads out of the root.
pub(crate) fn located(target: &Path, root: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(root) = root {
        return Ok(hosts::in_root(root, target)?);
    }
    match target.to_str().and_then(|text| text.strip_prefix("rust:")) {
        Some(name) => in_rust(name),
        None => Ok(hosts::locate(target)?),
    }
}

fn in_rust(name: &str) -> Result<PathBuf, Failure> {
    let (triple, rustc) = match name.split_once('@') {
        Some((triple, toolchain)) => (triple, Rustc::of_toolchain(toolchain)),
        None => (name, Rustc::active()),
    };
    rustc.libc(triple)
}
