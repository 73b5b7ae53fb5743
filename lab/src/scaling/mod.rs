//! `cargo xtask bench scaling`: the lines that malloc and free move between cores, their waits and system calls, with 1
//! to 128 threads, on a model of as many cores. Static programs run unchanged, one instruction at a time.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `caches` | private caches and their directory |
//! | `calls` | system calls, and what they cost |
//! | `counts` | figures of threads |
//! | `futexes` | waiting threads |
//! | `machine` | the next thread, its instruction, and their cost |
//! | `pages` | the program's memory |
//! | `processor` | instructions |
//! | `program` | threads, their clocks and cores |
//! | `report` | figures and tables |
//! | `space` | the lock of the address space |
//! | `symbols` | names in the program |
//! | `tracee` | the program under ptrace |

mod caches;
mod calls;
mod counts;
mod futexes;
mod machine;
mod pages;
mod processor;
mod program;
mod report;
mod space;
mod symbols;
#[cfg(test)]
mod tests;
mod tracee;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use tools::command;

use crate::builds::{self, Part, Workshop};
use crate::experiment::{Bench, Experiment, Figures, Record, parallel};
use machine::Machine;
use report::{RealRow, Row, Scaling};

/// The experiment.
pub(crate) const EXPERIMENT: Experiment<Record<Scaling>> =
    Experiment { name: "scaling", programs: &[], minutes: 0, table: report::tables };

impl Figures for Scaling {}

const PATTERNS: [&str; 5] = ["map", "larson", "pipeline", "exchange", "records"];
const THREADS: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Rounds of each thread's measured part. From [`MANY`] threads on, half as many.
const PAIRS: u64 = 96;
const MANY: u64 = 64;
/// Rounds before, at full speed, for each measured one.
const WARM: u64 = 4;
/// Rounds and runs for real times, with 1 and 2 threads. The least time of the runs is kept.
const REAL_PAIRS: u64 = 200_000;
const REAL_RUNS: usize = 5;

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct ScalingArgs {
    /// These numbers of threads only
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..=128))]
    threads: Vec<u64>,
    /// These allocators only: `stock`, `glibc`, or donors
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    donor: Vec<String>,
    /// These patterns only
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = PATTERNS)]
    pattern: Vec<String>,
    /// Measured rounds of each thread; half as many with 64 threads and more
    #[arg(long, value_name = "N", default_value_t = PAIRS, value_parser = clap::value_parser!(u64).range(32..))]
    pairs: u64,
    /// Let the processor execute the first instructions of each measured part, too, and compare
    #[arg(long, value_name = "N", default_value_t = 0)]
    check: u64,
    /// Step this static program instead, which marks its measured part, and print what it shows
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["threads", "donor", "pattern", "save"])]
    program: Option<PathBuf>,
    /// The arguments of that program
    #[arg(requires = "program", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
    /// Keep the figures in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// An allocator's program.
#[derive(Debug)]
struct Arm {
    name: String,
    program: PathBuf,
}

/// Links a program with each allocator, steps it, runs it, and prints the tables.
///
/// # Errors
/// A program does not build, or cannot be stepped.
pub(crate) fn bench(args: &ScalingArgs) -> Result<()> {
    ensure!(cfg!(target_arch = "x86_64"), "the model executes programs for x86_64, on such a machine only");
    if let Some(program) = &args.program {
        let outcome = Machine::start(program, &args.arguments, args.check)?.run();
        println!("{:#?}", outcome.with_context(|| format!("`{}`", program.display()))?);
        return Ok(());
    }
    let bench = Bench::open(EXPERIMENT.name)?;
    // The graft is the same whether the program that makes it is optimised or not.
    let allograft = command::build_for_tests(&[])?;
    let arms = arms(&Workshop::new(&bench.home, &allograft)?, &args.donor)?;
    let patterns: Vec<&str> = PATTERNS
        .into_iter()
        .filter(|name| args.pattern.is_empty() || args.pattern.iter().any(|it| it == name))
        .collect();
    let threads = if args.threads.is_empty() { THREADS.to_vec() } else { args.threads.clone() };
    let figures = Record::new(Scaling {
        pairs: args.pairs,
        real_pairs: REAL_PAIRS,
        rows: step_all(&arms, &patterns, &threads, args)?,
        real: time_all(&arms, &patterns)?,
    });
    EXPERIMENT.keep(&bench, figures, args.save.as_deref())
}

/// Links the program for each allocator.
fn arms(workshop: &Workshop, chosen: &[String]) -> Result<Vec<Arm>> {
    let mut names = vec!["stock".to_owned(), "glibc".to_owned()];
    names.extend(builds::donors(&workshop.allograft)?.into_iter().map(|donor| donor.name));
    if let Some(unknown) = chosen.iter().find(|name| !names.contains(name)) {
        bail!("no allocator `{unknown}`; expected {}", names.join(", "));
    }
    let source = || Part::source("lab/programs/scaling.c");
    let linked = names.into_iter().filter(|name| chosen.is_empty() || chosen.contains(name)).map(|name| {
        let donor = ["--donor", name.as_str()];
        let program = match name.as_str() {
            "glibc" => workshop.with_static_glibc("scaling", source())?,
            "stock" => workshop.with_musl("stock", None, &[source()])?.remove(0),
            _ => workshop.with_musl(&name, Some(&donor), &[source()])?.remove(0),
        };
        Ok(Arm { name, program })
    });
    linked.collect()
}

/// Steps each program with each number of threads.
fn step_all(arms: &[Arm], patterns: &[&str], threads: &[u64], args: &ScalingArgs) -> Result<Vec<Row>> {
    let mut jobs = Vec::new();
    for pattern in patterns {
        for arm in arms {
            jobs.extend(threads.iter().map(|threads| (*pattern, arm, *threads)));
        }
    }
    parallel(jobs.len(), |number| {
        let (pattern, arm, threads) = jobs[number];
        let pairs = if threads >= MANY { args.pairs / 2 } else { args.pairs };
        let arguments = [pattern.to_string(), threads.to_string(), pairs.to_string(), (WARM * pairs).to_string()];
        let run = || format!("{}: `{pattern}` with {threads} threads", arm.name);
        let outcome = Machine::start(&arm.program, &arguments, args.check).and_then(Machine::run).with_context(run)?;
        eprintln!("bench: {} of {}: {}", number + 1, jobs.len(), run());
        Ok(Row::new(pattern, &arm.name, threads, &outcome))
    })
}

/// Runs the programs with 1 and 2 threads, in turns.
fn time_all(arms: &[Arm], patterns: &[&str]) -> Result<Vec<RealRow>> {
    let mut real = Vec::new();
    for pattern in patterns {
        eprintln!("bench: real times of `{pattern}`");
        let mut least = vec![[f64::INFINITY; 2]; arms.len()];
        for _ in 0..REAL_RUNS {
            for (arm, least) in arms.iter().zip(&mut least) {
                for (threads, least) in ["1", "2"].into_iter().zip(least) {
                    *least = least.min(seconds(&arm.program, pattern, threads)?);
                }
            }
        }
        let rows = arms.iter().zip(least);
        real.extend(rows.map(|(arm, seconds)| RealRow {
            pattern: (*pattern).to_owned(),
            arm: arm.name.clone(),
            seconds,
        }));
    }
    Ok(real)
}

fn seconds(program: &Path, pattern: &str, threads: &str) -> Result<f64> {
    let mut run = Command::new(program);
    run.args([pattern, threads, &REAL_PAIRS.to_string(), "1000", "1"]).env_clear();
    let output = run.output().with_context(|| format!("cannot run {run:?}"))?;
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{run:?} ended with {}: {printed}", output.status);
    let figure = printed.lines().find_map(|line| line.strip_prefix("seconds ")).and_then(|text| text.parse().ok());
    figure.with_context(|| format!("{run:?} printed no time"))
}
