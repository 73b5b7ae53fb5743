//! CSV after RFC 4180: a line for each arm of each case, at full load and at each rate.

use crate::rates::{Percentile, RateArm, RateResult, Standing};
use crate::results::{CaseResult, Results};
use crate::statistics::Ratio;

/// The columns.
const HEAD: [&str; 40] = [
    "case",
    "threads",
    "size",
    "arm",
    "rounds",
    "median_s",
    "q1_s",
    "q3_s",
    "ratio",
    "ratio_low",
    "ratio_high",
    "p_value",
    "user_s",
    "system_s",
    "peak_memory_bytes",
    "last_memory_bytes",
    "minor_faults",
    "major_faults",
    "voluntary_switches",
    "involuntary_switches",
    "futex",
    "mmap",
    "munmap",
    "madvise",
    "calls_complete",
    "requests_per_second",
    "p50_ms",
    "p99_ms",
    "processor_ratio",
    "processor_ratio_low",
    "processor_ratio_high",
    "failure",
    "rate",
    "reached_runs",
    "p90_ms",
    "p999_ms",
    "p99_ratio",
    "p99_ratio_low",
    "p99_ratio_high",
    "standing",
];

/// Returns the table. A field that could not be measured is empty.
pub fn csv(results: &Results) -> String {
    let mut text = HEAD.join(",") + "\r\n";
    for case in &results.cases {
        for arm in &case.arms {
            let (cost, ratio, figures, calls) = (arm.cost_s, arm.ratio_to_stock, arm.typical, arm.calls);
            let service = figures.and_then(|figures| figures.service);
            let fields = [
                Some(case.name.clone()),
                show(case.threads),
                show(case.size),
                Some(arm.name.clone()),
                Some(case.rounds.to_string()),
                show(cost.map(|cost| cost.median)),
                show(cost.map(|cost| cost.q1)),
                show(cost.map(|cost| cost.q3)),
                show(ratio.map(|ratio| ratio.value)),
                show(ratio.and_then(|ratio| ratio.low)),
                show(ratio.and_then(|ratio| ratio.high)),
                show(ratio.map(|ratio| ratio.p_value)),
                show(figures.map(|figures| figures.user_s)),
                show(figures.map(|figures| figures.system_s)),
                show(arm.peak_memory_bytes),
                show(arm.last_memory_bytes),
                show(figures.map(|figures| figures.minor_faults)),
                show(figures.map(|figures| figures.major_faults)),
                show(figures.map(|figures| figures.voluntary_switches)),
                show(figures.map(|figures| figures.involuntary_switches)),
                show(calls.map(|calls| calls.futex)),
                show(calls.map(|calls| calls.mmap)),
                show(calls.map(|calls| calls.munmap)),
                show(calls.map(|calls| calls.madvise)),
                show(calls.map(|calls| calls.complete)),
                show(service.map(|service| service.requests_per_second)),
                show(service.and_then(|service| service.p50_ms)),
                show(service.and_then(|service| service.p99_ms)),
                show(arm.processor_ratio_to_stock.map(|ratio| ratio.value)),
                show(arm.processor_ratio_to_stock.and_then(|ratio| ratio.low)),
                show(arm.processor_ratio_to_stock.and_then(|ratio| ratio.high)),
                arm.failure.clone(),
                None,
                None,
                show(service.and_then(|service| service.p90_ms)),
                show(service.and_then(|service| service.p999_ms)),
                None,
                None,
                None,
                None,
            ];
            push(&mut text, fields);
        }
        for rate in &case.rates {
            for arm in &rate.arms {
                push(&mut text, at_rate(case, rate, arm));
            }
        }
    }
    text
}

/// Returns the fields of an arm at a rate.
fn at_rate(case: &CaseResult, rate: &RateResult, arm: &RateArm) -> [Option<String>; HEAD.len()] {
    let ms = |percentile: Option<Percentile>| show(percentile.map(|percentile| percentile.ms.median));
    let [value, low, high] = ends(arm.tail_ratio());
    let [processor, processor_low, processor_high] = ends(arm.processor_ratio_to_stock);
    let standing = arm.standing.map(|standing| match standing {
        Standing::Better => "better",
        Standing::Worse => "worse",
        Standing::Unclear => "unclear",
    });
    let known = [
        ("case", Some(case.name.clone())),
        ("threads", show(case.threads)),
        ("size", show(case.size)),
        ("arm", Some(arm.name.clone())),
        ("rounds", Some(rate.rounds.to_string())),
        ("requests_per_second", show(arm.answered_per_second)),
        ("p50_ms", ms(arm.p50)),
        ("p90_ms", ms(arm.p90)),
        ("p99_ms", ms(arm.p99)),
        ("p999_ms", ms(arm.p999)),
        ("processor_ratio", processor),
        ("processor_ratio_low", processor_low),
        ("processor_ratio_high", processor_high),
        ("failure", arm.failure.clone()),
        ("rate", Some(rate.requests_per_second.to_string())),
        ("reached_runs", Some(arm.reached_runs.to_string())),
        ("p99_ratio", value),
        ("p99_ratio_low", low),
        ("p99_ratio_high", high),
        ("standing", standing.map(str::to_owned)),
    ];
    HEAD.map(|column| known.iter().find(|(name, _)| *name == column).and_then(|(_, value)| value.clone()))
}

/// A ratio and the ends of its interval.
fn ends(ratio: Option<Ratio>) -> [Option<String>; 3] {
    [ratio.map(|ratio| ratio.value), ratio.and_then(|ratio| ratio.low), ratio.and_then(|ratio| ratio.high)].map(show)
}

fn push(text: &mut String, fields: [Option<String>; HEAD.len()]) {
    let fields: Vec<String> = fields.into_iter().map(|field| quoted(&field.unwrap_or_default())).collect();
    text.push_str(&fields.join(","));
    text.push_str("\r\n");
}

fn show<T: std::fmt::Display>(value: Option<T>) -> Option<String> {
    value.map(|value| value.to_string())
}

fn quoted(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}
