//! Runs one target for some time: libFuzzer changes inputs, and keeps those that execute something new.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use targets::{Target, seeds};
use tools::workspace;

use super::build::Programs;

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// How often the target was called.
    pub executions: u64,
    /// The edges that the seeds executed, and those that were executed in the end.
    pub edges: (u64, u64),
    /// The processor time.
    pub time: Duration,
    /// The input that the target failed with, and the last lines that it printed.
    pub finding: Option<(PathBuf, String)>,
}

/// The folders of a target.
struct Folders {
    seeds: PathBuf,
    corpus: PathBuf,
    finds: PathBuf,
    failures: PathBuf,
    temporary: PathBuf,
}

impl Folders {
    fn make(programs: &Programs, target: &Target) -> Result<Folders> {
        let of = |kind: &str| programs.workplace.join(kind).join(target.name);
        let folders = Folders {
            seeds: of("seeds"),
            corpus: of("corpus"),
            failures: of("failures"),
            temporary: of("temporary"),
            finds: finds(target),
        };
        for folder in [&folders.seeds, &folders.corpus, &folders.failures, &folders.temporary] {
            fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
        }
        for (name, seed) in seeds::for_target(target.name) {
            fs::write(folders.seeds.join(name), seed)?;
        }
        Ok(folders)
    }
}

/// The folder of the inputs that a target once failed with, which a test runs.
fn finds(target: &Target) -> PathBuf {
    workspace::root().join("fuzz/finds").join(target.name)
}

/// Runs a target. What it finds of interest is kept for the next run. With `strict`, a graft of a damaged file that
/// only the verifier stops is a failure, too.
///
/// # Errors
/// It does not run, or runs without counters.
pub fn run(programs: &Programs, target: &Target, time: Duration, strict: bool) -> Result<Outcome> {
    let folders = Folders::make(programs, target)?;
    let mut command = Command::new(programs.of(target.name));
    command.arg(&folders.corpus).arg(&folders.seeds);
    command.args(folders.finds.is_dir().then_some(&folders.finds));
    command.arg(format!("-max_total_time={}", time.as_secs()));
    command.arg(format!("-max_len={}", target.longest));
    command.arg(format!("-artifact_prefix={}/", folders.failures.display()));
    // The targets count their memory and their time; these are for what they cannot count.
    command.args(["-rss_limit_mb=3000", "-timeout=300", "-print_final_stats=1"]);
    // The call stack of libFuzzer says nothing.
    command.env("RUST_BACKTRACE", "0").env("TMPDIR", &folders.temporary);
    if strict {
        command.env(targets::STRICT, "1");
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start the fuzzer of `{}`", target.name))?;
    let errors = BufReader::new(child.stderr.take().context("its errors are piped")?);
    let mut report = Report::default();
    for line in errors.split(b'\n') {
        report.line(&String::from_utf8_lossy(&line?));
    }
    let (status, figures) = measure::process::reap(child.id())?;
    let (code, time) =
        (ExitStatus::from_raw(status).code(), Duration::from_secs_f64(figures.user_s + figures.system_s));
    let _ = fs::remove_dir_all(&folders.temporary);
    let outcome = report.outcome(code, time)?;
    match outcome {
        Some(outcome) => Ok(outcome),
        None => bail!("the fuzzer of `{}` ended with {code:?}:\n{}", target.name, report.last.join("\n")),
    }
}

/// The facts in the lines that libFuzzer prints.
#[derive(Debug, Default)]
struct Report {
    executions: Option<u64>,
    edges: Option<(u64, u64)>,
    failure: Option<PathBuf>,
    last: Vec<String>,
}

/// The number of lines that a finding shows.
const SHOWN: usize = 12;

impl Report {
    fn line(&mut self, line: &str) {
        if let Some(number) = line.strip_prefix("stat::number_of_executed_units:") {
            self.executions = number.trim().parse().ok();
        }
        // `#2 INITED cov: 123 ft: 456 corp: ...`
        if line.starts_with('#')
            && let Some(number) = line.split("cov: ").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok())
        {
            self.edges = Some((self.edges.map_or(number, |(first, _)| first), number));
        }
        if let Some((_, path)) = line.split_once("Test unit written to ") {
            self.failure = Some(PathBuf::from(path.trim()));
        }
        // Not the table that a final report ends with.
        if !line.starts_with("stat::") && !line.starts_with('#') && !line.trim().is_empty() {
            self.last.push(line.to_owned());
            if self.last.len() > SHOWN {
                self.last.remove(0);
            }
        }
    }

    /// Returns the result. `None` if the program neither ended by itself nor named an input.
    fn outcome(&self, code: Option<i32>, time: Duration) -> Result<Option<Outcome>> {
        let finding = self.failure.clone().map(|path| (path, self.last.join("\n")));
        if code != Some(0) && finding.is_none() {
            return Ok(None);
        }
        let executions = self.executions.context("the fuzzer printed no number of executions")?;
        let edges = match (self.edges, &finding) {
            (Some(edges), _) => edges,
            // A seed failed.
            (None, Some(_)) => (0, 0),
            (None, None) => bail!("the fuzzer has no counters of what was executed, and guesses blindly"),
        };
        Ok(Some(Outcome { executions, edges, time, finding }))
    }
}

/// Makes an input that a target fails with smaller, for at most `time`. Returns the path of the smallest.
///
/// # Errors
/// The fuzzer does not start.
pub fn minimise(programs: &Programs, target: &Target, failure: &Path, time: Duration) -> Result<PathBuf> {
    let small = failure.with_extension("small");
    let mut command = Command::new(programs.of(target.name));
    command.arg("-minimize_crash=1").arg(format!("-max_total_time={}", time.as_secs()));
    command.arg(format!("-exact_artifact_path={}", small.display())).arg(failure);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().with_context(|| format!("cannot start the fuzzer of `{}`", target.name))?;
    Ok(if small.is_file() { small } else { failure.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "INFO: Seed: 1\n#3\tINITED cov: 120 ft: 130 corp: 2/9b exec/s: 0 rss: 30Mb\n\
                           #900\tNEW    cov: 150 ft: 170 corp: 3/9b\nDone 1000 runs in 2 second(s)\n\
                           stat::number_of_executed_units: 1000\n";

    fn report(printed: &str) -> Report {
        let mut report = Report::default();
        printed.lines().for_each(|line| report.line(line));
        report
    }

    #[test]
    fn what_it_prints_is_counted() {
        let time = Duration::from_secs(2);
        let outcome = report(PRINTED).outcome(Some(0), time).unwrap().unwrap();
        assert_eq!(outcome, Outcome { executions: 1000, edges: (120, 150), time, finding: None });
        let failed = format!("{PRINTED}thread panicked\nartifact_prefix='x/'; Test unit written to x/crash-1\n");
        let (path, lines) = report(&failed).outcome(Some(77), time).unwrap().unwrap().finding.unwrap();
        assert_eq!(path, Path::new("x/crash-1"));
        assert!(lines.contains("thread panicked"), "{lines}");
        assert_eq!(report(PRINTED).outcome(None, time).unwrap(), None);
    }

    #[test]
    fn a_fuzzer_without_counters_is_an_error() {
        let blind = PRINTED.replace("cov: ", "");
        let error = report(&blind).outcome(Some(0), Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("no counters"), "{error}");
    }
}
