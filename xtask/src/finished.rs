//! `cargo xtask bench finished`: a program that was grafted when it was finished, beside the same program linked with the donor.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use measure::statistics::{Ratio, median};

use crate::grafts::Workshop;
use crate::page::Table;
use crate::rounds::{self, Effort};
use crate::{command, memory, setup, workspace};

/// Of the graft's time to that of the relinked program: within 5 %.
const GOAL: f64 = 1.05;
/// Of the graft's peak memory to that of the relinked program, with many threads that end.
const MEMORY_GOAL: f64 = 2.0;
const ARMS: [&str; 3] = ["stock", "relinked", "grafted"];
/// Threads, keys, lookups of all threads: short runs, and many of them, as a machine's speed comes and goes in seconds.
const MAPS: [[&str; 3]; 3] = [["1", "20000", "500000"], ["2", "20000", "500000"], ["8", "20000", "500000"]];
const THREADS: [[&str; 2]; 2] = [["10000", "8"], ["10000", "64"]];
const PEAKS: usize = 5;

/// Where the tables go.
const TABLE: Table = Table {
    page: "docs/executables-proof.md",
    begin: "<!-- made by `cargo xtask bench finished --write` -->",
    end: "<!-- end of the tables beside relinking -->",
};

/// `cargo xtask bench finished [--rounds N] [--donor NAME] [--allograft PROGRAM] [--write]`.
///
/// # Errors
/// When something does not build, or two arms print different things.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    let (mut wanted, mut donor, mut program, mut write) = (150, "mimalloc".to_owned(), None, false);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("`{argument}` takes a value"));
        match argument.as_str() {
            "--rounds" => wanted = value()?.parse().context("`--rounds` takes a number")?,
            "--donor" => donor.clone_from(value()?),
            "--allograft" => program = Some(PathBuf::from(value()?).canonicalize()?),
            "--write" => write = true,
            _ => bail!("`bench finished` knows `--rounds N`, `--donor NAME`, `--allograft PROGRAM` and `--write`"),
        }
    }
    ensure!(wanted > 0, "`--rounds` takes a number of at least 1");
    setup::prepare(setup::Extent::Demo)?;
    let allograft = match program {
        Some(program) => program,
        None => command::build_allograft()?,
    };
    let folder = workspace::build().join("bench").join("finished");
    fs::create_dir_all(&folder)?;
    let _lock = setup::lock(&folder.join(".lock"))?;
    let workshop = Workshop::new(&folder)?;
    let sources = [workspace::root().join("suite/map/map.c"), workspace::root().join("xtask/programs/short_threads.c")];
    let stock = workshop.link_sources("stock", None, &sources)?;
    // A finished program keeps its string functions: so does the one beside it.
    let graft = ["--donor", &donor, "--strings", "off"];
    let relinked = workshop.link_sources("relinked", Some((&allograft, &graft)), &sources)?;
    let mut grafted = Vec::new();
    fs::create_dir_all(folder.join("grafted"))?;
    for program in &stock {
        let out = folder.join("grafted").join(program.file_name().context("a program has a name")?);
        let mut command = Command::new(&allograft);
        command.args(["-q", "graft", "--donor", &donor]).arg(program).arg("-o").arg(&out);
        command::output(&mut command)?;
        grafted.push(out);
    }
    let arms = [stock, relinked, grafted];

    let text = format!("{}\n{}", times(&arms, &donor, wanted)?, peaks(&arms)?);
    print!("{text}");
    if write { TABLE.write(&text) } else { Ok(()) }
}

/// A program of each arm, in the order of the sources.
type Programs = [Vec<PathBuf>; ARMS.len()];

fn times(arms: &Programs, donor: &str, wanted: usize) -> Result<String> {
    let mut text = format!(
        "map with {donor}, {wanted} rounds, median times; ratios within each round, with the interval in which they lie at 95 %\n\n\
         | threads | stock | relinked | grafted | relinked to stock | grafted to stock | **grafted to relinked** |\n\
         | --- | --- | --- | --- | --- | --- | --- |\n"
    );
    for arguments in MAPS {
        let make = |arm: usize| {
            let mut command = Command::new(&arms[arm][0]);
            command.args(arguments);
            command
        };
        let expected = command::output(&mut make(0))?;
        let effort = Effort { least: wanted, most: wanted, budget: Duration::ZERO };
        let seconds = rounds::interleave(ARMS.len(), effort, &expected, &mut |arm| make(arm))?;
        let medians = seconds.iter().map(|times| format!("{:.3} s", median(times))).collect::<Vec<_>>().join(" | ");
        let ratio = |arm: usize, to: usize| Ratio::paired(&seconds[arm], &seconds[to]).context("no rounds");
        let (relinked, grafted, last) = (ratio(1, 0)?, ratio(2, 0)?, ratio(2, 1)?);
        let _ = writeln!(
            text,
            "| {} | {medians} | {} | {} | {}, {} |",
            arguments[0],
            shown(&relinked),
            shown(&grafted),
            shown(&last),
            verdict(&last)
        );
    }
    Ok(text)
}

fn shown(ratio: &Ratio) -> String {
    match (ratio.low, ratio.high) {
        (Some(low), Some(high)) => format!("{:.3} ({low:.3}-{high:.3})", ratio.value),
        _ => format!("{:.3}", ratio.value),
    }
}

/// Whether the goal is met, as far as that many rounds can say.
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
         | threads, alive at once | stock | relinked | grafted | grafted to relinked |\n| --- | --- | --- | --- | --- |\n"
    );
    for arguments in THREADS {
        let mut peaks: [Vec<f64>; ARMS.len()] = Default::default();
        for _ in 0..PEAKS {
            for (arm, peaks) in arms.iter().zip(&mut peaks) {
                let run = memory::run(Command::new(&arm[1]).args(arguments))?;
                ensure!(run.stdout.trim() == arguments[0], "`{}` printed `{}`", arm[1].display(), run.stdout.trim());
                #[allow(clippy::cast_precision_loss, reason = "megabytes with one decimal")]
                peaks.push(run.peak as f64 / 1e6);
            }
        }
        let [stock, relinked, grafted] = peaks.map(|peaks| median(&peaks));
        let ratio = grafted / relinked;
        let verdict = if ratio <= MEMORY_GOAL { "within" } else { "beyond" };
        let _ = writeln!(
            text,
            "| {}, {} | {stock:.1} MB | {relinked:.1} MB | {grafted:.1} MB | {ratio:.2}, {verdict} the goal of {MEMORY_GOAL} |",
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
