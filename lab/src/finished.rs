//! `cargo xtask bench finished`: a graft of a linked program, compared with the same program linked with the donor.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use measure::process::Processes;
use measure::session::{ArmRuns, Plan, log_ratios};
use measure::statistics::{Ratio, median};
use tools::command;
use xtask::page::Table;
use xtask::sessions;

use crate::builds::{Part, Workshop};
use crate::experiment::{Bench, range};

/// The goal for the ratio of the graft's time to the relinked program's: within 5 %.
const GOAL: f64 = 1.05;
/// The goal for the ratio of peak memory, with many threads that end.
const MEMORY_GOAL: f64 = 2.0;
const ARMS: [&str; 3] = ["stock", "relinked", "grafted"];
/// Threads, keys, and lookups of all threads together. Many short runs, since a machine's speed varies from second to
/// second.
const MAPS: [[&str; 3]; 3] = [["1", "20000", "500000"], ["2", "20000", "500000"], ["8", "20000", "500000"]];
const THREADS: [[&str; 2]; 2] = [["10000", "8"], ["10000", "64"]];
const PEAKS: usize = 5;
const PLAN: Plan = Plan {
    seed: 0,
    least_rounds: 1,
    most_rounds: 1,
    budget: Duration::from_secs(3600),
    precision: 0.01,
    of_the_difference: 0.1,
    warm_up: 1,
    memory_runs: 0,
    count_calls: false,
    compare_output: true,
};

/// The place of the tables in the docs.
const TABLE: Table = Table {
    page: "docs/executables-proof.md",
    begin: "<!-- made by `cargo xtask bench finished --write` -->",
    end: "<!-- end of the tables beside relinking -->",
};

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct FinishedArgs {
    /// At most so many rounds for each number of threads
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// The donor
    #[arg(long, value_name = "NAME", default_value = "snmalloc")]
    donor: String,
    /// Graft by this program, not by the one built here
    #[arg(long, value_name = "PROGRAM")]
    allograft: Option<PathBuf>,
    /// Put the tables into the docs
    #[arg(long)]
    write: bool,
}

/// Links, grafts and measures, and prints the tables.
///
/// # Errors
/// A part does not build, or the arms' outputs differ.
pub(crate) fn bench(args: &FinishedArgs) -> Result<()> {
    let donor = args.donor.as_str();
    let bench = Bench::open("finished")?;
    let allograft = command::given_or_built(args.allograft.as_deref())?;
    let workshop = Workshop::new(&bench.home, &allograft)?;
    let sources = [Part::suite("map"), Part::source("lab/programs/short_threads.c")];
    let stock = workshop.with_musl("stock", None, &sources)?;
    // A grafted executable keeps its string functions, so the relinked program must keep them too.
    let relinked = workshop.with_musl("relinked", Some(&["--donor", donor, "--strings", "off"]), &sources)?;
    let mut grafted = Vec::new();
    let folder = bench.emptied("grafted")?;
    for program in &stock {
        let out = folder.join(program.file_name().context("a program has a name")?);
        let mut command = Command::new(&allograft);
        command.args(["-q", "graft", "--donor", donor]).arg(program).arg("-o").arg(&out);
        command::output(&mut command)?;
        grafted.push(out);
    }
    let arms = [stock, relinked, grafted];

    let text = format!("{}\n{}", times(&arms, donor, usize::from(args.rounds))?, peaks(&arms)?);
    print!("{text}");
    if args.write { TABLE.write(&text) } else { Ok(()) }
}

/// The programs of each arm, in the order of the sources.
type Programs = [Vec<PathBuf>; ARMS.len()];

fn times(arms: &Programs, donor: &str, most_rounds: usize) -> Result<String> {
    let plan = Plan { least_rounds: most_rounds.min(30), most_rounds, memory_runs: 0, ..PLAN };
    let (mut rows, mut rounds) = (String::new(), Vec::new());
    for arguments in MAPS {
        let arm = |(name, programs): (&&str, &Vec<PathBuf>)| sessions::arm(name, &programs[0], arguments);
        let case = sessions::case("map", ARMS.iter().zip(arms).map(arm).collect());
        let session = sessions::compare(&case, &plan, &mut Processes::default())?;
        let [stock, relinked, grafted] = session.arms.as_slice() else { bail!("three arms were compared") };
        rounds.push(stock.runs.len());
        let middle = |arm: &ArmRuns| format!("{:.3} s", median(&sessions::seconds(arm)));
        let ratio = |arm: &ArmRuns, to: &ArmRuns| Ratio::of_logs(&log_ratios(&arm.runs, &to.runs)).context("no rounds");
        let last = ratio(grafted, relinked)?;
        let _ = writeln!(
            rows,
            "| {} | {} | {} | {} | {} | {} | {}, {} |",
            arguments[0],
            middle(stock),
            middle(relinked),
            middle(grafted),
            shown(&ratio(relinked, stock)?),
            shown(&ratio(grafted, stock)?),
            shown(&last),
            verdict(&last)
        );
    }
    let (least, most) = (rounds.iter().min().context("no cases")?, rounds.iter().max().context("no cases")?);
    let rounds = range(*least, *most);
    let unit = if *most == 1 { "round" } else { "rounds" };
    Ok(format!(
        "map with {donor}, {rounds} {unit}, median times; ratios within each round, \
         with the interval in which they lie at 95 %\n\n\
         | threads | stock | relinked | grafted | relinked to stock | grafted to stock | **grafted to relinked** |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n{rows}"
    ))
}

/// Returns a ratio with three digits behind the point, and its interval.
pub(crate) fn shown(ratio: &Ratio) -> String {
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{:.3} ({low:.3}-{high:.3})", ratio.value),
        _ => format!("{:.3}", ratio.value),
    }
}

/// Returns whether the goal is met, as far as this number of rounds can show it.
fn verdict(ratio: &Ratio) -> String {
    match (ratio.low, ratio.high) {
        (_, Some(high)) if high <= GOAL => format!("within the goal of {GOAL}"),
        (Some(low), _) if low > GOAL => format!("beyond the goal of {GOAL}"),
        _ => format!("within or beyond the goal of {GOAL}: more rounds would tell"),
    }
}

fn peaks(arms: &Programs) -> Result<String> {
    let mut text = format!(
        "Peak memory of threads that end soon, median of {PEAKS} runs\n\n\
         | threads, alive at once | stock | relinked | grafted | grafted to relinked |\n| --- | --- | --- | \
          --- | --- |\n"
    );
    let plan = Plan { least_rounds: 1, most_rounds: 1, memory_runs: PEAKS, ..PLAN };
    for arguments in THREADS {
        let arm = |(name, programs): (&&str, &Vec<PathBuf>)| sessions::arm(name, &programs[1], arguments);
        let case = sessions::case("short_threads", ARMS.iter().zip(arms).map(arm).collect());
        let session = sessions::compare(&case, &plan, &mut Processes::default())?;
        let peaks: Option<Vec<f64>> = session.arms.iter().map(sessions::megabytes).collect();
        let Some(&[stock, relinked, grafted]) = peaks.as_deref() else {
            bail!("the memory of `short_threads` cannot be read here");
        };
        let ratio = grafted / relinked;
        let verdict = if ratio <= MEMORY_GOAL { "within" } else { "beyond" };
        let _ = writeln!(
            text,
            "| {}, {} | {stock:.1} MB | {relinked:.1} MB | {grafted:.1} MB | {ratio:.2}, {verdict} the goal \
             of {MEMORY_GOAL} |",
            arguments[0], arguments[1],
        );
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_or_missed_only_if_the_whole_interval_is() {
        let of = |middle: f64, half: f64| {
            let figures: Vec<f64> = (-10..=10).map(|step| middle + half * f64::from(step) / 3.0).collect();
            verdict(&Ratio::paired(&figures, &vec![1.0; figures.len()]).unwrap())
        };
        assert!(of(1.0, 0.02).starts_with("within the goal"));
        assert!(of(1.2, 0.02).starts_with("beyond the goal"));
        assert!(of(1.05, 0.05).contains("more rounds"));
    }
}
