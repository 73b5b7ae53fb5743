//! Runs test programs side by side, and measures the processor time of each test.
//!
//! A program runs its tests in sequence, and several programs run at once. So the processor time that a program and its
//! children use between two lines of its output is the time of one test. Programs with many tests are run in several
//! jobs, so that no processor is idle at the end.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::Child;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tools::workspace;

use crate::budget::{self, Times};
use crate::programs::{self, Program, Test};
use crate::selection::Selection;

/// The time between two reads of a program's state. The kernel counts processor time in hundredths of a second.
const LOOK: Duration = Duration::from_millis(30);

/// The limit for a job by the times of the last run, in processor seconds.
const JOB: f64 = 40.0;

/// Tests of a program that run together.
struct Job<'p> {
    program: &'p Program,
    tests: Vec<Test>,
    /// Its number, for the names of its files.
    number: usize,
    /// The processor time of its last run.
    seconds: f64,
}

/// The sums of the closing lines of all jobs.
#[derive(Debug, Default, PartialEq, Eq)]
struct Totals {
    passed: u64,
    failed: u64,
    skipped: u64,
}

#[derive(Default)]
struct State {
    totals: Totals,
    times: Times,
    failed: Vec<(String, String)>,
}

/// Runs the tests of `programs`; with `slow`, those marked `#[ignore]`. The output of each job is printed as a whole
/// when it has ended, and is kept in `target/tests`. The last line of all is `N passed, N failed, N skipped`. Returns
/// the times.
///
/// # Errors
/// When a test fails.
pub(crate) fn run(programs: &[Program], selection: &Selection, slow: bool) -> Result<Times> {
    let began = Instant::now();
    let folder = programs::folder()?;
    let last = Times::read(&folder);
    let jobs = jobs(programs, &last, slow)?;
    let queue = Mutex::new(jobs.into_iter());
    let state = Mutex::new(State::default());
    let work = || -> Result<()> {
        loop {
            let next = queue.lock().ok().and_then(|mut queue| queue.next());
            let Some(job) = next else { return Ok(()) };
            let factor = budget::slowness();
            let (text, passed) = job.run(&folder, selection, slow, |test, seconds| {
                if let Ok(mut state) = state.lock() {
                    state.times.add(&job.program.name, test, seconds);
                }
            })?;
            let Ok(mut state) = state.lock() else { return Ok(()) };
            state.times.slowness.push(factor);
            text.lines().for_each(|line| state.totals.add(line));
            // A reader that closed the pipe is not a failure of the tests.
            let _ = io::stdout().write_all(text.as_bytes());
            if !passed {
                state.failed.push((job.program.name.clone(), failures(&text).to_owned()));
            }
        }
    };
    // Some tests wait for a moment: one job more than there are processors uses the time.
    let at_once = std::thread::available_parallelism().map_or(1, usize::from) + 1;
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..at_once).map(|_| scope.spawn(work)).collect();
        let own = work();
        others.into_iter().fold(own, |all, other| all.and(other.join().unwrap_or_else(|_| bail!("a thread died"))))
    })?;
    let State { totals, times, failed } = state.into_inner().unwrap_or_default();
    ensure!(totals.passed + totals.failed > 0, "no test was run{}", selection.wanted());
    last.merged(&times).write(&folder)?;
    // Repeated at the end: the last page of a log has the reasons.
    for (name, failures) in &failed {
        println!("\n     Failed {name}\n{failures}");
    }
    println!("ran for {:.0} s: {:.0} s of processor time", began.elapsed().as_secs_f64(), times.total());
    println!("{} passed, {} failed, {} skipped", totals.passed, totals.failed, totals.skipped);
    if !failed.is_empty() {
        bail!(
            "tests failed in {}; the output of each job is in `{}`",
            failed.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
            workspace::shown(&folder)
        );
    }
    Ok(times)
}

/// Divides the tests into jobs. Jobs that took longest in the last run come first, since the last job should be short.
/// Programs that never ran come before all.
fn jobs<'p>(programs: &'p [Program], last: &Times, slow: bool) -> Result<Vec<Job<'p>>> {
    let mut jobs = Vec::new();
    let figures = if slow { BTreeMap::new() } else { budget::figures()? };
    for program in programs {
        let known = |test: &Test| last.seconds_of(&program.name, &test.name);
        // The budget gives the time of a program that never ran.
        let average = figures.get(&program.name).map_or(1.0, |all| all / program.tests.len().max(1) as f64);
        let mut job = Job { program, tests: Vec::new(), number: 0, seconds: 0.0 };
        for test in &program.tests {
            let seconds = known(test).unwrap_or(average);
            if job.seconds + seconds > JOB && !job.tests.is_empty() {
                let next = Job { program, tests: Vec::new(), number: job.number + 1, seconds: 0.0 };
                jobs.push(std::mem::replace(&mut job, next));
            }
            job.seconds += seconds;
            job.tests.push(test.clone());
        }
        jobs.push(job);
    }
    jobs.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    Ok(jobs)
}

impl Job<'_> {
    /// Runs it, and reports each test's processor time to `took`. Returns the output, and whether all passed.
    fn run(
        &self,
        folder: &Path,
        selection: &Selection,
        slow: bool,
        mut took: impl FnMut(&str, f64),
    ) -> Result<(String, bool)> {
        let name = format!("{} {}", self.program.name, self.number);
        let file = folder.join(format!("{name}.txt"));
        let open = File::create(&file).with_context(|| format!("cannot write `{}`", file.display()))?;
        eprintln!("test: {name} ... (`{}`)", workspace::shown(&file));
        let mut run = self.program.command();
        run.args(["--test-threads", "1"]).args(slow.then_some("--ignored")).args(&selection.flags);
        self.program.selecting(&mut run, &self.tests, &folder.join(format!("{name}.names")))?;
        run.stdout(open.try_clone()?).stderr(open);
        let mut child = run.spawn().with_context(|| format!("cannot start `{}`", self.program.path.display()))?;
        let mut reader = Reader { file: File::open(&file)?, rest: Vec::new(), test: None, seconds: 0.0 };
        let status = loop {
            let has_ended = has_ended(&child);
            reader.read(|| seconds(&child), &mut took)?;
            if has_ended {
                break child.wait()?;
            }
            std::thread::sleep(LOOK);
        };
        let said = fs::read(&file)?;
        let mut text = format!("\n     Running {name}\n{}", String::from_utf8_lossy(&said));
        if !status.success() {
            text.push_str(&format!("error: {name} ended with {status}\n"));
        }
        Ok((text, status.success()))
    }
}

/// Reads a program's output, line by line as it appears.
struct Reader {
    file: File,
    /// The beginning of an incomplete line.
    rest: Vec<u8>,
    /// The running test.
    test: Option<String>,
    /// The program's processor time at the last test's end.
    seconds: f64,
}

impl Reader {
    /// Reads what was printed since the last call. `now` returns the program's processor time.
    fn read(&mut self, now: impl Fn() -> Option<f64>, took: &mut impl FnMut(&str, f64)) -> Result<()> {
        if self.file.read_to_end(&mut self.rest)? == 0 {
            return Ok(());
        }
        let now = now();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            let ended = match parse(line.trim_end()) {
                Line::Begin(test) => self.test.replace(test),
                Line::Whole(test) => Some(test),
                Line::End => self.test.take(),
                Line::Other => None,
            };
            if let (Some(test), Some(now)) = (ended, now) {
                took(&test, now - self.seconds);
                self.seconds = now;
            }
        }
        Ok(())
    }
}

/// A line of a test program.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    /// `test NAME ... `, and output of the test.
    Begin(String),
    /// `test NAME ... ok`
    Whole(String),
    /// The `ok` of the test that has begun.
    End,
    Other,
}

fn parse(line: &str) -> Line {
    let has_ended = |text: &str| text.ends_with("ok") || text.ends_with("FAILED");
    match line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... ")) {
        Some((_, "ignored")) => Line::Other,
        Some((_, rest)) if rest.starts_with("ignored, ") => Line::Other,
        Some((name, rest)) => {
            let name = name.trim().trim_end_matches(" - should panic");
            let name = name.strip_prefix('[').and_then(|rest| rest.split_once("] ")).map_or(name, |(_, name)| name);
            if has_ended(rest) { Line::Whole(name.to_owned()) } else { Line::Begin(name.to_owned()) }
        }
        None if line == "ok" || line == "FAILED" || has_ended(line) => Line::End,
        None => Line::Other,
    }
}

/// Whether the program has ended; it stays a zombie until it is waited for, so that its times can be read.
fn has_ended(child: &Child) -> bool {
    stat(child).is_none_or(|fields| fields.first().is_none_or(|state| matches!(state.as_str(), "Z" | "X")))
}

/// Returns the processor time of a program and of the children that it has waited for, in seconds.
fn seconds(child: &Child) -> Option<f64> {
    // Fields 14 to 17 of proc(5), in ticks of a hundredth of a second; the state is the third.
    let ticks: Option<Vec<f64>> = stat(child)?.get(11..15)?.iter().map(|field| field.parse().ok()).collect();
    Some(ticks?.iter().sum::<f64>() / 100.0)
}

/// Returns the fields of `/proc/PID/stat` behind the program's name, which may have blanks.
fn stat(child: &Child) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    let (_, rest) = text.rsplit_once(") ")?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// Returns a test program's report on its failures, at most its last 100 lines: it begins with the line `failures:`
/// behind the list of tests. Without that line, the program ended in the middle, and its last lines show where.
fn failures(output: &str) -> &str {
    const LINES: usize = 100;
    let from = output.find("\nfailures:\n").map_or(0, |at| at + 1);
    let told = &output[from..];
    let first = told.trim_end().rmatch_indices('\n').nth(LINES - 1).map_or(0, |(at, _)| at + 1);
    &told[first..]
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

    /// A word that no test's name has must not look like a success.
    #[test]
    fn nothing_run_is_no_success() {
        let selection = Selection { filters: vec!["one".to_owned(), "two".to_owned()], ..Selection::default() };
        let Err(error) = run(&[], &selection, false) else { panic!("it is an error") };
        assert_eq!(error.to_string(), "no test was run: no test of what is selected has `one` or `two` in its name");
    }

    #[test]
    fn closing_lines_add_up() {
        let mut totals = Totals::default();
        totals.add("test result: ok. 12 passed; 0 failed; 2 ignored; 0 measured; 3 filtered out; finished in 0.04s");
        totals.add("test result: FAILED. 1 passed; 4 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s");
        totals.add("test says.test result: ok. 100 passed");
        assert_eq!(totals, Totals { passed: 13, failed: 4, skipped: 2 });
    }

    #[test]
    fn lines_say_which_test_ended() {
        let whole = |name: &str| Line::Whole(name.to_owned());
        assert_eq!(parse("test cli::a ... ok"), whole("cli::a"));
        assert_eq!(parse("test [aarch64] cases/plain/jemalloc     ... FAILED"), whole("cases/plain/jemalloc"));
        assert_eq!(parse("test tests::it_panics - should panic ... ok"), whole("tests::it_panics"));
        assert_eq!(parse("test a ... note: it prints"), Line::Begin("a".to_owned()));
        assert_eq!(
            [parse("ok"), parse("running 3 tests"), parse("test b ... ignored, minutes")],
            [Line::End, Line::Other, Line::Other]
        );
    }

    /// A program that works in its first test and idles in its second. It waits for the reader before it goes on, so
    /// that a loaded machine changes nothing. Each wait has its own pipe: if a pipe is opened again before its first
    /// writer has closed it, the second read ends at once.
    #[test]
    fn processor_time_is_that_of_the_test_before_the_line() {
        let script = "printf 'test one ... '; n=0; while [ $n -lt 300000 ]; do n=$((n + 1)); done; echo ok; \
            read -r _ <go0; printf 'test two ... '; echo ok; read -r _ <go1";
        let folder = tempfile::tempdir().unwrap();
        let (path, go) = (folder.path().join("out"), ["go0", "go1"].map(|name| folder.path().join(name)));
        assert!(std::process::Command::new("mkfifo").args(&go).status().unwrap().success());
        let out = File::create(&path).unwrap();
        let mut program = std::process::Command::new("sh");
        let mut child = program.args(["-c", script]).current_dir(&folder).stdout(out).spawn().unwrap();
        let mut reader = Reader { file: File::open(&path).unwrap(), rest: Vec::new(), test: None, seconds: 0.0 };
        let (mut times, mut told) = (Vec::new(), 0);
        let mut total = None;
        while !has_ended(&child) {
            total = seconds(&child).or(total);
            reader.read(|| seconds(&child), &mut |test: &str, seconds| times.push((test.to_owned(), seconds))).unwrap();
            while told < times.len() {
                fs::write(&go[told], "\n").unwrap();
                told += 1;
            }
            std::thread::sleep(LOOK);
        }
        child.wait().unwrap();
        let names: Vec<&str> = times.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["one", "two"]);
        assert!(times[0].1 > 4.0 * times[1].1, "{times:?}");
        assert!(times[0].1 + times[1].1 <= total.unwrap() + 0.02, "{times:?} {total:?}");
    }
}
