//! The table of donors by situation by architecture, made from the saved results of the slow tier's conformance tests.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use tools::workspace;
use xtask::page::Table;

/// The place of the table in the docs.
const TABLE: Table = Table {
    page: "docs/conformance.md",
    begin: "<!-- made by `cargo xtask conformance --write` from the results of `cargo xtask test-slow` -->",
    end: "<!-- end of what was made -->",
};

/// A planned run, written by tests/casebook/record.rs.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Cell {
    program: String,
    about: String,
    donor: String,
    arch: String,
    way: String,
    length: String,
}

/// The result of a run.
#[derive(Debug, Clone, Deserialize)]
struct Run {
    #[serde(flatten)]
    cell: Cell,
    failure: Option<String>,
    notes: Vec<String>,
}

/// `cargo xtask conformance [--write]`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let results = Results::read(&fixtures::conformance_results())?;
    match arguments {
        [] => print!("{}", results.tables()),
        [flag] if flag == "--write" => {
            let missing = results.missing();
            if let Some(first) = missing.first() {
                bail!(
                    "{} of {} runs are missing, {} with {} on {} among them\nhelp: `cargo xtask test-slow` \
                     does them all",
                    missing.len(),
                    results.due.len(),
                    first.program,
                    first.donor,
                    first.way
                );
            }
            TABLE.write(&results.tables())?;
        }
        _ => bail!("`conformance` takes `--write` or nothing"),
    }
    Ok(())
}

/// Removes the results of earlier runs, so that a table never mixes two states of the sources.
pub(crate) fn forget() -> Result<()> {
    let folder = fixtures::conformance_results();
    match fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove `{}`", workspace::shown(&folder)))
        }
        _ => Ok(()),
    }
}

/// Prints the table, if there are results.
pub(crate) fn print() {
    if let Ok(results) = Results::read(&fixtures::conformance_results()) {
        print!("\n{}", results.tables());
    }
}

struct Results {
    due: Vec<Cell>,
    runs: BTreeMap<Cell, Run>,
}

impl Results {
    fn read(folder: &Path) -> Result<Results> {
        let cells = folder.join("cells.json");
        let none = || format!("there are no results in `{}`\nhelp: `cargo xtask test-slow`", workspace::shown(folder));
        let due: Vec<Cell> = serde_json::from_slice(&fs::read(&cells).with_context(none)?)?;
        let mut runs = BTreeMap::new();
        for entry in fs::read_dir(folder.join("runs")).with_context(none)? {
            let path = entry?.path();
            let run: Run = serde_json::from_slice(&fs::read(&path)?)
                .with_context(|| format!("`{}` is not a result", workspace::shown(&path)))?;
            runs.insert(run.cell.clone(), run);
        }
        runs.retain(|cell, _| due.contains(cell));
        Ok(Results { due, runs })
    }

    fn missing(&self) -> Vec<&Cell> {
        self.due.iter().filter(|cell| !self.runs.contains_key(cell)).collect()
    }

    /// Returns one table for each architecture, in the order in which the runs were announced.
    fn tables(&self) -> String {
        let mut text = String::new();
        for arch in distinct(self.due.iter().map(|cell| cell.arch.as_str())) {
            let cells: Vec<&Cell> = self.due.iter().filter(|cell| cell.arch == arch).collect();
            text += &self.table(arch, &cells);
        }
        text
    }

    fn table(&self, arch: &str, cells: &[&Cell]) -> String {
        let donors = distinct(cells.iter().map(|cell| cell.donor.as_str()));
        let ways = distinct(cells.iter().map(|cell| (cell.way.as_str(), cell.length.as_str())));
        let ways: Vec<String> = ways.iter().map(|(way, length)| format!("{way}: {length}")).collect();
        let mut remarks: Vec<String> = Vec::new();
        let mut text = format!("### {arch}\n\nWays: {}.\n\n| situation |", ways.join("; "));
        for donor in &donors {
            let _ = write!(text, " {donor} |");
        }
        text += &format!("\n| --- |{}\n", " --- |".repeat(donors.len()));
        for (program, about) in distinct(cells.iter().map(|cell| (cell.program.as_str(), cell.about.as_str()))) {
            let _ = write!(text, "| `{program}`: {} |", about.replace('|', "\\|"));
            for donor in &donors {
                let of = |cell: &&&Cell| cell.program == program && cell.donor == *donor;
                let due: Vec<&Cell> = cells.iter().filter(of).copied().collect();
                let _ = write!(text, " {} |", self.entry(&due, &mut remarks));
            }
            text.push('\n');
        }
        text.push('\n');
        for (number, remark) in (1..).zip(&remarks) {
            let _ = writeln!(text, "{number}. {remark}");
        }
        if !remarks.is_empty() {
            text.push('\n');
        }
        text
    }

    /// Returns the number of runs that passed, and of all runs, with the numbers of remarks.
    fn entry(&self, due: &[&Cell], remarks: &mut Vec<String>) -> String {
        if due.is_empty() {
            return "–".to_owned();
        }
        let runs: Vec<&Run> = due.iter().filter_map(|cell| self.runs.get(cell)).collect();
        let passed = runs.iter().filter(|run| run.failure.is_none()).count();
        let mut said: Vec<String> = runs.iter().flat_map(|run| run.notes.iter().cloned()).collect();
        said.extend(runs.iter().filter_map(|run| Some(format!("fails, {}: {}", run.cell.way, run.failure.as_ref()?))));
        let mut numbers: Vec<usize> = said.into_iter().map(|remark| number_of(remarks, remark)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let numbers: Vec<String> = numbers.iter().map(|number| format!("({number})")).collect();
        let missing = due.len() - runs.len();
        let missing = if missing == 0 { String::new() } else { format!(", {missing} not run") };
        let count = format!("{passed}/{}{missing}", runs.len());
        let count = if passed == runs.len() { count } else { format!("**{count}**") };
        [vec![count], numbers].concat().join(" ")
    }
}

fn number_of(remarks: &mut Vec<String>, remark: String) -> usize {
    let remark = remark.split_whitespace().collect::<Vec<_>>().join(" ");
    let at = remarks.iter().position(|known| *known == remark).unwrap_or_else(|| {
        remarks.push(remark);
        remarks.len() - 1
    });
    at + 1
}

fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(program: &str, donor: &str, way: &str) -> Cell {
        let of = str::to_owned;
        Cell {
            program: of(program),
            about: of("something"),
            donor: of(donor),
            arch: of("x86_64"),
            way: of(way),
            length: of("4%"),
        }
    }

    fn results(runs: Vec<(Cell, Option<&str>, &[&str])>, absent: Vec<Cell>) -> Results {
        let due = runs.iter().map(|(cell, ..)| cell.clone()).chain(absent).collect();
        let runs = runs.into_iter().map(|(cell, failure, notes)| {
            let failure = failure.map(str::to_owned);
            let notes = notes.iter().map(|note| (*note).to_owned()).collect();
            (cell.clone(), Run { cell, failure, notes })
        });
        Results { due, runs: runs.collect() }
    }

    #[test]
    fn what_failed_stands_out_and_is_explained_once() {
        let results = results(
            vec![
                (cell("fork", "one", "ld"), None, &["no spawn here"]),
                (cell("fork", "one", "lld"), Some("exit status: 3,\n stderr"), &[]),
                (cell("fork", "two", "ld"), None, &["no spawn here"]),
            ],
            vec![],
        );
        let tables = results.tables();
        assert!(tables.contains("| `fork`: something | **1/2** (1) (2) | 1/1 (1) |"), "{tables}");
        assert!(tables.contains("1. no spawn here\n2. fails, lld: exit status: 3, stderr\n"), "{tables}");
    }

    #[test]
    fn what_did_not_run_does_not_count_as_passed() {
        let results = results(vec![(cell("fork", "one", "ld"), None, &[])], vec![cell("fork", "one", "lld")]);
        assert!(results.tables().contains("| 1/1, 1 not run |"));
        assert_eq!(results.missing().len(), 1);
    }
}
