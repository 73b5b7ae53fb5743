//! The budget of the default tier: the processor time that each test program may take. The tier fails when all together
//! took more.
//!
//! Processor time, not the clock: other work of the machine does not count. A slower or a shared processor does, so a
//! piece of fixed work is timed between the jobs, and the budget grows in proportion to its time on the machine of the
//! figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use tools::workspace;

use crate::programs::Program;

/// The figures.
const FIGURES: &str = include_str!("../budget.toml");

/// The processor time of [`work`] on the machine of the figures, in seconds, beside tests.
const WORK_SECONDS: f64 = 0.017;

/// The greatest slowness that the budget allows for. Without a limit, noise would make the budget useless.
const SLOWEST: f64 = 3.0;

/// How far above the figures the whole tier may be. Machines differ in the cost of system calls and page faults too, of
/// which [`work`] has none: on a second virtual machine of the same kind, the same tests took 1.3 times as long.
const SLACK: f64 = 1.6;

/// The contents of `budget.toml`.
#[derive(Debug, Deserialize)]
struct Figures {
    /// Processor seconds by test program.
    default: BTreeMap<String, f64>,
}

/// Returns the processor seconds of each program of the default tier, by the figures.
///
/// # Errors
/// When `budget.toml` is malformed.
pub(crate) fn figures() -> Result<BTreeMap<String, f64>> {
    let figures: Figures = toml::from_str(FIGURES).context("budget.toml is malformed")?;
    Ok(figures.default)
}

/// Processor times of tests, in seconds.
#[derive(Debug, Default, Clone)]
pub(crate) struct Times {
    tests: BTreeMap<(String, String), f64>,
    /// The slowness of this machine relative to that of the figures, measured before each job.
    pub(crate) slowness: Vec<f64>,
}

impl Times {
    /// Reads the times of earlier runs. Without them, jobs are divided worse.
    pub(crate) fn read(folder: &Path) -> Times {
        let text = fs::read_to_string(folder.join("times.tsv")).unwrap_or_default();
        let entry = |line: &str| {
            let mut fields = line.split('\t');
            let (program, test, seconds) = (fields.next()?, fields.next()?, fields.next()?);
            Some(((program.to_owned(), test.to_owned()), seconds.parse().ok()?))
        };
        Times { tests: text.lines().filter_map(entry).collect(), slowness: Vec::new() }
    }

    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let mut text = String::new();
        for ((program, test), seconds) in &self.tests {
            let _ = writeln!(text, "{program}\t{test}\t{seconds:.2}");
        }
        let path = folder.join("times.tsv");
        fs::write(&path, text).with_context(|| format!("cannot write `{}`", path.display()))
    }

    /// Returns these times, replaced by those of a later run where it has some.
    pub(crate) fn merged(mut self, later: &Times) -> Times {
        self.tests.extend(later.tests.clone());
        self
    }

    pub(crate) fn add(&mut self, program: &str, test: &str, seconds: f64) {
        *self.tests.entry((program.to_owned(), test.to_owned())).or_default() += seconds;
    }

    pub(crate) fn seconds_of(&self, program: &str, test: &str) -> Option<f64> {
        self.tests.get(&(program.to_owned(), test.to_owned())).copied()
    }

    pub(crate) fn total(&self) -> f64 {
        self.tests.values().sum()
    }

    fn by_program(&self) -> BTreeMap<&str, f64> {
        let mut sums = BTreeMap::new();
        for ((program, _), seconds) in &self.tests {
            *sums.entry(program.as_str()).or_default() += seconds;
        }
        sums
    }

    /// Returns a table of the tests that took longest.
    pub(crate) fn slowest(&self, count: usize) -> String {
        let mut tests: Vec<_> = self.tests.iter().collect();
        tests.sort_by(|one, other| other.1.total_cmp(one.1));
        let mut text = format!("the slowest of {} tests, in seconds of processor time:\n", tests.len());
        for ((program, test), seconds) in tests.into_iter().take(count) {
            let _ = writeln!(text, "{seconds:>8.2}  {program}  {test}");
        }
        text
    }

    /// # Errors
    /// When the programs together took more than their budget; the message names the programs that exceed their
    /// figures.
    pub(crate) fn check(&self, programs: &[Program]) -> Result<()> {
        let figures = figures()?;
        let factor = median(&self.slowness).clamp(1.0, SLOWEST);
        let names = programs.iter().map(|program| program.name.as_str());
        let grown = self.over(&figures, factor * SLACK, names);
        println!(
            "budget: {:.0} s of {:.0} s, on a machine that takes {factor:.2} of the figures' time",
            self.total(),
            figures.values().sum::<f64>() * factor * SLACK,
        );
        match grown {
            Some(grown) => bail!(
                "the default tier is over its budget of processor time; grown are:\n{grown}\n{}help: make these tests \
                 shorter or slow ones (`#[ignore = \"minutes: why\"]`); `{}` has the figures, which \
                 `cargo xtask test --write-budget` writes anew",
                self.slowest(20),
                workspace::shown(&workspace::root().join("xtask/budget.toml")),
            ),
            None => Ok(()),
        }
    }

    /// Returns the programs that have grown, the worst first, if all of `names` together took more than `figures` times
    /// `factor`.
    fn over<'n>(
        &self,
        figures: &BTreeMap<String, f64>,
        factor: f64,
        names: impl Iterator<Item = &'n str>,
    ) -> Option<String> {
        let took = self.by_program();
        let of =
            |name: &str| (took.get(name).copied().unwrap_or_default(), figures.get(name).copied().unwrap_or_default());
        let mut rows: Vec<(&str, f64, f64)> = names.map(|name| (name, of(name).0, of(name).1)).collect();
        let (all, allowed) = rows.iter().fold((0.0, 0.0), |(all, allowed), row| (all + row.1, allowed + row.2));
        if all <= allowed * factor {
            return None;
        }
        rows.retain(|(_, took, figure)| *took > figure * factor);
        rows.sort_by(|one, other| (other.1 - other.2).total_cmp(&(one.1 - one.2)));
        let row = |(name, took, figure): &(&str, f64, f64)| format!("  {name}: {took:.0} s, was {figure:.0} s");
        Some(rows.iter().map(row).collect::<Vec<_>>().join("\n"))
    }

    /// Writes the figures anew: these times, converted to the machine of the figures.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write_figures(&self) -> Result<()> {
        let factor = median(&self.slowness);
        let mut text = String::from(
            "# Processor seconds of the default tier's test programs. `cargo xtask test --write-budget` writes them; a\n\
             # commit that does says why the tier needs more.\n\n[default]\n",
        );
        for (program, seconds) in self.by_program() {
            let _ = writeln!(text, "\"{program}\" = {:.1}", seconds / factor);
        }
        fs::write(workspace::root().join("xtask/budget.toml"), text).context("cannot write xtask/budget.toml")
    }
}

/// Returns the time of a piece of fixed work now, relative to the machine of the figures.
pub(crate) fn slowness() -> f64 {
    let own = || {
        let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    };
    let before = own();
    std::hint::black_box(work());
    match (before, own()) {
        (Some(before), Some(after)) if after > before => (after - before) / 1e9 / WORK_SECONDS,
        // A kernel that does not count.
        _ => 1.0,
    }
}

/// Arithmetic, and reads all over 32 KiB.
fn work() -> u64 {
    const WORDS: usize = 1 << 12;
    let table: Vec<u64> = (0..WORDS as u64).collect();
    let mut sum = 1_u64;
    for round in 0..1_000_000_u64 {
        sum = sum.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) ^ table[(sum as usize) % WORDS] ^ round;
    }
    sum
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_readable() {
        let figures = figures().unwrap();
        assert!(figures.values().all(|seconds| *seconds >= 0.0) && figures.len() > 10);
    }

    #[test]
    fn a_tier_over_its_budget_says_what_has_grown() {
        let figures: BTreeMap<String, f64> = [("a".to_owned(), 10.0), ("b".to_owned(), 20.0)].into();
        let mut times = Times::default();
        times.add("a", "one", 8.0);
        times.add("b", "two", 25.0);
        let over = |times: &Times, factor| times.over(&figures, factor, ["a", "b", "new"].into_iter());
        assert_eq!(over(&times, 1.2), None, "33 of 36");
        assert_eq!(over(&times, 1.0).as_deref(), Some("  b: 25 s, was 20 s"));
        times.add("new", "three", 30.0);
        assert_eq!(over(&times, 1.2).as_deref(), Some("  new: 30 s, was 0 s\n  b: 25 s, was 20 s"));
        assert_eq!(over(&times, 3.0), None, "a slow machine");
    }

    #[test]
    fn times_are_kept_and_the_later_ones_count() {
        let folder = tempfile::tempdir().unwrap();
        let mut times = Times::default();
        times.add("a program", "one", 1.25);
        times.write(folder.path()).unwrap();
        let mut later = Times::default();
        later.add("a program", "two", 2.0);
        let both = Times::read(folder.path()).merged(&later);
        assert_eq!([both.seconds_of("a program", "one"), both.seconds_of("a program", "two")], [Some(1.25), Some(2.0)]);
        assert!(both.slowest(1).ends_with("    2.00  a program  two\n"));
    }
}
