//! Markdown tables for a pull request or a README.

use std::fmt::Write;

use super::figures::{bytes, peak_to_stock, ratio, rounds, seconds};
use super::overview::{self, dash};
use super::rates;
use crate::results::{CaseResult, Results};

/// Returns the recommendation, tables of ratios if there are several cases, and a table for each case.
pub fn markdown(results: &Results) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    if let Some(recommendation) = &results.recommendation {
        let _ = writeln!(
            text,
            "**{}** (for {}): {}\n",
            recommendation.chosen().unwrap_or("no answer yet"),
            recommendation.objective.name(),
            recommendation.reason
        );
        if let Some(command) = &recommendation.command {
            let _ = writeln!(text, "    {command}\n");
        }
    }
    text + &measurements(results)
}

/// Returns the tables and the method, without the recommendation.
pub fn measurements(results: &Results) -> String {
    let mut text = String::new();
    if results.cases.len() > 1 {
        text.push_str(&overview::tables(results));
    }
    for case in &results.cases {
        text.push_str(&table(case));
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}", overview::method(results));
    text
}

fn table(case: &CaseResult) -> String {
    let mut text = format!(
        "{}, {}:\n\n| | time | to stock | user | system | peak memory | to stock |\n| --- | --- | --- | --- | --- | --- | --- |\n",
        case.title(),
        rounds(case.rounds)
    );
    for arm in &case.arms {
        let name = escaped(&arm.name);
        // Writing to a string cannot fail.
        let _ = match (&arm.failure, arm.cost_s, arm.typical) {
            (None, Some(cost), Some(figures)) => writeln!(
                text,
                "| {name} | {} | {} | {} | {} | {} | {} |",
                seconds(cost.median),
                arm.ratio_to_stock.map_or_else(dash, |value| ratio(&value)),
                seconds(figures.user_s),
                seconds(figures.system_s),
                arm.peak_memory_bytes.map_or_else(dash, bytes),
                peak_to_stock(arm, case).unwrap_or_else(dash)
            ),
            (Some(failure), ..) => writeln!(text, "| {name} | {} | | | | | |", escaped(failure)),
            _ => writeln!(text, "| {name} | not measured | | | | | |"),
        };
    }
    if let Some(ending) = case.ending() {
        let _ = writeln!(text, "\n{ending}.");
    }
    if let Some(noise) = &case.too_noisy {
        let _ = writeln!(text, "\n{noise}.");
    }
    text + "\n" + &rates(case)
}

/// Returns the latencies at equal rates, and what they say. Empty without rates.
fn rates(case: &CaseResult) -> String {
    if case.rates.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "{} at equal rates:\n\n| requests | | {} |\n| --- | --- |{}\n",
        case.title(),
        rates::HEADS.join(" | "),
        " --- |".repeat(rates::HEADS.len())
    );
    for rate in &case.rates {
        for arm in &rate.arms {
            let cells = match rates::cells(arm) {
                Ok(cells) => cells.join(" | "),
                Err(reason) => escaped(&reason) + &" |".repeat(rates::HEADS.len() - 1),
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "| {} | {} | {cells} |", rates::rate(rate), escaped(&rates::name(arm)));
        }
    }
    text.push('\n');
    for sentence in rates::conclusions(case) {
        let _ = writeln!(text, "- {sentence}");
    }
    text + "\n"
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}
