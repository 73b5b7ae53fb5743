//! `cargo xtask bench asked`: the most bytes that each program of the suite asks for at once. If it writes to all of
//! its blocks, it needs as much memory with any allocator.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use measure::report::bytes;
use serde::{Deserialize, Serialize};
use suite::Case;
use tools::workspace;
use xtask::linking::{self, Compiler};

use crate::experiment::{Bench, save};

/// The name of the kept figures.
pub(crate) const NAME: &str = "asked";
/// Threads take different turns in each run; the figure is the greatest.
const RUNS: usize = 5;
/// The functions that the suite calls, renamed in its programs.
const RENAMED: [&str; 5] = ["malloc", "calloc", "realloc", "free", "posix_memalign"];

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct AskedArgs {
    /// Keep the figures in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// The figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Asked {
    schema_version: u32,
    cases: Vec<AskedCase>,
}

#[derive(Debug, Serialize, Deserialize)]
struct AskedCase {
    name: String,
    threads: u32,
    size: Option<u64>,
    bytes: u64,
}

impl Asked {
    /// Returns the most bytes that a case asks for at once.
    pub(crate) fn bytes(&self, name: &str, threads: Option<u32>, size: Option<u64>) -> Option<u64> {
        let found =
            self.cases.iter().find(|case| case.name == name && Some(case.threads) == threads && case.size == size);
        found.map(|case| case.bytes)
    }
}

/// Builds and runs the programs, prints the figures, and keeps them if `--save` is set.
///
/// # Errors
/// A program does not build, or fails.
pub(crate) fn bench(args: &AskedArgs) -> Result<()> {
    let bench = Bench::open(NAME)?;
    let compiler = Compiler::find()?;
    let counter = bench.home.join("asked.o");
    linking::compile_for_glibc(&compiler, &[], &source("asked"), &counter)?;
    let mut asked = Asked { schema_version: 1, cases: Vec::new() };
    for case in &suite::CASES {
        let program = build(&compiler, case, &counter, &bench.home)?;
        let sizes: Vec<Option<u64>> = match case.sizes {
            [] => vec![None],
            sizes => sizes.iter().copied().map(Some).collect(),
        };
        for (threads, size) in case.threads.iter().flat_map(|threads| sizes.iter().map(move |size| (*threads, *size))) {
            let arguments = case.arguments(threads, size, false);
            let runs = (0..RUNS).map(|_| run(&program, &arguments)).collect::<Result<Vec<u64>>>()?;
            let most = runs.into_iter().max().context("no run")?;
            println!("{} {}: {}", case.name, arguments.join(" "), bytes(most));
            asked.cases.push(AskedCase { name: case.name.to_owned(), threads, size, bytes: most });
        }
    }
    args.save.as_ref().map_or(Ok(()), |file| save(&asked, file))
}

fn source(name: &str) -> PathBuf {
    workspace::root().join("suite").join(name).join(name).with_extension("c")
}

/// Compiles a program with its calls renamed, and links it with the counter.
fn build(compiler: &Compiler, case: &Case, counter: &Path, home: &Path) -> Result<PathBuf> {
    let (object, program) = (home.join(case.name).with_extension("o"), home.join(case.name));
    let renamed: Vec<String> = RENAMED.iter().map(|name| format!("-D{name}=asked_{name}")).collect();
    linking::compile_for_glibc(compiler, &renamed, &source(case.program), &object)?;
    linking::link_for_glibc(compiler, &[object, counter.to_owned()], &program)?;
    Ok(program)
}

/// Runs a program. Returns what its counter prints.
fn run(program: &Path, arguments: &[String]) -> Result<u64> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start `{}`", program.display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{}` ended with {}: {said}", program.display(), output.status);
    let number = said.lines().find_map(|line| line.strip_prefix("asked ")?.parse().ok());
    number.with_context(|| format!("`{}` printed no number of bytes: {said}", program.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_program_that_asks_for_a_known_sum_is_counted_right() {
        let folder = tempfile::tempdir().unwrap();
        let compiler = Compiler::find().unwrap();
        let (counter, main, object) =
            (folder.path().join("asked.o"), folder.path().join("main.c"), folder.path().join("main.o"));
        linking::compile_for_glibc(&compiler, &[], &source("asked"), &counter).unwrap();
        let text = "#include <stdlib.h>\n#include <string.h>\nint main(void) {\n\
                    char *a = malloc(1000), *b = calloc(30, 100);\nvoid *c;\nif (posix_memalign(&c, 4096, 500)) return 1;\n\
                    memset(a, 1, 1000);\nfree(c);\na = realloc(a, 5000);\nif (a[999] != 1 || b[2999]) return 2;\n\
                    free(b);\nfree(a);\nfree(malloc(7000));\nreturn 0;\n}\n";
        fs::write(&main, text).unwrap();
        let renamed: Vec<String> = RENAMED.iter().map(|name| format!("-D{name}=asked_{name}")).collect();
        linking::compile_for_glibc(&compiler, &renamed, &main, &object).unwrap();
        let program = folder.path().join("main");
        linking::link_for_glibc(&compiler, &[object, counter], &program).unwrap();
        assert_eq!(run(&program, &[]).unwrap(), 8000);
    }
}
