//! Comparisons of programs with `measure`: timed runs in random order within rounds, and separate runs for memory.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result, bail};
use measure::case::{Arm, Case, Invocation};
use measure::executor::{Clock, Executor, Status, SystemClock};
use measure::machine::Watch;
use measure::process::Processes;
use measure::results::CaseResult;
use measure::session::{self, ArmRuns, Comparison, Need, Plan, Progress, Session, Tools, Until};
use measure::statistics::median;

/// Returns an arm of that name, which runs `program` with `arguments`.
pub fn arm(name: &str, program: &Path, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Arm {
    let arguments = arguments.into_iter().map(Into::into).collect();
    let invocation = Invocation { program: program.to_owned(), arguments, ..Invocation::default() };
    Arm { name: name.to_owned(), invocation, broken: None }
}

/// Returns a case with these arms. The others are compared with the first.
pub fn case(name: &str, arms: Vec<Arm>) -> Case {
    Case { name: name.to_owned(), threads: None, size: None, arms }
}

/// Runs programs with no environment, so that no variable there tunes an allocator.
pub fn bare() -> Processes {
    Processes { environment: Some(Vec::new()), ..Processes::default() }
}

/// Compares the arms of `case` by `plan`.
///
/// # Errors
/// When an arm cannot be run, or its exit or output differs from the first arm's.
pub fn compare(case: &Case, plan: &Plan, executor: &mut dyn Executor) -> Result<Session> {
    let mut tools =
        Tools { executor, clock: &SystemClock::default(), observer: &mut |_: Progress<'_>| {}, interrupted: &|| false };
    let session = session::compare(case, plan, &mut tools).with_context(|| case.title())?;
    whole(case, session.arms.iter().map(|arm| arm.failure.as_deref()))?;
    Ok(session)
}

/// Compares the arms of each case within the one budget of `plan`. Rounds go to the cases that need them.
///
/// # Errors
/// As [`compare`], as soon as it happens: the budget may be an hour. Also when a program ends with an exit code other
/// than 0 in every arm.
pub fn compare_all(cases: &[Case], plan: &Plan) -> Result<(Vec<CaseResult>, Vec<Session>)> {
    let clock = SystemClock::default();
    let mut executor = Processes::default();
    let mut observer = |_: Progress<'_>| {};
    let mut tools = Tools { executor: &mut executor, clock: &clock, observer: &mut observer, interrupted: &|| false };
    let watch = Watch::start();
    let mut comparisons = Vec::new();
    for (number, case) in cases.iter().enumerate() {
        eprintln!("bench: {}", case.title());
        let seed = plan.seed.wrapping_add(number as u64);
        let mut comparison = Comparison::new(case, Plan { seed, ..plan.clone() });
        comparison.open(None, &mut tools).with_context(|| case.title())?;
        whole(case, comparison.failures())?;
        comparisons.push(comparison);
    }
    let count = comparisons.len();
    for (at, comparison) in comparisons.iter_mut().enumerate() {
        let now = clock.now();
        let share = plan.budget.saturating_sub(now) / u32::try_from(count - at)?;
        let until = Until { aim: now + share, end: None };
        comparison.measure_memory(until, &mut tools);
        if plan.count_calls {
            comparison.count_calls(until, &mut tools);
        }
        whole(&cases[at], comparison.failures())?;
    }
    let until = Until { aim: plan.budget, end: None };
    loop {
        let now = clock.now();
        let fits = |need: &Need| now + need.next <= plan.budget;
        let needs: Vec<Option<Need>> = comparisons.iter_mut().map(|case| case.need().filter(fits)).collect();
        let Some(at) = session::neediest(&needs) else { break };
        comparisons[at].make_round(until, &mut tools);
        whole(&cases[at], comparisons[at].failures())?;
    }
    let disturbance = watch.finish();
    let sessions: Vec<Session> = comparisons.into_iter().map(Comparison::finish).collect();
    for (case, session) in cases.iter().zip(&sessions) {
        successful(case, session)?;
    }
    let results = cases.iter().zip(&sessions).map(|(case, session)| CaseResult::new(case, session, plan, disturbance));
    Ok((results.collect(), sessions))
}

/// No arm is excluded. `failures`: for each arm, the reason why it is.
fn whole<'f>(case: &Case, failures: impl Iterator<Item = Option<&'f str>>) -> Result<()> {
    for (arm, failure) in case.arms.iter().zip(failures) {
        if let Some(failure) = failure {
            bail!("{}: {}: {failure}", case.title(), arm.name);
        }
    }
    Ok(())
}

/// All arms end alike. If they fail alike, as for want of a file, the comparison is one of failures.
fn successful(case: &Case, session: &Session) -> Result<()> {
    match &session.end {
        Some(end) if end.status != Status::Exit(0) => {
            bail!("{}: every arm ends with {}, expected exit code 0: {}", case.title(), end.status, end.complaint)
        }
        _ => Ok(()),
    }
}

/// Returns the seconds of each timed run.
pub fn seconds(arm: &ArmRuns) -> Vec<f64> {
    arm.runs.iter().map(|run| run.figures.wall_s).collect()
}

/// Returns the ratio of the time of `arm` to that of `other`, for each round.
pub fn ratios(arm: &ArmRuns, other: &ArmRuns) -> Vec<f64> {
    session::log_ratios(&arm.runs, &other.runs).into_iter().map(f64::exp).collect()
}

/// Returns the peak memory in megabytes, the median of the runs for memory. `None` if programs cannot be traced.
pub fn megabytes(arm: &ArmRuns) -> Option<f64> {
    let peaks: Vec<f64> = arm.memory.iter().map(|memory| memory.peak_bytes as f64 / 1e6).collect();
    (!peaks.is_empty()).then(|| median(&peaks))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Arm {
        arm(script, Path::new("/bin/sh"), ["-c", script])
    }

    #[test]
    fn an_arm_that_answers_otherwise_is_an_error() {
        let plan = Plan { least_rounds: 1, most_rounds: 2, memory_runs: 1, count_calls: false, ..Plan::default() };
        let session = compare(&case("same", vec![shell("echo x"), shell("echo  x")]), &plan, &mut bare()).unwrap();
        assert_eq!(seconds(&session.arms[1]).len(), ratios(&session.arms[1], &session.arms[0]).len());
        let error = compare(&case("other", vec![shell("echo x"), shell("echo y")]), &plan, &mut bare()).unwrap_err();
        assert!(error.to_string().starts_with("other: echo y: "), "{error:#}");
    }

    #[test]
    fn an_arm_that_fails_late_ends_the_comparison() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("runs");
        let least = Plan { least_rounds: 20, most_rounds: 20, memory_runs: 0, count_calls: false, ..Plan::default() };
        let script = format!("echo x >> {0}; test $(wc -l < {0}) -lt 5", fixtures::shell::word(&runs));
        let error = compare_all(&[case("late", vec![shell("true"), shell(&script)])], &least).unwrap_err().to_string();
        assert!(error.starts_with("late: ") && error.contains("exit code 1"), "{error}");
        assert_eq!(std::fs::read_to_string(runs).unwrap().lines().count(), 5);
    }

    /// A program that is missing in every arm would have a ratio of 1.
    #[test]
    fn a_case_that_fails_in_every_arm_is_an_error() {
        let plan = Plan { least_rounds: 1, most_rounds: 1, memory_runs: 1, count_calls: false, ..Plan::default() };
        let of = |script: &str| compare_all(&[case("absent", vec![shell(script), shell(script)])], &plan);
        assert_eq!(of("echo x").unwrap().0.len(), 1);
        let error = of("echo gone >&2; exit 127").unwrap_err().to_string();
        assert_eq!(error, "absent: every arm ends with exit code 127, expected exit code 0: gone");
    }
}
