//! The results at one rate, and the standing of each arm.

use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::executor::{Figures, Service};
use crate::session::{ArmRuns, Run, Session, Stopped, paired_logs, processor_log_ratios};
use crate::statistics::{Ratio, Spread, holm, median};

/// The level of the test, for all arms and rates of a case together.
const LEVEL: f64 = 0.05;

/// The results at one rate of requests.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RateResult {
    /// Requests per second.
    pub requests_per_second: u64,
    /// The reason why it ended.
    pub stopped: Stopped,
    /// The number of whole rounds.
    pub rounds: usize,
    /// The arms, in order.
    pub arms: Vec<RateArm>,
}

/// An arm at one rate. Values that were not measured are absent.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RateArm {
    /// Its name.
    pub name: String,
    /// The reason why it is excluded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failure: Option<String>,
    /// The number of timed runs.
    pub timed_runs: usize,
    /// The number of those in which the load kept the rate. The other runs have no latencies.
    pub reached_runs: usize,
    /// Whether that is most of them. If not, there are no latencies.
    pub reached: bool,
    /// The median of the requests that were answered per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub answered_per_second: Option<f64>,
    /// The median time of a request.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p50: Option<Percentile>,
    /// The 90th percentile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p90: Option<Percentile>,
    /// The 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99: Option<Percentile>,
    /// The 99.9th percentile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p999: Option<Percentile>,
    /// The server's processor time for a request relative to stock's in the same rounds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub processor_ratio_to_stock: Option<Ratio>,
    /// Its standing, compared with stock. `None` for stock, and if both do not reach the rate.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub standing: Option<Standing>,
    /// Every timed run.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub runs: Vec<Run>,
}

/// A percentile of the times of requests, over the runs that reached the rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentile {
    /// Milliseconds.
    pub ms: Spread,
    /// Relative to stock's in the same rounds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ratio_to_stock: Option<Ratio>,
}

/// The standing of an arm at a rate, compared with stock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// Its 99th percentile (if that was not reported, the 90th or the 50th) is certainly lower, or it certainly reaches
    /// the rate more often.
    Better,
    /// That percentile is certainly higher, or stock certainly reaches the rate more often.
    Worse,
    /// The runs show no certain difference.
    Unclear,
}

impl RateResult {
    pub(crate) fn new(case: &Case, requests_per_second: u64, session: &Session) -> RateResult {
        let stock = &session.arms[0];
        let arms = case.arms.iter().zip(&session.arms).enumerate();
        let arm = |(at, (arm, runs)): (usize, (&crate::case::Arm, &ArmRuns))| {
            RateArm::new(&arm.name, runs, (at != 0).then_some(stock))
        };
        RateResult {
            requests_per_second,
            stopped: session.stopped,
            rounds: stock.runs.len(),
            arms: arms.map(arm).collect(),
        }
    }
}

impl RateArm {
    fn new(name: &str, runs: &ArmRuns, stock: Option<&ArmRuns>) -> RateArm {
        let services: Vec<Service> = runs.runs.iter().filter_map(|run| run.figures.service).collect();
        let answered: Vec<f64> = services.iter().map(|service| service.requests_per_second).collect();
        let reached_runs = reached_runs(runs);
        let reached = runs.failure.is_none() && 2 * reached_runs > services.len();
        // Without most of its runs there is nothing to compare with.
        let stock = stock.map(|stock| Some(stock).filter(|stock| 2 * self::reached_runs(stock) > stock.runs.len()));
        let percentile = |get: fn(&Service) -> Option<f64>| {
            let figure = |figures: &Figures| get(figures.service.as_ref()?).filter(|ms| *ms > 0.0);
            let ms: Vec<f64> = runs.runs.iter().filter_map(|run| figure(&run.figures)).collect();
            let ratio_to_stock = match stock {
                None => Some(Ratio::ITSELF),
                Some(stock) => stock.and_then(|stock| Ratio::of_logs(&paired_logs(&runs.runs, &stock.runs, figure))),
            };
            Some(Percentile { ms: Spread::new(&ms).filter(|_| reached)?, ratio_to_stock })
        };
        RateArm {
            name: name.to_owned(),
            failure: runs.failure.clone(),
            timed_runs: services.len(),
            reached_runs,
            reached,
            answered_per_second: (!answered.is_empty()).then(|| median(&answered)),
            p50: percentile(|service| service.p50_ms),
            p90: percentile(|service| service.p90_ms),
            p99: percentile(|service| service.p99_ms),
            p999: percentile(|service| service.p999_ms),
            processor_ratio_to_stock: match stock {
                None => Some(Ratio::ITSELF).filter(|_| reached),
                Some(stock) => stock
                    .and_then(|stock| Ratio::of_logs(&processor_log_ratios(&runs.runs, &stock.runs)))
                    .filter(|_| reached),
            },
            standing: None,
            runs: runs.runs.clone(),
        }
    }

    /// Returns the 99th percentile, or the greatest one below it that the load reported.
    pub fn tail(&self) -> Option<Percentile> {
        self.p99.or(self.p90).or(self.p50)
    }

    /// Returns [`RateArm::tail`] relative to stock's.
    pub fn tail_ratio(&self) -> Option<Ratio> {
        self.tail()?.ratio_to_stock
    }
}

fn reached_runs(runs: &ArmRuns) -> usize {
    runs.runs.iter().filter(|run| run.figures.service.is_some_and(|service| service.is_reached())).count()
}

/// Decides the standing of every arm at every rate. Some of many comparisons of equal arms look different by chance, so
/// the p-values are corrected for their number.
pub(crate) fn judge(rates: &mut [RateResult]) {
    let compared = rates.iter().flat_map(|rate| rate.arms.iter().skip(1)).filter_map(RateArm::tail_ratio);
    let p_values: Vec<f64> = compared.map(|ratio| ratio.p_value).collect();
    let mut corrected = holm(&p_values).into_iter();
    for rate in rates {
        let Some((stock, others)) = rate.arms.split_first_mut() else { continue };
        let is_stock_measured = stock.failure.is_none();
        for arm in others {
            // Every ratio takes its p-value, in the order in which they were collected.
            let ratio = arm.tail_ratio().map(|ratio| (ratio, corrected.next().unwrap_or(1.0)));
            if arm.failure.is_some() || !is_stock_measured {
                continue;
            }
            arm.standing = match (arm.reached, stock.reached) {
                (true, true) => Some(standing(ratio, arm, stock)),
                (false, false) => None,
                _ if reaching_p_value(arm, stock) >= LEVEL => Some(Standing::Unclear),
                (true, false) => Some(Standing::Better),
                (false, true) => Some(Standing::Worse),
            };
        }
    }
}

/// Returns the two-sided p-value of the hypothesis that both arms reach the rate equally often, from the rounds in
/// which one of them alone did (McNemar's exact test). It is not corrected for the number of comparisons: only at rates
/// near the capacity of both can chance decide.
fn reaching_p_value(arm: &RateArm, stock: &RateArm) -> f64 {
    let reached = |run: &Run| run.figures.service.is_some_and(|service| service.is_reached());
    let of_stock = |run: &Run| stock.runs.iter().find(|other| other.round == run.round).map(reached);
    let pairs = arm.runs.iter().filter_map(|run| Some((reached(run), of_stock(run)?)));
    let alone: Vec<bool> = pairs.filter(|(arm, stock)| arm != stock).map(|(arm, _)| arm).collect();
    let (count, arms) = (alone.len(), alone.iter().filter(|arm| **arm).count());
    // The number of ways in which so few of `count` fair coins, or fewer, show the rarer side.
    let (mut ways, mut tail) = (1.0, 0.0);
    for rarer in 0..=arms.min(count - arms) {
        tail += ways;
        ways *= (count - rarer) as f64 / (rarer + 1) as f64;
    }
    (2.0 * tail * 0.5f64.powi(i32::try_from(count).unwrap_or(i32::MAX))).min(1.0)
}

/// The runs that did not reach the rate are missing in the ratio, so an arm that has more of them is not better.
fn standing(ratio: Option<(Ratio, f64)>, arm: &RateArm, stock: &RateArm) -> Standing {
    let missed = |arm: &RateArm| (arm.timed_runs - arm.reached_runs) * 1000 / arm.timed_runs.max(1);
    match ratio.filter(|(ratio, corrected)| ratio.differs() && *corrected < LEVEL) {
        Some((ratio, _)) if ratio.value < 1.0 && missed(arm) <= missed(stock) => Standing::Better,
        Some((ratio, _)) if ratio.value > 1.0 && missed(stock) <= missed(arm) => Standing::Worse,
        _ => Standing::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arm(reached: &[bool]) -> RateArm {
        let run = |(round, reached): (usize, &bool)| {
            let requests_per_second = if *reached { 100.0 } else { 50.0 };
            let service = Service {
                requests_per_second,
                rate: Some(100),
                p50_ms: None,
                p90_ms: None,
                p99_ms: None,
                p999_ms: None,
            };
            Run { round, position: 0, figures: Figures { service: Some(service), ..Figures::default() } }
        };
        let runs: Vec<Run> = reached.iter().enumerate().map(run).collect();
        RateArm::new("arm", &ArmRuns { runs, ..ArmRuns::default() }, None)
    }

    fn standing_of(reached: &[bool], of_stock: &[bool]) -> Option<Standing> {
        let arms = vec![arm(of_stock), arm(reached)];
        let mut rates =
            [RateResult { requests_per_second: 100, stopped: Stopped::Rounds, rounds: reached.len(), arms }];
        judge(&mut rates);
        rates[0].arms[1].standing
    }

    #[test]
    fn a_few_runs_that_reach_a_rate_are_no_certainty() {
        assert_eq!(standing_of(&[true], &[false]), Some(Standing::Unclear));
        assert_eq!(standing_of(&[true; 5], &[false; 5]), Some(Standing::Unclear));
        assert_eq!(standing_of(&[true; 6], &[false; 6]), Some(Standing::Better));
        assert_eq!(standing_of(&[false; 6], &[true; 6]), Some(Standing::Worse));
        let mixed = [true, true, false, true, false, true, true];
        assert_eq!(standing_of(&mixed, &mixed.map(|reached| !reached)), Some(Standing::Unclear));
        assert_eq!(standing_of(&[false; 6], &[false; 6]), None);
    }

    #[test]
    fn the_exact_test_counts_the_rounds_that_differ() {
        let p = |reached: &[bool], of_stock: &[bool]| reaching_p_value(&arm(reached), &arm(of_stock));
        assert_eq!(p(&[true; 4], &[true; 4]), 1.0);
        assert_eq!(p(&[true; 6], &[false; 6]), 2.0 / 64.0);
        // One of seven is against: (1 + 7) / 128 on either side.
        let against = [true, true, true, true, true, true, false];
        assert_eq!(p(&against, &against.map(|reached| !reached)), 2.0 * 8.0 / 128.0);
    }
}
