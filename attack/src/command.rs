//! The command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result, ensure};
use attack::endurance::{ENDURANCES, Endurance};
use attack::flips::{self, Graft};
use attack::flow::{Flow, Scene};
use attack::flows::FLOWS;
use attack::interference::{Outcome, Share, faults, kills};
use attack::ledger::{self, Line};
use attack::power;
use attack::races::races;
use clap::{Parser, ValueEnum};
use donors::Donor;

/// Attacks allograft: ends it at each system call, fails each call, loses the power, lets runs race; changes bytes of
/// grafts; lets grafted programs run for long
#[derive(Debug, Parser)]
#[command(name = "attack", bin_name = "cargo xtask attack")]
struct Attack {
    /// The attacks [default: all]
    attacks: Vec<Kind>,
    /// Only what has this in its name: flows, kinds of graft, donors
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// How often runs race; how many portions of forks, threads or seconds
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: usize,
    /// One of N attacks, of those that go through calls or bytes
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
    Races,
    Flips,
    Forks,
    Threads,
    Load,
}

/// One attack on one thing.
#[derive(Debug, Clone, Copy)]
enum Work {
    Flow(Kind, &'static Flow),
    Graft(&'static flips::Kind, &'static Donor),
    Program(Endurance, &'static Donor),
}

impl Work {
    /// All that an attack is made on.
    fn of(kind: Kind) -> Vec<Work> {
        let with_donors = |make: &dyn Fn(&'static Donor) -> Vec<Work>| donors::all().iter().flat_map(make).collect();
        let endurance = |name: &str| ENDURANCES.into_iter().find(|one| one.name == name);
        match kind {
            Kind::Kills | Kind::Faults | Kind::Power | Kind::Races => {
                FLOWS.iter().map(|flow| Work::Flow(kind, flow)).collect()
            }
            Kind::Flips => with_donors(&|donor| flips::KINDS.iter().map(|kind| Work::Graft(kind, donor)).collect()),
            Kind::Forks | Kind::Threads | Kind::Load => with_donors(&|donor| {
                endurance(&kind.name()).map(|endurance| Work::Program(endurance, donor)).into_iter().collect()
            }),
        }
    }

    /// The attack's name, and what is attacked, for the ledger.
    fn names(&self) -> (String, &'static str) {
        match self {
            Work::Flow(kind, flow) => (kind.name(), flow.name),
            Work::Graft(kind, _) => (Kind::Flips.name(), kind.name),
            Work::Program(endurance, donor) => (endurance.name.to_owned(), donor.name),
        }
    }

    /// The name for people.
    fn title(&self) -> String {
        match self {
            Work::Flow(_, flow) => flow.name.to_owned(),
            Work::Graft(kind, donor) => format!("{} with {}", kind.name, donor.name),
            Work::Program(_, donor) => donor.name.to_owned(),
        }
    }

    /// Attacks it. `None` if there is no such graft.
    fn run(&self, program: &Path, share: Share, rounds: usize) -> Result<Option<Outcome>> {
        Ok(Some(match self {
            Work::Flow(kind, flow) => {
                let scene = Scene::new(flow, program)?;
                match kind {
                    Kind::Faults => faults(&scene, share)?,
                    Kind::Power => power::losses(&scene, share)?,
                    Kind::Races => races(&scene, rounds, fastrand::u64(..))?,
                    _ => kills(&scene, share)?,
                }
            }
            Work::Graft(kind, donor) => match Graft::new(kind, donor)? {
                Some(graft) => graft.flip(share)?,
                None => return Ok(None),
            },
            Work::Program(endurance, donor) => endurance.endure(donor, rounds)?,
        }))
    }
}

impl Kind {
    fn name(self) -> String {
        self.to_possible_value().expect("each kind can be named").get_name().to_owned()
    }
}

pub(crate) fn run() -> Result<ExitCode> {
    let asked = Attack::parse();
    ensure!(asked.every > 0, "`--every` takes a number above 0");
    let rest = asked.rest.map_or_else(|| ledger::read().map(|lines| lines.len()), Ok)? % asked.every;
    let share = Share { step: asked.every, rest };
    let kinds = if asked.attacks.is_empty() { Kind::value_variants().to_vec() } else { asked.attacks.clone() };
    let work: Vec<Work> = kinds.iter().flat_map(|kind| Work::of(*kind)).collect();
    let work: Vec<Work> = work.into_iter().filter(|work| work.title().contains(&asked.only)).collect();
    ensure!(!work.is_empty(), "nothing has `{}` in its name", asked.only);

    // A copy: a build meanwhile would replace the program.
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("allograft");
    std::fs::copy(&asked.program, &program).with_context(|| format!("cannot copy `{}`", asked.program.display()))?;

    let (next, troubles, lines) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let (day, commit) = (ledger::today(), ledger::commit()?);
    std::thread::scope(|scope| {
        let work_on = || {
            while let Some(work) = work.get(next.fetch_add(1, Ordering::Relaxed)) {
                let (attack, flow) = work.names();
                let outcome = match work.run(&program, share, asked.rounds) {
                    Ok(Some(outcome)) => outcome,
                    Ok(None) => continue,
                    Err(error) => {
                        eprintln!("error: {attack}, {}: {error:#}", work.title());
                        troubles.fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                };
                let findings = outcome.findings.len();
                println!("{attack:7} {:50} {:8} times, {findings} findings", work.title(), outcome.done);
                for finding in &outcome.findings {
                    println!("  {}: {}", finding.at, finding.wrong.replace('\n', "\n    "));
                }
                let line = Line {
                    day: day.clone(),
                    commit: commit.clone(),
                    attack,
                    flow: flow.to_owned(),
                    count: outcome.done as u64,
                    findings: findings as u64,
                };
                let mut lines = lines.lock().expect("no thread panicked with it");
                // At once: a run of hours may be ended before its end.
                if asked.keep
                    && let Err(error) = ledger::keep(std::slice::from_ref(&line))
                {
                    eprintln!("error: {error:#}");
                    troubles.fetch_add(1, Ordering::Relaxed);
                }
                lines.push(line);
            }
        };
        (0..workers).for_each(|_| drop(scope.spawn(work_on)));
    });
    let lines = lines.into_inner().expect("no thread panicked with it");
    let (done, findings) = lines.iter().fold((0, 0), |sum, line| (sum.0 + line.count, sum.1 + line.findings));
    println!("{done} attacks, {findings} findings");
    let troubles = troubles.into_inner();
    ensure!(troubles == 0, "{troubles} could not be attacked");
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
