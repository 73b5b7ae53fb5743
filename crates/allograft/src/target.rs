//! Targets with a name of their own, `rust:TRIPLE` and `swift:ID`, and paths inside an image.

use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::printable::printable;
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

/// Refuses standard input, and the name of an image in an engine or a registry: `nginx:latest`, `docker://alpine`.
fn check_address(target: &Path) -> Result<(), Failure> {
    match target.to_str().filter(|text| (*text == "-" || is_address(text)) && !target.exists()) {
        None => Ok(()),
        Some("-") => Err(Failure::usage("`-` is standard input, and only files are read")
            .with_help("write it to a file, and name that")),
        Some(text) => Err(Failure::usage(format!("`{}` is an address, and only files are read", printable(text)))
            .with_help(
                "save it first: an image by `skopeo copy docker://NAME oci:FOLDER` or `docker save -o FILE NAME`",
            )),
    }
}

/// Whether a word has the form of a URL, or of an image's name with its tag.
fn is_address(text: &str) -> bool {
    let is_prefixed = ["rust:", "swift:"].iter().any(|prefix| text.starts_with(prefix));
    let is_word = |part: &str, also: &str| {
        !part.is_empty() && part.chars().all(|letter| letter.is_ascii_alphanumeric() || also.contains(letter))
    };
    let named = |(name, tag)| is_word(name, "._-/") && is_word(tag, "._-");
    text.contains("://") || (!is_prefixed && text.rsplit_once(':').is_some_and(named))
}

fn in_rust(name: &str) -> Result<PathBuf, Failure> {
    let (triple, rustc) = match name.split_once('@') {
        Some((triple, toolchain)) => (triple, Rustc::of_toolchain(toolchain)),
        None => (name, Rustc::active()),
    };
    rustc.libc(triple)
}
