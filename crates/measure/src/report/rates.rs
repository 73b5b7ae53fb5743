//! Latencies at equal rates, for people.

pub use super::figures::rate;
use super::figures::{count, places, ratio, seconds, tail_name};
use crate::rates::{Percentile, RateArm, RateResult, Standing};
use crate::results::CaseResult;

/// The heads of [`cells`].
pub const HEADS: [&str; 5] = ["p50", "p90", "p99", "to stock (95 %)", "p99.9"];

/// The place of the ratio in them.
pub const RATIO: usize = 3;

/// Returns an arm's latencies at a rate. An error with the reason if it has none.
///
/// # Errors
/// The arm fails, or does not reach the rate.
pub fn cells(arm: &RateArm) -> Result<[String; HEADS.len()], String> {
    if let Some(failure) = &arm.failure {
        return Err(failure.clone());
    }
    if !arm.reached {
        let answered =
            arm.answered_per_second.map_or_else(|| "-".to_owned(), |answered| count(answered.round() as u64));
        return Err(format!("not reached: {answered}/s"));
    }
    let time =
        |percentile: Option<Percentile>| percentile.map_or_else(|| "-".to_owned(), |it| seconds(it.ms.median / 1e3));
    let to_stock = arm.tail_ratio().map_or_else(|| "-".to_owned(), |it| ratio(&it));
    Ok([time(arm.p50), time(arm.p90), time(arm.p99), to_stock, time(arm.p999)])
}

/// Returns the arm's name, with the number of runs that reached the rate if some did not.
pub fn name(arm: &RateArm) -> String {
    match arm.reached && arm.reached_runs < arm.timed_runs {
        true => format!("{} ({} of {})", arm.name, arm.reached_runs, arm.timed_runs),
        false => arm.name.clone(),
    }
}

/// Returns sentences that say which arm is better where. Empty without rates.
pub fn conclusions(case: &CaseResult) -> Vec<String> {
    let rates = case.rates.as_slice();
    let Some(first) = rates.first() else { return Vec::new() };
    let mut sentences = Vec::new();
    let each = |holds: &dyn Fn(&RateArm) -> bool| -> Vec<String> {
        let arms = 0..first.arms.len();
        let places = arms.filter_map(|at| Some((at, places(rates, |rate| rate.arms.get(at).is_some_and(holds))?)));
        places.map(|(at, places)| format!("{} {places}", first.arms[at].name)).collect()
    };
    let stands = |wanted: Standing| move |arm: &RateArm| arm.standing == Some(wanted);
    let tail = tail_name(rates);
    for (what, arms) in [("better", each(&stands(Standing::Better))), ("worse", each(&stands(Standing::Worse)))] {
        let arms = if arms.is_empty() { "none".to_owned() } else { arms.join("; ") };
        sentences.push(format!("certainly {what} than stock by {tail}: {arms}"));
    }
    let not_reached = each(&|arm| !arm.reached && arm.failure.is_none());
    if !not_reached.is_empty() {
        sentences.push(format!("rate not reached: {}", not_reached.join("; ")));
    }
    let least = each_least(rates);
    if first.arms.len() > 2 && !least.is_empty() {
        sentences.push(format!("lowest median {tail}: {}", least.join("; ")));
    }
    sentences
}

/// Returns each arm that has the lowest latency somewhere, and where.
fn each_least(rates: &[RateResult]) -> Vec<String> {
    let least = |rate: &RateResult| {
        let median = |arm: &RateArm| arm.tail().map_or(f64::INFINITY, |tail| tail.ms.median);
        let least = rate.arms.iter().min_by(|one, other| median(one).total_cmp(&median(other)));
        least.filter(|arm| median(arm).is_finite()).map(|arm| arm.name.clone())
    };
    let names = rates.first().into_iter().flat_map(|rate| &rate.arms).map(|arm| &arm.name);
    let where_least = |name: &String| places(rates, |rate| least(rate).as_ref() == Some(name));
    names.filter_map(|name| Some(format!("{name} {}", where_least(name)?))).collect()
}
