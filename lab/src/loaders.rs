//! `cargo xtask bench loaders`: released programs for musl, started by the stock loader and by grafted ones.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use fixtures::loaded::{self, Work};
use fixtures::program;
use fixtures::wheels::FOR_MUSL;
use measure::case::{Arm, Case, Invocation};
use measure::results::CaseResult;
use serde::{Deserialize, Serialize};
use tools::{command, wheels};
use xtask::sessions;

use crate::dynamic::measured::{Measured, compared};
use crate::dynamic::table;
use crate::experiment::{Bench, Experiment, Figures, Record};

/// The experiment.
pub(crate) const EXPERIMENT: Experiment<Record<Loaders>> =
    Experiment { name: "loaders", programs: &[], minutes: 10, table: text };

/// The arms. Stock is the first; the others are donors.
const ARMS: [&str; 4] = ["stock", "snmalloc", "mimalloc", "rpmalloc"];

/// The figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Loaders {
    #[serde(flatten)]
    measured: Measured,
    /// A process that allocates one block.
    once: CaseResult,
}

impl Figures for Loaders {}

/// Makes the loaders, and measures what they start.
///
/// # Errors
/// The loader cannot be grafted, or a program's result differs from stock's.
pub(crate) fn measure(bench: &Bench) -> Result<Record<Loaders>> {
    tools::system::require()?;
    wheels::install(&FOR_MUSL)?;
    let work = bench.emptied("work")?;
    loaded::fill(&work)?;
    let loaders = loaders(&bench.home)?;
    let script = |work: &Work| format!("exec \"$L\" \"$P\" {}", work.arguments.join(" "));
    // ninja does not make outputs that exist.
    let again = |work: &Work| format!("rm -f out* .ninja_*; {}", script(work));
    let works: Vec<Case> = loaded::ALL.iter().map(|it| case(&work, it, &loaders, &again(it))).collect();
    let version = "exec \"$L\" \"$P\" --version >/dev/null";
    let starts: Vec<Case> = loaded::ALL.iter().map(|it| case(&work, it, &loaders, version)).collect();
    let waiting = loaded::ALL.iter().zip(&works).filter(|(it, _)| it.waits);
    let waiting = waiting.map(|(it, case)| (format!("cd \"$W\"; {}", script(it)), case));
    let measured = Measured::measure(bench, &works, &starts, waiting, 0.7)?;
    let once = compared(bench, &[once(&work, &loaders)], 0.1, 1000)?.remove(0);
    Ok(Record::new(Loaders { measured, once }))
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

fn text(record: &Record<Loaders>) -> String {
    let figures = &record.figures;
    let about = |name: &str| loaded::ALL.iter().find(|work| work.program.name == name).map_or("", |work| work.about);
    let content = table::Content { titles: &ARMS, measured: &figures.measured, about, origin: &record.origin() };
    format!(
        "{}\nStart and end of a program that allocates one block, without a shell, in processor time ({} rounds); of the \
         other arms, what they take in addition:\n\n{}{}",
        table::text(&content),
        figures.once.rounds,
        table::head(&[], &ARMS),
        table::row([], additional(&figures.once)),
    )
}
