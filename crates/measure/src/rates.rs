//! Servers at equal rates of requests.
//!
//! At full load, an arm that answers more requests may make each of them wait longer, so latencies there cannot be
//! compared. At equal rates they can: in each round every arm gets the same number of requests per second.

mod result;
#[cfg(test)]
mod trials;

use std::time::Duration;

use crate::case::Case;
use crate::executor::RunError;
use crate::session::{Comparison, Plan, Progress, SessionError, Tools, Until};

#[cfg(test)]
pub(crate) use result::judge;
pub use result::{Percentile, RateArm, RateResult, Standing};

/// A rate, as the user named it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// Requests per second.
    PerSecond(u64),
    /// A share of the requests per second that the slowest arm answers at full load.
    OfCapacity(f64),
}

/// The rates that are measured if the user names none.
pub const DEFAULT: [Rate; 5] = [
    Rate::OfCapacity(0.20),
    Rate::OfCapacity(0.40),
    Rate::OfCapacity(0.60),
    Rate::OfCapacity(0.80),
    Rate::OfCapacity(0.95),
];

impl Rate {
    /// Returns the requests per second. `capacity`: those of the slowest arm at full load. A share is rounded to two
    /// digits.
    fn per_second(self, capacity: f64) -> u64 {
        match self {
            Rate::PerSecond(rate) => rate,
            Rate::OfCapacity(share) => {
                let rate = (capacity * share).max(1.0);
                let unit = 10f64.powf(rate.log10().floor() - 1.0).max(1.0);
                ((rate / unit).round() * unit) as u64
            }
        }
    }
}

/// Returns the requests per second of each rate, in ascending order. `capacity`: those that the slowest arm answers at
/// full load.
pub(crate) fn per_second(rates: &[Rate], capacity: f64) -> Vec<u64> {
    let mut rates: Vec<u64> = rates.iter().map(|rate| rate.per_second(capacity)).collect();
    rates.sort_unstable();
    rates.dedup();
    rates
}

/// The first rate that is tried when one is sought that is full load.
const FIRST: u64 = 1000;
/// The factor between such rates.
const STEP: u64 = 4;
/// The greatest of them.
const MOST: u64 = 1_000_000_000;
/// How far full load is above the last of them, so that an arm that answers nearly all of its requests gets more.
const ABOVE: u64 = 2;
/// The limit for a run.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

/// Returns a rate that no arm of the case reaches: full load, for a load that takes a rate.
///
/// # Errors
/// The first arm cannot be measured, or the load claims to keep any rate. An arm after it that fails is left to the
/// checks at full load.
pub fn overload(case: &Case, tools: &mut Tools<'_>) -> Result<u64, SessionError> {
    let mut rate = FIRST;
    for (at, arm) in case.arms.iter().enumerate().filter(|(_, arm)| arm.broken.is_none()) {
        let refused = |source| SessionError::Run { arm: arm.name.clone(), source };
        loop {
            if (tools.interrupted)() {
                return Err(refused(RunError::Interrupted));
            }
            (tools.observer)(Progress::Capacity(&arm.name));
            match tools.executor.time(&case.at_rate(rate).arms[at].invocation, FOREVER) {
                Ok(run) if run.figures.service.is_some_and(|service| service.is_reached()) => {}
                Err(error) if at == 0 => return Err(refused(error)),
                Ok(_) | Err(_) => break,
            }
            if rate >= MOST {
                let claims = format!("the load command claims that {rate} requests were answered each second");
                return Err(refused(RunError::Server(claims)));
            }
            rate *= STEP;
        }
    }
    Ok(rate * ABOVE)
}

/// The results at equal rates.
#[derive(Debug, Clone)]
pub(crate) struct Curve {
    /// In ascending order.
    pub(crate) rates: Vec<RateResult>,
    /// Rates for which there was no time.
    pub(crate) left_out: Vec<u64>,
}

/// Measures the arms of a case at each of the rates, until `end` on the clock of `tools`. Every arm runs once in a
/// round of a rate, and the rates have their rounds in turn; both orders are random. The first rate's first round is
/// made in any case. `limit` is that of a run.
///
/// # Errors
/// The first arm cannot be run.
pub(crate) fn measure(
    case: &Case,
    rates: &[u64],
    plan: &Plan,
    (end, limit): (Duration, Duration),
    tools: &mut Tools<'_>,
) -> Result<Curve, SessionError> {
    let plan = plan.at_a_rate();
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let cases: Vec<Case> = rates.iter().map(|rate| case.at_rate(*rate)).collect();
    let mut comparisons: Vec<Comparison<'_>> = cases
        .iter()
        .zip(1..)
        .map(|(case, number)| {
            let seed = plan.seed.wrapping_add(number);
            Comparison::at_a_rate(case, Plan { seed, ..plan.clone() }, limit)
        })
        .collect();
    let mut order: Vec<usize> = (0..rates.len()).collect();
    random.shuffle(&mut order);
    for (place, at) in order.iter().enumerate() {
        at_rate(rates[*at], tools, |tools| comparisons[*at].open((place > 0).then_some(end), tools))?;
    }
    let until = Until { aim: end, end: Some(end) };
    loop {
        let mut is_over = true;
        random.shuffle(&mut order);
        for at in &order {
            let comparison = &mut comparisons[*at];
            let fits = comparison.need().is_some_and(|need| tools.clock.now() + need.next <= end);
            if fits && !(tools.interrupted)() {
                at_rate(rates[*at], tools, |tools| comparison.make_round(until, tools));
                is_over = false;
            }
        }
        if is_over {
            break;
        }
    }
    let mut curve = Curve { rates: Vec::new(), left_out: Vec::new() };
    for (rate, comparison) in rates.iter().zip(comparisons) {
        let is_measured = comparison.rounds() > 0 || comparison.failed().is_some();
        match is_measured {
            true => curve.rates.push(RateResult::new(case, *rate, &comparison.finish())),
            false => curve.left_out.push(*rate),
        }
    }
    result::judge(&mut curve.rates);
    Ok(curve)
}

/// Does something with tools that report rounds as rounds at this rate.
fn at_rate<T>(rate: u64, tools: &mut Tools<'_>, run: impl FnOnce(&mut Tools<'_>) -> T) -> T {
    let Tools { executor, clock, observer, interrupted } = tools;
    let mut observer = |progress: Progress<'_>| {
        observer(match progress {
            Progress::Round { round, .. } => Progress::AtRate { rate, round },
            progress => progress,
        });
    };
    run(&mut Tools { executor: &mut **executor, clock: *clock, observer: &mut observer, interrupted: *interrupted })
}
