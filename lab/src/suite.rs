//! `cargo xtask bench suite` and `tables`: runs the suite with `allograft bench` on the musl of this checkout, and
//! makes its tables in the docs.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use measure::results::Results;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use tools::{command, workspace};
use xtask::linking::Musl;

use crate::experiment::{self, Bench, save};

/// The default arms: every donor, glibc, and an allocator that never frees as the lower limit.
const ARMS: &str = "all,glibc,bump";

/// Passes all arguments to an optimised `allograft bench`, with the host filled in. The file of `--save` gets the
/// results without single runs; those with all runs stay in the build folder.
///
/// # Errors
/// allograft does not build, or reports a fault.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    let experiment = Bench::open("suite")?;
    let allograft = command::build_allograft()?;
    let musl = Musl::find()?;
    let Some(include) = musl.include() else {
        bail!("the suite takes musl's headers, and {} has none here", musl.name)
    };
    // The path is relative if possible, since the saved figures contain the host.
    let here = std::env::current_dir()?;
    let host = musl.libdir().strip_prefix(&here).unwrap_or(musl.libdir());
    let (kept, arguments) = apart(arguments);
    let mut bench = Command::new(allograft);
    bench.arg("bench").arg("--host").arg(host).arg("--include").arg(include).args(&arguments);
    let given = |name: &str| arguments.iter().any(|word| word.split('=').next() == Some(name));
    if !given("--donors") {
        bench.args(["--donors", ARMS]);
    }
    let whole = experiment.home.join("results.json");
    bench.arg("--save").arg(&whole);
    wait_for_the_child_when_interrupted()?;
    command::run(&mut bench)?;
    println!("every run: `{}`", workspace::shown(&whole));
    let Some(kept) = kept else { return Ok(()) };
    let results: Results = serde_json::from_str(&fs::read_to_string(&whole)?)?;
    save(&results.without_runs(), &kept)
}

/// Returns the file of `--save`, and the other arguments.
fn apart(arguments: &[String]) -> (Option<PathBuf>, Vec<String>) {
    let (mut file, mut others) = (None, Vec::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix("--save=") {
            Some(path) => file = Some(path.into()),
            None if word == "--save" => file = words.next().map(PathBuf::from),
            None => others.push(word.clone()),
        }
    }
    (file, others)
}

/// Ctrl-C signals all processes of the terminal. `allograft bench` then writes its results, so this process must not
/// end before it.
#[expect(unsafe_code, reason = "a handler of signals is for the caller to vouch for")]
fn wait_for_the_child_when_interrupted() -> Result<()> {
    extern "C" fn nothing(_: i32) {}
    // The child would inherit SIG_IGN, so this uses a handler.
    let action = SigAction::new(SigHandler::Handler(nothing), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGINT, &action) }.context("cannot wait for Ctrl-C")?;
    Ok(())
}

/// Returns the kept figures.
///
/// # Errors
/// They cannot be read, or are not from a complete run of the suite.
pub(crate) fn results() -> Result<Results> {
    let results: Results = experiment::present("suite")?;
    check_whole(&results)?;
    Ok(results)
}

fn check_whole(results: &Results) -> Result<()> {
    let (kind, interrupted) = (&results.input.kind, results.interrupted);
    let is_whole = kind == "suite" && !interrupted;
    ensure!(is_whole, "the figures are not of a whole run of the suite: {kind} (interrupted: {interrupted})");
    if let Some(warning) = results.warnings.first() {
        bail!("the figures are not of a whole run of the suite: {warning}");
    }
    let absent = ::suite::names().filter(|name| !results.cases.iter().any(|case| case.name == *name));
    let absent: Vec<&str> = absent.collect();
    ensure!(absent.is_empty(), "the figures are not of a whole run of the suite: without {}", absent.join(", "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_to_save_to_is_ours() {
        let of = |words: &[&str]| {
            let (file, others) = apart(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
            (file, others.join(" "))
        };
        let named = |path: &str| Some(PathBuf::from(path));
        assert_eq!(of(&["map", "--save", "a/b.json", "-q"]), (named("a/b.json"), "map -q".to_owned()));
        assert_eq!(of(&["--save=a/b.json", "map"]), (named("a/b.json"), "map".to_owned()));
        assert_eq!(of(&["map", "--budget", "20m"]), (None, "map --budget 20m".to_owned()));
    }

    /// `cargo xtask bench suite map --save docs/figures/suite.json` has no warnings either.
    #[test]
    fn figures_of_some_programs_make_no_tables() {
        let mut figures = results().unwrap();
        figures.cases.retain(|case| case.name != "http" && case.name != "larson");
        let error = check_whole(&figures).unwrap_err().to_string();
        assert_eq!(error, "the figures are not of a whole run of the suite: without larson, http");
    }
}
