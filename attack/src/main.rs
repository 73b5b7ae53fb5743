//! `cargo xtask attack`: attacks allograft, prints what came of it, and keeps the counts if asked.

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    let outcome = command::run();
    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    let outcome: anyhow::Result<ExitCode> = Err(anyhow::anyhow!("the attacks set registers of x86_64"));
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
