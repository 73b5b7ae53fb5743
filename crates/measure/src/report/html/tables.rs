//! The tables of the report.

use std::fmt::Write;

use super::escaped;
use crate::executor::Calls;
use crate::report::figures::{bytes, count, peak_to_stock, ratio, seconds};
use crate::report::overview::dash;
use crate::report::rates;
use crate::results::{CaseArm, CaseResult, Results};
use crate::statistics::Ratio;

/// Returns the ratios of every arm in every case: a row for each case, a column for each arm, so that a suite fits on a
/// page.
pub(super) fn overview(results: &Results) -> String {
    let mut text =
        "<section><h2>Everything</h2><p class=\"quiet\">Time to stock's; below it peak memory to stock's. The last \
                    row is the geometric mean of the times.</p><div class=\"wide\"><table class=\"matrix\"><thead><tr><th></th>"
            .to_owned();
    for arm in &results.arms {
        let name = escaped(&arm.origin.name);
        // Writing to a string cannot fail.
        let _ = write!(text, "<th{}>{name}</th>", chosen(results, &arm.origin.name));
    }
    text.push_str("</tr></thead><tbody>");
    let ratio =
        |ratio: Option<Ratio>| ratio.map_or("-".to_owned(), |ratio| coloured(&ratio, &format!("{:.2}", ratio.value)));
    for case in &results.cases {
        let _ = write!(text, "<tr><td>{}</td>", escaped(&case.title()));
        for arm in &case.arms {
            let (class, time) = (chosen(results, &arm.name), ratio(arm.ratio_to_stock));
            let _ = write!(
                text,
                "<td{class}>{time}<br/><span class=\"quiet\">{}</span></td>",
                peak_to_stock(arm, case).unwrap_or_else(dash)
            );
        }
        text.push_str("</tr>");
    }
    text.push_str("<tr><td>all</td>");
    for arm in &results.arms {
        let _ = write!(text, "<td{}>{}</td>", chosen(results, &arm.origin.name), ratio(arm.ratio_to_stock));
    }
    text + "</tr></tbody></table></div></section>"
}

fn chosen(results: &Results, name: &str) -> &'static str {
    let is_it = results.recommendation.as_ref().is_some_and(|recommendation| recommendation.chosen() == Some(name));
    if is_it { " class=\"chosen\"" } else { "" }
}

fn coloured(ratio: &Ratio, text: &str) -> String {
    if !ratio.differs() {
        return text.to_owned();
    }
    let class = if ratio.value < 1.0 { "better" } else { "worse" };
    format!("<span class=\"{class}\">{text}</span>")
}

/// Returns the tables of one case.
pub(super) fn case(case: &CaseResult, results: &Results) -> String {
    let is_server = case.arms.iter().any(|arm| arm.typical.is_some_and(|figures| figures.service.is_some()));
    let heads: Vec<&str> =
        case.arms.first().into_iter().flat_map(|arm| cells(arm, case, is_server)).map(|(head, _)| head).collect();
    let mut text = format!(
        "<div class=\"wide\"><table class=\"dense\"><thead><tr><th>arm</th><th>{}</th></tr></thead><tbody>",
        heads.join("</th><th>")
    );
    for arm in &case.arms {
        // Writing to a string cannot fail.
        let _ = write!(text, "<tr{}><td>{}</td>", chosen(results, &arm.name), escaped(&arm.name));
        if let Some(failure) = &arm.failure {
            let _ = write!(text, "<td class=\"text worse\" colspan=\"{}\">{}</td></tr>", heads.len(), escaped(failure));
            continue;
        }
        for (_, cell) in cells(arm, case, is_server) {
            let _ = write!(text, "<td>{cell}</td>");
        }
        text.push_str("</tr>");
    }
    text.push_str("</tbody></table></div>");
    let no_memory = case.arms.iter().find_map(|arm| arm.no_memory.as_ref());
    let no_calls = case.arms.iter().find_map(|arm| arm.no_calls.as_ref());
    for (what, reason) in [("Memory not measured", no_memory), ("System calls not counted", no_calls)] {
        if let Some(reason) = reason {
            let _ = write!(text, "<p class=\"quiet\">{what}: {}</p>", escaped(reason));
        }
    }
    text
}

/// Returns an arm's cells, each with the head of its column.
fn cells(arm: &CaseArm, case: &CaseResult, is_server: bool) -> Vec<(&'static str, String)> {
    let figures = arm.typical;
    let (service, calls) = (figures.and_then(|figures| figures.service), arm.calls);
    let compared = arm.ratio_to_stock.filter(|ratio| *ratio != Ratio::ITSELF);
    let mut cells = vec![
        ("time", arm.cost_s.map(|cost| seconds(cost.median))),
        ("to stock (95 %)", arm.ratio_to_stock.map(|value| coloured(&value, &ratio(&value)))),
        ("p", compared.map(|ratio| p_value(ratio.p_value))),
        ("user", figures.map(|figures| seconds(figures.user_s))),
        ("system", figures.map(|figures| seconds(figures.system_s))),
        ("peak", arm.peak_memory_bytes.map(bytes)),
        ("to stock", peak_to_stock(arm, case)),
        ("at end", arm.last_memory_bytes.map(bytes)),
        ("faults", figures.map(|figures| count(figures.minor_faults + figures.major_faults))),
        ("switches", figures.map(|figures| count(figures.voluntary_switches + figures.involuntary_switches))),
    ];
    if is_server {
        let milliseconds = |time: f64| seconds(time / 1e3);
        cells.extend([
            ("req/s", service.map(|service| format!("{:.0}", service.requests_per_second))),
            ("p50", service.and_then(|service| service.p50_ms).map(milliseconds)),
            ("p99", service.and_then(|service| service.p99_ms).map(milliseconds)),
        ]);
    } else {
        let at_least = if calls.is_some_and(|calls| !calls.complete) { "&gt; " } else { "" };
        let counted = |of: fn(Calls) -> u64| calls.map(|calls| format!("{at_least}{}", count(of(calls))));
        cells.extend([
            ("futex", counted(|calls| calls.futex)),
            ("mmap", counted(|calls| calls.mmap)),
            ("munmap", counted(|calls| calls.munmap)),
            ("madvise", counted(|calls| calls.madvise)),
        ]);
    }
    cells.into_iter().map(|(head, cell)| (head, cell.unwrap_or_else(dash))).collect()
}

/// Returns the table of latencies at equal rates.
pub(super) fn rates(case: &CaseResult) -> String {
    let mut text = format!(
        "<div class=\"wide\"><table class=\"dense\"><thead><tr><th>rate</th><th>arm</th><th>{}</th></tr></thead><tbody>",
        rates::HEADS.join("</th><th>")
    );
    for rate in &case.rates {
        for arm in &rate.arms {
            let cells = match rates::cells(arm) {
                Ok(mut cells) => {
                    if let (Some(ratio), Some(cell)) = (arm.tail_ratio(), cells.get_mut(rates::RATIO)) {
                        *cell = coloured(&ratio, cell);
                    }
                    format!("<td>{}</td>", cells.join("</td><td>"))
                }
                Err(reason) => {
                    format!("<td class=\"text worse\" colspan=\"{}\">{}</td>", rates::HEADS.len(), escaped(&reason))
                }
            };
            // Writing to a string cannot fail.
            let _ =
                write!(text, "<tr><td>{}</td><td>{}</td>{cells}</tr>", rates::rate(rate), escaped(&rates::name(arm)));
        }
    }
    text + "</tbody></table></div>"
}

fn p_value(p: f64) -> String {
    if p < 0.001 { "&lt; 0.001".to_owned() } else { format!("{p:.3}") }
}

/// Returns the circumstances: the measured programs, the machine, and the method.
pub(super) fn circumstances(results: &Results) -> String {
    let mut lines = vec![("machine", results.machine.description())];
    let disturbed = results.cases.iter().find_map(|case| case.disturbance.description());
    lines.extend(disturbed.map(|disturbance| ("meanwhile", disturbance)));
    lines.push(("libc", format!("{} (sha256 {})", results.input.host, results.input.host_sha256)));
    lines.extend(results.input.commands.iter().map(|(what, command)| (what.as_str(), command.clone())));
    for arm in &results.arms {
        let Some(donor) = &arm.origin.donor else { continue };
        let options = arm.origin.options.iter().map(|(name, value)| format!(", {name}={value}")).collect::<String>();
        let strings = if arm.origin.strings { ", string functions" } else { "" };
        let version = arm.origin.version.as_deref().unwrap_or_default();
        lines.push(("arm", format!("{}: {donor} {version}{options}{strings}", arm.origin.name)));
    }
    lines.push((
        "method",
        format!(
            "runs in random order within rounds (seed {}), until intervals reach at most {:.1} % to either side or {:.0} s \
             are spent; ratios by Hodges and Lehmann's estimate of the log ratios within rounds, intervals and p by Wilcoxon's \
             signed-rank test (below 6 rounds by Student's t); memory at the exit stop under ptrace and system calls, in runs \
             of their own",
            results.plan.seed,
            results.plan.precision * 100.0,
            results.plan.budget.as_secs_f64()
        ),
    ));
    lines.push(("allograft", results.allograft.clone()));
    let mut text = "<section><h2>What was measured</h2><dl>".to_owned();
    for (name, line) in lines {
        // Writing to a string cannot fail.
        let _ = write!(text, "<dt>{}</dt><dd>{}</dd>", escaped(name), escaped(&line));
    }
    text + "</dl></section>"
}
