//! `cargo xtask bench libc`: libc's other functions, which a graft leaves to musl, in stock, in a graft and in glibc.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use tools::command;

use crate::builds::{Part, Workshop};
use crate::experiment::{Bench, Experiment, Figures, Record};

/// The experiment.
pub(crate) const EXPERIMENT: Experiment<Record<Functions>> =
    Experiment { name: "libc", programs: &[], minutes: 0, table };

/// The arms, in the order of the figures.
const ARMS: [&str; 3] = ["glibc", "stock", "graft"];
/// Compilers know many of the functions, and would compute results ahead.
const FLAGS: [&str; 1] = ["-fno-builtin"];

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct LibcArgs {
    /// Runs of each arm, in turns; the least time counts
    #[arg(long, default_value_t = 9, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Keep the figures in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// The figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Functions {
    runs: u32,
    functions: Vec<Times>,
}

impl Figures for Functions {}

/// Processor time for each call of a function, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Times {
    name: String,
    glibc_ns: f64,
    stock_ns: f64,
    graft_ns: f64,
}

/// Builds, measures, prints, and keeps the figures if `--save` is set.
///
/// # Errors
/// The program does not build, or fails.
pub(crate) fn bench(args: &LibcArgs) -> Result<()> {
    let bench = Bench::open(EXPERIMENT.name)?;
    // Not an optimised build: only the donor counts, which is optimised in any.
    let programs = build(&Workshop::new(&bench.home, &command::build_for_tests(&[])?)?)?;
    let mut least: [Option<Vec<(String, f64)>>; ARMS.len()] = Default::default();
    for run in 0..args.runs as usize {
        eprintln!("bench: run {} of {}", run + 1, args.runs);
        // Each round begins with another arm.
        for at in (0..ARMS.len()).map(|at| (at + run) % ARMS.len()) {
            let output = command::output(Command::new(&programs[at]).env_clear())?;
            let figures = parse(&output).with_context(|| format!("the program of the arm {}", ARMS[at]))?;
            least[at] = Some(match least[at].take() {
                Some(before) => lesser(before, &figures)?,
                None => figures,
            });
        }
    }
    let [Some(glibc), Some(stock), Some(graft)] = least else { bail!("an arm was not run") };
    let functions = joined(&glibc, &stock, &graft)?;
    let figures = Record::new(Functions { runs: args.runs, functions });
    EXPERIMENT.keep(&bench, figures, args.save.as_deref())
}

/// Links `suite/libc/libc.c` for each arm; glibc's is dynamic, as programs for glibc are.
fn build(workshop: &Workshop) -> Result<[PathBuf; ARMS.len()]> {
    let source = || Part { flags: FLAGS.map(str::to_owned).to_vec(), ..Part::suite("libc") };
    let with_musl = |name: &str, graft: Option<&[&str]>| -> Result<PathBuf> {
        Ok(workshop.with_musl(name, graft, &[source()])?.remove(0))
    };
    let glibc = workshop.with_glibc("libc", &[source()])?;
    Ok([glibc, with_musl("stock", None)?, with_musl("graft", Some(&[]))?])
}

/// Reads lines of nanoseconds and a name.
fn parse(text: &str) -> Result<Vec<(String, f64)>> {
    let lines = text.lines().map(|line| {
        let (time, name) = line.split_once(' ').with_context(|| format!("no time and name: `{line}`"))?;
        let time: f64 = time.parse().with_context(|| format!("no time: `{line}`"))?;
        ensure!(time.is_finite() && time > 0.0, "no time: `{line}`");
        Ok((name.to_owned(), time))
    });
    let figures = lines.collect::<Result<Vec<_>>>()?;
    ensure!(!figures.is_empty(), "it printed nothing");
    Ok(figures)
}

/// The lesser time of two runs, for each function.
fn lesser(before: Vec<(String, f64)>, more: &[(String, f64)]) -> Result<Vec<(String, f64)>> {
    ensure!(before.len() == more.len(), "one run printed {} functions, another {}", before.len(), more.len());
    let pairs = before.into_iter().zip(more).map(|((name, one), (other_name, other))| {
        ensure!(name == *other_name, "one run printed `{name}` where another printed `{other_name}`");
        Ok((name, one.min(*other)))
    });
    pairs.collect()
}

fn joined(glibc: &[(String, f64)], stock: &[(String, f64)], graft: &[(String, f64)]) -> Result<Vec<Times>> {
    let same = glibc.len() == stock.len() && stock.len() == graft.len();
    ensure!(same, "the arms printed {}, {} and {} functions", glibc.len(), stock.len(), graft.len());
    let rows = glibc.iter().zip(stock).zip(graft).map(|((glibc, stock), graft)| {
        ensure!(
            glibc.0 == stock.0 && stock.0 == graft.0,
            "the arms printed `{}`, `{}`, `{}`",
            glibc.0,
            stock.0,
            graft.0
        );
        Ok(Times { name: glibc.0.clone(), glibc_ns: glibc.1, stock_ns: stock.1, graft_ns: graft.1 })
    });
    rows.collect()
}

fn table(record: &Record<Functions>) -> String {
    let figures = &record.figures;
    let mut text = "| | glibc, ns | stock to glibc | graft to glibc |\n| --- | --- | --- | --- |\n".to_owned();
    for Times { name, glibc_ns, stock_ns, graft_ns } in &figures.functions {
        let nanoseconds = if *glibc_ns < 100.0 { format!("{glibc_ns:.1}") } else { format!("{glibc_ns:.0}") };
        let (stock, graft) = (stock_ns / glibc_ns, graft_ns / glibc_ns);
        text.push_str(&format!("| {name} | {nanoseconds} | {stock:.2} | {graft:.2} |\n"));
    }
    format!(
        "{text}\n{}; processor time, the least of {} runs of each arm in turns, beside other work.\n",
        record.origin(),
        figures.runs
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_that_print_different_functions_are_refused() {
        let one = parse("1.50 getenv, the 20th\n2.00 rand\n").unwrap();
        let other = parse("1.00 getenv, the 20th\n3.00 rand\n").unwrap();
        assert_eq!(lesser(one.clone(), &other).unwrap(), parse("1.00 getenv, the 20th\n2.00 rand\n").unwrap());
        let row = joined(&one, &other, &other).unwrap().remove(0);
        assert_eq!((row.name.as_str(), row.glibc_ns, row.graft_ns), ("getenv, the 20th", 1.5, 1.0));
        let different = parse("1.00 getenv, the 20th\n3.00 random\n").unwrap();
        assert!(joined(&one, &other, &different).is_err() && lesser(one.clone(), &different).is_err());
        assert!(lesser(one, &other[..1]).is_err());
        for text in ["", "fast rand", "0.00 rand", "NaN rand", "rand"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
