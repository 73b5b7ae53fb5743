//! Builds the targets with the pass of LLVM that counts what is executed (`sancov-module`), which the stable compiler
//! has, too. Without its counters a fuzzer guesses blindly: the module `run` checks that they are there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tools::{command, workspace};

/// The flags of LLVM's pass: a counter of 8 bits for each edge, with the table that maps counters to code, and the
/// operands of comparisons, by which libFuzzer finds magic numbers. (Clang, "SanitizerCoverage".)
const FLAGS: [&str; 6] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The targets' programs.
#[derive(Debug, Clone)]
pub struct Programs {
    folder: PathBuf,
    /// The folder for inputs and finds.
    pub workplace: PathBuf,
}

impl Programs {
    /// Returns the program of a target.
    pub fn of(&self, target: &str) -> PathBuf {
        self.folder.join(target)
    }
}

/// Builds the programs of all targets.
///
/// # Errors
/// There is no C++ compiler, or they do not build.
pub fn build() -> Result<Programs> {
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "c++".to_owned());
    ensure!(
        Path::new(&compiler).is_file() || command::on_path(&compiler).is_some(),
        "libFuzzer is C++, and there is no `{compiler}`: install a C++ compiler, or name one in CXX"
    );
    // Build scripts and macros run in the compiler's own process: with a target that is named, they have no counters.
    let triple = "x86_64-unknown-linux-gnu";
    let workplace = workspace::root().join("target/fuzz");
    let mut cargo = command::cargo(&["build", "--release", "--locked", "--quiet", "--bins", "--target", triple]);
    command::apart(&mut cargo);
    cargo.arg("--manifest-path").arg(workspace::root().join("fuzz/Cargo.toml"));
    cargo.arg("--target-dir").arg(workplace.join("build"));
    cargo.env("RUSTFLAGS", FLAGS.join(" ")).env(zigcc::arches::ARCHES, "native");
    command::run(&mut cargo).context("the fuzzers do not build")?;
    Ok(Programs { folder: workplace.join("build").join(triple).join("release"), workplace })
}
