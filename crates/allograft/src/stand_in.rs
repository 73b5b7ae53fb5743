//! A process that acts as a different program, such as a compiler or a linker.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use clap::ColorChoice;

use crate::failure::{Failure, mend};
use crate::global::Global;
use crate::output::Output;

/// Replaces this process with that program.
pub(crate) fn replaced_by(command: &mut Command) -> ExitCode {
    let error = command.exec();
    cannot_run(command.get_program(), &error)
}

/// Ends a process that acts as another program, if that program does not start.
pub(crate) fn cannot_run(program: &OsStr, error: &io::Error) -> ExitCode {
    let quiet = Global { json: false, quiet: true, verbose: false, color: ColorChoice::Auto };
    Output::new(&quiet)
        .error(&Failure::usage(format!("cannot run `{}`: {error}", program.to_string_lossy())).with_help(mend(error)));
    ExitCode::FAILURE
}

/// Returns the exit code that hands on how another program has ended.
pub(crate) fn exit_code(status: ExitStatus) -> ExitCode {
    // As shells report it.
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

/// Whether the program is zig's C compiler, which links a libc of its own and ignores folders of libraries.
pub(crate) fn is_zig(program: &OsStr) -> bool {
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    if name == "zig" || name.starts_with("zigcc") || name.starts_with("zig-cc") {
        return true;
    }
    let said = Command::new(program).arg("--version").stdin(Stdio::null()).stderr(Stdio::null()).output();
    said.is_ok_and(|output| {
        let text = String::from_utf8_lossy(&output.stdout);
        text.contains("clang") && text.contains("zig")
    })
}
