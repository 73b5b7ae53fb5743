//! The command line.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;

use anyhow::{Context, Result, ensure};
use attack::endurance::{self, Endurance};
use attack::flips::{self, Graft};
use attack::flow::{Flow, Scene};
use attack::flows::FLOWS;
use attack::interference::{Outcome, Share, faults, kills};
use attack::ledger::{self, Stamp};
use attack::races::races;
use attack::{power, workers};
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
    /// Rounds of races; portions of forks, threads or seconds
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: usize,
    /// One of N attacks, of those that go through calls or bytes
    #[arg(long, value_name = "N", default_value_t = 1)]
    every: usize,
    /// Which one of N [default: by the number of lines in the ledger]
    #[arg(long, value_name = "N")]
    rest: Option<usize>,
    /// The donor of the flows: a name, or `all` [default: a different one for each, by the lines of the ledger]
    #[arg(long, value_name = "NAME")]
    donor: Option<String>,
    /// How many attacks are made at once [default: one for each processor]
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Add the counts to attack/counts.tsv and docs/reliability.md
    #[arg(long)]
    keep: bool,
    /// The program to attack, with `cargo-allograft` beside it
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
    Serve,
}

/// How often something is attacked.
#[derive(Debug, Clone, Copy)]
struct Amount {
    share: Share,
    rounds: usize,
}

/// An attack on a flow.
type OnFlow = fn(&Scene, Amount) -> Result<Outcome>;

/// Which donors the flows are attacked with.
#[derive(Debug, Clone, Copy)]
enum Choice<'c> {
    All,
    Named(&'c str),
    /// For each flow a different one, from this number on.
    Turn(usize),
}

impl Choice<'_> {
    /// Chooses among the donors that the flow of this number can be run with.
    fn donors(self, number: usize, donors: &[&'static Donor]) -> Vec<&'static Donor> {
        match self {
            Choice::All => donors.to_vec(),
            Choice::Named(name) => donors.iter().copied().filter(|donor| donor.name == name).collect(),
            Choice::Turn(first) => vec![donors[(first + number) % donors.len()]],
        }
    }
}

/// One attack on one thing.
#[derive(Debug, Clone, Copy)]
enum Work {
    Flow(Kind, OnFlow, &'static Flow, &'static Donor),
    Graft(&'static flips::Kind, &'static Donor),
    Program(Kind, &'static Endurance, &'static Donor),
}

impl Work {
    /// Returns each thing that an attack is made on.
    fn all(kind: Kind, choice: Choice<'_>) -> Vec<Work> {
        let flows = |attack: OnFlow| {
            let with_donors = |(number, flow): (usize, &'static Flow)| {
                let donors = choice.donors(number, &flow.donors());
                donors.into_iter().map(move |donor| Work::Flow(kind, attack, flow, donor))
            };
            FLOWS.iter().enumerate().flat_map(with_donors).collect()
        };
        let donors = donors::all().iter();
        let programs = |endurance: &'static Endurance| -> Vec<Work> {
            donors.clone().map(|donor| Work::Program(kind, endurance, donor)).collect()
        };
        match kind {
            Kind::Kills => flows(|scene, amount| kills(scene, amount.share)),
            Kind::Faults => flows(|scene, amount| faults(scene, amount.share)),
            Kind::Power => flows(|scene, amount| power::losses(scene, amount.share)),
            Kind::Races => flows(|scene, amount| races(scene, amount.rounds, fastrand::u64(..))),
            Kind::Flips => {
                let grafts = |donor| flips::KINDS.iter().map(move |kind| Work::Graft(kind, donor));
                donors.clone().flat_map(grafts).collect()
            }
            Kind::Forks => programs(&endurance::FORKS),
            Kind::Threads => programs(&endurance::THREADS),
            Kind::Load => programs(&endurance::LOAD),
            Kind::Serve => programs(&endurance::SERVE),
        }
    }

    /// The attack's name, and what is attacked, for the ledger.
    fn names(&self) -> (String, &'static str) {
        match self {
            Work::Flow(kind, _, flow, _) => (kind.name(), flow.name),
            Work::Graft(kind, _) => (Kind::Flips.name(), kind.name),
            Work::Program(kind, _, donor) => (kind.name(), donor.name),
        }
    }

    /// The name for people.
    fn title(&self) -> String {
        match self {
            Work::Flow(_, _, flow, donor) => format!("{} with {}", flow.name, donor.name),
            Work::Graft(kind, donor) => format!("{} with {}", kind.name, donor.name),
            Work::Program(_, _, donor) => donor.name.to_owned(),
        }
    }

    /// Attacks it. `None` if there is no such graft.
    fn run(&self, program: &Path, amount: Amount) -> Result<Option<Outcome>> {
        match self {
            Work::Flow(_, attack, flow, donor) => attack(&Scene::with_donor(flow, program, donor)?, amount).map(Some),
            Work::Graft(kind, donor) => Graft::new(kind, donor)?.map(|graft| graft.flip(amount.share)).transpose(),
            Work::Program(_, endurance, donor) => endurance.endure(donor, amount.rounds).map(Some),
        }
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
    let lines = ledger::read()?.len();
    let rest = asked.rest.unwrap_or(lines) % asked.every;
    let choice = match asked.donor.as_deref() {
        None => Choice::Turn(lines),
        Some("all") => Choice::All,
        Some(name) => {
            ensure!(donors::find(name).is_some(), "there is no donor `{name}`");
            Choice::Named(name)
        }
    };
    let jobs = asked.jobs.unwrap_or_else(workers::processors);
    ensure!(jobs > 0, "`--jobs` takes a number above 0");
    let amount = Amount { share: Share { step: asked.every, rest }, rounds: asked.rounds };
    let kinds = if asked.attacks.is_empty() { Kind::value_variants().to_vec() } else { asked.attacks.clone() };
    let work: Vec<Work> = kinds.iter().flat_map(|kind| Work::all(*kind, choice)).collect();
    let (missing, work): (Vec<Work>, Vec<Work>) = work
        .into_iter()
        .filter(|work| work.title().contains(&asked.only))
        .partition(|work| matches!(work, Work::Flow(_, _, flow, _) if flow.needs_rust() && !fixtures::has_rust_musl()));
    for work in &missing {
        if let Work::Flow(kind, _, Flow { name, .. }, _) = work {
            println!("{:7} {name:50} not attacked: run `cargo xtask setup rust` first", kind.name());
        }
    }
    ensure!(!work.is_empty(), "nothing has `{}` in its name", asked.only);

    // A copy: a build meanwhile would replace the program.
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("allograft");
    for name in ["allograft", "cargo-allograft"] {
        let from = asked.program.with_file_name(name);
        std::fs::copy(&from, folder.path().join(name)).with_context(|| format!("cannot copy `{}`", from.display()))?;
    }

    let (stamp, lines) = (Stamp::now()?, Mutex::new(Vec::new()));
    let troubles = workers::each(&work, jobs, |work| {
        let (attack, flow) = work.names();
        let outcome = work.run(&program, amount).with_context(|| format!("{attack}, {}", work.title()))?;
        let Some(Outcome { done, findings, figures }) = outcome else { return Ok(()) };
        println!("{attack:7} {:50} {done:8} times, {} findings", work.title(), findings.len());
        for figure in &figures {
            println!("  {figure}");
        }
        for finding in &findings {
            println!("  {}: {}", finding.at, finding.wrong.replace('\n', "\n    "));
        }
        let line = stamp.line(&attack, flow, done as u64, findings.len() as u64);
        let mut lines = lines.lock().expect("no thread panicked with it");
        lines.push(line.clone());
        // A run of hours may be ended early: what it has done counts.
        if asked.keep { ledger::keep(&[line]) } else { Ok(()) }
    });
    let lines = lines.into_inner().expect("no thread panicked with it");
    let (done, findings) = lines.iter().fold((0, 0), |sum, line| (sum.0 + line.count, sum.1 + line.findings));
    println!("{done} attacks, {findings} findings");
    ensure!(troubles == 0, "{troubles} could not be attacked");
    Ok(if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
