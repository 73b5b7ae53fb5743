//! `cargo xtask bench rest`: the cost of a program that does nothing, and the memory that an idle process still holds
//! after it has freed everything.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use measure::report::{bytes, count, ratio, seconds};
use measure::results::CaseResult;
use measure::session::Plan;
use serde::{Deserialize, Serialize};
use tools::command;
use xtask::sessions;

use crate::builds::{LinkedArm, Part, Workshop};
use crate::experiment::{Bench, Experiment, Figures, Record};
use crate::profiles::{median, resident};

/// The experiment.
pub(crate) const EXPERIMENT: Experiment<Record<Rest>> = Experiment { name: "rest", programs: &[], minutes: 1, table };
/// The arguments of `idle`: 256 MiB in 4 threads; its memory is read 1 and 30 seconds after the last free.
const IDLE: [&str; 3] = ["256", "4", "30"];
/// The number of runs of `idle`; each figure is their median.
const RUNS: usize = 3;

/// The figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Rest {
    /// Runs of a program that does nothing.
    nothing: CaseResult,
    /// The memory of an idle process, by arm.
    idle: Vec<IdleMemory>,
}

impl Figures for Rest {}

/// Bytes resident in a process of one arm.
#[derive(Debug, Serialize, Deserialize)]
struct IdleMemory {
    arm: String,
    /// While all blocks are allocated.
    full: u64,
    /// A second after the last free.
    one_second: u64,
    /// Thirty seconds after the last free.
    thirty_seconds: u64,
}

/// Builds the programs, and measures both.
///
/// # Errors
/// A program does not build, or fails.
pub(crate) fn measure(bench: &Bench) -> Result<Record<Rest>> {
    let workshop = Workshop::new(&bench.home, &command::build_allograft()?)?;
    let arms = workshop.arms()?;
    let programs = |name: &str| workshop.programs(name, &[Part::suite(name)], &arms);
    let nothing = nothing(bench, &arms, &programs("nothing")?)?;
    Ok(Record::new(Rest { nothing, idle: idle(bench, &arms, &programs("idle")?)? }))
}

fn nothing(bench: &Bench, arms: &[LinkedArm], programs: &[PathBuf]) -> Result<CaseResult> {
    let arms = arms.iter().zip(programs).map(|(arm, program)| sessions::arm(&arm.name, program, [""; 0]));
    let case = sessions::case("nothing", arms.collect());
    let plan = Plan { most_rounds: 1000, precision: 0.03, ..bench.plan(40, 1.0) };
    sessions::compare_all(&[case], &plan)?.0.pop().context("nothing was measured")
}

/// Runs all arms side by side, since they sleep nearly all of the time.
fn idle(bench: &Bench, arms: &[LinkedArm], programs: &[PathBuf]) -> Result<Vec<IdleMemory>> {
    let mut printed: Vec<Vec<String>> = arms.iter().map(|_| Vec::new()).collect();
    let runs = if bench.quick { 1 } else { RUNS };
    for run in 0..runs {
        eprintln!("bench: idle processes, {} of {runs}", run + 1);
        let start = |program: &PathBuf| {
            let mut command = Command::new(program);
            // An empty environment, since variables can tune an allocator.
            command.args(IDLE).env_clear().stdin(Stdio::null()).stdout(Stdio::piped());
            command.spawn().with_context(|| format!("cannot start `{}`", program.display()))
        };
        let children: Vec<_> = programs.iter().map(start).collect::<Result<_>>()?;
        for ((arm, child), printed) in arms.iter().zip(children).zip(&mut printed) {
            let output = child.wait_with_output()?;
            ensure!(output.status.success(), "`idle` with {} ended with {}", arm.name, output.status);
            printed.push(String::from_utf8_lossy(&output.stdout).into_owned());
        }
    }
    let held = arms.iter().zip(&printed).map(|(arm, printed)| {
        let middle = |word: &str| -> Result<u64> {
            Ok(median(printed.iter().map(|text| resident(word, text)).collect::<Result<_>>()?))
        };
        let arm = arm.name.clone();
        Ok(IdleMemory { arm, full: middle("full")?, one_second: middle("idle")?, thirty_seconds: middle("later")? })
    });
    held.collect()
}

fn table(record: &Record<Rest>) -> String {
    let rest = &record.figures;
    let mut text = "| | start and end | to stock (95 %) | processor time, to stock | peak memory | page faults \
                    | full | after 1 s | after 30 s |\n| --- |"
        .to_owned();
    text.push_str(&" --- |".repeat(8));
    text.push('\n');
    for (arm, held) in rest.nothing.arms.iter().zip(&rest.idle) {
        let cells = [
            arm.name.clone(),
            arm.cost_s.map_or_else(String::new, |cost| seconds(cost.median)),
            arm.ratio_to_stock.as_ref().map_or_else(String::new, ratio),
            arm.processor_ratio_to_stock.as_ref().map_or_else(String::new, ratio),
            arm.peak_memory_bytes.map_or_else(String::new, bytes),
            arm.page_faults().map_or_else(String::new, count),
            bytes(held.full),
            bytes(held.one_second),
            bytes(held.thirty_seconds),
        ];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    format!(
        "{text}\n{}; {} rounds of starts; memory of idle processes: the median of {RUNS} runs.\n",
        record.origin(),
        rest.nothing.rounds
    )
}
