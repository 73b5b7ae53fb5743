//! `cargo allograft`: cargo's own commands, with programs linked against a private grafted copy of the target's
//! `libc.a`.
//!
//! Cargo calls this program instead of rustc for the packages of the workspace (RUSTC_WORKSPACE_WRAPPER). It changes
//! one thing: programs for the target get the folder of the grafted copy as the first one that is searched for
//! libraries. So the user's flags, linkers and configuration stay unchanged, dependencies are compiled once for stock
//! and graft together, and a change of donor links programs again without compiling.

mod arguments;
mod bench;
mod configuration;
mod copy;
mod relink;
mod report;
mod run;
mod wrapper;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

pub(crate) use arguments::{Arguments, parser};
pub(crate) use bench::Measuring;

use crate::failure::Failure;
use crate::program::{self, Expected};

/// Inspects a program that rustc has linked, and returns a description of its allocator and string functions.
///
/// # Errors
/// Exit code 1 if it contains something else, 2 if it cannot be read.
fn check_program(path: &Path, expected: &Expected) -> Result<String, Failure> {
    const STATIC: &str = "build with `-C target-feature=+crt-static`, which is the default of musl targets";
    program::check(path, &program::report(path)?, expected, STATIC)
}

/// Runs the program `cargo-allograft`, in any of its roles.
pub fn cargo() -> ExitCode {
    crate::signals::survive_limit_on_files();
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let arguments: Vec<OsString> = arguments.collect();
    // Cargo passes the name of a subcommand first.
    let asked = arguments.first().is_some_and(|first| first == "allograft");
    if let Some(relink) = relink::Relink::of_environment().filter(|_| !asked) {
        return relink.link(&arguments);
    }
    match wrapper::Session::of_environment() {
        Some(session) if !asked && Path::new(&name).file_name() == Some(OsStr::new("rustdoc")) => {
            session.rustdoc(&arguments)
        }
        Some(session) if !asked && arguments.first().is_some_and(|first| is_compiler(first)) => {
            session.rustc(&arguments)
        }
        _ => run::main(&arguments[usize::from(asked)..]),
    }
}

/// Whether cargo calls a wrapper: the first argument is the compiler, whatever its name, or another wrapper.
fn is_compiler(first: &OsStr) -> bool {
    !first.as_encoded_bytes().starts_with(b"-")
        && arguments::CargoCommand::parse(first) == arguments::CargoCommand::Other
}
