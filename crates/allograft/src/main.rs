//! Transplants a modern allocator into static musl toolchains.

mod arguments;
mod command;
mod failure;
mod output;

use std::process::ExitCode;

fn main() -> ExitCode {
    let (arguments, output) = match arguments::parse() {
        Ok(parsed) => parsed,
        Err(done) => return done,
    };
    match command::run(arguments, &output) {
        Ok(code) => code,
        Err(failure) => output.fail(&failure),
    }
}
