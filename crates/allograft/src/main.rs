//! Transplants a modern allocator into static musl toolchains.

use std::process::ExitCode;

fn main() -> ExitCode {
    allograft::main()
}
