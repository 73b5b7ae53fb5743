//! `allograft bench`: what a program, or the suite, gains by each donor on this machine.

mod arms;
mod cases;
mod curve;
mod dynamic;
mod executable;
mod host;
mod measuring;
mod preload;
mod preparation;
mod program;
mod pull_request;
mod render;
mod scratch;
mod suite;
mod table;
mod template;
mod words;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, ValueEnum};
use measure::case::Case;
use measure::rates::Rate;
use measure::recommendation::Objective;
use measure::results::{Input, Origin, Results};
use measure::session::Plan;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::command::verdict;
use crate::failure::{Failure, mend};
use crate::number::whole;
use crate::output::Output;
use crate::shell::quoted;
use crate::signals::is_ignored;
pub(crate) use arms::{Arm, Libc};
pub(crate) use executable::check_rights;
pub(crate) use host::StockMusl;
pub(crate) use scratch::Scratch;
pub(crate) use words::{case, first_value, measuring as command_to_measure, separated};

/// Measure a program with stock and every donor
///
/// Builds the program once for each arm, against a private copy of the libc's folder. The host stays unchanged. Checks
/// that all arms give the same output and exit code as stock. Then runs them in random order within rounds, until the
/// intervals are narrow enough or the budget is spent. Memory and system calls are measured in separate runs.
///
/// Arms: stock; donors as `graft` puts them in; with --build and for the suite also strings (string functions alone,
/// which do not go into linked programs by themselves) and glibc. A donor has variants:
/// mimalloc:small (a profile), mimalloc:purge_delay=0 (an option), mimalloc:only (without string functions),
/// mimalloc:strings (with them, in a linked executable). A dynamic program of glibc also takes settings of glibc's own
/// malloc, glibc:arena_max=2, and other allocators by LD_PRELOAD: tcmalloc, mesh, preload:PATH. `all` is every donor
/// that goes into such a program, with `--for memory` also with the profile `small`; with --build and for the suite
/// also strings. `profiles` is every donor with each of its profiles.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:
  allograft bench ./program ARGS            # static or dynamic, of musl or glibc
  allograft bench map larson                # programs of the suite
  allograft bench --build 'musl-gcc -O2 -static -L{libdir} main.c -o {out}'",
    after_long_help = "Examples:
  # a linked program, static or dynamic
  allograft bench ./program --self-test
  allograft bench --build 'gcc -O2 -static -specs {libdir}/musl-gcc.specs main.c -o {out}' -- input.txt
  allograft bench --donors stock,mimalloc,mimalloc:small --threads 1,2,8 --build '...' -- --threads {threads}
  allograft bench --build '...' --html report.html --save results.json -- input.txt
  allograft bench --build '...' --server '{out} --port {port}' --load 'wrk --latency -d5 http://127.0.0.1:{port}/'
  allograft bench --server '{out} --port {port}' --load 'wrk --latency -d5 http://127.0.0.1:{port}/' ./server
  # its latencies at equal rates, too
  allograft bench --server '{out} --port {port}' --load 'wrk2 --latency -d15 -R{rate} http://127.0.0.1:{port}/' ./server
  # programs of the suite
  allograft bench map larson --donors stock,mimalloc,glibc
  allograft bench --from results.json --pull-request request.md

What follows the program is the program's own; options of `bench` come before it. `--` is needed before a program whose
name begins with a dash or is that of a case; a case that is also a file in this folder is `suite:NAME`.

In --build, {libdir} is a folder like the host's with the arm's libc.a; {object} is the donor's object files (empty for
stock); {out} is the path for the program. Then come the program's arguments, or a whole command that contains {out}. In
it, {threads} is replaced by each number of --threads. Ctrl-C ends the measuring and keeps the results so far.

Exit codes:
  0  done
  1  an arm failed, or differs from stock in output or exit code
  2  wrong usage, or input that cannot be read or is malformed
  3  refused, because it would not be safe"
)]
pub(crate) struct Bench {
    /// Programs of the suite to measure
    ///
    /// Programs of the suite [default: all of them, if there is no --build]
    #[arg(value_name = "SUITE", value_parser = suite::Cases, conflicts_with_all = ["build", "server", "from"])]
    suite: Vec<String>,
    /// The libc.a to graft, or its folder
    ///
    /// The libc.a to graft, or its folder [default: the musl of this machine]
    #[arg(long, value_name = "LIBC")]
    host: Option<PathBuf>,
    /// Arms to compare with stock [default: all]
    ///
    /// The arms to compare with stock [default: all]
    #[arg(long, value_name = "ARM,...", value_delimiter = ',')]
    donors: Option<Vec<String>>,
    /// Command that builds the program
    ///
    /// The command that builds the program, with {libdir} or {object}, and {out}
    #[arg(long, value_name = "CMD")]
    build: Option<String>,
    /// Command that builds it for glibc
    ///
    /// The command that builds it for glibc, with {out}; adds the arm `glibc`
    #[arg(long, value_name = "CMD", requires = "build")]
    build_glibc: Option<String>,
    /// Command that starts it as a server
    ///
    /// The command that starts the program as a server, with {out} and {port}
    #[arg(long, value_name = "CMD", requires = "load")]
    server: Option<String>,
    /// Command that loads the server
    ///
    /// The command that loads the server at {port}, with {rate} also at equal rates of requests; prints a report of
    /// wrk, wrk2, vegeta, oha or k6, or JSON with `requests_per_second`
    #[arg(long, value_name = "CMD", requires = "server")]
    load: Option<String>,
    /// Equal rates: 1000,50%,...
    ///
    /// The equal rates at which latencies are measured, for a load with {rate}: requests per second, or percents of
    /// what the slowest arm answers [default: 20%,40%,60%,80%,95%]
    #[arg(long, value_name = "RATE,...", value_delimiter = ',', value_parser = rate, requires = "load")]
    rates: Vec<Rate>,
    /// Numbers of threads to run with
    ///
    /// Numbers of threads to run with: {threads} in the arguments, or --threads-var
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = whole(1..=1024_u32))]
    threads: Vec<u32>,
    /// Variable with the number of threads
    ///
    /// The environment variable that gives the program its number of threads
    #[arg(long, value_name = "NAME", requires = "threads")]
    threads_var: Option<String>,
    /// Goal of the recommendation
    ///
    /// The goal of the recommendation. `balanced`: the fastest with at most 1.25 times stock's peak memory, or at most
    /// 16 MiB more
    #[arg(long = "for", value_name = "WHAT", value_enum, default_value_t = Wanted::Balanced)]
    wanted: Wanted,
    /// Time without building [default: 5m; suite 1h]
    ///
    /// Time for everything except building: 90s, 10m, 1h [default: 5m, with {rate} 15m, for the suite 1h]
    #[arg(long, value_name = "TIME", value_parser = time)]
    budget: Option<Duration>,
    /// Stop at so narrow intervals, in % [default: 1]
    ///
    /// Stop when intervals reach no further than this to either side, in percent [default: 1, for the suite 3]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    precision: Option<f64>,
    /// Greatest number of rounds
    ///
    /// The greatest number of rounds
    #[arg(long, value_name = "N", value_parser = whole(1..=10_000_u32))]
    rounds: Option<u32>,
    /// Repeat an earlier random order
    ///
    /// Repeat the random order of an earlier run
    #[arg(long, value_name = "N", value_parser = whole(0..=u64::MAX))]
    seed: Option<u64>,
    /// Do not compare the arms' output
    #[arg(long)]
    any_output: bool,
    /// C compiler for the suite
    ///
    /// The C compiler for the suite [default: $CC, else cc]
    #[arg(long, value_name = "CC")]
    cc: Option<PathBuf>,
    /// musl's headers, for the suite
    ///
    /// musl's headers, for the suite [default: looked for beside the host]
    #[arg(long, value_name = "FOLDER")]
    include: Option<PathBuf>,
    /// Shorten the suite, only to check it
    ///
    /// Shorten the suite's programs, only to check that everything runs
    #[arg(long, conflicts_with_all = ["build", "server", "from"])]
    quick: bool,
    /// Write an HTML report
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write Markdown tables
    ///
    /// Write Markdown tables, for a pull request
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Write the text of a pull request
    ///
    /// Write the text of a pull request for the project: the lines to add, figures, risks, the way back
    #[arg(long, value_name = "FILE")]
    pull_request: Option<PathBuf>,
    /// Write CSV
    ///
    /// Write CSV with a line for each arm and case
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write all results as JSON
    ///
    /// Write all results as JSON, including every run
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Show saved results; measure nothing
    ///
    /// Measure nothing; show results of --save or --json
    #[arg(long, value_name = "FILE", conflicts_with_all = ["build", "server", "donors", "host", "threads"])]
    from: Option<PathBuf>,
    /// Program and its arguments
    ///
    /// A program and its arguments; with --build, the arguments of the built program, or a command with {out}
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// The default budget for a user's program.
const OF_A_PROGRAM: Duration = Duration::from_secs(300);
/// The default budget for a server that is also measured at equal rates.
const WITH_RATES: Duration = Duration::from_secs(900);

/// `--for`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Wanted {
    Speed,
    Memory,
    Balanced,
}

impl From<Wanted> for Objective {
    fn from(wanted: Wanted) -> Objective {
        match wanted {
            Wanted::Speed => Objective::Speed,
            Wanted::Memory => Objective::Memory,
            Wanted::Balanced => Objective::Balanced,
        }
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.find(|letter: char| letter.is_ascii_alphabetic()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let seconds = match unit {
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("expected a time such as 90s, 10m or 1h".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| "expected a time such as 90s, 10m or 1h")?;
    Duration::try_from_secs_f64(number * seconds).map_err(|error| error.to_string())
}

fn percent(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim_end_matches('%').parse().map_err(|_| "expected percents, such as 1 or 0.5")?;
    if (0.05..=50.0).contains(&number) { Ok(number) } else { Err("expected percents from 0.05 to 50".to_owned()) }
}

fn rate(text: &str) -> Result<Rate, String> {
    let wanted = "expected requests per second, such as 1000, or percents of the slowest arm's, such as 50%";
    let rate = match text.strip_suffix('%') {
        Some(share) => share
            .parse()
            .ok()
            .filter(|share| (0.1..=1000.0).contains(share))
            .map(|share| Rate::OfCapacity(share / 100.0)),
        None => text.parse().ok().filter(|rate| (1..=1_000_000_000).contains(rate)).map(Rate::PerSecond),
    };
    rate.ok_or_else(|| wanted.to_owned())
}

/// The cases to compare, and the origins of their arms.
pub(super) struct Work {
    cases: Vec<Case>,
    origins: Vec<Origin>,
    input: Input,
    budget: Duration,
    /// The equal rates at which servers are measured, too. Empty: full load alone.
    rates: Vec<Rate>,
    warnings: Vec<String>,
    /// The folder of the programs; deleted when this is dropped.
    _folder: Scratch,
}

/// A program that was linked elsewhere, once for each arm.
pub(crate) struct Linked<'l> {
    pub(crate) arms: &'l [Arm],
    pub(crate) programs: Vec<Result<PathBuf, String>>,
    /// The command that builds it; a donor can be added to it.
    pub(crate) command: String,
    pub(crate) host: &'l StockMusl,
    /// The folder of the programs; deleted at the end.
    pub(crate) folder: Scratch,
}

impl Bench {
    pub(crate) fn run(self: Box<Self>, output: &Output) -> Result<ExitCode, Failure> {
        for path in [&self.html, &self.markdown, &self.pull_request, &self.csv, &self.save].into_iter().flatten() {
            render::check(path)?;
        }
        match &self.from {
            Some(path) => self.conclude(&render::read(path)?, output),
            None => {
                let interrupted = interruption()?;
                let work = self.prepare(output, &interrupted)?;
                self.measure(work, output, &interrupted)
            }
        }
    }

    fn measure(&self, work: Work, output: &Output, interrupted: &Arc<AtomicBool>) -> Result<ExitCode, Failure> {
        let of_suite = work.input.kind == suite::KIND;
        let results = measuring::measure(work, self.plan(of_suite), self.wanted.into(), output, interrupted)?;
        self.conclude(&results, output)
    }

    fn conclude(&self, results: &Results, output: &Output) -> Result<ExitCode, Failure> {
        let mut at_rates = results.cases.iter().flat_map(|case| &case.rates).flat_map(|rate| &rate.arms);
        let failed = results.arms.iter().any(|arm| arm.failure.is_some()) || at_rates.any(|arm| arm.failure.is_some());
        self.show(results, output)?;
        Ok(verdict(!failed || self.from.is_some()))
    }

    /// Returns the plan of the measurement. Its budget is in [`Work`]. The suite's table has a figure for each arm, and
    /// each one has to be precise; a program's user wants to know which arm to take, which a large difference answers
    /// soon.
    fn plan(&self, of_suite: bool) -> Plan {
        let mut plan = Plan {
            seed: self.seed.unwrap_or_else(|| fastrand::u64(SEEDS)),
            precision: self.precision.unwrap_or(if of_suite { 3.0 } else { 1.0 }) / 100.0,
            of_the_difference: if of_suite { 0.0 } else { Plan::default().of_the_difference },
            compare_output: !self.any_output,
            ..Plan::default()
        };
        if let Some(rounds) = self.rounds.and_then(|rounds| usize::try_from(rounds).ok()) {
            plan.most_rounds = rounds;
            plan.least_rounds = plan.least_rounds.min(rounds);
        }
        plan
    }

    fn show(&self, results: &Results, output: &Output) -> Result<(), Failure> {
        for warning in &results.warnings {
            output.warn(warning);
        }
        if results.interrupted {
            output.warn("interrupted: these are the rounds that were complete");
        }
        if output.json {
            output.json(&render::json(results)?)?
        } else {
            output.text(&table::text(results, output))?
        }
        // These come last: if a file cannot be written, the results have been shown.
        for (path, text) in [
            // The other files can be made from this one.
            (&self.save, render::json as fn(&Results) -> Result<String, Failure>),
            (&self.html, render::html),
            (&self.markdown, render::markdown),
            (&self.pull_request, pull_request::text),
            (&self.csv, render::csv),
        ] {
            if let Some(path) = path {
                render::write(path, &text(results)?)?;
            }
        }
        Ok(())
    }
}

/// The range of seeds: integers that JSON readers can hold exactly.
const SEEDS: std::ops::Range<u64> = 0..1 << 52;

/// Returns a flag that Ctrl-C, `kill` and the end of the terminal set. A second such signal ends the process as usual.
pub(crate) fn interruption() -> Result<Arc<AtomicBool>, Failure> {
    let flag = Arc::new(AtomicBool::new(false));
    // `nohup` has the end of the terminal ignored.
    for signal in [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| *signal != SIGHUP || !is_ignored(SIGHUP)) {
        let armed = signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag));
        armed
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .map_err(|error| Failure::usage(format!("cannot wait for Ctrl-C: {error}")).with_help(mend(&error)))?;
    }
    Ok(flag)
}

/// The command as a user would type it.
pub(crate) fn typed(command: &[OsString]) -> String {
    let words: Vec<String> = command.iter().map(|word| quoted(&word.to_string_lossy())).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_percents() {
        assert_eq!(time("90s").unwrap(), Duration::from_secs(90));
        assert_eq!(time("1.5m").unwrap(), Duration::from_secs(90));
        assert_eq!(time("2h").unwrap(), Duration::from_secs(7200));
        assert_eq!(time("5").unwrap(), Duration::from_secs(5));
        assert!(time("5 days").is_err() && time("-5s").is_err() && time("s").is_err());
        assert_eq!(percent("0.5%").unwrap(), 0.5);
        assert!(percent("0").is_err() && percent("x").is_err());
        assert_eq!((rate("1000"), rate("50%")), (Ok(Rate::PerSecond(1000)), Ok(Rate::OfCapacity(0.5))));
        assert!(["0", "1k", "-5", "0%", "%", "1.5"].iter().all(|text| rate(text).is_err()));
    }
}
