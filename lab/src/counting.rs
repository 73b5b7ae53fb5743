//! `cargo xtask bench counting`: the cost of statistics while they are off. The cost is counted in instructions, which
//! are exact, and in processor time.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use measure::session::{Plan, Run};
use measure::statistics::Spread;
use tools::command;
use xtask::sessions;

use crate::builds::{self, Part, Workshop};
use crate::experiment::Bench;
use crate::steps;

/// A program that only calls malloc and free. Its argument is the number of pairs.
const PROGRAM: &str = "pairs";
const TIMED: u64 = 3_000_000;
/// The numbers of pairs whose instructions are counted. The code before the first pair and after the last is the same
/// in both runs.
const STEPPED: [u64; 2] = [960, 1_440];
const ROUNDS: usize = 21;

/// Compares every donor, with counting off, with the same donor built without counting: instructions, counted exactly,
/// and processor time of the program alone, paired by round.
///
/// # Errors
/// A part does not build, or a program fails.
pub(crate) fn bench() -> Result<()> {
    let bench = Bench::open("counting")?;
    eprintln!("bench: building allograft twice, the second time with donors that cannot count ...");
    let shipped = command::build_allograft()?;
    let build = bench.home.join("without");
    let without = command::build_allograft_with(&[
        ("ALLOGRAFT_DONOR_DEFINE", "GRAFT_WITHOUT_COUNTING".as_ref()),
        ("CARGO_TARGET_DIR", build.as_os_str()),
    ])?;
    let (shipped, without) = (Workshop::new(&bench.home, &shipped)?, Workshop::new(&build, &without)?);
    println!("counting off, against the same donor built without counting; malloc and free together; {ROUNDS} rounds:");
    println!("| donor | instructions without | more | processor time, ratio: median (least to greatest) |");
    println!("| --- | --- | --- | --- |");
    for donor in builds::donors(&shipped.allograft)? {
        let link = |by: &Workshop| by.with_musl(&donor.name, Some(&["--donor", &donor.name]), &[Part::suite(PROGRAM)]);
        let (with, bare) = (link(&shipped)?, link(&without)?);
        let (more, least) = (instructions(&with[0])?, instructions(&bare[0])?);
        let ratios = ratios(&with[0], &bare[0])?;
        let Spread { median, min: low, max: high, .. } = Spread::new(&ratios).context("no rounds")?;
        let name = &donor.name;
        println!("| `{name}` | {least:.1} | {:.1} | {median:.3} ({low:.3} to {high:.3}) |", more - least);
    }
    Ok(())
}

/// Returns the instructions of one pair and of the loop around it.
fn instructions(program: &Path) -> Result<f64> {
    let run = |pairs: u64| steps::count(Command::new(program).env_clear().arg(pairs.to_string()));
    let [few, many] = STEPPED;
    Ok((run(many)? as f64 - run(few)? as f64) / (many - few) as f64)
}

/// Returns the ratio of processor times, user and system, of each round.
fn ratios(with: &Path, bare: &Path) -> Result<Vec<f64>> {
    let arm = |name, program| sessions::arm(name, program, [TIMED.to_string()]);
    let case = sessions::case("pairs", vec![arm("without counting", bare), arm("as it is", with)]);
    // The number of rounds is fixed: processor times of single runs vary far more than the wall times that would end
    // the rounds early.
    let rounds =
        Plan { least_rounds: ROUNDS, most_rounds: ROUNDS, budget: Duration::from_secs(600), ..Plan::default() };
    let plan = Plan { memory_runs: 0, count_calls: false, ..rounds };
    let session = sessions::compare(&case, &plan, &mut sessions::bare())?;
    let spent = |run: &Run| run.figures.user_s + run.figures.system_s;
    let [bare, with] = [0, 1].map(|arm: usize| session.arms[arm].runs.iter().map(spent));
    Ok(with.zip(bare).map(|(with, bare)| with / bare).collect())
}
