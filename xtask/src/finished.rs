//! `cargo xtask bench finished`: a program that was grafted when it was finished, beside the same program linked with the donor.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::grafts::Workshop;
use crate::rounds::{self, Effort, Spread};
use crate::{command, memory, setup, workspace};

/// Of the graft's time to that of the relinked program: within 5 %.
const GOAL: f64 = 1.05;
/// Of the graft's peak memory to that of the relinked program, with many threads that end.
const MEMORY_GOAL: f64 = 2.0;
const ARMS: [&str; 3] = ["stock", "relinked", "grafted"];
/// Threads, keys, lookups of each thread.
const MAPS: [[&str; 3]; 3] = [["1", "20000", "600000"], ["2", "20000", "300000"], ["8", "20000", "75000"]];
const THREADS: [[&str; 2]; 2] = [["10000", "8"], ["10000", "64"]];
const PEAKS: usize = 5;

/// `cargo xtask bench finished [--rounds N] [--donor NAME] [--allograft PROGRAM]`.
///
/// # Errors
/// When something does not build, or two arms print different things.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    let (mut wanted, mut donor, mut program) = (20, "mimalloc".to_owned(), None);
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let value = rest.next().with_context(|| format!("`{argument}` takes a value"))?;
        match argument.as_str() {
            "--rounds" => wanted = value.parse().context("`--rounds` takes a number")?,
            "--donor" => donor.clone_from(value),
            "--allograft" => program = Some(PathBuf::from(value).canonicalize()?),
            _ => bail!("`bench finished` knows `--rounds N`, `--donor NAME` and `--allograft PROGRAM`"),
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

    println!("map with {donor}, {wanted} rounds; ratios within each round: median (least to greatest)\n");
    println!(
        "| threads | stock | relinked | grafted | relinked to stock | grafted to stock | **grafted to relinked** |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for arguments in MAPS {
        let make = |arm: usize| {
            let mut command = Command::new(&arms[arm][0]);
            command.args(arguments);
            command
        };
        let expected = command::output(&mut make(0))?;
        let effort = Effort { least: wanted, most: wanted, budget: Duration::ZERO };
        let seconds = rounds::interleave(ARMS.len(), effort, &expected, &mut |arm| make(arm))?;
        let times: Vec<String> = seconds
            .iter()
            .map(|times| Spread::of(times).map_or(String::new(), |spread| format!("{:.3} s", spread.median)))
            .collect();
        let ratio = |arm: usize, to: usize| Spread::of_ratios(&seconds[arm], &seconds[to]).context("no rounds");
        let shown = |spread: Spread| format!("{:.2} ({:.2}-{:.2})", spread.median, spread.low, spread.high);
        let last = ratio(2, 1)?;
        let verdict = if last.median <= GOAL { "within" } else { "beyond" };
        println!(
            "| {} | {} | {} | {} | {:.3} ({:.3}-{:.3}), {verdict} the goal of {GOAL} |",
            arguments[0],
            times.join(" | "),
            shown(ratio(1, 0)?),
            shown(ratio(2, 0)?),
            last.median,
            last.low,
            last.high
        );
    }

    println!("\nPeak memory of threads that end soon, median of {PEAKS} runs\n");
    println!(
        "| threads, alive at once | stock | relinked | grafted | grafted to relinked |\n| --- | --- | --- | --- | --- |"
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
        let median = |arm: usize| Spread::of(&peaks[arm]).map_or(f64::NAN, |spread| spread.median);
        let ratio = median(2) / median(1);
        let verdict = if ratio <= MEMORY_GOAL { "within" } else { "beyond" };
        println!(
            "| {}, {} | {:.1} MB | {:.1} MB | {:.1} MB | {ratio:.2}, {verdict} the goal of {MEMORY_GOAL} |",
            arguments[0],
            arguments[1],
            median(0),
            median(1),
            median(2)
        );
    }
    Ok(())
}
