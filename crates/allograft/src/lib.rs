//! Transplants a modern allocator into static musl toolchains: what the programs `allograft` and `cargo-allograft` do.

// What is printed goes through `Output`, which escapes what comes out of files.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod arguments;
mod cargo;
mod choice;
mod command;
mod failure;
mod output;
mod progress;
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
