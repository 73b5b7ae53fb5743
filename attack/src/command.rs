//! The command line.

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use attack::flow::{Flow, Scene};
use attack::flows::FLOWS;
use attack::interference::{Outcome, Share, faults, kills};
use attack::ledger::{self, Line};
use attack::power;
use clap::{Parser, ValueEnum};

/// Attacks allograft: ends it at each system call, fails each call, loses the power.
#[derive(Debug, Parser)]
#[command(name = "attack", bin_name = "cargo xtask attack")]
struct Attack {
    /// The attacks [default: all]
    attacks: Vec<Kind>,
    /// Only flows with this in their name
    #[arg(long, value_name = "TEXT", default_value = "")]
    flow: String,
    /// One of N attacks
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: usize,
    /// Which one of N [default: by the number of lines in the ledger]
    #[arg(long, value_name = "N")]
    rest: Option<usize>,
    /// Add the counts to attack/counts.tsv and docs/reliability.md
    #[arg(long)]
    keep: bool,
    /// The program to attack
    #[arg(long, value_name = "PATH")]
    program: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    Kills,
    Faults,
    Power,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Kills => "kills",
            Kind::Faults => "faults",
            Kind::Power => "power",
        }
    }

    fn run(self, scene: &Scene, share: Share) -> Result<Outcome> {
        match self {
            Kind::Kills => kills(scene, share),
            Kind::Faults => faults(scene, share),
            Kind::Power => power::losses(scene, share),
        }
    }
}

pub(crate) fn run() -> Result<ExitCode> {
    let asked = Attack::parse();
    ensure!(asked.every > 0, "`--every` takes a number above 0");
    let rest = asked.rest.map_or_else(|| ledger::read().map(|lines| lines.len()), Ok)? % asked.every;
    let share = Share { step: asked.every, rest };
    let kinds = if asked.attacks.is_empty() { Kind::value_variants().to_vec() } else { asked.attacks.clone() };
    let flows: Vec<&'static Flow> = FLOWS.iter().filter(|flow| flow.name.contains(&asked.flow)).collect();
    let work: Vec<(Kind, &'static Flow)> =
        kinds.iter().flat_map(|kind| flows.iter().map(|flow| (*kind, *flow))).collect();
    ensure!(!work.is_empty(), "no flow has `{}` in its name", asked.flow);

    // A copy: a build meanwhile would replace the program.
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("allograft");
    std::fs::copy(&asked.program, &program).with_context(|| format!("cannot copy `{}`", asked.program.display()))?;

    let (next, troubles, lines) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (day, commit) = (day(), commit()?);
    std::thread::scope(|scope| {
        let work_on = || {
            while let Some((kind, flow)) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                let outcome = Scene::new(flow, &program).and_then(|scene| kind.run(&scene, share));
                let outcome = match outcome {
                    Ok(outcome) => outcome,
                    Err(error) => {
                        eprintln!("error: {error:#}");
                        troubles.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                };
                println!(
                    "{:7} {:40} {:6} times, {} findings",
                    kind.name(),
                    flow.name,
                    outcome.done,
                    outcome.findings.len()
                );
                for finding in &outcome.findings {
                    println!("  {}: {}", finding.at, finding.wrong.replace('\n', "\n    "));
                }
                let line = Line {
                    day: day.clone(),
                    commit: commit.clone(),
                    attack: kind.name().to_owned(),
                    flow: flow.name.to_owned(),
                    count: outcome.done as u64,
                    findings: outcome.findings.len() as u64,
                };
                lines.lock().expect("no thread panicked with it").push(line);
            }
        };
        (0..workers).for_each(|_| drop(scope.spawn(work_on)));
    });
    let lines = lines.into_inner().expect("no thread panicked with it");
    let (done, findings) = lines.iter().fold((0, 0), |sum, line| (sum.0 + line.count, sum.1 + line.findings));
    println!("{done} attacks, {findings} findings");
    if asked.keep {
        ledger::keep(&lines)?;
    }
    let troubles = troubles.into_inner();
    ensure!(troubles == 0, "{troubles} flows could not be attacked");
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn day() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}

fn commit() -> Result<String> {
    let mut git = Command::new("git");
    let output = git.args(["rev-parse", "--short=10", "HEAD"]).current_dir(tools::workspace::root()).output();
    let output = output.context("git does not start")?;
    ensure!(output.status.success(), "git knows no commit here");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
