//! Tables for a pull request or a README.

use std::fmt::Write;

use super::figures::{bytes, quotient, ratio, seconds};
use crate::results::{CaseArm, CaseResult, Results};

/// The recommendation, a table of ratios if there are several cases, and a table for each of them.
pub fn markdown(results: &Results) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    if let Some(recommendation) = &results.recommendation {
        let _ = writeln!(
            text,
            "**{}** (for {}): {}\n",
            recommendation.arm,
            recommendation.objective.name(),
            recommendation.reason
        );
        if let Some(command) = &recommendation.command {
            let _ = writeln!(text, "    {command}\n");
        }
    }
    if results.cases.len() > 1 {
        text.push_str(&ratios(results));
    }
    for case in &results.cases {
        text.push_str(&table(case));
    }
    let _ = writeln!(
        text,
        "{}; allograft {}; runs in random order within rounds; ratios are paired by round, with 95 % intervals; memory in runs \
         of its own.",
        results.machine.description(),
        results.allograft
    );
    text
}

/// Time and peak memory to stock's: a row for each arm, a column for each case.
fn ratios(results: &Results) -> String {
    let heads: Vec<String> = results.cases.iter().map(CaseResult::title).collect();
    let mut text = format!(
        "| time, memory to stock | {} | all |\n| --- |{}\n",
        heads.join(" | "),
        " --- |".repeat(heads.len() + 1)
    );
    for (at, arm) in results.arms.iter().enumerate() {
        let cell = |case: &CaseResult| {
            let arm = &case.arms[at];
            let time = arm.ratio_to_stock.map_or("-".to_owned(), |ratio| format!("{:.2}", ratio.value));
            format!("{time}, {}", memory(arm, case))
        };
        let cells: Vec<String> = results.cases.iter().map(cell).collect();
        let all = arm.ratio_to_stock.map_or("-".to_owned(), |ratio| format!("{:.2}", ratio.value));
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {} | {} | {all} |", escaped(&arm.origin.name), cells.join(" | "));
    }
    text + "\n"
}

fn memory(arm: &CaseArm, case: &CaseResult) -> String {
    let peaks = arm.peak_memory_bytes.zip(case.arms[0].peak_memory_bytes);
    peaks.map_or("-".to_owned(), |(peak, stock)| quotient(peak, stock))
}

fn table(case: &CaseResult) -> String {
    let mut text = format!(
        "{}, {} rounds:\n\n| | time | to stock | user | system | peak memory | to stock |\n| --- | --- | --- | --- | --- | --- | --- |\n",
        case.title(),
        case.rounds
    );
    for arm in &case.arms {
        let name = escaped(&arm.name);
        // Writing to a string does not fail.
        let _ = match (&arm.failure, arm.cost_s, arm.typical) {
            (None, Some(cost), Some(figures)) => writeln!(
                text,
                "| {name} | {} | {} | {} | {} | {} | {} |",
                seconds(cost.median),
                arm.ratio_to_stock.map_or("-".to_owned(), |value| ratio(&value)),
                seconds(figures.user_s),
                seconds(figures.system_s),
                arm.peak_memory_bytes.map_or("-".to_owned(), bytes),
                memory(arm, case)
            ),
            (Some(failure), ..) => writeln!(text, "| {name} | {} | | | | | |", escaped(failure)),
            _ => writeln!(text, "| {name} | not measured | | | | | |"),
        };
    }
    if let Some(noise) = &case.too_noisy {
        let _ = writeln!(text, "\n{noise}.");
    }
    text + "\n"
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
