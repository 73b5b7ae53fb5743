//! `cargo xtask bench compare REV`: the donor of this tree against that of another commit, on the suite's programs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use measure::case::Case;
use measure::results::CaseResult;
use measure::session::{ArmRuns, Plan, Session};
use measure::statistics::{Ratio, median};
use tools::{command, workspace};
use xtask::sessions;

use crate::builds::{Part, Workshop};
use crate::experiment::Bench;

/// The programs, and their work: a tenth to a third of a second for each run.
const WORK: [(&str, &[&str]); 10] = [
    ("map", &["20000", "1000000"]),
    ("boxed", &["400000"]),
    ("larson", &["2000000", "50"]),
    ("pipeline", &["800000"]),
    ("growth", &["400"]),
    ("blocks", &["4000"]),
    ("small", &["12000"]),
    ("fragments", &["60"]),
    ("bursts", &["2000"]),
    ("http", &["12000"]),
];
const THREADS: [&str; 2] = ["1", "2"];
/// A program that allocates one block: its time is that of a start.
const START: &str = "nothing";
/// Smaller differences do not count, however sure: the place of code in a file makes as much.
const NOISE: f64 = 0.01;

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct CompareArgs {
    /// The commit to compare with
    revision: String,
    /// The donor; both commits must have it [default: each commit's default]
    #[arg(long, value_name = "NAME")]
    donor: Option<String>,
    /// The time for the measurement, without building
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    budget: u64,
}

/// Builds both, measures them in turns, and prints what moved.
///
/// # Errors
/// The commit is unknown, a part does not build, or a program fails or prints something else.
pub(crate) fn bench(args: &CompareArgs) -> Result<()> {
    let bench = Bench::open("compare")?;
    let home = &bench.home;
    let revision = command::output(command::git(&["rev-parse", "--verify", "--short"]).arg(commit(&args.revision)))?;
    let revision = revision.trim();
    eprintln!("bench: building allograft at {revision} and here ...");
    let tree = checkout(&home.join("tree"), revision)?;
    let settings = settings(args.donor.as_deref());
    let before = command::build_for_tests_in(&tree, &settings)?;
    let here = [settings, vec![("CARGO_TARGET_DIR".to_owned(), home.join("here").display().to_string())]].concat();
    let now = command::build_for_tests_in(&workspace::root(), &here)?;

    let graft: Vec<&str> = args.donor.iter().flat_map(|donor| ["--donor", donor]).collect();
    let sources: Vec<Part> = WORK.iter().map(|(name, _)| *name).chain([START]).map(Part::suite).collect();
    let link = |name: &str, by: &Path| Workshop::new(home, by)?.with_musl(name, Some(&graft), &sources);
    let cases = cases(&link("before", &before)?, &link("now", &now)?);
    let (budget, precision) = (Duration::from_secs(args.budget), NOISE / 2.0);
    let plan = Plan { budget, most_rounds: 200, precision, memory_runs: 5, ..bench.plan(9, 1.0) };
    let (results, sessions) = sessions::compare_all(&cases, &plan)?;
    print!("{}", report(revision, &results, &sessions));
    Ok(())
}

/// Returns git's name for the commit; `rev-parse` fails for other objects.
fn commit(revision: &str) -> String {
    format!("{revision}^{{commit}}")
}

/// The donors and architectures that are built. All that is measured is for this machine.
fn settings(donor: Option<&str>) -> Vec<(String, String)> {
    let arches = ("ALLOGRAFT_ARCHES".to_owned(), "native".to_owned());
    donor.map(|donor| ("ALLOGRAFT_DONORS".to_owned(), donor.to_owned())).into_iter().chain([arches]).collect()
}

/// Brings the commit into a worktree, whose build finds this tree's tools. It stays, so that the next build is short.
fn checkout(tree: &Path, revision: &str) -> Result<PathBuf> {
    if tree.join(".git").exists() {
        command::run(command::git(&["checkout", "--quiet", "--detach", "--force", revision]).current_dir(tree))?;
    } else {
        command::run(&mut command::git(&["worktree", "prune"]))?;
        let mut add: Command = command::git(&["worktree", "add", "--quiet", "--force", "--detach"]);
        command::run(add.arg(tree).arg(revision))?;
    }
    let tools = tree.join("target").join("tools");
    if !tools.exists() {
        fs::create_dir_all(tree.join("target"))?;
        symlink(workspace::build().join("tools"), &tools)
            .with_context(|| format!("cannot link `{}`", tools.display()))?;
    }
    Ok(tree.to_owned())
}

/// Each program with each number of threads, and the start.
fn cases(before: &[PathBuf], now: &[PathBuf]) -> Vec<Case> {
    let case = |name: &str, at: usize, arguments: &[&str]| {
        let arm = |arm: &str, programs: &[PathBuf]| sessions::arm(arm, &programs[at], arguments);
        sessions::case(name, vec![arm("before", before), arm("now", now)])
    };
    let mut cases = Vec::new();
    for (at, (name, work)) in WORK.iter().enumerate() {
        for threads in THREADS {
            cases.push(case(&format!("{name} {threads}"), at, &[&[threads], *work].concat()));
        }
    }
    cases.push(case("start", WORK.len(), &[]));
    cases
}

/// The conclusion about a ratio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Less,
    More,
    Same,
    Unclear,
}

impl Verdict {
    /// The interval decides: beyond the noise on one side, within twice the noise, or neither.
    fn new(low: f64, high: f64) -> Verdict {
        match () {
            () if high < 1.0 - NOISE => Verdict::Less,
            () if low > 1.0 + NOISE => Verdict::More,
            () if low >= 1.0 - 2.0 * NOISE && high <= 1.0 + 2.0 * NOISE => Verdict::Same,
            () => Verdict::Unclear,
        }
    }

    fn is_moved(self) -> bool {
        matches!(self, Verdict::Less | Verdict::More)
    }
}

/// A figure of a row: its ratio, now to before, and the interval.
#[derive(Debug, Clone, Copy)]
struct Figure {
    value: f64,
    low: f64,
    high: f64,
}

impl Figure {
    fn of_ratio(ratio: Option<&Ratio>) -> Option<Figure> {
        let ratio = ratio?;
        Some(Figure { value: ratio.value, low: ratio.low?, high: ratio.high? })
    }

    /// Of peak memory, with the least and the greatest of all ratios in place of an interval: there are few runs.
    fn of_memory(before: &ArmRuns, now: &ArmRuns) -> Option<Figure> {
        let peaks = |arm: &ArmRuns| arm.memory.iter().map(|memory| memory.peak_bytes as f64).collect::<Vec<_>>();
        let (before, now) = (peaks(before), peaks(now));
        let least = |all: &[f64]| all.iter().copied().reduce(f64::min);
        let most = |all: &[f64]| all.iter().copied().reduce(f64::max);
        Some(Figure {
            low: least(&now)? / most(&before)?,
            high: most(&now)? / least(&before)?,
            value: median(&now) / median(&before),
        })
    }

    fn verdict(self) -> Verdict {
        Verdict::new(self.low, self.high)
    }
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bold = if self.verdict().is_moved() { "**" } else { "" };
        write!(f, "{bold}{:.3}{bold} ({:.3}–{:.3})", self.value, self.low, self.high)
    }
}

/// The rows with something that moved; the names of those with something unclear; the number of the others.
fn report(revision: &str, results: &[CaseResult], sessions: &[Session]) -> String {
    let mut text =
        format!("this tree to {revision}; below 1 is less; 95 % intervals, of peak memory least to greatest:\n\n");
    text.push_str("| moved | time | processor time | peak memory |\n| --- | --- | --- | --- |\n");
    let (mut unclear, mut same) = (Vec::new(), 0);
    for (result, session) in results.iter().zip(sessions) {
        let ([_, now], [before_runs, now_runs]) = (result.arms.as_slice(), session.arms.as_slice()) else { continue };
        let figures = [
            Figure::of_ratio(now.ratio_to_stock.as_ref()),
            Figure::of_ratio(now.processor_ratio_to_stock.as_ref()),
            Figure::of_memory(before_runs, now_runs),
        ];
        let verdicts = figures.map(|figure| figure.map_or(Verdict::Unclear, Figure::verdict));
        let cells = figures.map(|figure| figure.map_or_else(|| "not measured".to_owned(), |figure| figure.to_string()));
        if verdicts.iter().any(|verdict| verdict.is_moved()) {
            text.push_str(&format!("| {} | {} |\n", result.name, cells.join(" | ")));
        } else if verdicts.contains(&Verdict::Unclear) {
            unclear.push(format!("{} {}", result.name, cells.join(", ")));
        } else {
            same += 1;
        }
    }
    text.push_str(&format!("\n{same} rows are the same, within 2 %; {} are unclear", unclear.len()));
    text.push_str(if unclear.is_empty() { ".\n" } else { ":\n" });
    for row in &unclear {
        text.push_str(&format!("- {row}\n"));
    }
    let figures = 3 * results.len();
    text.push_str(&format!(
        "Of {figures} figures, about {} move by chance: run it again, with `--budget` for more.\n",
        figures / 20
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_beyond_the_noise_has_moved() {
        assert_eq!(Verdict::new(0.80, 0.98), Verdict::Less);
        assert_eq!(Verdict::new(1.02, 1.30), Verdict::More);
        assert_eq!(Verdict::new(0.99, 1.01), Verdict::Same);
        assert_eq!(Verdict::new(1.001, 1.005), Verdict::Same, "sure, but too little");
        assert_eq!(Verdict::new(0.90, 1.10), Verdict::Unclear);
        assert_eq!(Verdict::new(0.96, 0.995), Verdict::Unclear);
    }

    #[test]
    fn each_program_has_a_case_for_each_number_of_threads() {
        let programs = |arm: &str| names().map(|name| PathBuf::from(format!("{arm}/{name}"))).collect::<Vec<_>>();
        fn names() -> impl Iterator<Item = &'static str> {
            WORK.iter().map(|(name, _)| *name).chain([START])
        }
        let cases = cases(&programs("before"), &programs("now"));
        assert_eq!(cases.len(), WORK.len() * THREADS.len() + 1);
        for case in &cases {
            let [before, now] = case.arms.as_slice() else { panic!("{case:?}") };
            assert_eq!(before.invocation.arguments, now.invocation.arguments);
            assert_eq!(before.invocation.program.file_name(), now.invocation.program.file_name());
            assert_ne!(before.invocation.program, now.invocation.program);
        }
    }
}
