//! `cargo xtask bench profile`: the verdict of `allograft profile` on programs of known nature, the measured gain of a
//! graft of each, and the slowdown by profiling.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fixtures::program::Build;
use measure::report::ratio;
use measure::statistics::Ratio;
use serde::{Deserialize, Serialize};
use tools::{command, workspace};

use crate::experiment::{Bench, Experiment, Figures, Record};

/// The experiment.
pub(crate) const EXPERIMENT: Experiment<Record<Profiles>> =
    Experiment { name: "profile", programs: &[], minutes: 0, table };
/// The programs of `tests/profile`, and their numbers of threads.
const PROGRAMS: [(&str, u32); 12] = [
    ("small_blocks", 1),
    ("small_blocks", 2),
    ("small_blocks", 8),
    ("large_blocks", 1),
    ("grown", 1),
    ("mixed", 1),
    ("mixed", 4),
    ("fresh_pages", 1),
    ("copies", 1),
    ("own_lock", 4),
    ("pipes", 2),
    ("numbers", 2),
];
/// Seconds of the profiled run, and of a measured one.
const PROFILED: &str = "3";
const RUN: &str = "2";
/// The time for which a process's work is counted, with the profiler attached or without it.
const WINDOW: Duration = Duration::from_millis(300);
/// The time for a program to start, and for the profiler to end a recording.
const MARGIN: Duration = Duration::from_millis(150);
/// More windows are measured until half of the interval is at most this, on the logarithmic scale.
const HALF_WIDTH: f64 = 0.025;
/// If threads wait for a lock, the speed of one process changes threefold and stays so for seconds: many windows are
/// needed.
const MOST_WINDOWS: usize = 300;

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct ProfileArgs {
    /// Measure this program, not the one built here
    #[arg(long, value_name = "PROGRAM")]
    allograft: Option<PathBuf>,
    /// Rounds of pairs of runs, and of windows at least, for each program
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(2..))]
    rounds: u16,
    /// These programs only
    #[arg(long, value_name = "PROGRAM")]
    only: Vec<String>,
    /// Milliseconds between the start of the profiler and a window
    #[arg(long, value_name = "MS", default_value_t = 150)]
    attached: u16,
    /// Keep the figures in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// The figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Profiles {
    rounds: u16,
    programs: Vec<Program>,
}

impl Figures for Profiles {}

/// The figures of a program.
#[derive(Debug, Serialize, Deserialize)]
struct Program {
    name: String,
    threads: u32,
    bottleneck: String,
    /// The allocator's share of the time, from 0 to 1.
    allocator: f64,
    /// The predicted speed-up by the profile, at least and at best.
    predicted: (f64, f64),
    /// The ratio of work per second with the default donor to that with stock.
    gain: Ratio,
    /// The ratio of work per second with the profiler attached to that without it, in one process.
    profiled: Ratio,
    /// The number of pairs of windows behind this ratio.
    windows: usize,
}

impl Program {
    /// Whether the interval of the gain and the predicted range overlap, to the two decimals that are printed.
    fn is_inside(&self) -> bool {
        let (low, high) = (self.gain.low.unwrap_or(self.gain.value), self.gain.high.unwrap_or(self.gain.value));
        const HALF: f64 = 0.005;
        low <= self.predicted.1 + HALF && high >= self.predicted.0 - HALF
    }
}

/// Builds, profiles, measures, prints, and keeps the figures if `--save` is set.
///
/// # Errors
/// A part does not build, or a program fails.
pub(crate) fn bench(args: &ProfileArgs) -> Result<()> {
    let bench = Bench::open(EXPERIMENT.name)?;
    let allograft = command::given_or_built(args.allograft.as_deref())?;
    let mut programs = Vec::new();
    for (name, threads) in PROGRAMS {
        if !args.only.is_empty() && !args.only.iter().any(|only| only == name) {
            continue;
        }
        eprintln!("bench: {name}, {threads} threads");
        let stock = linked(&bench.home, name)?;
        let grafted = bench.home.join(format!("{name}-grafted"));
        let _ = fs::remove_file(&grafted);
        command::run(Command::new(&allograft).args(["--quiet", "graft"]).arg(&stock).arg("-o").arg(&grafted))?;
        programs.push(program(&allograft, (name, threads), &stock, &grafted, args)?);
    }
    EXPERIMENT.keep(&bench, Record::new(Profiles { rounds: args.rounds, programs }), args.save.as_deref())
}

/// Links a program of `tests/profile` with stock musl.
fn linked(home: &Path, name: &str) -> Result<PathBuf> {
    let sources = workspace::root().join("tests/profile");
    let read = |file: &str| fs::read_to_string(sources.join(file)).with_context(|| format!("cannot read `{file}`"));
    let source = read(&format!("{name}.c"))?.replace("#include \"task.h\"\n", &read("task.h")?);
    Ok(Build::PLAIN.program(home, name, &source))
}

fn program(
    allograft: &Path,
    (name, threads): (&str, u32),
    stock: &Path,
    grafted: &Path,
    args: &ProfileArgs,
) -> Result<Program> {
    let threads_word = threads.to_string();
    let run = |program: &Path| work(Command::new(program).args([&threads_word, RUN]));
    let mut command = Command::new(allograft);
    command.args(["--quiet", "profile", "--json", "--"]).arg(stock).args([&threads_word, PROFILED]);
    let document: serde_json::Value = serde_json::from_str(&command::output(&mut command)?)?;
    let verdict = &document["verdict"];
    let figure = |value: &serde_json::Value| value.as_f64().context("a profile without its figures");
    let mut gains = Vec::new();
    for round in 0..args.rounds {
        // Stock and graft take turns at being first.
        let (stock, grafted) = match round % 2 {
            0 => (run(stock)?, run(grafted)?),
            _ => {
                let grafted = run(grafted)?;
                (run(stock)?, grafted)
            }
        };
        gains.push((grafted / stock).ln());
    }
    let slowdowns = slowdowns(allograft, Task::start(stock, &threads_word)?, args)?;
    let ratio = |logs: &[f64]| Ratio::of_logs(logs).context("no rounds");
    Ok(Program {
        name: name.to_owned(),
        threads,
        bottleneck: verdict["bottleneck"].as_str().context("a profile without a verdict")?.to_owned(),
        allocator: figure(&verdict["share"]["allocator"])?,
        predicted: (figure(&verdict["best_speedup"][0])?, figure(&verdict["best_speedup"][1])?),
        gain: ratio(&gains)?,
        profiled: ratio(&slowdowns)?,
        windows: slowdowns.len(),
    })
}

/// Compares a process's work with and without the profiler, in at least one pair of windows per round, and in more
/// until the interval is narrow. Returns the logarithms of the ratios.
fn slowdowns(allograft: &Path, mut task: Task, args: &ProfileArgs) -> Result<Vec<f64>> {
    let attached = Duration::from_millis(args.attached.into());
    let mut logs = Vec::new();
    loop {
        let (plain, profiled) = match logs.len() % 2 {
            0 => (task.window()?, task.profiled_window(allograft, attached)?),
            _ => {
                let profiled = task.profiled_window(allograft, attached)?;
                (task.window()?, profiled)
            }
        };
        logs.push((profiled / plain).ln());
        let is_narrow = Ratio::of_logs(&logs).is_some_and(|ratio| ratio.is_within(HALF_WIDTH));
        if logs.len() >= usize::from(args.rounds) && (is_narrow || logs.len() >= MOST_WINDOWS) {
            return Ok(logs);
        }
    }
}

/// A program that runs until this is dropped, and counts its rounds in a file.
struct Task {
    child: Child,
    counts: PathBuf,
}

impl Task {
    fn start(program: &Path, threads: &str) -> Result<Task> {
        const LONGER_THAN_ANY: &str = "36000";
        let counts = program.with_extension("counts");
        let mut command = Command::new(program);
        command.args([threads, LONGER_THAN_ANY]).arg(&counts).stdin(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let task = Task { child, counts };
        std::thread::sleep(MARGIN);
        Ok(task)
    }

    /// Returns the rounds of all threads so far.
    fn rounds(&self) -> Result<u64> {
        let counts = fs::read(&self.counts).with_context(|| format!("cannot read `{}`", self.counts.display()))?;
        let words = counts.as_chunks::<8>().0;
        Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).sum())
    }

    /// Returns the rounds per second of a window.
    fn window(&self) -> Result<f64> {
        let (began, before) = (Instant::now(), self.rounds()?);
        std::thread::sleep(WINDOW);
        let (took, after) = (began.elapsed(), self.rounds()?);
        ensure!(after > before, "`{}` does no work", self.counts.display());
        Ok((after - before) as f64 / took.as_secs_f64())
    }

    /// Measures a window while the process is profiled. It begins the time `attached` after the profiler's start.
    fn profiled_window(&mut self, allograft: &Path, attached: Duration) -> Result<f64> {
        let duration = (attached + WINDOW + MARGIN).as_secs_f64().to_string();
        let mut command = Command::new(allograft);
        command.args(["--quiet", "profile", "--pid", &self.child.id().to_string(), "--duration", &duration]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut profiler = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        std::thread::sleep(attached);
        let window = self.window();
        ensure!(profiler.try_wait()?.is_none(), "{command:?} ended within the window");
        let status = profiler.wait()?;
        ensure!(status.success(), "{command:?} ended with {status}");
        window
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // An error means that the process has ended by itself, which the next window would have reported.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program, and returns the rounds of work per second that it prints at its end.
fn work(command: &mut Command) -> Result<f64> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    // Not an error: a profile of a short run may have too few samples for a verdict, and none is needed here.
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let figure = said.lines().find_map(|line| line.strip_prefix("rounds_per_second="));
    figure.and_then(|figure| figure.parse().ok()).with_context(|| format!("{command:?} printed no figure"))
}

fn table(record: &Record<Profiles>) -> String {
    let figures = &record.figures;
    let mut text = "| program | threads | verdict | allocator | predicted | measured (95 %) | inside \
                    | while profiled (95 %) | windows |\n"
        .to_owned();
    text.push_str("| --- | ---: | --- | ---: | --- | --- | --- | --- | ---: |\n");
    for program in &figures.programs {
        let cells = [
            format!("`{}`", program.name),
            program.threads.to_string(),
            format!("`{}`", program.bottleneck),
            format!("{:.0} %", 100.0 * program.allocator),
            match program.predicted {
                (low, high) if high > 100.0 => format!("{low:.2} to more than 100"),
                (low, high) => format!("{low:.2} to {high:.2}"),
            },
            ratio(&program.gain),
            if program.is_inside() { "yes" } else { "no" }.to_owned(),
            ratio(&program.profiled),
            program.windows.to_string(),
        ];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    format!("{text}\n{}; {} rounds.\n", record.origin(), figures.rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_is_inside_if_its_interval_meets_the_range() {
        let ratio = |low: f64, high: f64| Ratio { low: Some(low), high: Some(high), ..Ratio::ITSELF };
        let inside = |low: f64, high: f64| {
            let (gain, profiled) = (ratio(low, high), Ratio::ITSELF);
            let (name, bottleneck, predicted, windows) = (String::new(), String::new(), (1.2, 2.0), 2);
            Program { name, threads: 1, bottleneck, allocator: 0.5, predicted, gain, profiled, windows }.is_inside()
        };
        assert!(inside(1.1, 1.3) && inside(1.5, 1.6) && inside(1.9, 2.2));
        assert!(!inside(1.0, 1.1) && !inside(2.1, 2.2));
    }
}
