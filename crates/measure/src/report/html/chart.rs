//! Charts as SVG, written by hand: they need little, and must look the same everywhere.

use std::fmt::Write;

use super::escaped;
use crate::report::figures::seconds;
use crate::results::{CaseResult, Results, degradation as degradation_of};

/// The width of every chart in its own units. Browsers scale it to the page.
pub(super) const WIDTH: f64 = 900.0;
/// The width for names to the left of bars.
const NAMES: f64 = 190.0;
/// The width for figures to their right.
const FIGURES: f64 = 150.0;
const ROW: f64 = 24.0;

pub(super) fn open(height: f64, label: &str) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\" aria-label=\"{}\">", escaped(label))
}

/// Returns about five round numbers from 0 to `most`, and the least round number that is not below `most`.
pub(super) fn ticks(most: f64) -> (Vec<f64>, f64) {
    let rough = most.max(f64::MIN_POSITIVE) / 5.0;
    let power = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().map(|one| one * power).find(|step| *step >= rough).unwrap_or(rough);
    let count = (most / step).ceil().max(1.0);
    let mut ticks = Vec::new();
    let mut at = 0.0;
    while at <= count + 0.5 {
        ticks.push(at * step);
        at += 1.0;
    }
    (ticks, count * step)
}

/// Draws a vertical line of the grid over the chart's height, and its label below.
pub(super) fn vertical(x: f64, [top, bottom]: [f64; 2], below: f64, label: &str) -> String {
    format!(
        "<line class=\"grid\" x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{bottom}\"/><text class=\"tick\" x=\"{x:.1}\" \
         y=\"{}\" text-anchor=\"middle\">{label}</text>",
        bottom + below
    )
}

/// Draws a horizontal line of the grid over the chart's width, and its label to the left.
pub(super) fn horizontal(y: f64, [left, right]: [f64; 2], label: &str) -> String {
    format!(
        "<line class=\"grid\" x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/><text class=\"tick\" x=\"{}\" \
         y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
        left - 8.0,
        y + 4.0
    )
}

/// Draws an arm's name and its bar, which ends at `end`. The first arm is stock.
fn bar(row: usize, name: &str, end: f64) -> String {
    let top = top_of(row);
    let class = if row == 0 { "bar stock" } else { "bar" };
    format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text><rect class=\"{class}\" x=\"{NAMES}\" y=\"{top:.1}\" \
         width=\"{:.1}\" height=\"16\" rx=\"2\"/>",
        NAMES - 10.0,
        top + 12.0,
        escaped(name),
        end - NAMES
    )
}

fn top_of(row: usize) -> f64 {
    ROW * row as f64 + 4.0
}

/// Draws time by arm: the median as a bar, the quartiles as a whisker.
pub(super) fn times(case: &CaseResult) -> String {
    let rows: Vec<_> = case.arms.iter().filter_map(|arm| Some((arm, arm.cost_s?))).collect();
    let most = rows.iter().map(|(_, cost)| cost.q3).fold(0.0, f64::max);
    let (ticks, most) = ticks(most);
    let bottom = ROW * rows.len() as f64 + 6.0;
    let mut text = open(bottom + 22.0, &format!("time by arm: {}", case.title()));
    let x = |value: f64| NAMES + (WIDTH - NAMES - FIGURES) * value / most;
    text.extend(ticks.into_iter().map(|tick| vertical(x(tick), [0.0, bottom], 15.0, &seconds(tick))));
    for (row, (arm, cost)) in rows.iter().enumerate() {
        let middle = top_of(row) + 8.0;
        let ratio =
            arm.ratio_to_stock.filter(|_| row != 0).map_or(String::new(), |ratio| format!(" · {:.2} ×", ratio.value));
        text.push_str(&bar(row, &arm.name, x(cost.median)));
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "<path class=\"whisker\" d=\"M{0:.1} {middle:.1}H{1:.1}M{0:.1} {2:.1}v8M{1:.1} {2:.1}v8\"/><text x=\"{3:.1}\" \
             y=\"{4:.1}\">{5}{ratio}</text>",
            x(cost.q1),
            x(cost.q3),
            middle - 4.0,
            x(cost.q3.max(cost.median)) + 8.0,
            middle + 4.0,
            seconds(cost.median)
        );
    }
    text + "</svg>"
}

/// An arm as a point.
struct Point<'r> {
    name: &'r str,
    time: f64,
    memory: f64,
}

/// Returns powers of 2 that span `figures` and 1. On that scale a ratio and its inverse are equally far from 1.
fn powers(figures: impl Iterator<Item = f64>) -> Vec<f64> {
    let (mut low, mut high): (f64, f64) = (-1.0, 1.0);
    for figure in figures {
        low = low.min(figure.log2().floor());
        high = high.max(figure.log2().ceil());
    }
    let step = ((high - low) / 8.0).ceil().max(1.0);
    let mut ticks = Vec::new();
    // 1 is one of the powers.
    let mut at = (low / step).floor() * step;
    while at < high + step {
        ticks.push(at.exp2());
        at += step;
    }
    ticks
}

/// Draws memory against time, relative to stock, with the line of the Pareto-optimal arms.
pub(super) fn trade_off(results: &Results) -> Option<String> {
    let points: Vec<Point<'_>> = results
        .arms
        .iter()
        .filter_map(|arm| {
            let (time, memory) = (arm.ratio_to_stock?.value, arm.memory_ratio_to_stock?);
            Some(Point { name: &arm.origin.name, time, memory })
        })
        .collect();
    if points.len() < 2 {
        return None;
    }
    let across = powers(points.iter().map(|point| point.time));
    let up = powers(points.iter().map(|point| point.memory));
    let (left, right, top, bottom) = (60.0, WIDTH - 130.0, 12.0, 380.0);
    let share = |ticks: &[f64], value: f64| {
        let (first, last) = (ticks[0].log2(), ticks[ticks.len() - 1].log2());
        (value.log2() - first) / (last - first)
    };
    let x = |time: f64| left + (right - left) * share(&across, time);
    let y = |memory: f64| bottom - (bottom - top) * share(&up, memory);
    let mut text = open(430.0, "memory against time");
    text.extend(across.iter().map(|tick| vertical(x(*tick), [top, bottom], 18.0, &plain(*tick))));
    text.extend(up.iter().map(|tick| horizontal(y(*tick), [left, right], &plain(*tick))));
    // Writing to a string cannot fail.
    let _ = write!(text, "<path class=\"one\" d=\"M{:.1} {top}V{bottom}M{left} {:.1}H{right}\"/>", x(1.0), y(1.0));
    let pareto =
        results.recommendation.as_ref().map(|recommendation| recommendation.pareto.as_slice()).unwrap_or_default();
    let mut line: Vec<&Point<'_>> =
        points.iter().filter(|point| pareto.iter().any(|name| name == point.name)).collect();
    line.sort_by(|one, other| one.time.total_cmp(&other.time));
    let steps: Vec<String> = line.iter().map(|point| format!("{:.1} {:.1}", x(point.time), y(point.memory))).collect();
    if steps.len() > 1 {
        let _ = write!(text, "<path class=\"pareto\" d=\"M{}\"/>", steps.join("L"));
    }
    dots(&mut text, results, &points, &x, &y, (top, bottom));
    let _ = write!(
        text,
        "<text class=\"tick\" x=\"{:.1}\" y=\"422\" text-anchor=\"middle\">time to stock</text><text class=\"tick\" \
         transform=\"translate(14 {:.1}) rotate(-90)\" text-anchor=\"middle\">peak memory to stock</text></svg>",
        (left + right) / 2.0,
        (top + bottom) / 2.0
    );
    Some(text)
}

/// How far a name begins to the right of its dot's middle.
const NAME: f64 = 12.0;

/// The number of the colour of an arm's line. Only stock, the first arm, has its own.
pub(super) fn colour(arm: usize) -> usize {
    if arm == 0 { 0 } else { 1 + (arm - 1) % 12 }
}

/// Draws the points and their names. A line connects a point to a name that is not beside it.
fn dots(text: &mut String, results: &Results, points: &[Point<'_>], x: Scale<'_>, y: Scale<'_>, within: (f64, f64)) {
    let taken = results.recommendation.as_ref().and_then(|recommendation| recommendation.chosen());
    let places: Vec<(f64, f64)> = points.iter().map(|point| (x(point.time), y(point.memory))).collect();
    let labels = Names { within, gap: NAME, dots: &places }.place(&places);
    for ((x, y), label) in places.iter().zip(&labels) {
        if (label - 4.0 - y).abs() > 6.0 {
            // Writing to a string cannot fail.
            let _ = write!(text, "<path class=\"leader\" d=\"M{x:.1} {y:.1}L{:.1} {:.1}\"/>", x + 10.0, label - 4.0);
        }
    }
    for ((point, (x, y)), label) in points.iter().zip(&places).zip(&labels) {
        let (class, style) = match point.name {
            name if Some(name) == taken => ("dot chosen", " class=\"chosen-name\""),
            "stock" => ("dot stock", ""),
            _ => ("dot", ""),
        };
        let _ = write!(
            text,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"><title>{0}: time {1:.2}, memory {2:.2}</title></circle>\
             <text{style} x=\"{3:.1}\" y=\"{label:.1}\">{0}</text>",
            escaped(point.name),
            point.time,
            point.memory,
            x + NAME
        );
    }
}

/// The names beside a chart's points, and the space that they have.
pub(super) struct Names<'d> {
    /// The heights between which names are, if there is room.
    pub(super) within: (f64, f64),
    /// How far a name begins to the right of its point.
    pub(super) gap: f64,
    /// The dots that a name must leave free.
    pub(super) dots: &'d [(f64, f64)],
}

/// The height of a line of names.
const LINE: f64 = 14.0;
/// The approximate width of a name.
const REACH: f64 = 110.0;
/// The radius of a dot with its outline.
const DOT: f64 = 7.0;

impl Names<'_> {
    /// Returns the base lines of names beside points, so that names of close points do not overlap and none is under a
    /// dot. The highest point comes first. A name goes to the nearest free height; to the nearest one without a name
    /// if dots are everywhere.
    pub(super) fn place(&self, points: &[(f64, f64)]) -> Vec<f64> {
        let mut order: Vec<usize> = (0..points.len()).collect();
        order.sort_by(|one, other| points[*one].1.total_cmp(&points[*other].1));
        let mut placed: Vec<(usize, f64)> = Vec::new();
        for at in order {
            let (x, wanted) = (points[at].0, points[at].1 + 4.0);
            let is_named = |y: f64| {
                placed.iter().any(|(other, there)| (points[*other].0 - x).abs() < REACH && (there - y).abs() < LINE)
            };
            let start = x + self.gap;
            let is_dotted = |y: f64| {
                let hit = |dot: &&(f64, f64)| (start - DOT..start + REACH + DOT).contains(&dot.0) && covers(y, dot.1);
                self.dots.iter().any(|dot| hit(&dot))
            };
            let inside = self.within.0 + LINE..=self.within.1;
            let steps = || (0..1000).map(f64::from);
            let near = steps().flat_map(|step| [wanted + step, wanted - step]).filter(|y| inside.contains(y));
            let free =
                near.clone().find(|y| !is_named(*y) && !is_dotted(*y)).or_else(|| near.clone().find(|y| !is_named(*y)));
            // Below the chart there is always room.
            let below = || steps().map(|step| wanted.max(self.within.1) + step * LINE).find(|y| !is_named(*y));
            placed.push((at, free.or_else(below).unwrap_or(wanted)));
        }
        placed.sort_by_key(|(at, _)| *at);
        placed.into_iter().map(|(_, y)| y).collect()
    }
}

/// Whether a dot at the height `dot` covers a name with this base line, if it is as far to the side.
fn covers(base: f64, dot: f64) -> bool {
    // Letters reach from some 10 above their base line to 3 below it.
    (base - 10.0 - DOT..base + 3.0 + DOT).contains(&dot)
}

type Scale<'s> = &'s dyn Fn(f64) -> f64;

/// Formats a round number without trailing zeros.
fn plain(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Draws time by number of threads, a line for each arm. `None` if there is only one number.
pub(super) fn scaling(results: &Results, cases: &[&CaseResult]) -> Option<String> {
    let size = cases.first()?.size;
    let mut swept: Vec<(u32, &CaseResult)> =
        cases.iter().filter(|case| case.size == size).filter_map(|case| Some((case.threads?, *case))).collect();
    swept.sort_by_key(|(threads, _)| *threads);
    if swept.len() < 2 {
        return None;
    }
    let all = swept.iter().flat_map(|(_, case)| case.arms.iter().filter_map(|arm| Some(arm.cost_s?.median)));
    let (time_ticks, most) = ticks(all.fold(0.0, f64::max));
    let (left, right, top, bottom) = (70.0, WIDTH - 170.0, 12.0, 320.0);
    let step = (right - left - 40.0) / (swept.len() - 1) as f64;
    let x = |at: usize| left + 20.0 + step * at as f64;
    let y = |time: f64| bottom - (bottom - top) * time / most;
    let mut text = open(366.0, "time by number of threads");
    text.extend(time_ticks.into_iter().map(|tick| horizontal(y(tick), [left, right], &seconds(tick))));
    for (at, (threads, _)) in swept.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "<text class=\"tick\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{threads}</text>",
            x(at),
            bottom + 18.0
        );
    }
    let _ = write!(
        text,
        "<text class=\"tick\" x=\"{:.1}\" y=\"358\" text-anchor=\"middle\">threads</text>",
        (left + right) / 2.0
    );
    let mut ends = Vec::new();
    for (arm, result) in results.arms.iter().enumerate() {
        let times: Option<Vec<f64>> = swept.iter().map(|(_, case)| Some(case.arms.get(arm)?.cost_s?.median)).collect();
        let Some(times) = times else { continue };
        let points: Vec<(f64, f64)> = times.iter().enumerate().map(|(at, time)| (x(at), y(*time))).collect();
        let line: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let _ = write!(text, "<g class=\"c{}\"><path class=\"series\" d=\"M{}\"/>", colour(arm), line.join("L"));
        for (x, y) in &points {
            let _ = write!(text, "<circle class=\"point\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>");
        }
        text.push_str("</g>");
        ends.push((arm, &result.origin.name, points[points.len() - 1]));
    }
    let places: Vec<(f64, f64)> = ends.iter().map(|(_, _, place)| *place).collect();
    let labels = Names { within: (top, bottom), gap: 31.0, dots: &[] }.place(&places);
    for ((arm, name, (end_x, end_y)), label) in ends.iter().zip(labels) {
        text.push_str(&end_name(*arm, name, (*end_x, *end_y), label));
    }
    Some(text + "</svg>")
}

/// Draws the name of an arm behind the end of its line. `label`: the name's base line.
pub(super) fn end_name(arm: usize, name: &str, (x, y): (f64, f64), label: f64) -> String {
    format!(
        "<g class=\"c{}\"><path class=\"key\" fill=\"none\" d=\"M{:.1} {y:.1}L{:.1} {:.1}h8\"/><text x=\"{:.1}\" \
         y=\"{label:.1}\">{}</text></g>",
        colour(arm),
        x + 5.0,
        x + 18.0,
        label - 4.0,
        x + 31.0,
        escaped(name)
    )
}

/// Draws how each arm's time grows with the work.
pub(super) fn degradation(results: &Results) -> Option<String> {
    let figures: Vec<(&str, f64)> = results
        .arms
        .iter()
        .enumerate()
        .filter_map(|(at, arm)| Some((arm.origin.name.as_str(), degradation_of(&results.cases, at)?)))
        .collect();
    let most = figures.iter().map(|(_, figure)| *figure).reduce(f64::max)?;
    let (ticks, most) = ticks(most.max(1.0));
    let bottom = ROW * figures.len() as f64 + 6.0;
    let x = |value: f64| NAMES + (WIDTH - NAMES - FIGURES) * value / most;
    let mut text = open(bottom + 22.0, "degradation by arm");
    text.extend(ticks.into_iter().map(|tick| vertical(x(tick), [0.0, bottom], 15.0, &plain(tick))));
    for (row, (name, figure)) in figures.iter().enumerate() {
        let (end, base) = (x(*figure), top_of(row) + 12.0);
        text.push_str(&bar(row, name, end));
        // Writing to a string cannot fail.
        let _ = write!(text, "<text x=\"{:.1}\" y=\"{base:.1}\">{figure:.2}</text>", end + 8.0);
    }
    let _ = write!(text, "<path class=\"one\" d=\"M{:.1} 0V{bottom:.1}\"/>", x(1.0));
    Some(text + "</svg>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_reach_the_end() {
        let (some, most) = ticks(0.73);
        assert!((0.73..1.1).contains(&most) && (4..=7).contains(&some.len()), "{some:?}");
        assert_eq!(ticks(5.0), (vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 5.0));
        assert!(ticks(0.0).1 > 0.0);
        assert_eq!((plain(0.5), plain(2.0), plain(0.0)), ("0.5".to_owned(), "2".to_owned(), "0".to_owned()));
    }

    #[test]
    fn powers_span_everything_and_one() {
        assert_eq!(powers([0.3, 1.2].into_iter()), [0.25, 0.5, 1.0, 2.0]);
        let wide = powers([0.9, 600.0].into_iter());
        assert!(wide.len() < 10 && wide.contains(&1.0) && wide[wide.len() - 1] >= 600.0, "{wide:?}");
    }

    fn names<'d>(within: (f64, f64), dots: &'d [(f64, f64)]) -> Names<'d> {
        Names { within, gap: NAME, dots }
    }

    /// There may be more names than fit between two heights.
    #[test]
    fn names_find_a_place_whatever_the_fractions() {
        let mut random = fastrand::Rng::with_seed(14);
        for (count, height) in [(14, 340.0), (14, 60.0), (30, 340.0)] {
            for _ in 0..30 {
                let points: Vec<(f64, f64)> =
                    (0..count).map(|_| (300.0 + 90.0 * random.f64(), 20.0 + 330.0 * random.f64().powi(3))).collect();
                let mut placed = names((10.0, height), &points).place(&points);
                placed.sort_by(f64::total_cmp);
                assert!(placed.windows(2).all(|pair| pair[1] - pair[0] > 13.9), "{placed:?}");
            }
        }
    }

    #[test]
    fn names_of_near_points_are_apart() {
        let points = [(100.0, 50.0), (105.0, 51.0), (110.0, 52.0), (500.0, 50.0)];
        let labels = names((0.0, 200.0), &points).place(&points);
        for one in 0..3 {
            for other in 0..one {
                assert!((labels[one] - labels[other]).abs() >= 13.9, "{labels:?}");
            }
        }
        assert_eq!(labels[3], 54.0);
    }

    /// Twelve arms, as in a usual report: no dot may cover a name to the right of its own dot.
    #[test]
    fn no_name_lies_under_a_dot() {
        let beside = [(100.0, 50.0), (150.0, 52.0)];
        let labels = names((0.0, 200.0), &beside).place(&beside);
        assert!(!covers(labels[0], 52.0) && labels[1] == 56.0, "{labels:?}");
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..500 {
            let dots: Vec<(f64, f64)> =
                (0..12).map(|_| (60.0 + 700.0 * random.f64().powi(2), 20.0 + 350.0 * random.f64())).collect();
            let labels = names((12.0, 380.0), &dots).place(&dots);
            for (own, label) in dots.iter().zip(&labels) {
                let right = dots.iter().filter(|dot| (own.0 + NAME..own.0 + NAME + REACH).contains(&dot.0));
                assert!(right.filter(|dot| covers(*label, dot.1)).count() == 0, "{dots:?} {labels:?}");
            }
        }
    }
}
