//! Checks that a linked program contains the expected allocator and string functions.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use inspector::{Link, Report, Strings, name};
use serde::{Deserialize, Serialize};
use trial::command_path;

use crate::failure::Failure;
use crate::shell::quoted;

/// The expected contents of programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Expected {
    /// The donor's name; several if there are targets with different donors. Empty if only string functions are
    /// grafted.
    pub(crate) malloc: Vec<String>,
    /// Whether the string functions must be allograft's.
    pub(crate) strings: bool,
}

/// Whether the file lacks the right to be executed, for every user.
pub(crate) fn lacks_execution(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 == 0)
}

/// Returns the program that a shell would start for a word without a slash.
pub(crate) fn on_path(word: &OsStr) -> Option<PathBuf> {
    if word.to_string_lossy().contains('/') {
        return None;
    }
    command_path::find(word)
}

/// Checks that a word without a slash does not name two programs. `command` is the command that takes it, such as
/// `bench`.
///
/// # Errors
/// A program on the command path has the name of a file or folder here.
pub(crate) fn check_name(word: &OsStr, command: &str) -> Result<(), Failure> {
    let (here, Some(found)) = (Path::new(word), on_path(word)) else { return Ok(()) };
    let is_same = || fs::canonicalize(here).ok() == fs::canonicalize(&found).ok();
    if !here.exists() || is_same() {
        return Ok(());
    }
    let (name, path) = (word.to_string_lossy(), quoted(&found.to_string_lossy()));
    let local = quoted(&format!("./{name}"));
    let (kind, own) = match here.is_dir() {
        true => ("folder", format!("name a program in the folder, `allograft {command} {local}/PROGRAM ARGS`")),
        false => ("file", format!("`allograft {command} {local} ARGS` takes the file")),
    };
    Err(Failure::usage(format!("`{name}` is a {kind} here, and a program on the command path, `{}`", found.display()))
        .with_help(format!("{own}; `allograft {command} {path} ARGS` takes that program")))
}

/// Returns what is in the program.
///
/// # Errors
/// Exit code 2 if it cannot be read.
pub(crate) fn report(path: &Path) -> Result<Report, Failure> {
    let bytes = fs::read(path).map_err(Failure::io("read", path))?;
    inspector::inspect(&bytes).map_err(|error| {
        Failure::usage(format!("cannot inspect `{}`: {error}", path.display())).with_help(error.help())
    })
}

/// Compares the report on the program at `path` with what is expected. Returns a description of its allocator and
/// string functions. `static_link` is the help for a program that is dynamic.
///
/// # Errors
/// Exit code 1, with a description of what it contains instead.
pub(crate) fn check(path: &Path, report: &Report, expected: &Expected, static_link: &str) -> Result<String, Failure> {
    let shown = path.display();
    if report.link == Some(Link::Dynamic) {
        return Err(Failure::unexpected(format!(
            "`{shown}` is linked dynamically: its malloc is that of the libc.so on the machine it runs on"
        ))
        .with_help(static_link));
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
        _ => Ok(words(report)),
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
