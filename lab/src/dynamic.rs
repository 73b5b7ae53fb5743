//! `cargo xtask bench dynamic`: real dynamic programs of Debian, unchanged, with glibc's own setting for less memory,
//! with a donor preloaded, and with the donor merged into them.
//!
//! A second process of this program measures in the root folder of that Debian.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `idle` | the memory of a process after its work |
//! | `measured` | work, idle memory and starts |
//! | `table` | tables of time, memory and start-up |

mod idle;
pub(crate) mod measured;
pub(crate) mod table;

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use fixtures::dynamic::{self, Work};
use fixtures::system;
use measure::case::{Arm, Case, Invocation};
use serde::{Deserialize, Serialize};
use tools::{command, folder};
use xtask::sessions;

use self::measured::Measured;
use crate::experiment::{Bench, Experiment, Figures, Options, Record, save};

/// The experiment. nginx is left out: its clients take most of the memory and time.
pub(crate) const EXPERIMENT: Experiment<Record<Dynamic>> =
    Experiment { name: "dynamic", programs: &PROGRAMS, minutes: 20, table };
const PROGRAMS: [&str; 10] =
    ["python", "node", "ruby", "java", "php", "mariadb", "postgres", "sqlite", "git", "magick"];

/// The arms, with their names in the table. Stock is the first.
const ARMS: [(&str, &str); 4] =
    [("stock", "stock"), ("arena_max", "`MALLOC_ARENA_MAX=2`"), ("preload", "preloaded"), ("merged", "merged")];

/// The donor of the last two arms.
const DONOR: &str = "snmalloc";

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct DynamicArgs {
    #[command(flatten)]
    options: Options,
    /// Measure here, in the Debian: for this program's own use
    #[arg(long, hide = true)]
    here: bool,
}

/// The programs of a run.
fn works(bench: &Bench) -> impl Iterator<Item = &'static Work> {
    dynamic::ALL.iter().filter(|work| PROGRAMS.contains(&work.name) && bench.has(work.name))
}

/// The figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Dynamic {
    donor: String,
    #[serde(flatten)]
    measured: Measured,
}

impl Figures for Dynamic {}

/// Measures in the Debian.
///
/// # Errors
/// A program cannot be grafted, or its result differs from stock's.
pub(crate) fn bench(args: &DynamicArgs) -> Result<()> {
    if args.here {
        let bench = EXPERIMENT.chosen(&args.options, Bench::at(".".into())?);
        return save(&measure(&bench)?, Path::new("results.json"));
    }
    EXPERIMENT.run(&args.options, |bench| in_debian(bench, &args.options))
}

/// Lets a second process of this program measure in the Debian. Returns its figures.
fn in_debian(bench: &Bench, options: &Options) -> Result<Record<Dynamic>> {
    tools::system::require()?;
    let work = bench.emptied("work")?;
    let scratch = folder::Scratch::beside(&work, "scratch")?;
    dynamic::fill(&work)?;
    for work_of in works(bench) {
        fs::write(work.join(format!("{}.prepare.sh", work_of.name)), work_of.prepare)?;
        fs::write(work.join(format!("{}.sh", work_of.name)), work_of.script)?;
    }
    let allograft = command::build_allograft()?;
    fs::copy(&allograft, work.join("allograft"))?;
    let mut emit = Command::new(&allograft);
    command::output(
        emit.args(["emit", "--target", "x86_64-linux-gnu", "--as", "shared", "--donor", DONOR, "-o"])
            .arg(work.join("donor.so")),
    )?;
    fs::copy(std::env::current_exe()?, work.join("lab"))?;
    let mut again = "exec ./lab dynamic --here".to_owned();
    again.push_str(if options.quick { " --quick" } else { "" });
    again.extend(options.minutes.map(|minutes| format!(" --minutes {minutes}")));
    again.extend(options.programs.iter().map(|program| format!(" {program}")));
    command::run(&mut system::unprivileged(&work, &scratch.0, &again))?;
    let document = fs::read_to_string(work.join("results.json")).context("the Debian gave no results")?;
    let record: Record<Dynamic> = serde_json::from_str(&document)?;
    // The Debian has no /sys, which tells the machine's huge pages.
    Ok(Record::new(record.figures))
}

/// Measures in this root folder.
fn measure(bench: &Bench) -> Result<Record<Dynamic>> {
    let (mut cases, mut starts) = (Vec::new(), Vec::new());
    for work in works(bench) {
        eprintln!("bench: grafting {} ...", work.program);
        let merged = PathBuf::from(format!("{}.merged", work.program));
        command::output(
            Command::new("./allograft").args(["graft", work.program, "--donor", DONOR, "-o"]).arg(&merged),
        )?;
        command::run(Command::new("sh").arg(format!("{}.prepare.sh", work.name)))?;
        cases.push(case(work, &merged, &[format!("{}.sh", work.name)]));
        starts.push(case(work, &merged, &["-c".to_owned(), "exec \"$P\" --version >/dev/null 2>&1".to_owned()]));
    }
    let waiting = works(bench).zip(&cases).filter_map(|(work, case)| Some((work.idle?.to_owned(), case)));
    let measured = Measured::measure(bench, &cases, &starts, waiting, 0.8)?;
    Ok(Record::new(Dynamic { donor: DONOR.to_owned(), measured }))
}

/// Returns the case in which `sh` runs with these arguments for each arm.
fn case(work: &Work, merged: &Path, arguments: &[String]) -> Case {
    let stock = Path::new(work.program);
    let arms = ARMS.map(|(name, _)| {
        let program = if name == "merged" { merged } else { stock };
        let mut environment: Vec<(OsString, OsString)> = vec![("P".into(), program.into())];
        match name {
            "arena_max" => environment.push(("MALLOC_ARENA_MAX".into(), "2".into())),
            "preload" => environment.push(("LD_PRELOAD".into(), "/mnt/donor.so".into())),
            _ => {}
        }
        let arguments = arguments.iter().map(OsString::from).collect();
        let invocation = Invocation { program: "/bin/sh".into(), arguments, environment, load: None };
        Arm { name: name.to_owned(), invocation, broken: None }
    });
    sessions::case(work.name, arms.into())
}

fn table(record: &Record<Dynamic>) -> String {
    table::text(&table::Content {
        titles: &ARMS.map(|(_, title)| title),
        measured: &record.figures.measured,
        about: |name| dynamic::ALL.iter().find(|work| work.name == name).map_or("", |work| work.about),
        origin: &format!("{} with {}", record.origin(), record.figures.donor),
    })
}
