//! Comparisons of programs with `measure`: timed runs in random order within rounds, and separate runs for memory.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, Result, bail};
use measure::case::{Arm, Case, Invocation};
use measure::executor::{Executor, SystemClock};
use measure::process::Processes;
use measure::session::{self, ArmRuns, Plan, Progress, Session, Tools};
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
/// When an arm cannot be run, or its exit or output differs from the first one's.
pub fn compare(case: &Case, plan: &Plan, executor: &mut dyn Executor) -> Result<Session> {
    let mut tools =
        Tools { executor, clock: &SystemClock::default(), observer: &mut |_: Progress<'_>| {}, interrupted: &|| false };
    let session = session::compare(case, plan, &mut tools).with_context(|| case.title())?;
    for (arm, runs) in case.arms.iter().zip(&session.arms) {
        if let Some(failure) = &runs.failure {
            bail!("{}: {}: {failure}", case.title(), arm.name);
        }
    }
    Ok(session)
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
}
