//! Transplants a modern allocator into static musl toolchains: what the programs `allograft` and `cargo-allograft` do.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `command` | a file for each command of `allograft` |
//! | `cargo` | the commands of `cargo allograft` |
//! | `arguments` | the command line |
//! | `global` | the flags that every command takes |
//! | `help` | help that fits on a screen: the rest is on the manual page |
//! | `choice` | the options `--donor`, `--strings`, `--profile` and `--set`, which several commands have |
//! | `target` | the target of a command: a path, `swift:ID` or `rust:TRIPLE` |
//! | `rust` | Rust's targets: where a toolchain has their `libc.a` |
//! | `triple` | names of targets, as Rust, clang, Swift and zig spell them |
//! | `tuning` | a donor's file with its options written into it |
//! | `number` | numbers on the command line |
//! | `shell` | words for a POSIX shell |
//! | `similar` | the known name that a mistyped one may mean |
//! | `output` | text, JSON, warnings and errors on their way to the terminal |
//! | `printable` | text from elsewhere, made safe to print |
//! | `json` | the JSON documents |
//! | `sbom` | the bill of materials of inspected files |
//! | `progress` | a bar on a terminal for work on a large file |
//! | `failure` | the reason why a command failed: message, help, exit code |
//! | `remedy` | the help text of an error of the core crates, with this program's commands and flags |
//! | `program` | what a program that was linked with a graft has to contain |
//! | `stand_in` | processes that act as a compiler or a linker |
//! | `signals` | deletes temporary files when a signal ends the program |

// Everything is printed through `Output`, which escapes text from files.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod cargo;
mod choice;
mod command;
mod failure;
mod global;
mod help;
mod json;
mod number;
mod output;
mod printable;
mod program;
mod progress;
#[cfg(test)]
mod remedies;
mod remedy;
mod rust;
mod sbom;
mod setting;
mod shell;
mod signals;
mod similar;
mod stand_in;
mod target;
mod triple;
mod tuning;

use std::process::ExitCode;

pub use cargo::cargo;

/// Runs the program `allograft`.
pub fn main() -> ExitCode {
    if let Some(code) = command::run::stand_in() {
        return code;
    }
    signals::survive_limit_on_files();
    let (arguments, output) = match arguments::parse() {
        Ok(parsed) => parsed,
        Err(done) => return done,
    };
    let code = match command::run(arguments, &output) {
        Ok(code) => code,
        Err(failure) => output.fail(&failure),
    };
    swept(code, &output)
}

/// Reports every temporary file that could not be deleted. Returns the exit code: the given one if all were deleted.
fn swept(code: ExitCode, output: &output::Output) -> ExitCode {
    let left = hosts::left_behind();
    for (path, error) in &left {
        output.error(&failure::Failure::left(path, error));
    }
    if left.is_empty() { code } else { ExitCode::from(hosts::RollbackFailure::EXIT_CODE) }
}
