//! Shared objects that a dynamic program's loader loads before all others.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::failure::{Failure, mend};

/// The loader's list of files to load first. Only the measured programs have it in their environment, never this
/// process.
pub(super) const PRELOAD: &str = "LD_PRELOAD";
/// The time within which the program must report the donor, which it does first of all.
const SAYS: Duration = Duration::from_secs(60);

/// A program to load them into.
pub(super) struct Program<'p> {
    /// The path that the user gave.
    pub(super) typed: &'p str,
    pub(super) path: &'p Path,
    pub(super) arguments: &'p [OsString],
}

impl Program<'_> {
    /// Lets the loader of glibc list what it would load, which does not start the program. A loader that cannot load a
    /// file prints a warning and goes on without it.
    pub(super) fn loads(&self, library: &Path) -> Result<(), Failure> {
        let mut command = Command::new(self.path);
        command.env(PRELOAD, before_own(PRELOAD, library.as_os_str())).env("LD_TRACE_LOADED_OBJECTS", "1");
        let output = command.stdin(Stdio::null()).output().map_err(|error| {
            Failure::usage(format!("`{}` cannot be started: {error}", self.typed)).with_help(mend(&error))
        })?;
        let listed = String::from_utf8_lossy(&output.stdout);
        let path = library.to_string_lossy();
        if listed.lines().any(|line| line.trim().split(" (").next() == Some(&*path)) {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or("nothing");
        Err(Failure::usage(format!("`{}` does not take `{path}` by {PRELOAD}: the loader says `{said}`", self.typed))
            .with_help("name a shared object for this machine and this libc"))
    }

    /// Starts the program with the donor, and ends it once it has reported that the donor serves malloc. A loader that
    /// cannot load a file prints a warning and goes on without it; all arms would then be the same program.
    pub(super) fn takes(&self, donor: &str, library: &Path) -> Result<(), Failure> {
        let mut command = Command::new(self.path);
        command
            .args(self.arguments)
            .env(PRELOAD, before_own(PRELOAD, library.as_os_str()))
            .env("ALLOGRAFT_VERBOSE", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let child = command.spawn();
        let mut child = child.map_err(|error| {
            Failure::usage(format!("`{}` cannot be started: {error}", self.typed)).with_help(mend(&error))
        })?;
        let wanted = format!("allograft: {donor} ");
        let (tell, told) = mpsc::channel();
        if let Some(stderr) = child.stderr.take() {
            // The thread ends with the program's standard error, which the end of its process group below closes.
            std::thread::spawn(move || {
                let mut first = None;
                for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                    if line.starts_with(&wanted) {
                        let _ = tell.send(Ok(()));
                        return;
                    }
                    first.get_or_insert(line);
                }
                let _ = tell.send(Err(first.unwrap_or_default()));
            });
        }
        let said = told.recv_timeout(SAYS).unwrap_or_else(|_| Err("nothing".to_owned()));
        // This comes before `wait`: until then no other process can get its number.
        measure::process::end_group(child.id());
        let _ = child.wait();
        said.map_err(|said| {
            Failure::usage(format!("`{}` does not take {donor} by {PRELOAD}: it says `{said}`", self.typed)).with_help(
                "has it an allocator of its own, or closed its standard error? `allograft inspect` says what it carries",
            )
        })
    }
}

/// Checks that a file can be in the list of files to load first.
pub(super) fn nameable(library: &Path, help: &str) -> Result<(), Failure> {
    if library.as_os_str().as_encoded_bytes().iter().any(|byte| b" :\t\n".contains(byte)) {
        let message =
            format!("`{}` cannot be named in {PRELOAD}: blanks and colons separate files there", library.display());
        return Err(Failure::usage(message).with_help(help));
    }
    Ok(())
}

/// Returns the value with the user's own of that variable behind it.
pub(super) fn before_own(variable: &str, value: &OsStr) -> OsString {
    joined([Some(value.to_owned()), std::env::var_os(variable)])
}

/// Returns the value with the user's own of that variable before it.
pub(super) fn behind_own(variable: &str, value: &OsStr) -> OsString {
    joined([std::env::var_os(variable), Some(value.to_owned())])
}

fn joined(values: [Option<OsString>; 2]) -> OsString {
    let values: Vec<OsString> = values.into_iter().flatten().filter(|value| !value.is_empty()).collect();
    values.join(OsStr::new(":"))
}
