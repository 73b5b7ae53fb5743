//! `cargo xtask bench counting`: what statistics cost while they are off.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::grafts::{self, Workshop};
use crate::rounds::Spread;
use crate::{command, setup, steps, workspace};

/// A program that calls and nothing else, and its one argument: so many pairs of malloc and free.
const PROGRAM: &str = "pairs";
const TIMED: u64 = 3_000_000;
/// Counted by single steps. What comes before the first pair and after the last is the same in both runs.
const STEPPED: [u64; 2] = [960, 1_440];
const ROUNDS: usize = 21;

/// Compares every donor as it is, counting off, with the same donor built without counting: instructions, counted exactly, and
/// processor time of the program alone, paired and interleaved.
///
/// # Errors
/// When something does not build, or a program fails.
pub(crate) fn bench() -> Result<()> {
    setup::prepare(setup::Extent::Demo)?;
    let folder = workspace::build().join("bench").join("counting");
    fs::create_dir_all(&folder)?;
    let _lock = setup::lock(&folder.join(".lock"))?;
    eprintln!("bench: building allograft twice, the second time with donors that cannot count ...");
    let shipped = command::build_allograft()?;
    let build = folder.join("without");
    let without = command::build_allograft_with(&[
        ("ALLOGRAFT_DONOR_DEFINE", "GRAFT_WITHOUT_COUNTING".as_ref()),
        ("CARGO_TARGET_DIR", build.as_os_str()),
    ])?;
    let workshop = Workshop::new(&folder)?;
    println!("counting off, against the same donor built without counting; malloc and free together; {ROUNDS} rounds:");
    println!("| donor | instructions without | more | processor time, ratio: median (least to greatest) |");
    println!("| --- | --- | --- | --- |");
    for donor in grafts::donors(&shipped)? {
        let arguments = ["--donor", &donor.name];
        let with = workshop.link(&format!("{}-shipped", donor.name), Some((&shipped, &arguments)), &[PROGRAM])?;
        let bare = workshop.link(&format!("{}-without", donor.name), Some((&without, &arguments)), &[PROGRAM])?;
        let (more, least) = (instructions(&with[0])?, instructions(&bare[0])?);
        let ratios = ratios(&with[0], &bare[0])?;
        let Spread { median, low, high } = Spread::of(&ratios).context("no rounds")?;
        let name = &donor.name;
        println!("| `{name}` | {least:.1} | {:.1} | {median:.3} ({low:.3} to {high:.3}) |", more - least);
    }
    Ok(())
}

/// Instructions of one pair and of the loop around it.
#[allow(clippy::cast_precision_loss, reason = "millions")]
fn instructions(program: &Path) -> Result<f64> {
    let run = |pairs: u64| steps::count(Command::new(program).env_clear().arg(pairs.to_string()));
    let [few, many] = STEPPED;
    Ok((run(many)? as f64 - run(few)? as f64) / (many - few) as f64)
}

/// Of each round: processor time of the one over that of the other, beginning with either in turn.
fn ratios(with: &Path, bare: &Path) -> Result<Vec<f64>> {
    let mut ratios = Vec::new();
    for round in 0..ROUNDS {
        let (one, other) = if round % 2 == 0 { (with, bare) } else { (bare, with) };
        let (first, second) = (processor_time(one)?, processor_time(other)?);
        ratios.push(if round % 2 == 0 { first / second } else { second / first });
    }
    Ok(ratios)
}

/// Seconds on the processor, user and system.
#[allow(clippy::cast_precision_loss, reason = "microseconds of some seconds")]
fn processor_time(program: &Path) -> Result<f64> {
    let spent = |usage: &Usage| (usage.user_time() + usage.system_time()).num_microseconds() as f64 / 1e6;
    let before = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let said = command::output(Command::new(program).env_clear().arg(TIMED.to_string()))?;
    let after = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    ensure!(said.starts_with("sum "), "`{}` printed `{}`", program.display(), said.trim());
    Ok(spent(&after) - spent(&before))
}
