//! The answers of malloc's family to arguments at the edge: `edges.c` asks stock and every donor, for musl and for
//! glibc. `edges.tsv` keeps the answers, of which `cargo xtask compatibility --write` makes the table in
//! `docs/compatibility.md`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use casebook::bench::Bench;
use donors::Donor;
use fixtures::trials::in_group;
use libtest_mimic::{Failed, Trial};

use super::HostForm;

const PROGRAM: &str = "edges.c";

/// The forms that ask: a static program has musl's malloc, a merged one replaces glibc's.
const FORMS: [HostForm; 2] = [HostForm::Archive, HostForm::Merged];

/// Returns what the program prints: a line for each call, with a tab between call and answer.
fn ask(bench: &Bench, form: HostForm, donor: Option<&'static Donor>) -> Result<String, String> {
    let program = form.program(bench, PROGRAM, donor);
    let output = Command::new(&program).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8(output.stdout).map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("{}: {}: {text}", program.display(), output.status));
    }
    Ok(text)
}

/// Asks, keeps the answers for the table, and compares them with the answers in `edges.tsv`.
fn compare(bench: &Bench, form: HostForm, donor: Option<&'static Donor>) -> Result<(), String> {
    let arm = donor.map_or("stock", |donor| donor.name);
    let lines: Vec<String> = ask(bench, form, donor)?.lines().map(|line| format!("{form}\t{arm}\t{line}\n")).collect();
    let folder = fixtures::edge_results();
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    fs::write(folder.join(format!("{form} {arm}.tsv")), lines.concat()).map_err(|error| error.to_string())?;
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("compatibility").join("edges.tsv");
    let kept = fs::read_to_string(&kept).map_err(|error| format!("{}: {error}", kept.display()))?;
    let start = format!("{form}\t{arm}\t");
    let kept: Vec<&str> = kept.split_inclusive('\n').filter(|line| line.starts_with(&start)).collect();
    if kept == lines {
        return Ok(());
    }
    let others =
        |of: &[&str], than: &[&str]| -> String { of.iter().filter(|line| !than.contains(line)).copied().collect() };
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let (found, expected) = (others(&lines, &kept), others(&kept, &lines));
    Err(format!("asked:\n{found}edges.tsv:\n{expected}help: `cargo xtask compatibility --write` writes what was asked"))
}

/// While blocks are counted, `mallinfo2` reports the exact amount in use.
fn figures_are_exact(bench: &Bench, donor: &'static Donor) -> Result<(), String> {
    let program = HostForm::Merged.program(bench, PROGRAM, Some(donor));
    let output = Command::new(program).arg("counted").env("ALLOGRAFT_STATS", "1").output();
    let output = output.map_err(|error| error.to_string())?;
    if output.stdout == b"follows\n" { Ok(()) } else { Err(format!("{output:?}")) }
}

pub(super) fn trials(bench: &Arc<Bench>) -> Vec<Trial> {
    let mut trials = Vec::new();
    for form in FORMS {
        let supported = donors::all().iter().filter(|donor| form.supports(donor));
        for donor in [None].into_iter().chain(supported.map(Some)) {
            let bench = Arc::clone(bench);
            let test = move || -> Result<(), String> {
                compare(&bench, form, donor)?;
                donor.filter(|_| form == HostForm::Merged).map_or(Ok(()), |donor| figures_are_exact(&bench, donor))
            };
            let arm = donor.map_or("stock", |donor| donor.name);
            let is_quick = donor.is_none_or(|donor| donor.name == donors::DEFAULTS[0]);
            let name = format!("compatibility/edges/{form}/{arm}");
            trials.push(in_group(
                Trial::test(name, move || test().map_err(Failed::from)),
                (!is_quick).then_some("minutes"),
            ));
        }
    }
    trials
}
