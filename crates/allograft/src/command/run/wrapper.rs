//! Acts as a compiler or a linker when this program is called by such a name.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ColorChoice;

use super::{ReportLine, Session, VARIABLE, names};
use crate::command::cc::{Compiler, Link, Planned, check, copy, expected_in, prefixed, words};
use crate::failure::Failure;
use crate::global::Global;
use crate::output::Output;
use crate::stand_in::{exit_code, is_zig, replaced_by};

/// Set for the processes that a wrapper starts: the compilers and linkers that a compiler itself calls are not wrapped.
const INSIDE: &str = "ALLOGRAFT_RUN_INSIDE";

/// The exit code of a shell for a command that is not there.
const NOT_FOUND: u8 = 127;

/// Acts as the compiler or linker that this program was called as. `None` if it was called by its own name.
pub(crate) fn stand_in() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let called = PathBuf::from(arguments.next()?);
    let name = called.file_name().filter(|name| names::is_wrapped(name))?;
    let arguments: Vec<OsString> = arguments.collect();
    let output = Output::new(&Global { json: false, quiet: false, verbose: false, color: ColorChoice::Auto });
    let Some(real) = behind(name) else {
        let failure =
            Failure::usage(format!("there is no `{}` behind the wrappers on the command path", name.display()))
                .with_help(
                    "wrappers of `allograft run` call the compiler of their name: install it, or name another one",
                );
        output.error(&failure);
        return Some(ExitCode::from(NOT_FOUND));
    };
    let compiler = Compiler::at(real);
    let session = std::env::var(VARIABLE).ok().filter(|_| std::env::var_os(INSIDE).is_none());
    let session = session.and_then(|session| serde_json::from_str::<Session>(&session).ok());
    let Some(session) = session else { return Some(replaced_by(compiler.command().args(&arguments))) };
    let is_linker = name.to_str().is_some_and(names::is_linker);
    Some(match session.link(&compiler, &arguments, is_linker, &output) {
        Ok(code) => code,
        Err(failure) => output.fail(&failure),
    })
}

/// Returns the first program of that name on the command path which is not this one.
fn behind(name: &OsStr) -> Option<PathBuf> {
    let itself = std::env::current_exe().and_then(fs::canonicalize).ok();
    let path = std::env::var_os("PATH")?;
    let runs =
        |file: &Path| fs::metadata(file).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| runs(file) && fs::canonicalize(file).ok() != itself)
}

impl Session {
    fn link(
        &self,
        compiler: &Compiler,
        arguments: &[OsString],
        is_linker: bool,
        output: &Output,
    ) -> Result<ExitCode, Failure> {
        let words = words::expanded(arguments)?;
        let unchanged = || Ok(replaced_by(compiler.command().args(arguments).env(INSIDE, "1")));
        let link = match is_linker {
            true => Link::of_linker(&words),
            false if !words::may_link(&words) => None,
            false => match compiler.link(&words)? {
                Planned::Program(link) => Some(link),
                Planned::Other | Planned::Fault => None,
            },
        };
        let Some(link) = link else { return unchanged() };
        let left = |why: String| {
            self.tell(&link.out, Err(why));
            unchanged()
        };
        if !link.is_static {
            return left("it is linked dynamically".to_owned());
        }
        if let Some(flag) = words::sanitizer(&words) {
            return left(format!("{flag} has a malloc of its own"));
        }
        if is_zig(compiler.program()) {
            return left("zig links a libc of its own".to_owned());
        }
        let Ok(libc) = link.libc(&compiler.shown()) else {
            return left("no libc.a is in the folders that it links from".to_owned());
        };
        let candidates = self.choice.candidates()?;
        let folder = match copy::folder(&libc, &candidates, self.choice.strings(), output) {
            Err(unmade) if unmade.is_not_musl => return left("its libc.a is not musl's".to_owned()),
            folder => folder?,
        };
        let mut command = compiler.command();
        command.arg(prefixed("-L", &folder)).args(arguments).env(INSIDE, "1");
        let status = command.status().map_err(|error| compiler.cannot_run(&error))?;
        if status.success() {
            let expected = |arch: &str| expected_in(&candidates, self.choice.strings(), arch);
            if let Some(carried) = check(&link.out, expected, output)? {
                self.tell(&link.out, Ok(carried));
            }
        }
        Ok(exit_code(status))
    }

    /// Adds a line to the report.
    fn tell(&self, program: &Path, carries: Result<String, String>) {
        let program = std::path::absolute(program).unwrap_or_else(|_| program.to_owned());
        // An error is ignored: without the line, the program is missing in the summary, but the build is right.
        let Ok(mut line) = serde_json::to_string(&ReportLine { program, carries }) else { return };
        line.push('\n');
        let file = File::options().append(true).open(&self.report);
        let _ = file.and_then(|mut file| file.write_all(line.as_bytes()));
    }
}
