//! `cargo xtask bench latency`: the latency of the suite's server at equal rates of requests, with glibc, the default
//! donor, mimalloc and stock musl. All are compared with glibc.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use fixtures::shell::word;
use measure::case::{Arm, Case, Invocation, Load};
use measure::executor::SystemClock;
use measure::process::Processes;
use measure::rates::{self, Percentile, RateArm, RateResult};
use measure::report::{self, count, ratio, seconds};
use measure::results::CaseResult;
use measure::session::{Plan, Progress, Tools};
use serde::{Deserialize, Serialize};
use tools::command;
use xtask::sessions;

use crate::builds::{Part, Workshop};
use crate::experiment::{Bench, Experiment, Figures, Record, range};

/// The experiment.
pub(crate) const EXPERIMENT: Experiment<Record<Latency>> =
    Experiment { name: "latency", programs: &[], minutes: 40, table: tables };
/// The arms; the others are compared with the first.
const ARMS: [&str; 4] = ["glibc", "snmalloc", "mimalloc", "stock"];
/// The connections of the load, and the server's threads.
const CONNECTIONS: u32 = 16;
/// The share of the time for full load.
const AT_FULL_LOAD: f64 = 1.0 / 6.0;

/// The figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// The seconds of each load.
    seconds: u32,
    /// Full load, and the equal rates. Ratios are to the first arm, whatever their names say.
    case: CaseResult,
}

impl Figures for Latency {
    fn without_runs(mut self) -> Latency {
        for arm in self.case.rates.iter_mut().flat_map(|rate| &mut rate.arms) {
            arm.runs.clear();
        }
        self
    }
}

/// Builds the server for each arm, and measures full load and then the equal rates.
///
/// # Errors
/// A program does not build, or an arm fails.
pub(crate) fn measure(bench: &Bench) -> Result<Record<Latency>> {
    let seconds = if bench.quick { 1 } else { 5 };
    let case = case(&Workshop::new(&bench.home, &command::build_allograft()?)?, seconds)?;
    Ok(Record::new(Latency { seconds, case: measured(&case, bench)? }))
}

/// Builds the server for each arm, and the load for glibc.
fn case(workshop: &Workshop, seconds: u32) -> Result<Case> {
    let part = [Part::suite("http")];
    let load = workshop.with_glibc("http-load", &part)?;
    let arms = ARMS.iter().map(|name| workshop.arm(name)).collect::<Result<Vec<_>>>()?;
    let command = format!("{} --load {{port}} {CONNECTIONS} {seconds} {{rate}}", word(&load));
    let arms = arms.iter().zip(workshop.programs("http", &part, &arms)?).map(|(arm, program)| {
        let arguments = ["--serve", "{port}", &CONNECTIONS.to_string()].map(Into::into).to_vec();
        let load = Some(Load { command: command.clone(), rate: None });
        let invocation = Invocation { program, arguments, load, ..Invocation::default() };
        Arm { name: arm.name.clone(), invocation, broken: None }
    });
    Ok(sessions::case("http", arms.collect()))
}

fn measured(case: &Case, bench: &Bench) -> Result<CaseResult> {
    let clock = SystemClock::default();
    let mut executor = Processes::default();
    let mut observer = |progress: Progress<'_>| {
        if let Progress::AtRate { rate, round } = progress {
            eprintln!("bench: {rate} requests a second, round {round}");
        }
    };
    let mut tools = Tools { executor: &mut executor, clock: &clock, observer: &mut observer, interrupted: &|| false };
    let overload = rates::overload(case, &mut tools)?;
    let plan =
        Plan { precision: 0.01, of_the_difference: Plan::default().of_the_difference, ..bench.plan(6, AT_FULL_LOAD) };
    let (mut results, _) = sessions::compare_all(&[case.at_rate(overload)], &plan)?;
    let mut result = results.pop().context("full load was not measured")?;
    // With `--quick` there is time for the first round of each rate.
    let (end, most_rounds) =
        if bench.quick { (Duration::from_secs(3600), 1) } else { (bench.budget, plan.most_rounds) };
    let at_rates = Plan { most_rounds, ..plan };
    let left_out = result.add_rates(case, &rates::DEFAULT, &at_rates, end, &mut tools)?;
    ensure!(left_out.is_empty(), "there was no time for {left_out:?} requests a second");
    for rate in &result.rates {
        for arm in &rate.arms {
            if let Some(failure) = &arm.failure {
                bail!("{} at {}: {failure}", arm.name, report::rates::rate(rate));
            }
        }
    }
    Ok(result)
}

/// A percentile of an arm.
type Get = fn(&RateArm) -> Option<Percentile>;

/// A table for each percentile: a row for each rate, a column for each arm.
fn tables(record: &Record<Latency>) -> String {
    let latency = &record.figures;
    let percentiles: [(&str, Get); 3] =
        [("99th percentile", |arm| arm.p99), ("Median", |arm| arm.p50), ("99.9th percentile", |arm| arm.p999)];
    let mut text = String::new();
    for (name, get) in percentiles {
        text.push_str(&format!(
            "{name} of the times of requests; in parentheses as ratio to glibc's, with its 95 % interval:\n\n"
        ));
        text.push_str(&table(&latency.case, get));
        text.push('\n');
    }
    let at_full_load = latency.case.arms.iter().filter_map(|arm| {
        let answered = arm.typical?.service?.requests_per_second;
        Some(format!("{} {}", arm.name, count(answered.round() as u64)))
    });
    let rounds = latency.case.rates.iter().map(|rate| rate.rounds);
    let rounds = range(rounds.clone().min().unwrap_or_default(), rounds.max().unwrap_or_default());
    text.push_str(&format!(
        "Requests per second at full load: {}. {}; loads of {} s over {CONNECTIONS} connections, on the \
         same processors as the server; runs in random order within rounds ({rounds} of them for each rate).\n",
        at_full_load.collect::<Vec<_>>().join(", "),
        record.origin(),
        latency.seconds
    ));
    text
}

fn table(case: &CaseResult, get: Get) -> String {
    let names: Vec<&str> = case.arms.iter().map(|arm| arm.name.as_str()).collect();
    let mut text = format!("| requests | {} |\n| --- |{}\n", names.join(" | "), " --- |".repeat(names.len()));
    for rate in &case.rates {
        let cells: Vec<String> = rate.arms.iter().enumerate().map(|(at, arm)| cell(rate, at, get(arm))).collect();
        text.push_str(&format!("| {} | {} |\n", report::rates::rate(rate), cells.join(" | ")));
    }
    text
}

fn cell(rate: &RateResult, at: usize, percentile: Option<Percentile>) -> String {
    let arm = &rate.arms[at];
    let Some(percentile) = percentile.filter(|_| arm.reached) else { return "not reached".to_owned() };
    let time = seconds(percentile.ms.median / 1e3);
    match percentile.ratio_to_stock.filter(|_| at > 0) {
        Some(to_first) => format!("{time} ({})", ratio(&to_first).replace(" (", "; ").replace(')', "")),
        None => time,
    }
}
