//! The tables of the report.

use std::fmt::Write;

use super::escaped;
use crate::report::figures::{bytes, count, quotient, ratio, seconds};
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
            let _ = write!(text, "<td{class}>{time}<br/><span class=\"quiet\">{}</span></td>", memory(arm, case));
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
    let is_it = results.recommendation.as_ref().is_some_and(|recommendation| recommendation.arm == name);
    if is_it { " class=\"chosen\"" } else { "" }
}

fn coloured(ratio: &Ratio, text: &str) -> String {
    if !ratio.differs() {
        return text.to_owned();
    }
    let class = if ratio.value < 1.0 { "better" } else { "worse" };
    format!("<span class=\"{class}\">{text}</span>")
}

fn memory(arm: &CaseArm, case: &CaseResult) -> String {
    let peaks = arm.peak_memory_bytes.zip(case.arms[0].peak_memory_bytes);
    peaks.map_or("-".to_owned(), |(peak, stock)| quotient(peak, stock))
}

/// Returns the tables of one case.
pub(super) fn case(case: &CaseResult, results: &Results) -> String {
    let is_server = case.arms.iter().any(|arm| arm.typical.is_some_and(|figures| figures.service.is_some()));
    let mut heads = vec![
        "arm",
        "time",
        "to stock (95 %)",
        "p",
        "user",
        "system",
        "peak",
        "to stock",
        "at end",
        "faults",
        "switches",
    ];
    heads.extend(if is_server { ["req/s", "p50", "p99", ""] } else { ["futex", "mmap", "munmap", "madvise"] });
    heads.retain(|head| !head.is_empty());
    let heads: Vec<String> = heads.iter().map(|head| format!("<th>{head}</th>")).collect();
    let columns = heads.len();
    let mut text =
        format!("<div class=\"wide\"><table class=\"dense\"><thead><tr>{}</tr></thead><tbody>", heads.concat());
    for arm in &case.arms {
        // Writing to a string cannot fail.
        let _ = write!(text, "<tr{}><td>{}</td>", chosen(results, &arm.name), escaped(&arm.name));
        if let Some(failure) = &arm.failure {
            let _ = write!(text, "<td class=\"text worse\" colspan=\"{}\">{}</td></tr>", columns - 1, escaped(failure));
            continue;
        }
        for cell in cells(arm, case, is_server) {
            let _ = write!(text, "<td>{cell}</td>");
        }
        text.push_str("</tr>");
    }
    text.push_str("</tbody></table></div>");
    for reason in case.arms.iter().filter_map(|arm| arm.no_memory.as_ref()).take(1) {
        let _ = write!(text, "<p class=\"quiet\">Memory not measured: {}</p>", escaped(reason));
    }
    for reason in case.arms.iter().filter_map(|arm| arm.no_calls.as_ref()).take(1) {
        let _ = write!(text, "<p class=\"quiet\">System calls not counted: {}</p>", escaped(reason));
    }
    text
}

fn cells(arm: &CaseArm, case: &CaseResult, is_server: bool) -> Vec<String> {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let (figures, calls) = (arm.typical, arm.calls);
    let mut cells = vec![
        or_dash(arm.cost_s.map(|cost| seconds(cost.median))),
        or_dash(arm.ratio_to_stock.map(|value| coloured(&value, &ratio(&value)))),
        or_dash(arm.ratio_to_stock.filter(|ratio| *ratio != Ratio::ITSELF).map(|ratio| p_value(ratio.p_value))),
        or_dash(figures.map(|figures| seconds(figures.user_s))),
        or_dash(figures.map(|figures| seconds(figures.system_s))),
        or_dash(arm.peak_memory_bytes.map(bytes)),
        memory(arm, case),
        or_dash(arm.last_memory_bytes.map(bytes)),
        or_dash(figures.map(|figures| count(figures.minor_faults + figures.major_faults))),
        or_dash(figures.map(|figures| count(figures.voluntary_switches + figures.involuntary_switches))),
    ];
    if is_server {
        let service = figures.and_then(|figures| figures.service);
        let milliseconds = |time: Option<f64>| or_dash(time.map(|time| seconds(time / 1e3)));
        cells.push(or_dash(service.map(|service| format!("{:.0}", service.requests_per_second))));
        cells.push(milliseconds(service.and_then(|service| service.p50_ms)));
        cells.push(milliseconds(service.and_then(|service| service.p99_ms)));
    } else {
        let at_least = if calls.is_some_and(|calls| !calls.complete) { "&gt; " } else { "" };
        for figure in [calls.map(|c| c.futex), calls.map(|c| c.mmap), calls.map(|c| c.munmap), calls.map(|c| c.madvise)]
        {
            cells.push(or_dash(figure.map(|figure| format!("{at_least}{}", count(figure)))));
        }
    }
    cells
}

fn p_value(p: f64) -> String {
    if p < 0.001 { "&lt; 0.001".to_owned() } else { format!("{p:.3}") }
}

/// Returns what was measured, on which machine, and how.
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
