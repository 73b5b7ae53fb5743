//! `cargo xtask bench profiles`: memory by donor and profile, against stock.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use measure::executor::{Executor, Status};
use tools::command;
use xtask::sessions;

use crate::builds::{self, Part, Workshop};
use crate::experiment::{Bench, QuickArgs};

const NAMES: [&str; 9] = ["map", "idle", "larson", "pipeline", "growth", "blocks", "small", "fragments", "bursts"];
/// The rows of the table: the program's index in the suite, the row's name, and the program's arguments.
const RUNS: [(usize, &str, &[&str]); 11] = [
    (0, "map 1", &["1", "20000", "200000"]),
    (0, "map 8", &["8", "20000", "200000"]),
    (0, "map 1 large", &["1", "1000000", "200000"]),
    (1, "idle", &["256", "4"]),
    (2, "larson 8", &["8", "800000", "10"]),
    (3, "pipeline 4", &["4", "400000"]),
    (4, "growth 2", &["2", "160"]),
    (5, "blocks 2", &["2", "400"]),
    (6, "small 8", &["8", "8000"]),
    (7, "fragments 8", &["8", "96"]),
    (8, "bursts 8", &["8", "4000"]),
];
/// The number of runs; each figure is their median.
const ROUNDS: usize = 3;
/// The time after which a program counts as hanging.
const LIMIT: Duration = Duration::from_secs(600);

/// The figures of one build in bytes: peaks of all rows, and the resident memory at the start and after an idle second.
struct Figures {
    peaks: Vec<u64>,
    start: u64,
    idle: u64,
}

/// Prints the table of `docs/profiles.md`.
///
/// # Errors
/// A part does not build, or a program fails or cannot be traced.
pub(crate) fn bench(args: QuickArgs) -> Result<()> {
    let rounds = if args.quick { 1 } else { ROUNDS };
    let bench = Bench::open("profiles")?;
    let workshop = Workshop::new(&bench.home, &command::build_allograft()?)?;
    let sources = NAMES.map(Part::suite);

    let heads = RUNS.map(|(_, head, _)| head).join(" | ");
    println!("| malloc | profile | {heads} | all, added up | at the start | idle for 1 s |");
    println!("| --- | --- |{} --- | --- | --- |", " --- |".repeat(RUNS.len()));
    let stock = measure(&workshop.with_musl("stock", None, &sources)?, rounds)?;
    print("stock", "", &stock, &stock);
    for donor in builds::donors(&workshop.allograft)? {
        for profile in &donor.profiles {
            let arguments = ["--donor", &donor.name, "--profile", profile];
            let home = format!("{}-{profile}", donor.name);
            let figures = measure(&workshop.with_musl(&home, Some(&arguments), &sources)?, rounds)?;
            print(&donor.name, profile, &figures, &stock);
        }
    }
    Ok(())
}

fn measure(programs: &[PathBuf], rounds: usize) -> Result<Figures> {
    let mut peaks = Vec::new();
    let (mut start, mut idle) = (Vec::new(), Vec::new());
    for (program, _, arguments) in RUNS {
        let mut figures = Vec::new();
        for _ in 0..rounds {
            let arm = sessions::arm(NAMES[program], &programs[program], arguments);
            let run = sessions::bare().memory(&arm.invocation, LIMIT)?;
            ensure!(run.end.status == Status::Exit(0), "`{}` ended with {}", arm.name, run.end.status);
            figures.push(run.memory.with_context(|| format!("`{}` was killed", arm.name))?.peak_bytes);
            if NAMES[program] == "idle" {
                start.push(resident("start", &run.end.head)?);
                idle.push(resident("idle", &run.end.head)?);
            }
        }
        peaks.push(median(figures));
    }
    Ok(Figures { peaks, start: median(start), idle: median(idle) })
}

/// Returns the figure after `word` in `start N full N idle N`.
///
/// # Errors
/// There is no such figure.
pub(crate) fn resident(word: &str, printed: &str) -> Result<u64> {
    let figure = printed.split_whitespace().skip_while(|text| *text != word).nth(1).and_then(|text| text.parse().ok());
    figure.with_context(|| format!("`{}` has no number behind `{word}`", printed.trim()))
}

/// Returns the median, or 0 for an empty list.
pub(crate) fn median(mut figures: Vec<u64>) -> u64 {
    figures.sort_unstable();
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

fn print(name: &str, profile: &str, figures: &Figures, stock: &Figures) {
    let cell = |peak: u64, stock: u64| format!("{:.1} MB ({:.2})", peak as f64 / 1e6, peak as f64 / stock as f64);
    let mut cells: Vec<String> =
        figures.peaks.iter().zip(&stock.peaks).map(|(peak, stock)| cell(*peak, *stock)).collect();
    cells.push(cell(figures.peaks.iter().sum(), stock.peaks.iter().sum()));
    let (start, idle) = (figures.start as f64 / 1e6, figures.idle as f64 / 1e6);
    println!("| {name} | {profile} | {} | {start:.2} MB | {idle:.1} MB |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_and_their_middle_taken() {
        let printed = "start 1 full 300 idle 20\n";
        assert_eq!((resident("start", printed).unwrap(), resident("idle", printed).unwrap()), (1, 20));
        assert!(resident("idle", "start 1 idle").is_err());
        assert_eq!(median(vec![9, 1, 5]), 5);
    }
}
