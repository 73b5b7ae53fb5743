//! Results for a terminal.

use std::time::Duration;

use measure::report::{bytes, count, ratio, seconds};
use measure::results::{CaseArm, CaseResult, Input, Results};

use super::curve;
use super::preparation::PROGRAM;
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

/// The case, by the path of the program that the user named.
fn title(case: &CaseResult, input: &Input) -> String {
    match input.kind.as_str() {
        "executable" => case.title().replacen(PROGRAM, &input.host, 1),
        _ => case.title(),
    }
}

pub(super) fn text(results: &Results, output: &Output) -> Page {
    let mut text = output.page();
    // Writing to a page does not fail.
    let _ = writeln!(text, "{}", output.paint(Style::Faint, results.machine.description()));
    for case in &results.cases {
        let rounds = if case.rounds == 1 { "1 round".to_owned() } else { format!("{} rounds", case.rounds) };
        text.blank();
        let _ = writeln!(text, "{}  {rounds}", output.paint(Style::Strong, title(case, &results.input)));
        let (table, left_out) = table(case, results, output);
        text.table(&table);
        if !left_out.is_empty() {
            let what = format!("a wider terminal also shows: {}", left_out.join(", "));
            let _ = writeln!(text, "  {}", output.paint(Style::Faint, what));
        }
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
        curve::show(case, &mut text, output);
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
        let objective = recommendation.objective.name();
        let title = match recommendation.chosen() {
            Some(arm) => output.paint(Style::Good, format_args!("{arm} (for {objective})")),
            None => output.paint(Style::Notice, format_args!("no answer yet (for {objective})")),
        };
        text.blank();
        let _ = writeln!(text, "{} {title}", output.paint(Style::Strong, "take:"));
        let _ = writeln!(text, "  {}", recommendation.reason);
        if recommendation.undecided {
            return text;
        }
        let _ = writeln!(text, "  not beaten in both time and memory: {}", recommendation.pareto.join(", "));
        if let Some(command) = &recommendation.command {
            text.whole(format_args!("  {}", output.paint(Style::Strong, command)));
        }
    }
    text
}

/// The columns that a narrow terminal goes without, the first to go first.
const LEFT_OUT: [usize; 5] = [7, 8, 4, 3, 6];

/// Returns the table of a case, and the heads of columns that the terminal has no room for.
fn table(case: &CaseResult, results: &Results, output: &Output) -> (Table, Vec<&'static str>) {
    let is_server = case.arms.iter().any(service);
    let time = if is_server { "req/s" } else { "time" };
    let last = if is_server { "p99" } else { "futex" };
    let head = ["", time, "to stock (95 %)", "user", "system", "peak", "to stock", "faults", last];
    let chosen = results.recommendation.as_ref().and_then(|recommendation| recommendation.chosen());
    let row = |arm: &CaseArm| row(arm, case, is_server, chosen == Some(arm.name.as_str()));
    let rows: Vec<Vec<Cell>> = case.arms.iter().map(row).collect();
    let widths = head.iter().enumerate().map(|(column, title)| {
        let cells = rows.iter().map(|row| row[column].columns());
        cells.chain([title.chars().count()]).max().unwrap_or_default()
    });
    let kept = fitting(&widths.collect::<Vec<_>>(), output.columns());
    let shown = |column: &usize| kept.contains(column);
    let titles: Vec<&str> = kept.iter().map(|column| head[*column]).collect();
    let mut table = output.table(&titles);
    for row in rows {
        table.row(row.into_iter().enumerate().filter(|(column, _)| shown(column)).map(|(_, cell)| cell));
    }
    (table.numbers(), (0..head.len()).filter(|column| !shown(column)).map(|column| head[column]).collect())
}

/// Returns the columns that fit, by their widths. Each has a blank on both sides.
fn fitting(widths: &[usize], room: Option<usize>) -> Vec<usize> {
    let mut kept: Vec<usize> = (0..widths.len()).collect();
    for column in LEFT_OUT {
        let width: usize = kept.iter().map(|column| widths[*column] + 2).sum();
        if room.is_none_or(|room| width <= room) {
            break;
        }
        kept.retain(|one| *one != column);
    }
    kept
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
    fn a_narrow_terminal_goes_without_the_last_columns() {
        let widths = [15, 7, 19, 7, 7, 8, 8, 8, 8];
        assert_eq!(fitting(&widths, None), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(fitting(&widths, Some(105)), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(fitting(&widths, Some(80)), [0, 1, 2, 3, 5, 6]);
        assert_eq!(fitting(&widths, Some(20)), [0, 1, 2, 5]);
    }

    #[test]
    fn durations() {
        assert_eq!(duration(Duration::from_secs(5)), "5 s");
        assert_eq!(duration(Duration::from_secs(80)), "1 min 20 s");
        assert_eq!(duration(Duration::from_secs(3700)), "1 h 1 min");
    }
}
