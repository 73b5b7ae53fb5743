//! One file for each command: its flags, its work, its output.

pub(crate) mod bench;
pub(crate) mod cc;
pub(crate) mod completions;
pub(crate) mod donors;
pub(crate) mod emit;
pub(crate) mod graft;
pub(crate) mod heap;
pub(crate) mod inspect;
pub(crate) mod man;
pub(crate) mod misplaced;
pub(crate) mod profile;
pub(crate) mod run;
pub(crate) mod undo;
pub(crate) mod verify;
pub(crate) mod version;

use std::process::ExitCode;

use crate::arguments::{Arguments, Command};
use crate::failure::Failure;
use crate::output::Output;

/// Runs the command. The exit code is 0, 1 if a check says no, or [`INCOMPLETE`].
pub(crate) fn run(arguments: Arguments, output: &Output) -> Result<ExitCode, Failure> {
    match arguments.command {
        Command::Graft(command) => command.run(output),
        Command::Undo(command) => command.run(output),
        Command::Inspect(command) => command.run(output),
        Command::Verify(command) => command.run(output),
        Command::Emit(command) => command.run(output),
        Command::Cc(command) => command.run(output),
        Command::Run(command) => command.run(output),
        Command::Donors(command) => command.run(output),
        Command::Bench(command) => command.run(output),
        Command::Profile(command) => command.run(output),
        Command::Heap(command) => command.run(output),
        Command::Completions(command) => command.run(output),
        Command::Man(command) => command.run(output),
    }
}

/// The exit code of `verify --strict` if no check failed, and some were not run.
const INCOMPLETE: u8 = 5;

/// The exit code of a command that checks something: 0 if `ok`, else 1.
fn verdict(ok: bool) -> ExitCode {
    if ok { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
