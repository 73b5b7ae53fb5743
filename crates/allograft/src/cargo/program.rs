//! Checks that a linked program contains the expected allocator and string functions.

use std::fs;
use std::path::Path;

use inspector::{Link, Report, Strings, name};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// The expected contents of programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Expected {
    /// The donor's name; several if there are targets with different donors. Empty if only string functions are
    /// grafted.
    pub(super) malloc: Vec<String>,
    /// Whether the string functions must be allograft's.
    pub(super) strings: bool,
}

/// Inspects the program. Returns a description of its allocator and string functions.
///
/// # Errors
/// Exit code 1, with a description of what it contains instead.
pub(super) fn check(path: &Path, expected: &Expected) -> Result<String, Failure> {
    let shown = path.display();
    let bytes = fs::read(path).map_err(Failure::io("read", path))?;
    let report = inspector::inspect(&bytes)
        .map_err(|error| Failure::usage(format!("cannot inspect `{shown}`: {error}")).with_help(error.help()))?;
    if report.link == Some(Link::Dynamic) {
        return Err(Failure::unexpected(format!(
            "`{shown}` is linked dynamically: its malloc is that of the libc.so on the machine it runs on"
        ))
        .with_help(
            "build with `-C target-feature=+crt-static`, which is what musl targets do unless they are told otherwise",
        ));
    }
    let malloc = &report.malloc;
    match expected.malloc.as_slice() {
        // A program that never allocates needs no allocator.
        [wanted, ..] if malloc.name != name::NONE && !expected.malloc.contains(&malloc.name) => {
            Err(Failure::unexpected(format!("`{shown}` carries the malloc `{}`, expected `{wanted}`", malloc.name)).with_help(
                "something on its link line brings a malloc, or a libc, of its own: `allograft inspect` says what is known of it",
            ))
        }
        [] if expected.strings && report.strings == Strings::Stock => {
            Err(Failure::unexpected(format!("`{shown}` carries libc's own string functions"))
                .with_help("something on its link line brings a libc of its own"))
        }
        _ => Ok(words(&report)),
    }
}

/// Returns a description such as `mimalloc 2.5.2 and strings`.
fn words(report: &Report) -> String {
    let malloc = &report.malloc;
    let mut words = malloc.name.to_string();
    if let Some(version) = &malloc.version {
        words = format!("{words} {version}");
    }
    if report.strings == Strings::Grafted {
        words.push_str(" and strings");
    }
    match &report.language_allocator {
        Some(other) if other.name != name::UNKNOWN => {
            format!("{words}; the language's own blocks are {}'s", other.name)
        }
        _ => words,
    }
}
