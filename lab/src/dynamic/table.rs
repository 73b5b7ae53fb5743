//! The tables of real programs: time, memory and start-up by arm.

use measure::report::{bytes, quotient, ratio, seconds};
use measure::results::CaseArm;

use super::idle;
use super::measured::Measured;

/// The content of the tables.
pub(crate) struct Content<'c> {
    /// The columns' titles. The first is stock's.
    pub(crate) titles: &'c [&'c str],
    /// The figures.
    pub(crate) measured: &'c Measured,
    /// A description of a program's work, by the program's name.
    pub(crate) about: fn(&str) -> &'static str,
    /// The machine and the version.
    pub(crate) origin: &'c str,
}

/// Returns the tables, with a line about the measurement.
pub(crate) fn text(content: &Content<'_>) -> String {
    let Content { titles, measured: Measured { works, idle, starts }, .. } = content;
    let mut text = format!("Time:\n\n{}", head(&["program", "work"], titles));
    for case in works {
        text.push_str(&row([&*case.name, (content.about)(&case.name)], case.arms.iter().enumerate().map(time)));
    }
    text.push_str(&format!("\nMemory, at the peak and of an idle process:\n\n{}", head(&["program", "when"], titles)));
    for case in works {
        let peaks: Vec<Option<u64>> = case.arms.iter().map(|arm| arm.peak_memory_bytes).collect();
        text.push_str(&row([&*case.name, "peak"], memory(&peaks)));
        if let Some(held) = idle.iter().find(|held| held.name == case.name) {
            text.push_str(&row(["", "idle"], memory(&held.arms.iter().map(|held| Some(*held)).collect::<Vec<_>>())));
        }
    }
    text.push_str(&format!("\nStart and end of `--version`, by a shell:\n\n{}", head(&["program"], titles)));
    for case in starts {
        text.push_str(&row([&*case.name], case.arms.iter().enumerate().map(time)));
    }
    format!(
        "{text}\n{}. Times of stock are medians; the others are ratios to stock's time in the same \
         round, with the interval in which they lie at 95 %. Peaks are medians of runs of their own; an idle process \
         was read {} seconds after its work, the median of {} runs; ratios in brackets are to stock.\n",
        content.origin,
        idle::CALM.as_secs(),
        idle.first().map_or(idle::RUNS, |held| held.runs),
    )
}

/// The first lines of a table: the titles of its columns.
pub(crate) fn head(first: &[&str], titles: &[&str]) -> String {
    let cells: Vec<&str> = first.iter().chain(titles).copied().collect();
    format!("| {} |\n|{}\n", cells.join(" | "), " --- |".repeat(cells.len()))
}

/// A line of a table.
pub(crate) fn row<const N: usize>(first: [&str; N], cells: impl Iterator<Item = String>) -> String {
    let cells: Vec<String> = first.into_iter().map(str::to_owned).chain(cells).collect();
    format!("| {} |\n", cells.join(" | "))
}

/// Stock's time, or an arm's ratio to it.
fn time((at, arm): (usize, &CaseArm)) -> String {
    match at {
        0 => arm.cost_s.map_or_else(String::new, |cost| seconds(cost.median)),
        _ => arm.ratio_to_stock.as_ref().map_or_else(String::new, ratio),
    }
}

/// Each arm's memory, with its ratio to stock's.
fn memory(arms: &[Option<u64>]) -> impl Iterator<Item = String> {
    let stock = arms.first().copied().flatten();
    arms.iter().enumerate().map(move |(at, held)| match (held, stock) {
        (None, _) => String::new(),
        (Some(held), Some(stock)) if at > 0 => format!("{} ({})", bytes(*held), quotient(*held, stock)),
        (Some(held), _) => bytes(*held),
    })
}
