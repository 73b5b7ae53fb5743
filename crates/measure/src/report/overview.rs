//! Several comparisons in two tables, with programs as rows and arms as columns.

use std::fmt::Write;

use super::figures::{bytes, peak_to_stock, seconds};
use super::markdown::escaped;
use crate::results::{CaseArm, CaseResult, Results};
use crate::statistics::median;

/// Returns time and peak memory of every arm in every case, relative to stock's, with stock's own, and a sentence on
/// the method.
pub fn overview(results: &Results) -> String {
    format!("{}{}\n", tables(results), method(results))
}

pub(super) fn tables(results: &Results) -> String {
    let time = |arm: &CaseArm, _: &CaseResult| {
        let ratio = arm.ratio_to_stock?;
        Some(if ratio.differs() { format!("{:.2}", ratio.value) } else { format!("({:.2})", ratio.value) })
    };
    let mut text = "Time as ratio to stock's. Parentheses: the runs show no difference from stock.\n\n".to_owned();
    text.push_str(&table(results, |stock| stock.cost_s.map(|cost| seconds(cost.median)), time));
    let all = |at: usize| results.arms[at].ratio_to_stock.map(|ratio| format!("{:.2}", ratio.value));
    let cells: Vec<String> = (1..results.arms.len()).map(|at| all(at).unwrap_or_else(dash)).collect();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "| geometric mean | | {} |", cells.join(" | "));
    text.push_str("\nPeak memory as ratio to stock's:\n\n");
    text.push_str(&table(results, |stock| stock.peak_memory_bytes.map(bytes), peak_to_stock));
    text.push('\n');
    text
}

pub(super) fn dash() -> String {
    "-".to_owned()
}

fn table(
    results: &Results,
    stock: impl Fn(&CaseArm) -> Option<String>,
    cell: impl Fn(&CaseArm, &CaseResult) -> Option<String>,
) -> String {
    let heads: Vec<String> = results.arms.iter().map(|arm| escaped(&arm.origin.name)).collect();
    let mut text = format!("| | {} |\n| --- |{}\n", heads.join(" | "), " --- |".repeat(heads.len()));
    for case in &results.cases {
        let others = case.arms.iter().skip(1).map(|arm| match &arm.failure {
            Some(_) => "fails".to_owned(),
            None => cell(arm, case).unwrap_or_else(dash),
        });
        let first = case.arms.first().and_then(&stock).unwrap_or_else(dash);
        let cells: Vec<String> = std::iter::once(first).chain(others).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {} | {} |", escaped(&case.title()), cells.join(" | "));
    }
    text
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
    let widths = if widths.is_empty() {
        String::new()
    } else {
        format!("; half of their 95 % intervals reach at most {:.1} % to either side", median(&widths) * 100.0)
    };
    format!(
        "{}; allograft {}; runs in random order within rounds ({rounds}); ratios are paired by round{widths}; memory in runs \
         of its own.",
        results.machine.description(),
        results.allograft
    )
}
