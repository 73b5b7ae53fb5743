//! Several comparisons in tables, with programs as rows and arms as columns.

use std::fmt::Write;

use super::figures::{bytes, count, seconds};
use super::markdown::escaped;
use crate::results::{CaseArm, CaseResult, Results};
use crate::session::Stopped;
use crate::statistics::{Ratio, Spread, median};

/// The half width beyond which an interval is marked, unless the plan allowed more: about 3 %.
const WIDE: f64 = 0.03;
/// The arm that every other one is compared with besides stock, if it is there.
const GLIBC: &str = "glibc";

/// Returns time, processor time, peak memory and page faults of every arm in every case, relative to stock's, with
/// stock's own, and a sentence on the method.
pub fn overview(results: &Results) -> String {
    format!("{}{}\n", tables(results), method(results))
}

/// A quantity that has a table.
struct Quantity {
    title: String,
    /// Stock's own, with its unit.
    stock: fn(&CaseArm) -> Option<String>,
    /// An arm's ratio to stock's.
    ratio: fn(&CaseArm, &CaseArm) -> Option<f64>,
    /// The ratio with its interval, for a quantity that has one.
    interval: Option<fn(&CaseArm) -> Option<Ratio>>,
    /// The cases that have it.
    cases: fn(&CaseResult) -> bool,
}

pub(super) fn tables(results: &Results) -> String {
    let wide = wide(results);
    let time = format!(
        "Time as ratio to stock's. Parentheses: the runs show no difference from stock. `~`: the 95 % interval reaches \
         further than {:.0} % to either side; the reasons are below the tables.",
        wide * 100.0
    );
    let all = |_: &CaseResult| true;
    let mut text = String::new();
    for quantity in [
        Quantity {
            title: time,
            stock: |arm| arm.cost_s.map(|cost| seconds(cost.median)),
            ratio: |arm, _| arm.ratio_to_stock.map(|ratio| ratio.value),
            interval: Some(|arm| arm.ratio_to_stock),
            cases: all,
        },
        Quantity {
            title:
                "Processor time, in the program and in the kernel, as ratio to stock's; of a server, for each request:"
                    .to_owned(),
            stock: |arm| Some(seconds(arm.typical?.processor_cost()?)),
            ratio: |arm, _| arm.processor_ratio_to_stock.map(|ratio| ratio.value),
            interval: Some(|arm| arm.processor_ratio_to_stock),
            cases: all,
        },
        Quantity {
            title: "Peak memory as ratio to stock's:".to_owned(),
            stock: |arm| arm.peak_memory_bytes.map(bytes),
            ratio: |arm, stock| quotient(arm.peak_memory_bytes?, stock.peak_memory_bytes?),
            interval: None,
            cases: all,
        },
        Quantity {
            title: "Memory of servers a second after the load, as ratio to stock's:".to_owned(),
            stock: |arm| arm.idle_memory_bytes().map(bytes),
            ratio: |arm, stock| quotient(arm.idle_memory_bytes()?, stock.idle_memory_bytes()?),
            interval: None,
            cases: |case| case.arms.first().is_some_and(|stock| stock.idle_memory_bytes().is_some()),
        },
        Quantity {
            title: "Page faults as ratio to stock's:".to_owned(),
            stock: |arm| arm.page_faults().map(count),
            ratio: |arm, stock| quotient(arm.page_faults()?, stock.page_faults()?),
            interval: None,
            cases: all,
        },
    ] {
        text.push_str(&table(results, &quantity, wide));
    }
    text.push_str(&reasons(results, wide));
    text
}

/// Returns the half width beyond which intervals are marked.
fn wide(results: &Results) -> f64 {
    results.plan.precision.max(WIDE)
}

fn quotient(amount: u64, to: u64) -> Option<f64> {
    (to > 0).then(|| amount as f64 / to as f64)
}

pub(super) fn dash() -> String {
    "-".to_owned()
}

/// Returns the table of a quantity, or nothing if no case has figures of it.
fn table(results: &Results, quantity: &Quantity, wide: f64) -> String {
    let cases: Vec<&CaseResult> = results.cases.iter().filter(|case| (quantity.cases)(case)).collect();
    let is_known =
        |case: &&CaseResult| case.arms.iter().skip(1).any(|arm| (quantity.ratio)(arm, &case.arms[0]).is_some());
    if !cases.iter().any(is_known) {
        return String::new();
    }
    let heads: Vec<String> = results.arms.iter().map(|arm| escaped(&arm.origin.name)).collect();
    let mut text =
        format!("{}\n\n| | {} |\n| --- |{}\n", quantity.title, heads.join(" | "), " --- |".repeat(heads.len()));
    for case in &cases {
        let first = case.arms.first().and_then(quantity.stock).unwrap_or_else(dash);
        let others = case.arms.iter().skip(1).map(|arm| match &arm.failure {
            Some(_) => "fails".to_owned(),
            None => cell(quantity, arm, &case.arms[0], wide).unwrap_or_else(dash),
        });
        let cells: Vec<String> = std::iter::once(first).chain(others).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} | {} |", escaped(&case.title()), cells.join(" | "));
    }
    let glibc = results.arms.iter().position(|arm| arm.origin.name == GLIBC);
    for (title, base) in [("geometric mean", Some(0)), ("geometric mean, to glibc's", glibc)] {
        let Some(base) = base else { continue };
        let of = |arm: usize| mean(&cases, quantity, arm, base).map_or_else(dash, |mean| format!("{mean:.2}"));
        let first = if base == 0 { String::new() } else { of(0) };
        let cells: Vec<String> = std::iter::once(first).chain((1..results.arms.len()).map(of)).collect();
        let _ = writeln!(text, "| {title} | {} |", cells.join(" | ").trim_start());
    }
    text + "\n"
}

fn cell(quantity: &Quantity, arm: &CaseArm, stock: &CaseArm, wide: f64) -> Option<String> {
    let Some(interval) = quantity.interval else { return Some(format!("{:.2}", (quantity.ratio)(arm, stock)?)) };
    let ratio = interval(arm)?;
    let mark = if ratio.is_within(wide) { "" } else { "~" };
    let figure = format!("{:.2}{mark}", ratio.value);
    Some(if ratio.differs() { figure } else { format!("({figure})") })
}

/// Returns the geometric mean of an arm's ratios to those of the arm `base`. `None` if one is missing.
fn mean(cases: &[&CaseResult], quantity: &Quantity, arm: usize, base: usize) -> Option<f64> {
    let log = |case: &CaseResult, at: usize| {
        let arm = case.arms.get(at).filter(|arm| arm.failure.is_none())?;
        let ratio = if at == 0 { Some(1.0) } else { (quantity.ratio)(arm, &case.arms[0]) };
        Some(ratio.filter(|ratio| *ratio > 0.0)?.ln())
    };
    let logs: Vec<f64> =
        cases.iter().map(|case| Some(log(case, arm)? - log(case, base)?)).collect::<Option<Vec<f64>>>()?;
    Some((logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Returns the width of each wide interval of time, with the reason. Empty without wide intervals.
fn reasons(results: &Results, wide: f64) -> String {
    let mut text = String::new();
    for case in &results.cases {
        let compared = || case.arms.iter().skip(1).filter(|arm| arm.failure.is_none());
        let ratio = |arm: &CaseArm| arm.ratio_to_stock.filter(|ratio| !ratio.is_within(wide));
        let marked: Vec<(&CaseArm, Ratio)> = compared().filter_map(|arm| Some((arm, ratio(arm)?))).collect();
        let Some((widest, reach)) = marked
            .iter()
            .map(|(arm, ratio)| (arm, ratio.half_width().unwrap_or(f64::INFINITY)))
            .max_by(|one, other| one.1.total_cmp(&other.1))
        else {
            continue;
        };
        let name = escaped(&widest.name);
        let reach =
            if reach.is_finite() { format!("{name} {:.1} %", reach * 100.0) } else { format!("{name} without one") };
        let why = match case.stopped {
            Stopped::Budget => "then the budget was spent",
            Stopped::Rounds => "which is the most",
            Stopped::Narrow => "which seemed enough",
            Stopped::Interrupted => "then it was interrupted",
            Stopped::Failed => "then stock failed",
        };
        let spread = |spread: Spread| (spread.q3 - spread.q1) / spread.median * 100.0;
        let spread = |arm: &CaseArm| arm.cost_s.map_or_else(dash, |cost| format!("{:.0} %", spread(cost)));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} of {} | {reach} | {}, {why} | {}, {} |",
            escaped(&case.title()),
            marked.len(),
            compared().count(),
            super::figures::rounds(widest.runs.unwrap_or(case.rounds)),
            spread(&case.arms[0]),
            spread(widest)
        );
    }
    if text.is_empty() {
        return format!("No 95 % interval reaches further than {:.0} %.\n\n", wide * 100.0);
    }
    format!(
        "Intervals of time that reach further than {:.0} % to either side, and why: the rounds \
         were too few for the spread of the runs.\n\n\
         | | arms | widest | its rounds | quartiles of stock's and of its runs lie apart by |\n\
         | --- | --- | --- | --- | --- |\n{text}\n",
        wide * 100.0
    )
}

/// Returns a sentence on the machine and the meaning of the figures.
pub(super) fn method(results: &Results) -> String {
    let rounds = results.cases.iter().map(|case| case.rounds);
    let rounds = match (rounds.clone().min(), rounds.max()) {
        (Some(least), Some(most)) if least < most => format!("{least} to {most} rounds"),
        (_, most) => format!("rounds: {}", most.unwrap_or_default()),
    };
    let compared = results.cases.iter().flat_map(|case| case.arms.iter().skip(1));
    let widths: Vec<f64> = compared.filter_map(|arm| arm.ratio_to_stock?.half_width()).collect();
    let within = widths.iter().filter(|width| **width <= wide(results)).count();
    let widths = if widths.is_empty() {
        String::new()
    } else {
        format!(
            "; {within} of their {} 95 % intervals reach at most {:.0} % to either side, half of them at most {:.1} %",
            widths.len(),
            wide(results) * 100.0,
            median(&widths) * 100.0
        )
    };
    format!(
        "{}; allograft {}; runs in random order within rounds ({rounds}); ratios are paired by round{widths}; memory \
         in separate runs.",
        results.machine.description(),
        results.allograft
    )
}
