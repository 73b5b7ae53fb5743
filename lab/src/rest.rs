//! `cargo xtask bench rest`: the cost of a program that does nothing, and the memory that an idle process still holds
//! after it has freed everything, or all but one block in a hundred.

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
/// The arguments of `holes`: a million blocks in 4 threads; its memory is read when all but one in a hundred are free,
/// and after 2 seconds with few calls.
const HOLES: [&str; 3] = ["250000", "4", "2"];
/// The number of runs of `idle` and `holes`; each figure is their median.
const RUNS: usize = 3;

/// The figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Rest {
    /// Runs of a program that does nothing.
    nothing: CaseResult,
    /// The memory of an idle process, by arm.
    idle: Vec<IdleMemory>,
    /// The memory of a process that has freed most of its blocks, by arm.
    holes: Vec<Holes>,
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

/// Bytes in a process of one arm that has freed all but one block in a hundred.
#[derive(Debug, Serialize, Deserialize)]
struct Holes {
    arm: String,
    /// Resident while all blocks are allocated.
    full: u64,
    /// Resident after the last free.
    freed: u64,
    /// Resident two seconds later.
    later: u64,
    /// Resident at the start, with the pages that carry a block that is left.
    floor: u64,
}

/// Builds the programs, and measures all.
///
/// # Errors
/// A program does not build, or fails.
pub(crate) fn measure(bench: &Bench) -> Result<Record<Rest>> {
    let workshop = Workshop::new(&bench.home, &command::build_allograft()?)?;
    let arms = workshop.arms()?;
    let programs = |name: &str| workshop.programs(name, &[Part::suite(name)], &arms);
    let nothing = nothing(bench, &arms, &programs("nothing")?)?;
    let of_idle = side_by_side(bench, &arms, &programs("idle")?, "idle", IDLE)?;
    let of_holes = side_by_side(bench, &arms, &programs("holes")?, "holes", HOLES)?;
    let idle = arms.iter().zip(&of_idle).map(|(arm, printed)| idle(arm, printed)).collect::<Result<_>>()?;
    let holes = arms.iter().zip(&of_holes).map(|(arm, printed)| holes(arm, printed)).collect::<Result<_>>()?;
    Ok(Record::new(Rest { nothing, idle, holes }))
}

fn nothing(bench: &Bench, arms: &[LinkedArm], programs: &[PathBuf]) -> Result<CaseResult> {
    let arms = arms.iter().zip(programs).map(|(arm, program)| sessions::arm(&arm.name, program, [""; 0]));
    let case = sessions::case("nothing", arms.collect());
    let plan = Plan { most_rounds: 1000, precision: 0.03, ..bench.plan(40, 1.0) };
    sessions::compare_all(&[case], &plan)?.0.pop().context("nothing was measured")
}

/// Runs a program of all arms side by side, since they sleep nearly all of the time. Returns what each run printed, by
/// arm.
fn side_by_side(
    bench: &Bench,
    arms: &[LinkedArm],
    programs: &[PathBuf],
    name: &str,
    arguments: [&str; 3],
) -> Result<Vec<Vec<String>>> {
    let mut printed: Vec<Vec<String>> = arms.iter().map(|_| Vec::new()).collect();
    let runs = if bench.quick { 1 } else { RUNS };
    for run in 0..runs {
        eprintln!("bench: idle processes (`{name}`), {} of {runs}", run + 1);
        let start = |program: &PathBuf| {
            let mut command = Command::new(program);
            // An empty environment, since variables can tune an allocator.
            command.args(arguments).env_clear().stdin(Stdio::null()).stdout(Stdio::piped());
            command.spawn().with_context(|| format!("cannot start `{}`", program.display()))
        };
        let children: Vec<_> = programs.iter().map(start).collect::<Result<_>>()?;
        for ((arm, child), printed) in arms.iter().zip(children).zip(&mut printed) {
            let output = child.wait_with_output()?;
            ensure!(output.status.success(), "`{name}` with {} ended with {}", arm.name, output.status);
            printed.push(String::from_utf8_lossy(&output.stdout).into_owned());
        }
    }
    Ok(printed)
}

/// Returns the median of the numbers behind a word.
fn middle(word: &str, printed: &[String]) -> Result<u64> {
    Ok(median(printed.iter().map(|text| resident(word, text)).collect::<Result<_>>()?))
}

fn idle(arm: &LinkedArm, printed: &[String]) -> Result<IdleMemory> {
    let middle = |word| middle(word, printed);
    let arm = arm.name.clone();
    Ok(IdleMemory { arm, full: middle("full")?, one_second: middle("idle")?, thirty_seconds: middle("later")? })
}

fn holes(arm: &LinkedArm, printed: &[String]) -> Result<Holes> {
    let middle = |word| middle(word, printed);
    let arm = arm.name.clone();
    Ok(Holes { arm, full: middle("full")?, freed: middle("freed")?, later: middle("later")?, floor: middle("floor")? })
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
    text.push_str(
        "\n| all but one block in a hundred freed | full | then | 2 s later | floor | to the floor |\n| --- |",
    );
    text.push_str(&" --- |".repeat(5));
    text.push('\n');
    for held in &rest.holes {
        let cells = [held.full, held.freed, held.later, held.floor].map(bytes).join(" | ");
        let to_floor = held.later as f64 / held.floor as f64;
        text.push_str(&format!("| {} | {cells} | {to_floor:.2} |\n", held.arm));
    }
    format!(
        "{text}\n{}; {} rounds of starts; memory of idle processes: the median of {RUNS} runs.\n",
        record.origin(),
        rest.nothing.rounds
    )
}
