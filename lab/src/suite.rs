//! `cargo xtask bench suite` and `tables`: runs the suite with `allograft bench` on the musl of this checkout, and
//! makes its tables in the docs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use measure::report;
use measure::results::Results;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use tools::{command, folder, workspace};
use xtask::linking::Musl;
use xtask::page::{self, Table};

/// The file of the figures that the docs show.
const KEPT: &str = "docs/figures/suite.json";
/// The place of their tables.
const TABLE: Table = Table {
    page: "docs/bench-figures.md",
    begin: "<!-- suite: made by `cargo xtask bench tables` -->",
    end: "<!-- /suite -->",
};
/// The default arms: every donor, glibc, and an allocator that never frees as the lower limit.
const ARMS: &str = "all,glibc,bump";

/// Passes all arguments to an optimised `allograft bench`, with the host filled in. The file of `--save` gets the
/// results without single runs; those with all runs stay in the build folder.
///
/// # Errors
/// allograft does not build, or reports a fault.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    tools::prepare_for_one()?;
    let allograft = command::build_allograft()?;
    let home = workspace::build().join("bench");
    fs::create_dir_all(&home)?;
    let _lock = folder::lock(&home.join(".suite-lock"))?;
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
    let whole = home.join("suite.json");
    bench.arg("--save").arg(&whole);
    wait_for_the_child_when_interrupted()?;
    command::run(&mut bench)?;
    println!("every run: `{}`", workspace::shown(&whole));
    let Some(kept) = kept else { return Ok(()) };
    let results: Results = serde_json::from_str(&fs::read_to_string(&whole)?)?;
    fs::create_dir_all(kept.parent().unwrap_or(Path::new(".")))?;
    fs::write(&kept, measure::results::compact(&results.without_runs())?)
        .with_context(|| format!("cannot write `{}`", kept.display()))
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

/// Puts the tables of the saved figures into the docs.
///
/// # Errors
/// There are no figures, or a document cannot be written.
pub(crate) fn tables() -> Result<()> {
    let Some(tables) = kept()? else {
        bail!("there is no `{KEPT}`: `cargo xtask bench suite --budget 15m --save {KEPT}` on a quiet machine makes it");
    };
    TABLE.write(&tables)
}

/// Returns the tables of the saved figures, if there are any.
fn kept() -> Result<Option<String>> {
    Ok(results()?.as_ref().map(report::overview))
}

/// Returns the saved figures, if there are any.
///
/// # Errors
/// They cannot be read, or are not from a complete run of the suite.
pub(crate) fn results() -> Result<Option<Results>> {
    let Some(results) = page::figures::<Results>(KEPT)? else { return Ok(None) };
    if results.input.kind != "suite" || results.interrupted {
        bail!(
            "`{KEPT}` is not of a whole run of the suite: {} (interrupted: {})",
            results.input.kind,
            results.interrupted
        );
    }
    if let Some(warning) = results.warnings.first() {
        bail!("`{KEPT}` is not of a whole run of the suite: {warning}");
    }
    Ok(Some(results))
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

    /// Without saved figures, there are no tables.
    #[test]
    fn the_tables_in_the_docs_are_those_of_the_kept_figures() {
        let tables = kept().unwrap().unwrap_or_default();
        let text = fs::read_to_string(workspace::root().join(TABLE.page)).unwrap();
        let same = TABLE.replaced(&text, &tables).unwrap() == text;
        assert!(same, "`{}` has other tables than `{KEPT}`: `cargo xtask bench tables`", TABLE.page);
        let length = fs::metadata(workspace::root().join(KEPT)).map_or(0, |file| file.len());
        assert!(length < 1_000_000, "`{KEPT}` has {length} bytes");
    }
}
