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
/// The precision that is enough for a large difference, as a share of the difference.
const OF_THE_DIFFERENCE: f64 = 0.1;

/// Whether every arm's interval is about narrow enough: `target` to either side on the logarithmic scale, or a tenth of
/// the difference where that is more. `log_ratios`: for each arm one for each round.
pub fn narrow_enough(log_ratios: &[Vec<f64>], target: f64) -> bool {
    log_ratios.iter().all(|logs| !logs.is_empty() && rounds_for(logs, target) <= logs.len() as f64)
}

/// Returns the estimated total number of rounds. `None` before the second round.
pub fn rounds_needed(log_ratios: &[Vec<f64>], target: f64) -> Option<f64> {
    let known = log_ratios.iter().filter(|logs| logs.len() >= 2).map(|logs| rounds_for(logs, target));
    known.max_by(f64::total_cmp)
}

fn rounds_for(logs: &[f64], target: f64) -> f64 {
    let absolute: Vec<f64> = sorted(&logs.iter().map(|log| log.abs()).collect::<Vec<_>>());
    let middle = median(&absolute);
    let distances: Vec<f64> = absolute.iter().map(|one| (one - middle).abs()).collect();
    // Both estimate the standard deviation if there is no difference; with a difference the first is far too great.
    let deviation = (middle / FOLDED_MEDIAN).min(median(&distances) / FOLDED_MAD);
    let wanted = target.max(middle * OF_THE_DIFFERENCE);
    (WIDTH * deviation / wanted).powi(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_do_not_matter() {
        let logs: Vec<f64> = (0..40u32).map(|at| f64::from(at * 7919 % 101) / 2000.0).collect();
        let flipped: Vec<f64> =
            logs.iter().enumerate().map(|(at, log)| if at % 3 == 0 { -log } else { *log }).collect();
        for target in [0.001, 0.005, 0.01, 0.05] {
            assert_eq!(
                narrow_enough(std::slice::from_ref(&logs), target),
                narrow_enough(std::slice::from_ref(&flipped), target)
            );
        }
        assert_ne!(narrow_enough(std::slice::from_ref(&logs), 0.001), narrow_enough(&[logs], 0.05));
    }

    #[test]
    fn a_steady_machine_needs_few_rounds() {
        let steady = vec![0.001, -0.001, 0.0012, -0.0009];
        let noisy = vec![0.02, -0.14, 0.09, 0.27, -0.01, 0.05, -0.07, 0.18];
        assert!(narrow_enough(std::slice::from_ref(&steady), 0.01));
        assert!(!narrow_enough(&[steady.clone(), noisy.clone()], 0.01));
        assert!(rounds_needed(&[steady, noisy], 0.01).unwrap() > 100.0);
        // Twice as fast, within about a percent: that is precise enough.
        assert!(narrow_enough(&[vec![-0.69, -0.70, -0.68, -0.71]], 0.01));
    }
}
