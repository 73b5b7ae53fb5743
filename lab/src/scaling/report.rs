//! Figures of stepped programs, and their tables.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::machine::Outcome;
use crate::experiment::Record;

/// The most names of functions and of data that are kept.
const NAMES: usize = 3;

/// Characters of a name in a table.
const MOST_OF_NAME: usize = 40;

/// All figures.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Scaling {
    /// Measured rounds of each thread, halved from 64 threads on.
    pub(crate) pairs: u64,
    /// Rounds for real times.
    pub(crate) real_pairs: u64,
    pub(crate) rows: Vec<Row>,
    pub(crate) real: Vec<RealRow>,
}

/// One stepped program. The counts are those within malloc and free.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pattern: String,
    arm: String,
    threads: u64,
    cycles: u64,
    mallocs: u64,
    frees: u64,
    instructions: u64,
    transfers: u64,
    /// With those of the program's own data.
    all_transfers: u64,
    atomics: u64,
    contended: u64,
    waits: u64,
    calls: u64,
    faults: u64,
    functions: Vec<(String, u64)>,
    data: Vec<(String, u64)>,
}

/// Seconds of the same program with 1 and 2 threads, not stepped.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RealRow {
    pub(crate) pattern: String,
    pub(crate) arm: String,
    pub(crate) seconds: [f64; 2],
}

impl Row {
    pub(crate) fn new(pattern: &str, arm: &str, threads: u64, outcome: &Outcome) -> Row {
        let (counts, inside) = (&outcome.counts, &outcome.counts.inside);
        Row {
            pattern: pattern.to_owned(),
            arm: arm.to_owned(),
            threads,
            cycles: outcome.cycles,
            mallocs: counts.mallocs,
            frees: counts.frees,
            instructions: inside.instructions,
            transfers: inside.transfers,
            all_transfers: counts.transfers,
            atomics: inside.atomics,
            contended: inside.contended,
            waits: inside.waits,
            calls: inside.calls,
            faults: inside.faults,
            functions: outcome.functions.iter().take(NAMES).cloned().collect(),
            data: outcome.data.iter().take(NAMES).cloned().collect(),
        }
    }

    /// Calls of malloc's family and of free, by two.
    fn pairs(&self) -> f64 {
        (self.mallocs + self.frees).max(1) as f64 / 2.0
    }

    /// Pairs in a thousand cycles, of all threads.
    fn throughput(&self) -> f64 {
        1000.0 * self.pairs() / self.cycles.max(1) as f64
    }
}

/// Makes the tables of the page.
pub(crate) fn tables(record: &Record<Scaling>) -> String {
    let figures = &record.figures;
    let mut patterns: Vec<&str> = figures.rows.iter().map(|row| row.pattern.as_str()).collect();
    patterns.dedup();
    let mut text = String::new();
    for pattern in patterns {
        let rows: Vec<&Row> = figures.rows.iter().filter(|row| row.pattern == pattern).collect();
        let _ = writeln!(text, "### {pattern}\n");
        text.push_str(&grid(&rows, "Throughput: pairs in a thousand cycles, of all threads", |row| {
            digits(row.throughput())
        }));
        text.push_str(&grid(&rows, "Lines from other cores in each pair", |row| per_pair(row, row.transfers)));
        text.push_str(&last(&rows));
    }
    let _ = writeln!(text, "### Real times\n\n{}", real(figures));
    let pairs = figures.pairs;
    let _ = writeln!(
        text,
        "Stepped on {}; {pairs} rounds of each thread, {} with 64 threads and more.",
        record.origin(),
        pairs / 2
    );
    text
}

/// A table with a row for each allocator and a column for each number of threads.
fn grid(rows: &[&Row], head: &str, cell: impl Fn(&Row) -> String) -> String {
    let mut threads: Vec<u64> = rows.iter().map(|row| row.threads).collect();
    threads.sort_unstable();
    threads.dedup();
    let heads: Vec<String> = threads.iter().map(ToString::to_string).collect();
    let mut text =
        format!("{head}, by threads:\n\n| | {} |\n| --- |{}\n", heads.join(" | "), " ---: |".repeat(heads.len()));
    for arm in arms(rows) {
        let cells: Vec<String> = threads
            .iter()
            .map(|threads| rows.iter().find(|row| row.arm == arm && row.threads == *threads))
            .map(|row| row.map_or_else(String::new, |row| cell(row)))
            .collect();
        let _ = writeln!(text, "| {arm} | {} |", cells.join(" | "));
    }
    text + "\n"
}

fn arms<'r>(rows: &[&'r Row]) -> Vec<&'r str> {
    let mut arms: Vec<&str> = rows.iter().map(|row| row.arm.as_str()).collect();
    arms.dedup();
    arms
}

/// All counts of the largest number of threads.
fn last(rows: &[&Row]) -> String {
    let most = rows.iter().map(|row| row.threads).max().unwrap_or_default();
    let mut text = format!(
        "Each pair of malloc and free with {most} threads:\n\n\
         | | instructions | atomics | contended | waits | system calls | page faults | lines of the program too \
         | most lines in | of |\n| --- |{} --- | --- |\n",
        " ---: |".repeat(7)
    );
    for row in rows.iter().filter(|row| row.threads == most) {
        let counts =
            [row.instructions, row.atomics, row.contended, row.waits, row.calls, row.faults, row.all_transfers];
        let cells: Vec<String> = counts.iter().map(|count| per_pair(row, *count)).collect();
        let names = [&row.functions, &row.data].map(|names| shares(names, row.transfers));
        let _ = writeln!(text, "| {} | {} | {} |", row.arm, cells.join(" | "), names.join(" | "));
    }
    text + "\n"
}

/// Names with their shares.
fn shares(names: &[(String, u64)], all: u64) -> String {
    let share = |(name, count): &(String, u64)| {
        // Names of C++ are long.
        let (short, dots) = (name.chars().take(MOST_OF_NAME).collect::<String>(), name.chars().nth(MOST_OF_NAME));
        format!("`{short}{}` {:.0} %", dots.map_or("", |_| "..."), 100.0 * *count as f64 / all.max(1) as f64)
    };
    names.iter().map(share).collect::<Vec<_>>().join(", ")
}

fn per_pair(row: &Row, count: u64) -> String {
    if count == 0 { "0".to_owned() } else { digits(count as f64 / row.pairs()) }
}

/// Writes a number with three digits or fewer behind the point.
fn digits(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 10.0 => format!("{value:.1}"),
        value if value >= 0.1 => format!("{value:.2}"),
        value => format!("{value:.3}"),
    }
}

/// Speed with two threads to that with one: measured, and on the model.
fn real(figures: &Scaling) -> String {
    let mut text =
        "Throughput with two threads to that with one, measured and on the model, and both to stock's with two \
                    threads:\n\n| | | measured | model | measured, to stock | model, to stock |\n\
                    | --- | --- | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    for row in &figures.real {
        let row_of = |arm: &str, threads: u64| {
            let mut rows = figures.rows.iter();
            rows.find(|it| it.pattern == row.pattern && it.arm == arm && it.threads == threads)
        };
        let find = |arm: &str, threads: u64| row_of(arm, threads).map(Row::throughput);
        // Two threads make twice as many pairs, or as many if one allocates and one frees.
        let more = row_of(&row.arm, 2).zip(row_of(&row.arm, 1)).map_or(2.0, |(two, one)| two.pairs() / one.pairs());
        let stock = figures.real.iter().find(|it| it.pattern == row.pattern && it.arm == "stock");
        let [one, two] = row.seconds;
        let ratio = |a: Option<f64>, b: Option<f64>| a.zip(b).map_or_else(String::new, |(a, b)| digits(a / b));
        let cells = [
            digits(more * one / two),
            ratio(find(&row.arm, 2), find(&row.arm, 1)),
            ratio(stock.map(|stock| stock.seconds[1]), Some(two)),
            ratio(find(&row.arm, 2), find("stock", 2)),
        ];
        let _ = writeln!(text, "| {} | {} | {} |", row.pattern, row.arm, cells.join(" | "));
    }
    text
}
