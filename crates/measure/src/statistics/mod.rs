//! Statistics of repeated runs: median and spread, paired ratios, when to stop.

mod ratio;
mod signed_rank;
mod stopping;

pub use ratio::{Method, Ratio, geometric_mean};
pub use signed_rank::holm;
pub use stopping::{Target, narrow_enough, rounds_needed};

use serde::{Deserialize, Serialize};

/// Median and spread of some figures, in their unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The first quartile.
    pub q1: f64,
    /// The third quartile.
    pub q3: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    /// Returns the spread of some figures. `None` for no figures.
    pub fn new(figures: &[f64]) -> Option<Spread> {
        let sorted = sorted(figures);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let at = |share| quantile(&sorted, share);
        Some(Spread { median: at(0.5), q1: at(0.25), q3: at(0.75), min, max })
    }
}

/// Returns the median. NaN for no figures.
pub fn median(figures: &[f64]) -> f64 {
    quantile(&sorted(figures), 0.5)
}

fn sorted(figures: &[f64]) -> Vec<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Interpolates linearly between the neighbours (Hyndman and Fan's type 7).
fn quantile(sorted: &[f64], share: f64) -> f64 {
    if sorted.is_empty() {
        return f64::NAN;
    }
    let at = share * (sorted.len() - 1) as f64;
    let (below, above) = (at.floor() as usize, at.ceil() as usize);
    sorted[below] + (sorted[above] - sorted[below]) * (at - at.floor())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn middle_and_spread() {
        let spread = Spread::new(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!(spread, Spread { median: 2.5, q1: 1.75, q3: 3.25, min: 1.0, max: 4.0 });
        assert_eq!(Spread::new(&[]), None);
        assert_eq!(median(&[9.0, 1.0, 5.0]), 5.0);
    }
}
