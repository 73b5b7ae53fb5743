//! `cargo xtask bench latency`: the latency of the suite's server at equal rates of requests, with glibc, the default
//! donor, mimalloc and stock musl. All are compared with glibc.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fixtures::shell::word;
use measure::case::{Arm, Case, Invocation, Load};
use measure::executor::SystemClock;
use measure::machine::Machine;
use measure::process::Processes;
use measure::rates::{self, Percentile, RateArm, RateResult};
use measure::report::{self, count, ratio, seconds};
use measure::results::{self, CaseResult};
use measure::session::{Plan, Progress, Tools};
use serde::{Deserialize, Serialize};
use tools::{command, folder, workspace};
use xtask::linking::{self, Compiler, Musl};
use xtask::page::{KeptTable, Table};
use xtask::sessions;

use crate::real::build::{self, Builder, RealArm};
use crate::real::program::Part;
use crate::rust_programs;

/// The tables in the docs.
pub(crate) const TABLE: KeptTable<Latency> = KeptTable {
    figures: "docs/figures/latency.json",
    place: Table {
        page: "docs/bench-figures.md",
        begin: "<!-- latency: made by `cargo xtask bench tables` -->",
        end: "<!-- /latency -->",
    },
    text: tables,
};
/// The arms; the others are compared with the first.
const ARMS: [&str; 4] = ["glibc", "snmalloc", "mimalloc", "stock"];
/// The connections of the load, and the server's threads.
const CONNECTIONS: u32 = 16;

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct LatencyArgs {
    /// Loads of a second and a single round, to see whether everything works
    #[arg(long)]
    quick: bool,
    /// Minutes for everything except building
    #[arg(long, default_value_t = 40)]
    minutes: u64,
    /// Keep the figures in this file
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
}

/// The figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Latency {
    schema_version: u32,
    allograft: String,
    machine: Machine,
    /// The seconds of each load.
    seconds: u32,
    /// Full load, and the equal rates. Ratios are to the first arm, whatever their names say.
    case: CaseResult,
}

/// Builds, measures, prints, and keeps the figures if `--save` is set.
///
/// # Errors
/// A program does not build, or an arm fails.
pub(crate) fn bench(args: &LatencyArgs) -> Result<()> {
    ensure!(!args.quick || args.save.is_none(), "a run with --quick is not kept");
    tools::prepare_for_one()?;
    let allograft = command::build_allograft()?;
    let home = workspace::build().join("bench").join("latency");
    fs::create_dir_all(&home)?;
    let _lock = folder::lock(&home.join(".lock"))?;
    let seconds = if args.quick { 1 } else { 5 };
    let builder = Builder { home: &home, allograft: &allograft, musl: Musl::find()?, compiler: Compiler::find()? };
    let case = case(&builder, seconds)?;
    let latency = Latency {
        schema_version: 1,
        allograft: env!("CARGO_PKG_VERSION").to_owned(),
        machine: Machine::this(),
        seconds,
        case: measured(&case, args)?,
    };
    println!("{}", tables(&latency));
    let mut kept = latency;
    fs::write(home.join("results.json"), results::document(&kept)?)?;
    println!("every run: `{}`", workspace::shown(&home.join("results.json")));
    if let Some(path) = &args.save {
        for arm in kept.case.rates.iter_mut().flat_map(|rate| &mut rate.arms) {
            arm.runs.clear();
        }
        fs::write(path, results::compact(&kept)?).with_context(|| format!("cannot write `{}`", path.display()))?;
    }
    Ok(())
}

/// Builds the server for each arm, and the load for glibc.
fn case(builder: &Builder<'_>, seconds: u32) -> Result<Case> {
    let part = || Part {
        name: "http",
        sources: vec![workspace::root().join("suite/http/http.c")],
        flags: Vec::new(),
        is_archive: false,
    };
    let load = builder.home.join("http-load");
    linking::link_for_glibc(&builder.compiler, &builder.compile("http-load", &[part()], true)?, &load)?;
    let files = [builder.compile("http", &[part()], false)?, builder.compile("http", &[part()], true)?];
    let known = build::arms(builder.allograft)?;
    let find =
        |name: &&str| known.iter().position(|arm| arm.name == **name).with_context(|| format!("no arm `{name}`"));
    let places = ARMS.iter().map(find).collect::<Result<Vec<usize>>>()?;
    let mut known: Vec<Option<RealArm>> = known.into_iter().map(Some).collect();
    let arms: Vec<RealArm> = places.into_iter().filter_map(|at| known[at].take()).collect();
    let libcs = builder.libcs(&arms)?;
    let command = format!("{} --load {{port}} {CONNECTIONS} {seconds} {{rate}}", word(&load));
    let arm = |(arm, libc): (&RealArm, &PathBuf)| -> Result<Arm> {
        let program = builder.link("http", [&files[0], &files[1]], arm, libc)?;
        rust_programs::carries(builder.allograft, &program, &arm.carries)?;
        let arguments = ["--serve", "{port}", &CONNECTIONS.to_string()].map(Into::into).to_vec();
        let load = Some(Load { command: command.clone(), rate: None });
        let invocation = Invocation { program, arguments, load, ..Invocation::default() };
        Ok(Arm { name: arm.name.clone(), invocation, broken: None })
    };
    let arms = arms.iter().zip(&libcs).map(arm).collect::<Result<Vec<Arm>>>()?;
    Ok(sessions::case("http", arms))
}

/// Measures full load, and then the equal rates.
fn measured(case: &Case, args: &LatencyArgs) -> Result<CaseResult> {
    let clock = SystemClock::default();
    let mut executor = Processes::default();
    let mut observer = |progress: Progress<'_>| {
        if let Progress::AtRate { rate, round } = progress {
            eprintln!("bench: {rate} requests a second, round {round}");
        }
    };
    let mut tools = Tools { executor: &mut executor, clock: &clock, observer: &mut observer, interrupted: &|| false };
    let overload = rates::overload(case, &mut tools)?;
    let whole = Duration::from_secs(if args.quick { 0 } else { args.minutes * 60 });
    let plan = Plan {
        budget: whole / 6,
        least_rounds: if args.quick { 1 } else { 6 },
        memory_runs: if args.quick { 1 } else { 3 },
        precision: 0.01,
        count_calls: false,
        ..Plan::default()
    };
    let (mut results, _) = sessions::compare_all(&[case.at_rate(overload)], &plan)?;
    let mut result = results.pop().context("full load was not measured")?;
    // With `--quick` there is time for the first round of each rate.
    let end = if args.quick { Duration::from_secs(3600) } else { whole };
    let at_rates = if args.quick { Plan { most_rounds: 1, ..plan } } else { plan };
    let rates = rates::per_second(&rates::DEFAULT, result.least_requests_per_second().unwrap_or_default());
    let curve = rates::measure(case, &rates, &at_rates, (end, Duration::from_secs(600)), &mut tools)?;
    ensure!(curve.left_out.is_empty(), "there was no time for {:?} requests a second", curve.left_out);
    for rate in &curve.rates {
        for arm in &rate.arms {
            if let Some(failure) = &arm.failure {
                anyhow::bail!("{} at {}: {failure}", arm.name, report::rates::rate(rate));
            }
        }
    }
    result.rates = curve.rates;
    Ok(result)
}

/// A percentile of an arm.
type Get = fn(&RateArm) -> Option<Percentile>;

/// A table for each percentile: a row for each rate, a column for each arm.
fn tables(latency: &Latency) -> String {
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
    let (least, most) = (rounds.clone().min().unwrap_or_default(), rounds.max().unwrap_or_default());
    text.push_str(&format!(
        "Requests per second at full load: {}. {}; allograft {}; loads of {} s over {CONNECTIONS} connections, on the \
         same processors as the server; runs in random order within rounds ({least} to {most} of them for each rate).\n",
        at_full_load.collect::<Vec<_>>().join(", "),
        latency.machine.description(),
        latency.allograft,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_in_the_docs_are_those_of_the_kept_figures() {
        TABLE.check().unwrap();
    }
}
