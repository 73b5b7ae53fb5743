//! The curves of latency by rate, as SVG.

use std::fmt::Write;

use super::chart::{Names, WIDTH, colour, end_name, horizontal, open, ticks, vertical};
use super::escaped;
use crate::rates::{Percentile, RateArm, RateResult};
use crate::report::figures::{count, seconds};
use crate::report::rates::rate;
use crate::results::CaseResult;

/// The sides of the area of a chart.
const LEFT: f64 = 70.0;
const RIGHT: f64 = WIDTH - 170.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 330.0;

/// The distance between the bars of two arms at a rate.
const APART: f64 = 4.0;

/// A percentile of an arm at a rate.
type Get = fn(&RateArm) -> Option<Percentile>;

/// Returns a chart for the 99th percentile and one for the median, if the load reported them.
pub(super) fn charts(case: &CaseResult) -> Vec<String> {
    let charts: [(&str, Get); 2] = [("p99", |arm| arm.p99), ("p50", |arm| arm.p50)];
    charts.into_iter().filter_map(|(name, get)| chart(case, name, get)).collect()
}

/// Returns the rates that are drawn: up to the first one that no arm reaches. Higher ones would only stretch the axis.
fn drawn(rates: &[RateResult]) -> &[RateResult] {
    let reached = rates.iter().rposition(|rate| rate.arms.iter().any(|arm| arm.reached));
    &rates[..reached.map_or(rates.len(), |at| rates.len().min(at + 2))]
}

/// Draws a percentile by rate, a line for each arm. The bars are the quartiles of the runs. A cross at the upper edge
/// marks a rate that the arm does not reach. Latencies grow by orders of magnitude towards full load, so their scale is
/// logarithmic.
fn chart(case: &CaseResult, name: &str, get: Get) -> Option<String> {
    let rates = drawn(&case.rates);
    let measured = || rates.iter().flat_map(|rate| &rate.arms).filter_map(|arm| Some(get(arm)?.ms));
    let least = measured().map(|ms| ms.q1).reduce(f64::min)?;
    let most = measured().map(|ms| ms.q3).reduce(f64::max)?;
    let (low, high) = (least.log10().floor(), most.log10().ceil().max(least.log10().floor() + 1.0));
    let (across, last) = ticks(rates.last()?.requests_per_second as f64);
    let x = |rate: f64| LEFT + (RIGHT - LEFT) * rate / last;
    let y = |ms: f64| BOTTOM - (BOTTOM - TOP) * (ms.log10() - low) / (high - low);
    let mut text = open(380.0, &format!("{name} by requests per second: {}", case.title()));
    text.extend(across.into_iter().map(|tick| vertical(x(tick), [TOP, BOTTOM], 18.0, &count(tick.round() as u64))));
    let mut power = low;
    while power <= high {
        for (digit, is_named) in [(1.0, true), (2.0, high - low < 4.0), (5.0, high - low < 4.0)] {
            let ms: f64 = digit * 10f64.powf(power);
            if is_named && ms.log10() <= high + 1e-9 {
                text.push_str(&horizontal(y(ms), [LEFT, RIGHT], &seconds(ms / 1e3)));
            }
        }
        power += 1.0;
    }
    let mut ends = Vec::new();
    for at in 0..case.arms.len() {
        ends.extend(line(&mut text, (case, rates), at, get, (&x, &y)).map(|end| (at, end)));
    }
    let places: Vec<(f64, f64)> = ends.iter().map(|(_, place)| *place).collect();
    let labels = Names { within: (TOP, BOTTOM), gap: 31.0, dots: &[] }.place(&places);
    for ((at, end), label) in ends.into_iter().zip(labels) {
        text.push_str(&end_name(at, &case.arms[at].name, end, label));
    }
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        "<text class=\"tick\" x=\"{:.1}\" y=\"372\" text-anchor=\"middle\">requests per second</text><text x=\"{LEFT}\" \
         y=\"12\">{name}; \u{d7}: does not reach the rate</text></svg>",
        (LEFT + RIGHT) / 2.0
    );
    Some(text)
}

/// Draws the line of an arm. Returns the place of its last point.
fn line(
    text: &mut String,
    (case, rates): (&CaseResult, &[RateResult]),
    at: usize,
    get: Get,
    (x, y): (&dyn Fn(f64) -> f64, &dyn Fn(f64) -> f64),
) -> Option<(f64, f64)> {
    let (mut path, mut marks, mut last) = (String::new(), String::new(), None);
    for result in rates {
        let Some(arm) = result.arms.get(at) else { continue };
        // The bars of several arms are beside each other.
        let beside = at as f64 - (case.arms.len() - 1) as f64 / 2.0;
        let (across, title) = (x(result.requests_per_second as f64) + APART * beside, escaped(&arm.name));
        let place = rate(result);
        match get(arm) {
            Some(Percentile { ms, .. }) => {
                let up = y(ms.median);
                path.push_str(&format!("{}{across:.1} {up:.1}", if path.is_empty() { "M" } else { "L" }));
                marks.push_str(&format!(
                    "<path class=\"series\" d=\"M{across:.1} {:.1}V{:.1}\"/><circle class=\"point\" cx=\"{across:.1}\" \
                     cy=\"{up:.1}\" r=\"3.5\"><title>{title}, {place}: {}</title></circle>",
                    y(ms.q1),
                    y(ms.q3),
                    seconds(ms.median / 1e3)
                ));
                last = Some((across, up));
            }
            None if arm.failure.is_none() && !arm.reached => {
                let (left, up) = (across - 4.0 + 6.0 * beside, TOP - 12.0);
                marks.push_str(&format!(
                    "<path class=\"saturated\" d=\"M{left:.1} {up}l8 8m0 -8l-8 8\"><title>{title}, {place}: not \
                     reached</title></path>"
                ));
            }
            None => {}
        }
    }
    text.push_str(&format!("<g class=\"c{}\">", colour(at)));
    if !path.is_empty() {
        text.push_str(&format!("<path class=\"series\" d=\"{path}\"/>"));
    }
    text.push_str(&marks);
    text.push_str("</g>");
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Stopped;

    #[test]
    fn the_axis_ends_at_the_first_rate_that_no_arm_reaches() {
        let drawn = |reached: &[[bool; 2]]| {
            let rates = reached.iter().zip(1..).map(|(reached, number)| RateResult {
                requests_per_second: 1000 * number,
                stopped: Stopped::Narrow,
                rounds: 3,
                arms: reached.iter().map(|it| RateArm { reached: *it, ..RateArm::default() }).collect(),
            });
            super::drawn(&rates.collect::<Vec<_>>()).len()
        };
        let (both, one, none) = ([true, true], [false, true], [false, false]);
        assert_eq!(drawn(&[both, one]), 2);
        assert_eq!(drawn(&[both, one, none]), 3);
        assert_eq!(drawn(&[both, one, none, none, none]), 3);
        // A rate that was missed by chance is followed by others.
        assert_eq!(drawn(&[both, none, one, none, none]), 4);
        assert_eq!(drawn(&[none, none]), 2);
    }
}
