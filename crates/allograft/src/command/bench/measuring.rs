//! Measures all cases within one budget: first one round of each, then rounds of those cases that need them, as many as
//! the rest of the time allows. Servers whose load takes a rate are measured at equal rates afterwards.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use measure::case::Case;
use measure::executor::{Clock, SystemClock};
use measure::machine::{Disturbance, Machine, Watch};
use measure::process::Processes;
use measure::rates::{self, Rate};
use measure::recommendation::{self, Objective};
use measure::results::{self, CaseResult, Results, SCHEMA_VERSION};
use measure::session::{Comparison, Need, Plan, Progress, Session, SessionError, Tools, Until, neediest};

use super::{Work, arms, table};
use crate::failure::{Failure, REPORT};
use crate::output::Output;

/// A case, what has been measured of it, and the disturbances of the machine meanwhile.
struct Opened<'w> {
    number: usize,
    comparison: Comparison<'w>,
    disturbance: Disturbance,
}

/// Measures the work's cases within its budget. The first round of the first case always runs, since a result needs at
/// least one.
pub(super) fn measure(
    work: Work,
    plan: Plan,
    objective: Objective,
    output: &Output,
    interrupted: &Arc<AtomicBool>,
) -> Result<Results, Failure> {
    let plan = Plan { budget: work.budget, ..plan };
    let at_full_load = if work.rates.is_empty() { work.budget } else { work.budget / AT_FULL_LOAD };
    let mut bench =
        Measurement { cases: &work.cases, clock: SystemClock::default(), end: at_full_load, output, interrupted };
    let overloaded = if work.rates.is_empty() { work.cases.clone() } else { bench.overloaded()? };
    bench.cases = &overloaded;
    let (mut opened, mut left_out) = bench.open(&plan)?;
    bench.go_on(&mut opened)?;
    let mut warnings = work.warnings.clone();
    let (mut sessions, mut cases): (Vec<Session>, Vec<CaseResult>) = (Vec::new(), Vec::new());
    let mut numbers = Vec::new();
    for Opened { number, comparison, disturbance } in opened {
        let session = comparison.finish();
        cases.push(CaseResult::new(&overloaded[number], &session, &plan, disturbance));
        sessions.push(session);
        numbers.push(number);
    }
    if !work.rates.is_empty() {
        bench.end = work.budget;
        left_out.extend(bench.at_rates(&work.rates, &plan, &numbers, &mut cases)?);
    }
    if !left_out.is_empty() {
        warnings.push(format!("the budget was spent before these were measured: {}", left_out.join("; ")));
    }
    if cases.is_empty() {
        return Err(nothing_measured());
    }
    let arms = results::arms(&work.origins, &cases, &sessions);
    let recommendation = recommendation::recommend(&arms, &cases, objective);
    let results = Results {
        schema_version: SCHEMA_VERSION,
        allograft: env!("CARGO_PKG_VERSION").to_owned(),
        input: work.input.clone(),
        machine: Machine::this(),
        plan,
        interrupted: interrupted.load(Ordering::Relaxed),
        arms,
        cases,
        recommendation,
        warnings,
    };
    results
        .as_kept()
        .map_err(|error| Failure::usage(format!("the results cannot be written as JSON: {error}")).with_help(REPORT))
}

/// The share of the budget for full load, where a server is measured at equal rates as well.
const AT_FULL_LOAD: u32 = 3;

struct Measurement<'b> {
    cases: &'b [Case],
    clock: SystemClock,
    /// The time at which the present part of the measurement has to end.
    end: Duration,
    output: &'b Output,
    interrupted: &'b Arc<AtomicBool>,
}

impl<'b> Measurement<'b> {
    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Returns the cases with a load that no arm can answer: full load, where the load command takes a rate.
    fn overloaded(&self) -> Result<Vec<Case>, Failure> {
        let cases = self.cases.iter().enumerate().map(|(number, case)| {
            let rate = self.with_tools(number, |tools| rates::overload(case, tools));
            rate.map(|rate| case.at_rate(rate)).map_err(|error| match self.is_interrupted() {
                true => nothing_measured(),
                false => refused(&case.title(), error),
            })
        });
        cases.collect()
    }

    /// Measures the cases with these numbers at equal rates, and adds that to their results. Returns the titles of what
    /// there was no time for.
    fn at_rates(
        &self,
        rates: &[Rate],
        plan: &Plan,
        numbers: &[usize],
        results: &mut [CaseResult],
    ) -> Result<Vec<String>, Failure> {
        let mut left_out = Vec::new();
        for (at, (number, result)) in numbers.iter().zip(&mut *results).enumerate() {
            if self.is_interrupted() {
                break;
            }
            let case = &self.cases[*number];
            let (now, count) = (self.clock.now(), u32::try_from(numbers.len() - at).unwrap_or(u32::MAX));
            let end = now + self.end.saturating_sub(now) / count;
            let added = self.with_tools(*number, |tools| result.add_rates(case, rates, plan, end, tools));
            let for_no_time = added.map_err(|error| refused(&case.title(), error))?;
            if !self.is_interrupted() {
                left_out.extend(for_no_time.iter().map(|rate| format!("{} at {rate}/s", case.title())));
            }
        }
        Ok(left_out)
    }

    /// Runs the checks, the memory measurement and one round of every case. Returns the opened cases, and the titles of
    /// those for which there was no time. A case that was interrupted in its first round is left out, since it would
    /// leave a hole in every figure over all cases.
    fn open(&mut self, plan: &Plan) -> Result<(Vec<Opened<'b>>, Vec<String>), Failure> {
        let (mut opened, mut left_out) = (Vec::new(), Vec::new());
        for (number, case) in self.cases.iter().enumerate() {
            if self.is_interrupted() {
                break;
            }
            if number > 0 && self.clock.now() >= self.end {
                left_out.push(case.title());
                continue;
            }
            let seed = plan.seed.wrapping_add(number as u64);
            let mut comparison = Comparison::new(case, Plan { seed, ..plan.clone() });
            let watch = Watch::start();
            let end = (number > 0).then_some(self.end);
            self.with_tools(number, |tools| comparison.open(end, tools))
                .map_err(|error| refused(&case.title(), error))?;
            self.still_works(number, &comparison)?;
            if comparison.rounds() > 0 {
                opened.push(Opened { number, comparison, disturbance: watch.finish() });
            } else if !self.is_interrupted() {
                left_out.push(case.title());
            }
        }
        Ok((opened, left_out))
    }

    /// Measures more: each case's memory in its share of the time, then rounds where they are needed. System calls come
    /// before the rounds of a single case, and after those of several: tables of several cases do not show them.
    fn go_on(&mut self, opened: &mut [Opened<'b>]) -> Result<(), Failure> {
        let alone = opened.len() == 1;
        let watch = Watch::start();
        self.each(opened, |comparison, until, tools| {
            comparison.measure_memory(until, tools);
            if alone {
                comparison.count_calls(until, tools);
            }
        })?;
        self.rounds(opened)?;
        if !alone {
            self.each(opened, |comparison, until, tools| comparison.count_calls(until, tools))?;
        }
        let disturbance = watch.finish();
        for case in opened {
            case.disturbance = case.disturbance.and(disturbance);
        }
        Ok(())
    }

    /// Does something for each case. Each gets its share of the time that is left, and leaves to the others what it
    /// does not need.
    fn each(
        &mut self,
        opened: &mut [Opened<'b>],
        run: impl Fn(&mut Comparison<'b>, Until, &mut Tools<'_>),
    ) -> Result<(), Failure> {
        let count = opened.len();
        for (at, Opened { number, comparison, .. }) in opened.iter_mut().enumerate() {
            let now = self.clock.now();
            if self.is_interrupted() || now >= self.end {
                break;
            }
            let left = u32::try_from(count - at).unwrap_or(u32::MAX);
            let until = Until { aim: now + (self.end - now) / left, end: Some(self.end) };
            self.with_tools(*number, |tools| run(comparison, until, tools));
            self.still_works(*number, comparison)?;
        }
        Ok(())
    }

    /// Gives rounds to the cases that need them, until all are precise or the budget is spent.
    fn rounds(&mut self, opened: &mut [Opened<'b>]) -> Result<(), Failure> {
        let until = Until { aim: self.end, end: Some(self.end) };
        while !self.is_interrupted() {
            let now = self.clock.now();
            let fits = |need: &Need| now + need.next <= self.end;
            let needs: Vec<Option<Need>> = opened.iter_mut().map(|case| case.comparison.need().filter(fits)).collect();
            let Some(at) = neediest(&needs) else { break };
            let Opened { number, comparison, .. } = &mut opened[at];
            self.with_tools(*number, |tools| comparison.make_round(until, tools));
            self.still_works(*number, comparison)?;
        }
        Ok(())
    }

    fn still_works(&self, number: usize, comparison: &Comparison<'_>) -> Result<(), Failure> {
        match comparison.failed() {
            None => Ok(()),
            Some(failure) => {
                let title = self.cases[number].title();
                Err(Failure::usage(format!("{title}: {} {failure}, after it ran well before", arms::STOCK))
                    .with_help("measure work that ends the same way each time"))
            }
        }
    }

    fn with_tools<T>(&self, number: usize, run: impl FnOnce(&mut Tools<'_>) -> T) -> T {
        let progress = self.output.progress();
        let several = self.cases.len() > 1;
        let title = match several {
            true => format!("{} of {}: {}", number + 1, self.cases.len(), self.cases[number].title()),
            false => self.cases[number].title(),
        };
        let mut observer = |event: Progress<'_>| {
            let left = match event {
                Progress::Round { left, .. } if !several => left,
                Progress::AtRate { .. } => Some(self.end.saturating_sub(self.clock.now())),
                _ if several => Some(self.end.saturating_sub(self.clock.now())),
                _ => None,
            };
            let left = left.map_or(String::new(), |left| format!(", at most {} left", table::duration(left)));
            progress.step(&match event {
                Progress::Checking(arm) => format!("{title}: first run of {arm}{left}"),
                Progress::Memory(arm) => format!("{title}: memory of {arm}{left}"),
                Progress::Capacity(arm) => format!("{title}: how much {arm} answers{left}"),
                Progress::AtRate { rate, round } => format!("{title}: {rate} requests/s, round {round}{left}"),
                Progress::Calls(arm) => format!("{title}: system calls of {arm}{left}"),
                Progress::Round { round, .. } => format!("{title}: round {round}{left}"),
            });
        };
        let mut processes = Processes::until(Arc::clone(self.interrupted));
        let outcome = run(&mut Tools {
            executor: &mut processes,
            clock: &self.clock,
            observer: &mut observer,
            interrupted: &|| self.is_interrupted(),
        });
        progress.finish();
        outcome
    }
}

fn nothing_measured() -> Failure {
    Failure::usage("interrupted before a round was complete: nothing was measured")
        .with_help("let it run longer, or shorten the work that is measured")
}

fn refused(title: &str, error: SessionError) -> Failure {
    let problem = Failure::usage(format!("{title}: {error}"));
    match error {
        SessionError::Unsteady { .. } => {
            problem.with_help("if its output is meant to differ from run to run: `--any-output`")
        }
        SessionError::Changing { .. } => problem.with_help(
            "whatever its exit code is, each run has to repeat it: give the program work that ends the same way each time",
        ),
        SessionError::Run { .. } | SessionError::Fails { .. } => {
            problem.with_help("run stock by hand with the same arguments, and mend what it says")
        }
    }
}
