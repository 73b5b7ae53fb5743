//! The counts of attacks, added up over runs: a line for each run in `attack/counts.tsv`, and the sums in
//! `docs/reliability.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use xtask::page::Table;

/// One run's count of one attack on one flow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The day, as `2026-11-28`.
    pub day: String,
    /// The commit that was attacked, its first 10 digits.
    pub commit: String,
    /// The attack: `kills`, `faults`, `power`.
    pub attack: String,
    /// The flow.
    pub flow: String,
    /// How often.
    pub count: u64,
    /// How many of them found something.
    pub findings: u64,
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
    TABLE.write(&table(&read()?))
}

const TABLE: Table = Table {
    page: "docs/reliability.md",
    begin: "<!-- table: written by `cargo xtask attack --keep` -->",
    end: "<!-- end of the attacks -->",
};

/// Returns the sums as a table: a row for each flow, a column for each attack.
pub fn table(lines: &[Line]) -> String {
    let attacks = ["kills", "faults", "power"];
    let mut rows: BTreeMap<&str, [u64; 3]> = BTreeMap::new();
    let mut findings = 0;
    for line in lines {
        let Some(column) = attacks.iter().position(|attack| *attack == line.attack) else { continue };
        rows.entry(&line.flow).or_default()[column] += line.count;
        findings += line.findings;
    }
    let mut table =
        "| attacked | ended at a call | call failed | power lost |\n| --- | ---: | ---: | ---: |\n".to_owned();
    let mut sums = [0; 3];
    for (flow, counts) in &rows {
        let _ = writeln!(table, "| {flow} | {} | {} | {} |", counts[0], counts[1], counts[2]);
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    let _ = writeln!(table, "| **together** | **{}** | **{}** | **{}** |\n", sums[0], sums[1], sums[2]);
    let _ = writeln!(table, "Runs that found something: {findings}.");
    table
}

/// Checks that the page has the ledger's sums.
///
/// # Errors
/// It has not.
pub fn check() -> Result<()> {
    let page = TABLE.page;
    let text = fs::read_to_string(tools::workspace::root().join(page))?;
    ensure!(text == TABLE.replaced(&text, &table(&read()?))?, "`{page}` has other sums than the ledger");
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
        assert!(table.contains("| archive | 7 | 0 | 5 |") && table.contains("found something: 3."), "{table}");
        assert!(parse("a\tb").is_err());
    }
}
