//! The counts of attacks, added up over runs: a line for each run in `attack/counts.tsv`, and the sums in
//! `docs/reliability.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::page::Table;

use crate::flips::{HARMLESS, Harmless};

/// One run's count of one attack on one flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The day, as `2026-11-28`.
    pub day: String,
    /// The commit that was attacked, its first 10 digits.
    pub commit: String,
    /// The attack: a name of `TABLES`; or of a fuzzer, [`EXECUTIONS`] or [`SECONDS`].
    pub attack: String,
    /// The flow, the kind of graft, the donor, or the target of a fuzzer.
    pub flow: String,
    /// How often, or how many seconds.
    pub count: u64,
    /// How many of them found something.
    pub findings: u64,
}

/// How often a fuzzer called its target.
pub const EXECUTIONS: &str = "executions";
/// The processor time of a fuzzer in seconds.
pub const SECONDS: &str = "seconds";

/// The day and the commit of a run.
#[derive(Debug, Clone)]
pub struct Stamp {
    day: String,
    commit: String,
}

impl Stamp {
    /// Returns those of a run that begins now, in this checkout.
    ///
    /// # Errors
    /// When git does not say which commit this is.
    pub fn now() -> Result<Stamp> {
        let mut git = Command::new("git");
        let output = git.args(["rev-parse", "--short=10", "HEAD"]).current_dir(tools::workspace::root()).output();
        let output = output.context("git does not start")?;
        ensure!(output.status.success(), "git knows no commit here");
        let commit = String::from_utf8(output.stdout)?.trim().to_owned();
        Ok(Stamp { day: jiff::Timestamp::now().strftime("%Y-%m-%d").to_string(), commit })
    }

    /// Returns a line of the run.
    pub fn line(&self, attack: &str, flow: &str, count: u64, findings: u64) -> Line {
        let Stamp { day, commit } = self.clone();
        Line { day, commit, attack: attack.to_owned(), flow: flow.to_owned(), count, findings }
    }
}

/// The path of the ledger.
pub fn path() -> PathBuf {
    tools::workspace::root().join("attack/counts.tsv")
}

/// Reads the ledger.
///
/// # Errors
/// It cannot be read, or a line of it has not these six fields.
pub fn read() -> Result<Vec<Line>> {
    let text = fs::read_to_string(path()).context("cannot read the ledger")?;
    text.lines().filter(|line| !line.starts_with('#')).map(parse).collect()
}

fn parse(line: &str) -> Result<Line> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [day, commit, attack, flow, count, findings] = fields[..] else {
        anyhow::bail!("`{line}` has {} fields, expected 6", fields.len())
    };
    let text = str::to_owned;
    Ok(Line {
        day: text(day),
        commit: text(commit),
        attack: text(attack),
        flow: text(flow),
        count: count.parse()?,
        findings: findings.parse()?,
    })
}

/// Adds lines to the ledger, and writes the page's table anew.
///
/// # Errors
/// A file cannot be read or written.
pub fn keep(lines: &[Line]) -> Result<()> {
    let mut text = fs::read_to_string(path())?;
    for Line { day, commit, attack, flow, count, findings } in lines.iter().filter(|line| line.count > 0) {
        writeln!(text, "{day}\t{commit}\t{attack}\t{flow}\t{count}\t{findings}")?;
    }
    fs::write(path(), text)?;
    let lines = read()?;
    TABLE.write(&table(&lines))?;
    FUZZED.write(&fuzzed(&lines))
}

const TABLE: Table = Table {
    page: "docs/reliability.md",
    begin: "<!-- table: written by `cargo xtask attack --keep` -->",
    end: "<!-- end of the attacks -->",
};

const FUZZED: Table = Table {
    page: "docs/reliability.md",
    begin: "<!-- table: written by `cargo xtask fuzz --keep` -->",
    end: "<!-- end of the fuzzers -->",
};

/// The sums of some attacks.
struct Sums<'l> {
    /// By what was attacked: a sum for each attack.
    rows: BTreeMap<&'l str, Vec<u64>>,
    /// The findings, by what was attacked.
    findings: BTreeMap<&'l str, u64>,
}

impl<'l> Sums<'l> {
    /// Adds up the lines of these attacks.
    fn new(lines: &'l [Line], attacks: &[&str]) -> Sums<'l> {
        let mut sums = Sums { rows: BTreeMap::new(), findings: BTreeMap::new() };
        for line in lines {
            let Some(column) = attacks.iter().position(|attack| *attack == line.attack) else { continue };
            sums.rows.entry(&line.flow).or_insert_with(|| vec![0; attacks.len()])[column] += line.count;
            *sums.findings.entry(&line.flow).or_default() += line.findings;
        }
        sums
    }

    /// Returns a table: a row for each thing, with the cells that `cells` makes of its sums and findings, and one for
    /// all together.
    fn table(&self, head: &[&str], cells: impl Fn(&[u64], u64) -> Vec<String>) -> String {
        let mut text = String::new();
        let mut row = |first: &str, cells: Vec<String>| {
            let _ = writeln!(text, "| {first} | {} |", cells.join(" | "));
        };
        row(head[0], head[1..].iter().map(|word| (*word).to_owned()).collect());
        row("---", head[1..].iter().map(|_| "---:".to_owned()).collect());
        let mut together = vec![0; head.len() - 1];
        for (name, counts) in &self.rows {
            row(name, cells(counts, self.findings[name]));
            together.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let all = cells(&together, self.findings.values().sum());
        row("**together**", all.iter().map(|sum| format!("**{sum}**")).collect());
        text
    }
}

/// Returns the sums of the fuzzers: a row for each target.
pub fn fuzzed(lines: &[Line]) -> String {
    let head = ["target", "executions", "processor minutes", "inputs that failed"];
    Sums::new(lines, &[EXECUTIONS, SECONDS]).table(&head, |sums, failed| {
        vec![sums[0].to_string(), format!("{:.1}", sums[1] as f64 / 60.0), failed.to_string()]
    })
}

/// A table on the page: what its rows are, and the attacks that it counts, each with the head of its column.
type Columns = (&'static str, &'static [(&'static str, &'static str)]);

const TABLES: [Columns; 3] = [
    (
        "attacked",
        &[("kills", "ended at a call"), ("faults", "call failed"), ("power", "power lost"), ("races", "raced")],
    ),
    ("graft", &[("flips", "bytes changed")]),
    (
        "donor",
        &[
            ("forks", "forks"),
            ("threads", "threads"),
            ("load", "seconds of producers and consumers"),
            ("serve", "seconds of a server"),
        ],
    ),
];

/// Returns the sums as tables: a row for each flow, kind of graft or donor, a column for each attack.
pub fn table(lines: &[Line]) -> String {
    let (mut text, mut findings) = (String::new(), 0);
    for (rows, columns) in TABLES {
        let (attacks, heads): (Vec<&str>, Vec<&str>) = columns.iter().copied().unzip();
        let sums = Sums::new(lines, &attacks);
        let head = [vec![rows], heads].concat();
        text += &sums.table(&head, |sums, _| sums.iter().take(attacks.len()).map(u64::to_string).collect());
        text.push('\n');
        findings += sums.findings.values().sum::<u64>();
    }
    text += "Changed bytes that `verify` accepts:\n\n| graft | byte | why it does no harm |\n| --- | --- | --- |\n";
    for Harmless { kind, place, reason } in HARMLESS {
        let kind = if kind.is_empty() { "program, loader" } else { kind };
        let _ = writeln!(text, "| {kind} | {place} | {reason} |");
    }
    text.push('\n');
    let _ = writeln!(text, "Runs that found something: {findings}.");
    text
}

/// Checks that the page has the ledger's sums.
///
/// # Errors
/// It has not.
pub fn check() -> Result<()> {
    let page = TABLE.page;
    let text = fs::read_to_string(tools::workspace::root().join(page))?;
    let lines = read()?;
    let expected = FUZZED.replaced(&TABLE.replaced(&text, &table(&lines))?, &fuzzed(&lines))?;
    ensure!(text == expected, "`{page}` has other sums than the ledger");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_sums_of_the_ledger() {
        check().unwrap();
    }

    #[test]
    fn lines_add_up() {
        let line = |attack: &str, count| parse(&format!("2026-01-01\t0\t{attack}\tarchive\t{count}\t1")).unwrap();
        let table = table(&[line("kills", 3), line("kills", 4), line("power", 5)]);
        assert!(table.contains("| archive | 7 | 0 | 5 | 0 |") && table.contains("found something: 3."), "{table}");
        assert!(parse("a\tb").is_err());
        let lines = [line(EXECUTIONS, 9), line(SECONDS, 90), line("kills", 3), line(EXECUTIONS, 1)];
        assert!(fuzzed(&lines).contains("| archive | 10 | 1.5 | 3 |"), "{}", fuzzed(&lines));
    }
}
