//! `cargo xtask bench graft`: the cost of grafting itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use measure::case::Invocation;
use measure::executor::{CallsRun, Executor, MemoryRun, RunError, TimedRun};
use measure::process::Processes;
use measure::session::Plan;
use measure::statistics::Spread;
use tools::{command, table, workspace};
use xtask::sessions;

use crate::experiment::Bench;

/// The goals of the design: time and memory of grafting one `libc.a`.
const GOAL_MS: f64 = 50.0;
const GOAL_MB: f64 = 64.0;

/// Released programs: static ones of 44 and of 103 MB.
const PROGRAMS: [&str; 2] = ["uv", "zuban"];
/// The goals for a program: time for each 100 MB, and memory as a multiple of its size.
const GOAL_MS_OF_100_MB: f64 = 1000.0;
const GOAL_SIZES: f64 = 2.0;

/// Prints time and memory of a graft for each architecture of Debian's musl, and for large programs.
///
/// # Errors
/// allograft does not build, or a graft fails.
pub(crate) fn bench() -> Result<()> {
    tools::prepare_for_one()?;
    table::prepare_named(&["musl", "musl-aarch64", "musl-i686", "musl-arm"])?;
    let allograft = command::build_allograft()?;
    let bench = Bench::at(workspace::build().join("bench").join("graft"))?;
    for arch in fixtures::DEBIAN {
        let libc = fixtures::debian_musl(arch).libc;
        let name = format!("Debian's libc.a for {}", arch.name());
        graft(&allograft, &name, &libc, |_| (GOAL_MS, GOAL_MB), &bench)?;
    }
    table::prepare_named(&["corpus"])?;
    let goals = |megabytes: f64| (megabytes / 100.0 * GOAL_MS_OF_100_MB, megabytes * GOAL_SIZES);
    let corpus = fixtures::corpus::listed();
    for name in PROGRAMS {
        let released = corpus.iter().find(|released| released.name == name);
        let released = released.with_context(|| format!("the corpus has no `{name}`"))?;
        graft(&allograft, name, &fixtures::corpus::place(released), goals, &bench)?;
    }
    Ok(())
}

/// Measures grafts of a file next to runs of a program that does nothing, whose cost is that of starting a process.
/// `goals`: milliseconds and megabytes for a host of so many megabytes. A graft of a program includes its self-test.
fn graft(allograft: &Path, title: &str, host: &Path, goals: impl Fn(f64) -> (f64, f64), bench: &Bench) -> Result<()> {
    let out = bench.home.join(format!("graft-{title}"));
    let arguments = ["-q".as_ref(), "graft".as_ref(), host.as_os_str(), "-o".as_ref(), out.as_os_str()];
    let names = ["floor (`true`)", "graft -o"];
    let floor = sessions::arm(names[0], Path::new("true"), [""; 0]);
    let case = sessions::case("graft", vec![floor, sessions::arm(names[1], allograft, arguments)]);
    let plan = Plan { most_rounds: 60, budget: Duration::from_secs(60), ..bench.plan(20, 1.0) };
    let session = sessions::compare(&case, &plan, &mut NewFile { processes: Processes::default(), out })?;
    let bytes = fs::metadata(host)?.len();
    let (goal_ms, goal_mb) = goals(bytes as f64 / 1e6);
    let rounds = session.arms[0].runs.len();
    println!("graft of {title} ({bytes} bytes), {rounds} runs beside as many of `true`:");
    for (name, runs) in names.into_iter().zip(&session.arms) {
        if let Some(spread) = Spread::new(&sessions::seconds(runs)) {
            let goal = if name == names[1] { format!("   goal {goal_ms:.0} ms") } else { String::new() };
            let (median, low, high) = (spread.median * 1e3, spread.min * 1e3, spread.max * 1e3);
            println!("  {name:<16} median {median:>7.2} ms   min {low:>7.2}   max {high:>7.2}{goal}");
        }
    }
    match sessions::megabytes(&session.arms[1]) {
        Some(peak) => {
            println!("  {:<16} {peak:>14.1} MB                              goal {goal_mb:.0} MB", "peak memory")
        }
        None => println!(
            "  {:<16} not measured: {}",
            "peak memory",
            session.arms[1].no_memory.as_deref().unwrap_or_default()
        ),
    }
    Ok(())
}

/// Removes a file before each run, so that every run makes a new one and does the same work.
struct NewFile {
    processes: Processes,
    out: PathBuf,
}

impl NewFile {
    fn processes(&mut self) -> &mut Processes {
        // The file does not exist before the first run.
        let _ = fs::remove_file(&self.out);
        &mut self.processes
    }
}

impl Executor for NewFile {
    fn time(&mut self, invocation: &Invocation, limit: Duration) -> Result<TimedRun, RunError> {
        self.processes().time(invocation, limit)
    }

    fn memory(&mut self, invocation: &Invocation, limit: Duration) -> Result<MemoryRun, RunError> {
        self.processes().memory(invocation, limit)
    }

    fn calls(&mut self, invocation: &Invocation, limit: Duration) -> Result<CallsRun, RunError> {
        self.processes().calls(invocation, limit)
    }
}
