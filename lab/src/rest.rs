//! `cargo xtask bench rest`: the cost of a program that does nothing, and the memory that an idle process still holds
//! after it has freed everything.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use measure::case::{Arm, Case};
use measure::machine::Machine;
use measure::report::{bytes, count, ratio, seconds};
use measure::results::{self, CaseResult};
use measure::session::Plan;
use serde::{Deserialize, Serialize};
use tools::{command, folder, workspace};
use xtask::linking::{Compiler, Musl};
use xtask::page::{KeptTable, Table};
use xtask::sessions;

use crate::profiles::{median, resident};
use crate::real::build::{self, Builder, RealArm};
use crate::real::program::Part;

/// The table in the docs.
pub(crate) const TABLE: KeptTable<Rest> = KeptTable {
    figures: "docs/figures/rest.json",
    place: Table {
        page: "docs/bench-figures.md",
        begin: "<!-- rest: made by `cargo xtask bench tables` -->",
        end: "<!-- /rest -->",
    },
    text: table,
};
/// The arguments of `idle`: 256 MiB in 4 threads; its memory is read 1 and 30 seconds after the last free.
const IDLE: [&str; 3] = ["256", "4", "30"];
/// The number of runs of `idle`; each figure is their median.
const RUNS: usize = 3;

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct RestArgs {
    /// Keep the figures in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// The figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Rest {
    schema_version: u32,
    allograft: String,
    machine: Machine,
    /// Runs of a program that does nothing.
    nothing: CaseResult,
    /// The memory of an idle process, by arm.
    idle: Vec<IdleMemory>,
}

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

/// Builds, measures, prints, and keeps the figures if `--save` is set.
///
/// # Errors
/// A program does not build, or fails.
pub(crate) fn bench(args: &RestArgs) -> Result<()> {
    tools::prepare_for_one()?;
    let allograft = command::build_allograft()?;
    let home = workspace::build().join("bench").join("rest");
    fs::create_dir_all(&home)?;
    let _lock = folder::lock(&home.join(".lock"))?;
    let builder = Builder { home: &home, allograft: &allograft, musl: Musl::find()?, compiler: Compiler::find()? };
    let arms = build::arms(&allograft)?;
    let libcs = builder.libcs(&arms)?;
    let nothing = nothing(&arms, &linked(&builder, "nothing", &arms, &libcs)?)?;
    let idle = idle(&arms, &linked(&builder, "idle", &arms, &libcs)?)?;
    let rest = Rest {
        schema_version: 1,
        allograft: env!("CARGO_PKG_VERSION").to_owned(),
        machine: Machine::this(),
        nothing,
        idle,
    };
    println!("{}", table(&rest));
    if let Some(path) = &args.save {
        fs::write(path, results::compact(&rest)?).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(())
}

/// Links a program of the suite for each arm.
fn linked(builder: &Builder<'_>, name: &str, arms: &[RealArm], libcs: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let source = workspace::root().join("suite").join(name).join(name).with_extension("c");
    let part = [Part { name: "suite", sources: vec![source], flags: Vec::new(), is_archive: false }];
    let (of_musl, of_glibc) = (builder.compile(name, &part, false)?, builder.compile(name, &part, true)?);
    arms.iter().zip(libcs).map(|(arm, libc)| builder.link(name, [&of_musl, &of_glibc], arm, libc)).collect()
}

fn nothing(arms: &[RealArm], programs: &[PathBuf]) -> Result<CaseResult> {
    let arm = |(arm, program): (&RealArm, &PathBuf)| sessions::arm(&arm.name, program, [""; 0]);
    let arms: Vec<Arm> = arms.iter().zip(programs).map(arm).collect();
    let case: Case = sessions::case("nothing", arms);
    let plan = Plan {
        budget: Duration::from_secs(40),
        least_rounds: 40,
        most_rounds: 1000,
        precision: 0.03,
        of_the_difference: 0.0,
        count_calls: false,
        ..Plan::default()
    };
    let (mut results, _) = sessions::compare_all(&[case], &plan)?;
    results.pop().context("nothing was measured")
}

/// Runs all arms side by side, since they sleep nearly all of the time.
fn idle(arms: &[RealArm], programs: &[PathBuf]) -> Result<Vec<IdleMemory>> {
    let mut printed: Vec<Vec<String>> = arms.iter().map(|_| Vec::new()).collect();
    for run in 0..RUNS {
        eprintln!("bench: idle processes, {} of {RUNS}", run + 1);
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

fn table(rest: &Rest) -> String {
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
        "{text}\n{}; allograft {}; {} rounds of starts; memory of idle processes: the median of {RUNS} runs.\n",
        rest.machine.description(),
        rest.allograft,
        rest.nothing.rounds
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_docs_is_that_of_the_kept_figures() {
        TABLE.check().unwrap();
    }
}
