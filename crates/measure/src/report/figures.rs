//! Figures for people: three digits, and a unit.

use crate::rates::{Percentile, RateArm, RateResult};
use crate::results::{CaseArm, CaseResult};
use crate::statistics::Ratio;

/// Formats a time: `1.23 s`, `45.6 ms`, `12.3 µs`.
pub fn seconds(seconds: f64) -> String {
    let (figure, unit) = match seconds.abs() {
        0.0 => return "0".to_owned(),
        least if least < 999.5e-6 => (seconds * 1e6, "µs"),
        least if least < 0.9995 => (seconds * 1e3, "ms"),
        _ => (seconds, "s"),
    };
    format!("{} {unit}", three_digits(figure))
}

/// Formats memory: `12.3 MB`, in powers of 1,000.
pub fn bytes(bytes: u64) -> String {
    let bytes = bytes as f64;
    if bytes >= 999.5e6 {
        format!("{} GB", three_digits(bytes / 1e9))
    } else if bytes >= 999.5e3 {
        format!("{} MB", three_digits(bytes / 1e6))
    } else {
        format!("{} kB", three_digits(bytes / 1e3))
    }
}

/// Formats a count: `12`, `3,456`, `7.0 M`.
pub fn count(count: u64) -> String {
    match count {
        0..1_000 => count.to_string(),
        1_000..1_000_000 => format!("{},{:03}", count / 1000, count % 1000),
        _ => format!("{:.1} M", count as f64 / 1e6),
    }
}

/// The bound from which on its figures say nothing more. Two rounds that disagree give intervals up to millions.
const VAGUE: f64 = 1000.0;

/// Formats a ratio and its interval: `0.44 (0.42–0.46)`.
pub fn ratio(ratio: &Ratio) -> String {
    let digits = if ratio.half_width().is_some_and(|half| half < 0.002) { 3 } else { 2 };
    match (ratio.low, ratio.high) {
        _ if *ratio == Ratio::ITSELF => "1".to_owned(),
        (Some(low), Some(high)) if high >= VAGUE => format!("{:.2} ({low:.2} to over {VAGUE})", ratio.value),
        (Some(low), Some(high)) => format!("{:.digits$} ({low:.digits$}–{high:.digits$})", ratio.value),
        _ => format!("{:.digits$}", ratio.value),
    }
}

/// Formats a rate: `2,700/s`.
pub fn rate(rate: &RateResult) -> String {
    format!("{}/s", count(rate.requests_per_second))
}

/// Returns the name of the percentile by which arms are compared: the greatest that the load reported, up to the 99th.
pub(crate) fn tail_name(rates: &[RateResult]) -> &'static str {
    let has = |get: fn(&RateArm) -> Option<Percentile>| {
        rates.iter().flat_map(|rate| &rate.arms).any(|arm| get(arm).is_some())
    };
    match () {
        () if has(|arm| arm.p99) => "p99",
        () if has(|arm| arm.p90) => "p90",
        () => "p50",
    }
}

/// Returns the rates for which something holds: `at every rate`, `at 2,700/s and from 5,400/s to 8,100/s`. `None` if it
/// holds for none.
pub(crate) fn places(rates: &[RateResult], holds: impl Fn(&RateResult) -> bool) -> Option<String> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (at, _) in rates.iter().enumerate().filter(|(_, rate)| holds(rate)) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == at => *last = at,
            _ => runs.push((at, at)),
        }
    }
    if runs.as_slice() == [(0, rates.len().checked_sub(1)?)] && rates.len() > 1 {
        return Some("at every rate".to_owned());
    }
    let shown = |(first, last): &(usize, usize)| match first == last {
        true => format!("at {}", rate(&rates[*first])),
        false => format!("from {} to {}", rate(&rates[*first]), rate(&rates[*last])),
    };
    let runs: Vec<String> = runs.iter().map(shown).collect();
    (!runs.is_empty()).then(|| runs.join(" and "))
}

/// Formats a number of rounds: `1 round`, `12 rounds`.
pub(crate) fn rounds(rounds: usize) -> String {
    if rounds == 1 { "1 round".to_owned() } else { format!("{rounds} rounds") }
}

/// Formats an arm's peak memory as a ratio to stock's. `None` if one of the two was not measured.
pub(crate) fn peak_to_stock(arm: &CaseArm, case: &CaseResult) -> Option<String> {
    Some(quotient(arm.peak_memory_bytes?, case.arms[0].peak_memory_bytes?))
}

/// Formats one amount as a ratio to another: `1.23`.
pub fn quotient(amount: u64, to: u64) -> String {
    if to == 0 { "-".to_owned() } else { format!("{:.2}", amount as f64 / to as f64) }
}

fn three_digits(figure: f64) -> String {
    match figure.abs() {
        least if least >= 99.95 => format!("{figure:.0}"),
        least if least >= 9.995 => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits() {
        assert_eq!(seconds(1.2345), "1.23 s");
        assert_eq!(seconds(0.9996), "1.00 s");
        assert_eq!(seconds(0.0), "0");
        assert_eq!(seconds(0.0456), "45.6 ms");
        assert_eq!(seconds(0.000_012_3), "12.3 µs");
        assert_eq!(bytes(12_345_678), "12.3 MB");
        assert_eq!(bytes(4_600), "4.60 kB");
        assert_eq!(bytes(2_500_000_000), "2.50 GB");
        assert_eq!(count(1_234), "1,234");
        assert_eq!(count(7_000_000), "7.0 M");
        assert_eq!(ratio(&Ratio::of_logs(&[0.0; 8]).unwrap()), "1.000 (1.000–1.000)");
        assert_eq!(ratio(&Ratio::ITSELF), "1");
        let vague = ratio(&Ratio::of_logs(&[0.0, 4.0]).unwrap());
        assert!(vague.ends_with("(0.00 to over 1000)"), "{vague}");
        assert_eq!(quotient(3, 2), "1.50");
    }
}
