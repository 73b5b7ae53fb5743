//! The programs pass on stock musl. Each of them fails with an allocator that has the fault it looks for.

use std::process::ExitCode;

use libtest_mimic::{Failed, Trial};

mod linking;
mod saboteurs;
mod stock;

fn main() -> ExitCode {
    match trials() {
        Ok(trials) => fixtures::trials::run(trials),
        Err(failed) => {
            eprintln!("{}", failed.message().unwrap_or("the trials cannot be listed"));
            ExitCode::FAILURE
        }
    }
}

fn trials() -> Result<Vec<Trial>, Failed> {
    let mut trials = stock::trials();
    trials.extend(saboteurs::trials()?);
    Ok(trials)
}
