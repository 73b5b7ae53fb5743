//! Results for a terminal.

use std::time::Duration;

use measure::report::{bytes, count, ratio, seconds};
use measure::results::{CaseArm, CaseResult, Results};

use crate::output::{Cell, Output, Page, Style, Table};

/// Formats the time that is left: `1 min 20 s`.
pub(super) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

pub(super) fn text(results: &Results, output: &Output) -> Page {
    let mut text = output.page();
    // Writing to a page does not fail.
    let _ = writeln!(text, "{}", output.paint(Style::Faint, results.machine.description()));
    for case in &results.cases {
        let rounds = if case.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", case.rounds) };
        text.blank();
        let _ = writeln!(text, "{}  {rounds}", output.paint(Style::Strong, case.title()));
        text.table(&table(case, results, output));
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
        text.blank();
        let _ =
            writeln!(text, "{}", output.paint(Style::Strong, "all of them (geometric mean of times, greatest peak)"));
        for arm in results.arms.iter().filter(|arm| arm.failure.is_none()) {
            let time = arm.ratio_to_stock.map_or("-".to_owned(), |time| ratio(&time));
            let memory = arm.memory_ratio_to_stock.map_or("-".to_owned(), |memory| format!("{memory:.2}"));
            let _ = writeln!(text, "  {:<24} time {time:<20} memory {memory}", arm.origin.name);
        }
    }
    if let Some(recommendation) = &results.recommendation {
        let title = format!("{} (for {})", recommendation.arm, recommendation.objective.name());
        text.blank();
        let _ = writeln!(text, "{} {}", output.paint(Style::Strong, "take:"), output.paint(Style::Good, title));
        let _ = writeln!(text, "  {}", recommendation.reason);
        let _ = writeln!(text, "  not beaten in both time and memory: {}", recommendation.pareto.join(", "));
        if let Some(command) = &recommendation.command {
            let _ = writeln!(text, "  {}", output.paint(Style::Strong, command));
        }
    }
    text
}

fn table(case: &CaseResult, results: &Results, output: &Output) -> Table {
    let is_server = case.arms.iter().any(service);
    let time = if is_server { "req/s" } else { "time" };
    let mut head = vec!["", time, "to stock (95 %)", "user", "system", "peak", "to stock", "faults"];
    head.push(if is_server { "p99" } else { "futex" });
    let mut table = output.table(&head);
    let chosen = results.recommendation.as_ref().map(|recommendation| recommendation.arm.as_str());
    for arm in &case.arms {
        table.row(row(arm, case, is_server, chosen == Some(arm.name.as_str())));
    }
    table.numbers()
}

fn service(arm: &CaseArm) -> bool {
    arm.typical.is_some_and(|figures| figures.service.is_some())
}

fn row(arm: &CaseArm, case: &CaseResult, is_server: bool, chosen: bool) -> Vec<Cell> {
    let cell = |text: Option<String>| Cell::from(text.unwrap_or_else(|| "-".to_owned()));
    let said = arm.typical.and_then(|figures| figures.service);
    let peaks = arm.peak_memory_bytes.zip(case.arms[0].peak_memory_bytes);
    let time = if is_server {
        said.map(|said| format!("{:.0}", said.requests_per_second))
    } else {
        arm.cost_s.map(|cost| seconds(cost.median))
    };
    let mut difference = cell(arm.ratio_to_stock.as_ref().map(ratio));
    if let Some(ratio) = arm.ratio_to_stock.filter(measure::statistics::Ratio::differs) {
        difference = difference.styled(if ratio.value < 1.0 { Style::Good } else { Style::Bad });
    }
    let name = Cell::from(&arm.name);
    vec![
        if chosen { name.styled(Style::Strong) } else { name },
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
