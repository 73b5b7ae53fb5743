//! Transplants a modern allocator into static musl toolchains: what the programs `allograft` and `cargo-allograft` do.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `command` | a file for each command of `allograft` |
//! | `cargo` | the commands of `cargo allograft` |
//! | `arguments` | the command line |
//! | `choice` | `--donor`, `--strings`, `--profile` and `--set`, which several commands take |
//! | `target` | the target of a command: a path, `swift:ID` or `rust:TRIPLE` |
//! | `rust` | Rust's targets: where a toolchain has their `libc.a` |
//! | `triple` | names of targets, as Rust, clang, Swift and zig spell them |
//! | `tuning` | a donor's file with its options written into it |
//! | `output` | what is printed: text, JSON, warnings, errors |
//! | `json` | the JSON documents |
//! | `progress` | a bar on a terminal for work on a large file |
//! | `failure` | why a command failed: message, help, exit code |
//! | `remedy` | what to do about an error of the cores, in this program's commands and flags |
//! | `signals` | temporary files are deleted when a signal ends the program |

// What is printed goes through `Output`, which escapes what comes out of files.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod cargo;
mod choice;
mod command;
mod failure;
mod json;
mod output;
mod progress;
mod remedy;
mod rust;
mod signals;
mod target;
mod triple;
mod tuning;

use std::process::ExitCode;

pub use cargo::cargo;

/// The program `allograft`.
pub fn main() -> ExitCode {
    signals::survive_limit_on_files();
    let (arguments, output) = match arguments::parse() {
        Ok(parsed) => parsed,
        Err(done) => return done,
    };
    match command::run(arguments, &output) {
        Ok(code) => code,
        Err(failure) => output.fail(&failure),
    }
}
