//! A part of the slow tests: CI runs a different part for each landing, and ten parts are all tests but the longest.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use anyhow::{Context, Result};
use tools::command;
use tools::groups::{Group, PARTS};

use crate::programs::{Program, Test};

/// Commits of this many hours before the newest one count as the change.
const HOURS: u64 = 6;

/// The part, and the words in the paths that the newest commits have touched.
pub(crate) struct Part {
    number: u64,
    touched: BTreeSet<String>,
}

impl Part {
    /// Returns the part of the newest commit: the number of commits decides.
    ///
    /// # Errors
    /// When git fails.
    pub(crate) fn of_head() -> Result<u64> {
        let count = command::output(&mut command::git(&["rev-list", "--count", "HEAD"]))?;
        Ok(count.trim().parse::<u64>().context("git printed no number of commits")? % PARTS)
    }

    /// Returns the part of that number for the newest commits.
    ///
    /// # Errors
    /// When git does not list their files.
    pub(crate) fn new(number: u64) -> Result<Part> {
        let newest = command::output(&mut command::git(&["show", "--no-patch", "--format=%ct", "HEAD"]))?;
        let newest: u64 = newest.trim().parse().context("git printed no time of a commit")?;
        let since = format!("--since={}", newest.saturating_sub(HOURS * 3600));
        let files = command::output(&mut command::git(&["log", &since, "--name-only", "--format="]))?;
        Ok(Part { number, touched: words(&files) })
    }

    /// Returns the tests of the part. Tests that the change has touched come first.
    pub(crate) fn select(&self, mut programs: Vec<Program>) -> Vec<Program> {
        for program in &mut programs {
            program.tests.retain(|test| self.has(test));
            let name = program.name.clone();
            program.tests.sort_by_key(|test| !self.touches(&name, test));
        }
        programs.retain(|program| !program.tests.is_empty());
        programs.sort_by_key(|program| program.tests.iter().all(|test| !self.touches(&program.name, test)));
        programs
    }

    fn has(&self, test: &Test) -> bool {
        let group = test.group.as_deref().and_then(Group::find);
        group.is_some_and(|group| group.is_in(self.number, &test.name))
    }

    fn touches(&self, program: &str, test: &Test) -> bool {
        words(&format!("{program}\n{}", test.name.replace("::", "/"))).iter().any(|word| self.touched.contains(word))
    }

    /// Returns a description of the part's tests, by group.
    pub(crate) fn described(&self, programs: &[Program]) -> String {
        let tests = || programs.iter().flat_map(|program| program.tests.iter().map(move |test| (program, test)));
        let touched = tests().filter(|(program, test)| self.touches(&program.name, test)).count();
        let mut text = format!(
            "part {} of {PARTS} of the slow tests: {} tests, {touched} of them of what the newest commits touch",
            self.number,
            tests().count()
        );
        for group in tools::groups::GROUPS {
            let count = tests().filter(|(_, test)| test.group.as_deref() == Some(group.name)).count();
            if count > 0 {
                let _ = write!(text, "\n  {count:>5}  {}: {}", group.name, group.about);
            }
        }
        text
    }
}

/// Returns the names of folders and files in paths, and the parts of tests' names.
fn words(paths: &str) -> BTreeSet<String> {
    const EVERYWHERE: [&str; 8] = ["crates", "src", "tests", "mod", "lib", "main", "build", "docs"];
    let words =
        paths.lines().flat_map(|path| path.split(['/', ' '])).map(|word| word.split('.').next().unwrap_or(word));
    words.filter(|word| word.len() > 2 && !EVERYWHERE.contains(word)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_change_touches_comes_first() {
        let part = Part { number: 0, touched: words("crates/donors/jemalloc/donor.c\ncrates/profiler/src/lib.rs\n") };
        let test = |name: &str| Test { name: name.to_owned(), group: Some("minutes".to_owned()) };
        assert!(part.touches("tests casebook", &test("cases/late/jemalloc/debian")));
        assert!(part.touches("profiler", &test("a")));
        assert!(!part.touches("tests casebook", &test("cases/late/mimalloc/debian")));
    }

    #[test]
    fn every_part_has_tests() {
        for number in 0..PARTS {
            assert!(tools::groups::GROUPS.iter().any(|group| group.parts.contains(&number)), "{number}");
        }
    }
}
