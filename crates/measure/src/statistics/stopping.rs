//! Decides when there are enough rounds.
//!
//! A rule that runs the test after every round, and stops when it rejects, finds differences between equal arms far
//! more often than the test's level. The rule here looks only at the absolute values of the log ratios. If two arms are
//! the same program, the log ratio of a round is symmetric about 0. Its sign is then a fair coin, independent of its
//! absolute value, and the decision to stop has seen no sign. The signed-rank test, which then uses the signs, keeps
//! exactly its level. (With more than two arms the rule sees absolute values of the others too, which are not wholly
//! independent of the signs; the tests of `session` count false alarms for that case.)

use super::{median, sorted};

/// The median of the absolute value of a standard normal variable.
const FOLDED_MEDIAN: f64 = 0.674_490;
/// The median distance of such absolute values from their median.
const FOLDED_MAD: f64 = 0.399_06;
/// Half the width of a 95 % interval in standard errors, by the normal distribution and the efficiency of the estimate.
const WIDTH: f64 = 1.96 * 1.023;

/// The wanted width of intervals.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Half of the width on the logarithmic scale: 0.01 is about 1 %.
    pub precision: f64,
    /// The half width that is enough for a large difference, as a share of the difference.
    pub of_the_difference: f64,
}

/// Whether an arm's interval is about narrow enough. `logs`: its log ratios, one for each round.
pub fn narrow_enough(logs: &[f64], target: Target) -> bool {
    !logs.is_empty() && rounds_for(logs, target) <= logs.len() as f64
}

/// Returns the estimated total number of rounds for all arms. `None` before the second round.
pub fn rounds_needed(log_ratios: &[Vec<f64>], target: Target) -> Option<f64> {
    let known = log_ratios.iter().filter(|logs| logs.len() >= 2).map(|logs| rounds_for(logs, target));
    known.max_by(f64::total_cmp)
}

fn rounds_for(logs: &[f64], target: Target) -> f64 {
    let absolute: Vec<f64> = sorted(&logs.iter().map(|log| log.abs()).collect::<Vec<_>>());
    let middle = median(&absolute);
    let distances: Vec<f64> = absolute.iter().map(|one| (one - middle).abs()).collect();
    // Both estimate the standard deviation if there is no difference; with a difference the first is far too great.
    let deviation = (middle / FOLDED_MEDIAN).min(median(&distances) / FOLDED_MAD);
    let wanted = target.precision.max(middle * target.of_the_difference);
    (WIDTH * deviation / wanted).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(precision: f64) -> Target {
        Target { precision, of_the_difference: 0.1 }
    }

    #[test]
    fn signs_do_not_matter() {
        let logs: Vec<f64> = (0..40u32).map(|at| f64::from(at * 7919 % 101) / 2000.0).collect();
        let flipped: Vec<f64> =
            logs.iter().enumerate().map(|(at, log)| if at % 3 == 0 { -log } else { *log }).collect();
        for precision in [0.001, 0.005, 0.01, 0.05] {
            assert_eq!(narrow_enough(&logs, target(precision)), narrow_enough(&flipped, target(precision)));
        }
        assert_ne!(narrow_enough(&logs, target(0.001)), narrow_enough(&logs, target(0.05)));
    }

    #[test]
    fn a_steady_machine_needs_few_rounds() {
        let steady = vec![0.001, -0.001, 0.0012, -0.0009];
        let noisy = vec![0.02, -0.14, 0.09, 0.27, -0.01, 0.05, -0.07, 0.18];
        assert!(narrow_enough(&steady, target(0.01)));
        assert!(!narrow_enough(&noisy, target(0.01)));
        assert!(rounds_needed(&[steady, noisy], target(0.01)).unwrap() > 100.0);
        // Twice as fast, within about three percent: that is precise enough, unless every figure has to be as precise.
        let twice = [-0.69, -0.74, -0.66, -0.71];
        assert!(narrow_enough(&twice, target(0.01)));
        assert!(!narrow_enough(&twice, Target { of_the_difference: 0.0, ..target(0.01) }));
    }
}
