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

use anyhow::{Context, Result, ensure};
use fixtures::dynamic::{self, Work};
use fixtures::system;
use measure::case::{Arm, Case, Invocation};
use measure::machine::Machine;
use measure::results;
use serde::{Deserialize, Serialize};
use tools::{command, folder, workspace};
use xtask::page::{KeptTable, Table};
use xtask::sessions;

use self::measured::{Measured, Time};

/// The table in the docs.
pub(crate) const TABLE: KeptTable<Dynamic> = KeptTable {
    figures: "docs/figures/dynamic.json",
    place: Table {
        page: "docs/dynamic-executables.md",
        begin: "<!-- dynamic: made by `cargo xtask bench tables` -->",
        end: "<!-- /dynamic -->",
    },
    text: table,
};

/// The arms, with their names in the table. Stock is the first.
const ARMS: [(&str, &str); 4] =
    [("stock", "stock"), ("arena_max", "`MALLOC_ARENA_MAX=2`"), ("preload", "preloaded"), ("merged", "merged")];

/// The donor of the last two arms.
const DONOR: &str = "snmalloc";

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct DynamicArgs {
    /// A single round, to see whether everything works
    #[arg(long)]
    quick: bool,
    /// Minutes for all timed runs
    #[arg(long, default_value_t = 20)]
    minutes: u64,
    /// Keep the figures in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Measure here, in the Debian: for this program's own use
    #[arg(long, hide = true)]
    here: bool,
    /// These programs only
    programs: Vec<String>,
}

impl DynamicArgs {
    /// All programs except nginx, whose clients take most of the memory and time.
    fn works(&self) -> impl Iterator<Item = &'static Work> {
        let measured = dynamic::ALL.iter().filter(|work| work.name != "nginx");
        measured.filter(|work| self.programs.is_empty() || self.programs.iter().any(|it| it == work.name))
    }
}

/// The figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Dynamic {
    schema_version: u32,
    allograft: String,
    donor: String,
    machine: Machine,
    #[serde(flatten)]
    measured: Measured,
}

/// Measures, prints, and keeps the figures if `--save` is set.
///
/// # Errors
/// A program cannot be grafted, or its result differs from stock's.
pub(crate) fn bench(args: &DynamicArgs) -> Result<()> {
    if args.here {
        return measure_here(args);
    }
    tools::prepare_for_one()?;
    tools::system::prepare()?;
    let home = workspace::build().join("bench").join("dynamic");
    let work = home.join("work");
    fs::create_dir_all(&home)?;
    let _lock = folder::lock(&home.join(".lock"))?;
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    let scratch = folder::Scratch::beside(&work, "scratch")?;
    dynamic::fill(&work)?;
    for work_of in args.works() {
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
    let quick = if args.quick { " --quick" } else { "" };
    let again = format!("exec ./lab dynamic --here --minutes {}{quick} {}", args.minutes, args.programs.join(" "));
    command::run(&mut system::unprivileged(&work, &scratch.0, &again))?;
    let document = fs::read_to_string(work.join("results.json")).context("the Debian gave no results")?;
    let figures: Dynamic = serde_json::from_str(&document)?;
    println!("{}", table(&figures));
    if let Some(path) = &args.save {
        ensure!(!args.quick && args.programs.is_empty(), "a run with --quick, or of some programs, is not kept");
        fs::write(path, results::compact(&figures)?).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(())
}

/// Measures in this root folder, and writes the figures.
fn measure_here(args: &DynamicArgs) -> Result<()> {
    let (mut works, mut starts) = (Vec::new(), Vec::new());
    for work in args.works() {
        eprintln!("bench: grafting {} ...", work.program);
        let merged = PathBuf::from(format!("{}.merged", work.program));
        command::output(
            Command::new("./allograft").args(["graft", work.program, "--donor", DONOR, "-o"]).arg(&merged),
        )?;
        command::run(Command::new("sh").arg(format!("{}.prepare.sh", work.name)))?;
        works.push(case(work, &merged, &[format!("{}.sh", work.name)]));
        starts.push(case(work, &merged, &["-c".to_owned(), "exec \"$P\" --version >/dev/null 2>&1".to_owned()]));
    }
    let waiting = args.works().zip(&works).filter_map(|(work, case)| Some((work.idle?.to_owned(), case)));
    let time = Time { quick: args.quick, minutes: args.minutes, of_works: 0.8 };
    let figures = Dynamic {
        schema_version: 1,
        allograft: env!("CARGO_PKG_VERSION").to_owned(),
        donor: DONOR.to_owned(),
        machine: Machine::this(),
        measured: Measured::measure(&works, &starts, waiting, time)?,
    };
    Ok(fs::write("results.json", results::document(&figures)?)?)
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

fn table(figures: &Dynamic) -> String {
    let content = table::Content {
        titles: &ARMS.map(|(_, title)| title),
        measured: &figures.measured,
        about: |name| dynamic::ALL.iter().find(|work| work.name == name).map_or("", |work| work.about),
        machine: &figures.machine,
        allograft: &format!("{} with {}", figures.allograft, figures.donor),
    };
    table::text(&content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_in_the_docs_is_that_of_the_kept_figures() {
        TABLE.check().unwrap();
    }
}
