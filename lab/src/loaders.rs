//! `cargo xtask bench loaders`: released programs for musl, started by the stock loader and by grafted ones.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fixtures::loaded::{self, Work};
use fixtures::program;
use fixtures::wheels::FOR_MUSL;
use measure::case::{Arm, Case, Invocation};
use measure::machine::Machine;
use measure::results::{self, CaseResult};
use serde::{Deserialize, Serialize};
use tools::{command, folder, wheels, workspace};
use xtask::page::{KeptTable, Table};
use xtask::sessions;

use crate::dynamic::measured::{Measured, Time};
use crate::dynamic::table;

/// The table in the docs.
pub(crate) const TABLE: KeptTable<Loaders> = KeptTable {
    figures: "docs/figures/loaders.json",
    place: Table {
        page: "docs/loader.md",
        begin: "<!-- loaders: made by `cargo xtask bench tables` -->",
        end: "<!-- /loaders -->",
    },
    text,
};

/// The arms. Stock is the first; the others are donors.
const ARMS: [&str; 4] = ["stock", "snmalloc", "mimalloc", "rpmalloc"];

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadersArgs {
    /// A single round, to see whether everything works
    #[arg(long)]
    quick: bool,
    /// Minutes for all timed runs
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// Keep the figures in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// The figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Loaders {
    schema_version: u32,
    allograft: String,
    machine: Machine,
    #[serde(flatten)]
    measured: Measured,
    /// A process that allocates one block.
    once: CaseResult,
}

/// Measures, prints, and keeps the figures if `--save` is set.
///
/// # Errors
/// The loader cannot be grafted, or a program's result differs from stock's.
pub(crate) fn bench(args: &LoadersArgs) -> Result<()> {
    tools::prepare_for_one()?;
    tools::system::prepare()?;
    wheels::install(&FOR_MUSL)?;
    let home = workspace::build().join("bench").join("loaders");
    fs::create_dir_all(&home)?;
    let _lock = folder::lock(&home.join(".lock"))?;
    let work = home.join("work");
    if work.exists() {
        fs::remove_dir_all(&work)?;
    }
    fs::create_dir_all(&work)?;
    loaded::fill(&work)?;
    let loaders = loaders(&home)?;
    let script = |work: &Work| format!("exec \"$L\" \"$P\" {}", work.arguments.join(" "));
    // ninja does not make outputs that exist.
    let again = |work: &Work| format!("rm -f out* .ninja_*; {}", script(work));
    let works: Vec<Case> = loaded::ALL.iter().map(|it| case(&work, it, &loaders, &again(it))).collect();
    let version = "exec \"$L\" \"$P\" --version >/dev/null";
    let starts: Vec<Case> = loaded::ALL.iter().map(|it| case(&work, it, &loaders, version)).collect();
    let waiting = loaded::ALL.iter().zip(&works).filter(|(it, _)| it.waits);
    let waiting = waiting.map(|(it, case)| (format!("cd \"$W\"; {}", script(it)), case));
    let time = Time { quick: args.quick, minutes: args.minutes, of_works: 0.7 };
    let once = [once(&work, &loaders)];
    let figures = Loaders {
        schema_version: 1,
        allograft: env!("CARGO_PKG_VERSION").to_owned(),
        machine: Machine::this(),
        measured: Measured::measure(&works, &starts, waiting, time)?,
        once: time.compared(&once, 0.1, 1000)?.remove(0),
    };
    println!("{}", text(&figures));
    if let Some(path) = &args.save {
        ensure!(!args.quick, "a run with --quick is not kept");
        let document = results::compact(&figures)?;
        fs::write(path, document).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(())
}

/// Makes the loaders of all arms.
fn loaders(home: &Path) -> Result<Vec<PathBuf>> {
    let allograft = command::build_allograft()?;
    let loader = |donor: &&str| {
        let out = home.join(format!("ld-musl-{donor}.so.1"));
        if *donor == ARMS[0] {
            fs::copy(loaded::loader(), &out)?;
        } else {
            let mut graft = Command::new(&allograft);
            command::output(graft.arg("graft").arg(loaded::loader()).args(["--donor", donor, "-o"]).arg(&out))?;
        }
        Ok(out)
    };
    ARMS.iter().map(loader).collect()
}

/// Returns the case in which a shell runs the script in the folder `$W`, with each loader as `$L`.
fn case(folder: &Path, work: &Work, loaders: &[PathBuf], script: &str) -> Case {
    let arms = ARMS.iter().zip(loaders).map(|(name, loader)| {
        let environment: Vec<(OsString, OsString)> =
            vec![("L".into(), loader.into()), ("P".into(), work.program.program().into()), ("W".into(), folder.into())];
        let arguments = ["-c".into(), format!("cd \"$W\"; {script}").into()].into();
        let invocation = Invocation { program: "/bin/sh".into(), arguments, environment, load: None };
        Arm { name: (*name).to_owned(), invocation, broken: None }
    });
    sessions::case(work.program.name, arms.collect())
}

/// Returns the case in which each loader starts a program that allocates one block, without a shell.
fn once(folder: &Path, loaders: &[PathBuf]) -> Case {
    let source = "#include <stdlib.h>\nvoid *volatile block;\nint main(void) { return !(block = malloc(100)); }\n";
    let program = program::linked_with_musl(folder, "once", source, false, &loaders[0]);
    let arms = ARMS.iter().zip(loaders).map(|(name, loader)| sessions::arm(name, loader, [&program]));
    sessions::case("once", arms.collect())
}

/// The processor time of stock, and the additional time of each other arm, in microseconds.
fn additional(case: &CaseResult) -> impl Iterator<Item = String> {
    let stock = case.arms.first().and_then(|arm| arm.typical);
    let stock = stock.map_or(0.0, |typical| (typical.user_s + typical.system_s) * 1e6);
    case.arms.iter().enumerate().map(move |(at, arm)| match &arm.processor_ratio_to_stock {
        _ if at == 0 => format!("{stock:.0} µs"),
        Some(ratio) => {
            let more = |ratio: f64| (ratio - 1.0) * stock;
            let interval =
                ratio.low.zip(ratio.high).map(|(low, high)| format!(" ({:.0}–{:.0})", more(low), more(high)));
            format!("+{:.0} µs{}", more(ratio.value), interval.unwrap_or_default())
        }
        None => String::new(),
    })
}

fn text(figures: &Loaders) -> String {
    let about = |name: &str| loaded::ALL.iter().find(|work| work.program.name == name).map_or("", |work| work.about);
    let content = table::Content {
        titles: &ARMS,
        measured: &figures.measured,
        about,
        machine: &figures.machine,
        allograft: &figures.allograft,
    };
    format!(
        "{}\nStart and end of a program that allocates one block, without a shell, in processor time ({} rounds); of the \
         other arms, what they take in addition:\n\n{}{}",
        table::text(&content),
        figures.once.rounds,
        table::head(&[], &ARMS),
        table::row([], additional(&figures.once)),
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
