//! `cargo allograft`: builds of a Cargo project that carry a donor.

use std::process::ExitCode;

fn main() -> ExitCode {
    allograft::cargo()
}
