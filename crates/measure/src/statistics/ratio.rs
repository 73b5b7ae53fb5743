//! The difference between two arms: the middle of the ratios within rounds, an interval, a test.
//!
//! Ratios are taken within rounds, since the machine's other work slows both arms of a round alike. Their middle is
//! used and not their mean, since one run beside a large build would move a mean.

use serde::{Deserialize, Serialize};

use super::signed_rank;

/// A ratio of two arms, paired by round. A round in which the machine was slow for both weighs as much as any other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The estimate; below 1 is less (time, memory) than the other arm.
    pub value: f64,
    /// Lower end of the 95 % interval. `None` for fewer than two rounds.
    pub low: Option<f64>,
    /// Upper end of the interval.
    pub high: Option<f64>,
    /// The two-sided p-value: the probability of a difference at least as clear if the arms were the same program.
    pub p_value: f64,
    /// The method of interval and test.
    pub method: Method,
}

/// The method of an interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Wilcoxon's signed-rank test and Hodges and Lehmann's estimate, on log ratios: from 6 rounds on.
    SignedRank,
    /// Student's t on log ratios: for 2 to 5 rounds, too few for the signed-rank test to reject anything at 5 %.
    StudentT,
    /// The geometric mean of several ratios, with their intervals combined like independent figures.
    Combined,
    /// A single pair: no interval, no test.
    SinglePair,
    /// An arm compared with itself.
    Itself,
}

/// 97.5 % quantiles of Student's distribution for 1 to 4 degrees of freedom.
const T: [f64; 4] = [12.706_205, 4.302_653, 3.182_446, 2.776_445];

impl Ratio {
    /// The ratio of an arm to itself.
    pub const ITSELF: Ratio =
        Ratio { value: 1.0, low: Some(1.0), high: Some(1.0), p_value: 1.0, method: Method::Itself };

    /// Returns the ratio of `figures` to those of another arm in the same rounds, all above 0. `None` for no rounds.
    pub fn paired(figures: &[f64], to: &[f64]) -> Option<Ratio> {
        let logs: Vec<f64> = figures.iter().zip(to).map(|(figure, to)| (figure / to).ln()).collect();
        Ratio::of_logs(&logs)
    }

    /// Returns the ratio from the logarithms of the ratios within rounds. `None` for no rounds.
    pub fn of_logs(logs: &[f64]) -> Option<Ratio> {
        if logs.len() < 2 {
            let value = logs.first()?.exp();
            return Some(Ratio { value, low: None, high: None, p_value: 1.0, method: Method::SinglePair });
        }
        if logs.len() < 6 {
            return Some(few(logs));
        }
        let (middle, interval) = signed_rank::estimate(logs)?;
        Some(Ratio {
            value: middle.exp(),
            low: interval.map(|(low, _)| low.exp()),
            high: interval.map(|(_, high)| high.exp()),
            p_value: signed_rank::p_value(logs),
            method: Method::SignedRank,
        })
    }

    /// Returns half of the interval's width on the logarithmic scale: 0.01 is about 1 %.
    pub fn half_width(&self) -> Option<f64> {
        Some((self.high?.ln() - self.low?.ln()) / 2.0)
    }

    /// Whether the interval reaches at most this far to either side, on the logarithmic scale.
    pub fn is_within(&self, half: f64) -> bool {
        self.half_width().is_some_and(|width| width <= half)
    }

    /// Whether the arms differ, at 5 %.
    pub fn differs(&self) -> bool {
        match self.method {
            Method::SinglePair => false,
            _ => self.low.is_some_and(|low| low > 1.0) || self.high.is_some_and(|high| high < 1.0),
        }
    }
}

/// Estimates by Student's t, for 2 to 5 rounds.
fn few(logs: &[f64]) -> Ratio {
    let count = logs.len() as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let variance = logs.iter().map(|log| (log - mean).powi(2)).sum::<f64>() / (count - 1.0);
    let half = T[logs.len() - 2] * (variance / count).sqrt();
    let t = if variance > 0.0 { mean.abs() / (variance / count).sqrt() } else { f64::INFINITY * mean.abs() };
    Ratio {
        value: mean.exp(),
        low: Some((mean - half).exp()),
        high: Some((mean + half).exp()),
        p_value: if mean == 0.0 { 1.0 } else { student_tail(t, logs.len() - 1) },
        method: Method::StudentT,
    }
}

/// Returns the two-sided tail of Student's distribution with 1 to 4 degrees of freedom (closed forms: Abramowitz and
/// Stegun, 26.7.3-4).
fn student_tail(t: f64, freedom: usize) -> f64 {
    if t.is_infinite() {
        return 0.0;
    }
    let theta = (t / (freedom as f64).sqrt()).atan();
    let (sin, cos) = theta.sin_cos();
    let inside = match freedom {
        1 => theta * std::f64::consts::FRAC_2_PI,
        2 => sin,
        3 => (theta + sin * cos) * std::f64::consts::FRAC_2_PI,
        _ => sin * (1.0 + cos * cos / 2.0),
    };
    (1.0 - inside).clamp(0.0, 1.0)
}

/// Combines several comparisons of the same two arms, with equal weights.
pub fn geometric_mean(ratios: &[Ratio]) -> Option<Ratio> {
    match ratios {
        [] => None,
        [one] => Some(*one),
        _ => {
            let count = ratios.len() as f64;
            let middle = ratios.iter().map(|ratio| ratio.value.ln()).sum::<f64>() / count;
            let halves: Option<Vec<f64>> = ratios.iter().map(Ratio::half_width).collect();
            let half = halves.map(|halves| halves.iter().map(|half| half * half).sum::<f64>().sqrt() / count);
            // The interval's half width is about 1.96 standard errors.
            let z = half.filter(|_| middle != 0.0).map_or(0.0, |half| middle.abs() * 1.96 / half);
            Some(Ratio {
                value: middle.exp(),
                low: half.map(|half| (middle - half).exp()),
                high: half.map(|half| (middle + half).exp()),
                p_value: libm::erfc(z / std::f64::consts::SQRT_2),
                method: Method::Combined,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_paired_by_round() {
        // The second round ran on a machine ten times slower; the ratio is 0.5 in each.
        let ratio = Ratio::paired(&[1.0, 10.0, 1.0], &[2.0, 20.0, 2.0]).unwrap();
        assert!((ratio.value - 0.5).abs() < 1e-12 && ratio.differs(), "{ratio:?}");
        assert_eq!(Ratio::paired(&[], &[]), None);
        let single = Ratio::paired(&[1.0], &[2.0]).unwrap();
        assert!(single.low.is_none() && !single.differs());
    }

    #[test]
    fn few_rounds_take_students_t() {
        let ratio = Ratio::of_logs(&[0.9f64.ln(), 0.95f64.ln(), 0.92f64.ln()]).unwrap();
        assert_eq!(ratio.method, Method::StudentT);
        assert!((ratio.p_value < 0.05) == ratio.differs(), "{ratio:?}");
        // The tail at the 97.5 % quantile is 5 %, for every number of rounds.
        for (at, t) in T.iter().enumerate() {
            assert!((student_tail(*t, at + 1) - 0.05).abs() < 1e-6, "{at}");
        }
    }

    #[test]
    fn several_ratios_become_one() {
        let one = Ratio { value: 0.5, low: Some(0.4), high: Some(0.625), p_value: 0.01, method: Method::SignedRank };
        let two = Ratio { value: 2.0, low: Some(1.6), high: Some(2.5), ..one };
        let mean = geometric_mean(&[one, two]).unwrap();
        assert!((mean.value - 1.0).abs() < 1e-12 && !mean.differs());
        assert!(mean.half_width().unwrap() < one.half_width().unwrap());
        assert_eq!(geometric_mean(&[one]), Some(one));
        // Figures without any noise.
        let exact = Ratio { low: Some(0.5), high: Some(0.5), ..one };
        assert_eq!(geometric_mean(&[exact, exact]).unwrap().p_value, 0.0);
        assert_eq!(geometric_mean(&[Ratio::ITSELF, Ratio::ITSELF]).unwrap().p_value, 1.0);
        // Without intervals there is no test.
        let single = Ratio { low: None, high: None, ..one };
        assert_eq!(geometric_mean(&[single, single]).unwrap().p_value, 1.0);
    }
}
