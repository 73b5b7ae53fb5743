//! Runs test programs side by side. Cargo runs them one after another, and at the end of each, most processors are
//! idle.

use std::cmp::Reverse;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use xtask::{command, workspace};

use crate::selection::Selection;

/// The number of programs that run at once. Each has a thread for every processor; the second uses the idle ones at the
/// end of the first.
const AT_ONCE: usize = 2;

/// A test program, and its name in messages.
#[derive(Debug)]
struct Program {
    name: String,
    path: PathBuf,
    /// Its package's folder, in which tests run.
    folder: PathBuf,
    /// The file for all of its output.
    output: PathBuf,
}

/// Builds the test programs of `selection` and runs them. The output of each is printed as a whole when it has ended,
/// and is kept in `target/tests`. The last line of all is `N passed, N failed, N skipped`.
/// # Errors
/// When one does not build, or a test fails.
pub(crate) fn run(selection: &Selection) -> Result<()> {
    let began = Instant::now();
    let output = workspace::build().join("tests");
    fs::create_dir_all(&output).with_context(|| format!("cannot make `{}`", output.display()))?;
    let programs = build(selection, &output)?;
    let built = began.elapsed();
    let began = Instant::now();
    let queue = Mutex::new(programs.into_iter());
    let state = Mutex::new((Totals::default(), Vec::new()));
    let work = || -> Result<()> {
        loop {
            let next = queue.lock().ok().and_then(|mut queue| queue.next());
            let Some(program) = next else { return Ok(()) };
            let (text, passed) = program.run(&selection.programs)?;
            let Ok(mut state) = state.lock() else { return Ok(()) };
            text.lines().for_each(|line| state.0.add(line));
            // A reader that closed the pipe is not a failure of the tests.
            let _ = std::io::stdout().write_all(text.as_bytes());
            if !passed {
                state.1.push((program.name, failures(&text).to_owned()));
            }
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..AT_ONCE).map(|_| scope.spawn(work)).collect();
        let own = work();
        others.into_iter().fold(own, |all, other| all.and(other.join().unwrap_or_else(|_| bail!("a thread died"))))
    })?;
    let (totals, failed) = state.into_inner().unwrap_or_default();
    // At the end once more: who keeps only the last page of a log has the reason.
    for (name, failures) in &failed {
        println!("\n     Failed {name}\n{failures}");
    }
    println!("built in {}, ran for {}", shown(built), shown(began.elapsed()));
    println!("{} passed, {} failed, {} skipped", totals.passed, totals.failed, totals.skipped);
    if !failed.is_empty() {
        bail!(
            "tests failed in {}; the output of each program is in `{}`",
            failed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
            workspace::shown(&output)
        );
    }
    Ok(())
}

fn shown(time: Duration) -> String {
    format!("{:.0} s", time.as_secs_f64())
}

/// Builds the test programs. Those that took longest the last time come first, since the last one to run should be
/// short. Among those that never ran, the largest come first: they embed all donors and do the most.
fn build(selection: &Selection, output: &Path) -> Result<Vec<Program>> {
    let mut cargo = command::cargo(&["test", "--locked", "--no-run", "--message-format", "json-render-diagnostics"]);
    cargo.args(&selection.build).stderr(Stdio::inherit());
    let mut programs = Vec::new();
    for line in command::output(&mut cargo)?.lines() {
        let message: Value = serde_json::from_str(line).context("cargo's report is not JSON")?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        if let (true, Some(path)) = (is_test, text(&message["executable"])) {
            let manifest = text(&message["manifest_path"]).context("cargo names no manifest")?;
            let folder = Path::new(&manifest).parent().context("a manifest has a folder")?.to_owned();
            let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let target = text(&message["target"]["name"]).context("cargo names no target")?;
            let kind = text(&message["target"]["kind"][0]).unwrap_or_default();
            let name = format!("{package} {kind} {target}");
            let output = output.join(format!("{name}.txt"));
            programs.push(Program { name, path: path.into(), folder, output });
        }
    }
    let size = |program: &Program| fs::metadata(&program.path).map_or(0, |file| file.len());
    programs.sort_by_cached_key(|program| Reverse((program.last_time().unwrap_or(Duration::MAX), size(program))));
    Ok(programs)
}

impl Program {
    /// Returns its duration of the last time, from the output of that run.
    fn last_time(&self) -> Option<Duration> {
        let said = fs::read(&self.output).ok()?;
        let said = String::from_utf8_lossy(&said);
        let (_, seconds) = said.trim_end().rsplit_once("finished in ")?;
        Duration::try_from_secs_f64(seconds.trim_end_matches('s').parse().ok()?).ok()
    }

    /// Runs it. Returns its output, and whether it passed.
    fn run(&self, arguments: &[String]) -> Result<(String, bool)> {
        let file = &self.output;
        let open = File::create(file).with_context(|| format!("cannot write `{}`", file.display()))?;
        eprintln!("test: {} ... (`{}`)", self.name, workspace::shown(file));
        let mut run = Command::new(&self.path);
        run.args(arguments).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        run.stdin(Stdio::null()).stdout(open.try_clone()?).stderr(open);
        let status = run.status().with_context(|| format!("cannot start `{}`", self.path.display()))?;
        let said = fs::read(file)?;
        let mut text = format!("\n     Running {}\n{}", self.name, String::from_utf8_lossy(&said));
        if !status.success() {
            text.push_str(&format!("error: {} ended with {status}\n", self.name));
        }
        Ok((text, status.success()))
    }
}

/// Returns what a test program says of its failures: all from the line `failures:` on, which follows the list of its
/// tests, and at most the last 100 lines of it. Without that line, the program ended in the middle, and its last lines
/// tell where.
fn failures(output: &str) -> &str {
    const LINES: usize = 100;
    let from = output.find("\nfailures:\n").map_or(0, |at| at + 1);
    let told = &output[from..];
    let first = told.trim_end().rmatch_indices('\n').nth(LINES - 1).map_or(0, |(at, _)| at + 1);
    &told[first..]
}

/// The sums of the closing lines of all test programs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Totals {
    /// Adds `line` if it is a closing line: `test result: ok. 3 passed; 0 failed; 1 ignored; ...`.
    fn add(&mut self, line: &str) {
        let Some(counts) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else { return };
        for count in counts.1.split("; ") {
            match count.split_once(' ').map(|(number, what)| (number.parse().unwrap_or(0), what)) {
                Some((number, "passed")) => self.passed += number,
                Some((number, "failed")) => self.failed += number,
                Some((number, "ignored")) => self.skipped += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_without_the_list_of_tests() {
        let output = "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b ----\nwhy\n\nfailures:\n    b\n";
        assert_eq!(failures(output), "failures:\n\n---- b ----\nwhy\n\nfailures:\n    b\n");
        assert_eq!(
            failures("test a ... ok\nerror: ended with signal 9\n"),
            "test a ... ok\nerror: ended with signal 9\n"
        );
        let long = "line\n".repeat(1000);
        assert_eq!(failures(&format!("{long}last\n")).lines().count(), 100);
    }

    #[test]
    fn closing_lines_add_up() {
        let mut totals = Totals::default();
        totals.add("test result: ok. 12 passed; 0 failed; 2 ignored; 0 measured; 3 filtered out; finished in 0.04s");
        totals.add("test result: FAILED. 1 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s");
        totals.add("test says.test result: ok. 100 passed");
        assert_eq!(totals, Totals { passed: 13, failed: 4, skipped: 2 });
    }
}
