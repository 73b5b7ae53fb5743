//! Results for a terminal.

use std::fmt::Write;
use std::time::Duration;

use comfy_table::{Attribute, Cell, CellAlignment, Color, Table, presets};
use measure::report::{bytes, count, ratio, seconds};
use measure::results::{CaseArm, CaseResult, Results};

use crate::output::{Output, Style};

/// A time left: `1 min 20 s`.
pub(super) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

pub(super) fn text(results: &Results, output: &Output) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(text, "{}", output.paint(Style::Faint, results.machine.description()));
    for case in &results.cases {
        let rounds = if case.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", case.rounds) };
        let _ = writeln!(text, "\n{}  {rounds}", output.paint(Style::Strong, case.title()));
        let _ = writeln!(text, "{}", table(case, results, output.is_colored()));
        if let Some(reason) = case.arms.iter().find_map(|arm| arm.no_memory.as_ref()) {
            let _ = writeln!(text, "  memory was not measured: {reason}");
        }
        if let Some(ending) = case.ending() {
            let _ = writeln!(text, "  {}", output.paint(Style::Notice, ending));
        }
        if let Some(noise) = &case.too_noisy {
            let _ = writeln!(text, "  {}", output.paint(Style::Notice, noise));
        }
        for arm in &case.arms {
            if let Some(failure) = &arm.failure {
                let _ = writeln!(text, "  {}: {failure}", output.paint(Style::Bad, &arm.name));
            }
        }
    }
    if results.cases.len() > 1 {
        let _ =
            writeln!(text, "\n{}", output.paint(Style::Strong, "all of them (geometric mean of times, greatest peak)"));
        for arm in results.arms.iter().filter(|arm| arm.failure.is_none()) {
            let time = arm.ratio_to_stock.map_or("-".to_owned(), |time| ratio(&time));
            let memory = arm.memory_ratio_to_stock.map_or("-".to_owned(), |memory| format!("{memory:.2}"));
            let _ = writeln!(text, "  {:<24} time {time:<20} memory {memory}", arm.origin.name);
        }
    }
    if let Some(recommendation) = &results.recommendation {
        let title = format!("{} (for {})", recommendation.arm, recommendation.objective.name());
        let _ = writeln!(text, "\n{} {}", output.paint(Style::Strong, "take:"), output.paint(Style::Good, title));
        let _ = writeln!(text, "  {}", recommendation.reason);
        let _ = writeln!(text, "  not beaten in both time and memory: {}", recommendation.pareto.join(", "));
        if let Some(command) = &recommendation.command {
            let _ = writeln!(text, "  {}", output.paint(Style::Strong, command));
        }
    }
    text
}

fn table(case: &CaseResult, results: &Results, color: bool) -> Table {
    let is_server = case.arms.iter().any(service);
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    if color {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    let time = if is_server { "req/s" } else { "time" };
    let mut head = vec!["", time, "to stock (95 %)", "user", "system", "peak", "to stock", "faults"];
    head.push(if is_server { "p99" } else { "futex" });
    table.set_header(head);
    let chosen = results.recommendation.as_ref().map(|recommendation| recommendation.arm.as_str());
    for arm in &case.arms {
        table.add_row(row(arm, case, is_server, chosen == Some(arm.name.as_str())));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn service(arm: &CaseArm) -> bool {
    arm.typical.is_some_and(|figures| figures.service.is_some())
}

fn row(arm: &CaseArm, case: &CaseResult, is_server: bool, chosen: bool) -> Vec<Cell> {
    let cell = |text: Option<String>| Cell::new(text.unwrap_or_else(|| "-".to_owned()));
    let said = arm.typical.and_then(|figures| figures.service);
    let peaks = arm.peak_memory_bytes.zip(case.arms[0].peak_memory_bytes);
    let time = if is_server {
        said.map(|said| format!("{:.0}", said.requests_per_second))
    } else {
        arm.cost_s.map(|cost| seconds(cost.median))
    };
    let mut difference = cell(arm.ratio_to_stock.as_ref().map(ratio));
    if let Some(ratio) = arm.ratio_to_stock.filter(measure::statistics::Ratio::differs) {
        difference = difference.fg(if ratio.value < 1.0 { Color::Green } else { Color::Red });
    }
    let name = Cell::new(&arm.name);
    vec![
        if chosen { name.add_attribute(Attribute::Bold) } else { name },
        cell(time),
        difference,
        cell(arm.typical.map(|figures| seconds(figures.user_s))),
        cell(arm.typical.map(|figures| seconds(figures.system_s))),
        cell(arm.peak_memory_bytes.map(bytes)),
        cell(peaks.map(|(peak, stock)| measure::report::quotient(peak, stock))),
        cell(arm.typical.map(|figures| count(figures.minor_faults + figures.major_faults))),
        if is_server {
            cell(said.and_then(|said| said.p99_ms).map(|p99| format!("{p99:.2} ms")))
        } else {
            cell(arm.calls.map(|calls| format!("{}{}", if calls.complete { "" } else { "> " }, count(calls.futex))))
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(duration(Duration::from_secs(5)), "5 s");
        assert_eq!(duration(Duration::from_secs(80)), "1 min 20 s");
        assert_eq!(duration(Duration::from_secs(3700)), "1 h 1 min");
    }
}
