//! Programs linked with stock musl by many compilers, then grafted. Each passes or is refused. Compilers on which the
//! rules were tuned are kept apart from those held out for the proof.

mod builds;
mod compilers;
mod musl;
mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use builds::{Build, Mode, Set};
use tools::{command, folder};

use crate::experiment::parallel;

/// The share of its work that each program does, in percent; and the seconds after which it counts as hanging.
const SCALE: &str = "3";
const LIMIT: &str = "600";

/// The result of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verdict", content = "detail", rename_all = "lowercase")]
enum Outcome {
    /// Grafted, stripped, run: its output is right.
    Passed,
    /// allograft ended with exit code 3 and this message.
    Refused(String),
    /// The graft did not behave like stock, or allograft failed.
    Failed(String),
    /// The program also fails without a graft, or cannot be linked.
    Stock(String),
}

/// All results of one build, linked one way, with symbols or without.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Results {
    schema_version: u32,
    set: Set,
    name: String,
    flags: String,
    mode: String,
    stripped: bool,
    /// The SHA-256 of the allograft that made the grafts.
    allograft: String,
    programs: BTreeMap<String, Outcome>,
    /// The SHA-256 of each graft that passed, made by any allograft. Grafts with the same bytes need not run again.
    #[serde(default)]
    grafts: BTreeMap<String, String>,
}

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct ProofArgs {
    /// Builds whose names have one of these parts
    only: Vec<String>,
    /// Put the tables into the docs, if all results are of one allograft
    #[arg(long)]
    write: bool,
    /// Print what there is and run nothing
    #[arg(long)]
    table: bool,
    /// Graft by this program, not by the one built here
    #[arg(long, value_name = "PROGRAM")]
    allograft: Option<PathBuf>,
    /// These programs only
    #[arg(long, value_delimiter = ',', value_name = "A,B")]
    programs: Vec<String>,
}

/// `cargo xtask proof [PART OF A BUILD'S NAME]... [--programs A,B] [--allograft PROGRAM] [--table] [--write]`.
///
/// A program that has a result with the same allograft is not grafted again. A graft whose bytes have passed before is
/// not run again.
///
/// # Errors
/// A compiler cannot be fetched, or a result cannot be saved.
pub(crate) fn run(args: &ProofArgs) -> Result<()> {
    tools::prepare_for_every_architecture()?;
    compilers::prepare()?;
    let folder = compilers::folder().join("results");
    fs::create_dir_all(&folder)?;
    if !args.table {
        let _lock = folder::lock(&compilers::folder().join(".lock"))?;
        let allograft = command::given_or_built(args.allograft.as_deref())?;
        run_all(args, &allograft, &folder)?;
    }
    table::show(&folder, args.write)
}

/// A program of a build. It is linked once, and grafted both stripped and unstripped.
struct Job {
    build: usize,
    mode: Mode,
    program: (String, PathBuf),
}

fn run_all(args: &ProofArgs, allograft: &Path, folder: &Path) -> Result<()> {
    let digest = digest(allograft)?;
    let builds = builds::all();
    let programs = builds::programs()?;
    let mut jobs = Vec::new();
    for (index, build) in builds.iter().enumerate() {
        let title = build.title();
        if !args.only.is_empty() && !args.only.iter().any(|part| title.contains(part)) {
            continue;
        }
        for mode in Mode::ALL {
            let kept = Results::load(folder, build, mode, true, &digest).programs;
            let done = |name: &String| kept.get(name).is_some_and(|outcome| !matches!(outcome, Outcome::Stock(_)));
            let wanted = |name: &String| args.programs.is_empty() || args.programs.contains(name);
            for program in programs.iter().filter(|(name, _)| wanted(name) && !done(name)) {
                jobs.push(Job { build: index, mode, program: program.clone() });
            }
        }
    }
    let kept = Mutex::new(());
    let work = |number: usize| -> Result<()> {
        let job = &jobs[number];
        let build = &builds[job.build];
        let results = |stripped| Results::load(folder, build, job.mode, stripped, &digest);
        let passed = [false, true].map(|stripped| results(stripped).grafts.remove(&job.program.0));
        let outcomes = outcomes(build, job, allograft, passed)?;
        let _guard = kept.lock();
        for (stripped, (outcome, graft)) in [false, true].into_iter().zip(outcomes) {
            let kind = if stripped { "stripped" } else { "symbols" };
            if matches!(outcome, Outcome::Failed(_) | Outcome::Stock(_)) {
                let shown: String = format!("{outcome:?}").chars().take(600).collect();
                eprintln!("{} {} {kind} {}: {shown}", build.title(), job.mode.name(), job.program.0);
            }
            let mut results = results(stripped);
            results.programs.insert(job.program.0.clone(), outcome);
            results.grafts.extend(graft.map(|graft| (job.program.0.clone(), graft)));
            results.keep(folder)?;
        }
        if (number + 1).is_multiple_of(50) {
            eprintln!("proof: {} of {}", number + 1, jobs.len());
        }
        Ok(())
    };
    parallel(jobs.len(), work).map(drop)
}

impl Results {
    fn path(&self, folder: &Path) -> PathBuf {
        let kind = if self.stripped { "stripped" } else { "symbols" };
        folder.join(format!("{} {} {} {kind}.json", self.name, self.flags, self.mode).replace(['/', '\''], ""))
    }

    /// Returns the saved results if the same allograft made them; else results with only the grafts that passed.
    fn load(folder: &Path, build: &Build, mode: Mode, stripped: bool, allograft: &str) -> Results {
        let empty = Results {
            schema_version: 1,
            set: build.set,
            name: build.name.clone(),
            flags: build.flags.join(" "),
            mode: mode.name().to_owned(),
            stripped,
            allograft: allograft.to_owned(),
            programs: BTreeMap::new(),
            grafts: BTreeMap::new(),
        };
        let kept = fs::read(empty.path(folder)).ok().and_then(|bytes| serde_json::from_slice::<Results>(&bytes).ok());
        match kept {
            Some(kept) if kept.allograft == allograft => kept,
            Some(kept) => Results { grafts: kept.grafts, ..empty },
            None => empty,
        }
    }

    fn keep(&self, folder: &Path) -> Result<()> {
        fs::write(self.path(folder), serde_json::to_vec_pretty(self)?).context("cannot keep a result")
    }
}

/// The result of a program, and the SHA-256 of its graft if that passed.
type Judged = (Outcome, Option<String>);

/// Returns the results of a program with its symbols and without. `passed`: the grafts that passed before.
fn outcomes(build: &Build, job: &Job, allograft: &Path, passed: [Option<String>; 2]) -> Result<[Judged; 2]> {
    let folder = compilers::folder().join("work").join(format!("{} {} {}", job.build, job.mode.name(), job.program.0));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    let name = &job.program.0;
    let stock = folder.join("stock");
    let [with_symbols, without] = passed;
    let outcomes = match build.link(&job.program.1, job.mode, &stock) {
        Err(error) => {
            let outcome = Outcome::Stock(format!("it does not link: {error:#}"));
            [(outcome.clone(), None), (outcome, None)]
        }
        Ok(()) => {
            let whole = outcome(&stock, &folder, name, allograft, with_symbols)?;
            command::output(Command::new("strip").arg("-s").arg(&stock))?;
            [whole, outcome(&stock, &folder, name, allograft, without)?]
        }
    };
    if !outcomes.iter().any(|(outcome, _)| matches!(outcome, Outcome::Failed(_))) {
        fs::remove_dir_all(&folder)?;
    }
    Ok(outcomes)
}

fn outcome(stock: &Path, folder: &Path, name: &str, allograft: &Path, passed: Option<String>) -> Result<Judged> {
    let graft = folder.join(name);
    let mut command = Command::new(allograft);
    let output = command.args(["--color", "never", "-q", "graft"]).arg(stock).arg("-o").arg(&graft).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let failed = |failure| -> Result<Judged> {
        let outcome = ran(stock, name)?.map_or(Outcome::Failed(failure), Outcome::Stock);
        Ok((outcome, None))
    };
    match output.status.code() {
        Some(0) => {}
        Some(3) => return Ok((Outcome::Refused(reason(&said)), None)),
        _ => return failed(format!("allograft: {}, {said}", output.status)),
    }
    let digest = digest(&graft)?;
    if passed.as_ref() == Some(&digest) {
        return Ok((Outcome::Passed, passed));
    }
    // A graft that is stripped later has to work, too.
    command::output(Command::new("strip").arg("-s").arg(&graft))?;
    match ran(&graft, name)? {
        Some(failure) => failed(failure),
        None => Ok((Outcome::Passed, Some(digest))),
    }
}

fn digest(file: &Path) -> Result<String> {
    let bytes = fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
    Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Runs a program. Returns its fault, or `None` if it passed. The program's notes about the machine are not faults.
fn ran(program: &Path, name: &str) -> Result<Option<String>> {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", LIMIT]).arg(program).env_clear().env("ALLOGRAFT_SCALE", SCALE);
    command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.current_dir(program.parent().unwrap_or(Path::new("."))).stdin(std::process::Stdio::null());
    let output = command.output()?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.success() && stdout == format!("ok {name}\n") {
        return Ok(None);
    }
    Ok(Some(format!("{}, stdout {stdout:?}, stderr {stderr:?}", output.status)))
}

/// Returns the reason in a message, without the parts that differ from file to file: the path and addresses.
fn reason(message: &str) -> String {
    let line = message.lines().find(|line| line.starts_with("error: ")).unwrap_or(message);
    let line = line.split_once(" cannot be grafted: ").map_or(line, |(_, reason)| reason);
    let mut text = String::new();
    let mut rest = line;
    while let Some(at) = rest.find("0x") {
        let (before, from) = rest.split_at(at);
        let end = from[2..].find(|digit: char| !digit.is_ascii_hexdigit()).map_or(from.len(), |end| end + 2);
        text += before;
        text += "an address";
        rest = &from[end..];
    }
    (text + rest).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_the_same_whatever_the_addresses() {
        let message = "error: `a b` cannot be grafted: 2 functions do it: 0x4010f0, 0x40ff\nhelp: no\n";
        assert_eq!(reason(message), "2 functions do it: an address, an address");
        assert_eq!(reason("odd"), "odd");
    }
}
