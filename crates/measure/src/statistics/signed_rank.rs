//! Wilcoxon's signed-rank test, and the interval that goes with it.
//!
//! Why this test: under the hypothesis that two arms are the same program, exchanging them within a round changes
//! nothing, so the log ratio of a round is symmetric about 0 whatever the machine's noise looks like. The test supposes
//! nothing else. `stopping` explains why it survives stopping early.

/// Up to this number of rounds the distribution is computed exactly. Beyond, the normal one is used, which agrees to
/// three digits.
const EXACT: usize = 60;
/// The 97.5 % quantile of the normal distribution.
const Z: f64 = 1.959_963_985;

/// Returns the two-sided p-value of the hypothesis that `differences` are symmetric about 0. Zeros are left out, and
/// equal values share their ranks. 1 if nothing is left.
pub(super) fn p_value(differences: &[f64]) -> f64 {
    let mut nonzero: Vec<f64> = differences.iter().copied().filter(|difference| *difference != 0.0).collect();
    nonzero.sort_by(|one, other| one.abs().total_cmp(&other.abs()));
    let ranks = doubled_ranks(&nonzero);
    let positive: usize =
        nonzero.iter().zip(&ranks).filter(|(difference, _)| **difference > 0.0).map(|(_, rank)| rank).sum();
    let total: usize = ranks.iter().sum();
    let least = positive.min(total - positive);
    if nonzero.is_empty() {
        return 1.0;
    }
    let tail = if nonzero.len() <= EXACT { exact_tail(&ranks, least) } else { normal_tail(&ranks, least) };
    (2.0 * tail).min(1.0)
}

/// Returns twice the rank of each value, so that the mean rank of equal ones is whole. `sorted` is ordered by absolute
/// value.
fn doubled_ranks(sorted: &[f64]) -> Vec<usize> {
    let mut ranks = vec![0; sorted.len()];
    let mut start = 0;
    while start < sorted.len() {
        let mut end = start + 1;
        while end < sorted.len() && sorted[end].abs() == sorted[start].abs() {
            end += 1;
        }
        // The ranks from start + 1 to end have this mean, doubled.
        ranks[start..end].fill(start + 1 + end);
        start = end;
    }
    ranks
}

/// Returns the probability that the ranks with a positive sign add up to `most` or less, each sign a fair coin.
fn exact_tail(ranks: &[usize], most: usize) -> f64 {
    let ways = ways(ranks);
    ways[..=most].iter().sum::<f64>() / 2f64.powi(ranks.len() as i32)
}

/// Returns in how many ways some of the ranks add up to each sum.
fn ways(ranks: &[usize]) -> Vec<f64> {
    let mut ways = vec![0.0; ranks.iter().sum::<usize>() + 1];
    ways[0] = 1.0;
    let mut reached = 0;
    for rank in ranks {
        reached += rank;
        for sum in (*rank..=reached).rev() {
            ways[sum] += ways[sum - rank];
        }
    }
    ways
}

/// Returns this probability by the normal distribution, corrected for continuity. The variance is a sum of squares, so
/// it accounts for shared ranks.
fn normal_tail(ranks: &[usize], most: usize) -> f64 {
    let mean = ranks.iter().sum::<usize>() as f64 / 2.0;
    let variance: f64 = ranks.iter().map(|rank| (*rank as f64).powi(2) / 4.0).sum();
    let z = (mean - most as f64 - 1.0).max(0.0) / variance.sqrt();
    libm::erfc(z / std::f64::consts::SQRT_2) / 2.0
}

/// Returns Hodges and Lehmann's estimate of the middle of `differences`, with the interval of the shifts that the test
/// does not reject at 5 %. No interval for fewer than 6: even the most extreme signs have a probability of more than 5
/// % then.
pub(super) fn estimate(differences: &[f64]) -> Option<(f64, Option<(f64, f64)>)> {
    if differences.is_empty() {
        return None;
    }
    let mut averages = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (at, one) in differences.iter().enumerate() {
        averages.extend(differences[at..].iter().map(|other| (one + other) / 2.0));
    }
    averages.sort_by(f64::total_cmp);
    let interval = left_out(differences.len()).map(|out| (averages[out], averages[averages.len() - 1 - out]));
    Some((super::quantile(&averages, 0.5), interval))
}

/// Returns the number of Walsh averages outside the interval at either end.
fn left_out(rounds: usize) -> Option<usize> {
    if rounds < 6 {
        return None;
    }
    if rounds > EXACT {
        let count = rounds as f64;
        let mean = count * (count + 1.0) / 4.0;
        let deviation = (count * (count + 1.0) * (2.0 * count + 1.0) / 24.0).sqrt();
        return Some((mean - Z * deviation).floor() as usize);
    }
    let ranks: Vec<usize> = (1..=rounds).collect();
    let all = 2f64.powi(rounds as i32);
    let mut tail = 0.0;
    for (sum, ways) in ways(&ranks).iter().enumerate() {
        tail += ways / all;
        // `sum` is the first rank sum that may not be left out. As many averages are below the interval.
        if tail > 0.025 {
            return Some(sum.saturating_sub(1));
        }
    }
    None
}

/// Applies Holm's correction: returns p-values that account for the number of comparisons.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|one, other| p_values[*one].total_cmp(&p_values[*other]));
    let mut corrected = vec![1.0; p_values.len()];
    let mut so_far: f64 = 0.0;
    for (rank, at) in order.into_iter().enumerate() {
        so_far = so_far.max(p_values[at] * (p_values.len() - rank) as f64).min(1.0);
        corrected[at] = so_far;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_are_those_of_the_literature() {
        let all_positive: Vec<f64> = (1..=6).map(f64::from).collect();
        assert!((p_value(&all_positive) - 2.0 / 64.0).abs() < 1e-12);
        // Hollander and Wolfe, example 3.1: depression before and after; W = 40 of 45, two-sided p = 0.0390625.
        let depression = [0.952, -0.147, 1.022, 0.43, 0.62, 0.59, 0.49, -0.08, 0.01];
        assert!((p_value(&depression) - 0.039_062_5).abs() < 1e-9, "{}", p_value(&depression));
        assert_eq!(p_value(&[0.0, 0.0]), 1.0);
        assert_eq!(p_value(&[]), 1.0);
        // Two equal values with opposite signs cancel out.
        assert_eq!(p_value(&[1.0, -1.0]), 1.0);
    }

    #[test]
    fn the_normal_distribution_takes_over_where_it_agrees() {
        let differences: Vec<f64> = (1..=EXACT)
            .map(|at| if at % 3 == 0 { -1.0 } else { 1.0 } * f64::from(u32::try_from(at).unwrap()))
            .collect();
        let mut sorted = differences.clone();
        sorted.sort_by(|one, other| one.abs().total_cmp(&other.abs()));
        let ranks = doubled_ranks(&sorted);
        let negative: usize = sorted.iter().zip(&ranks).filter(|(d, _)| **d < 0.0).map(|(_, rank)| rank).sum();
        let (exact, normal) = (exact_tail(&ranks, negative), normal_tail(&ranks, negative));
        assert!((exact - normal).abs() < 1e-3, "{exact} {normal}");
    }

    #[test]
    fn the_interval_is_the_inverted_test() {
        // With these data: pseudomedian 0.46, interval 0.010 to 0.786.
        let depression = [0.952, -0.147, 1.022, 0.43, 0.62, 0.59, 0.49, -0.08, 0.01];
        let (middle, interval) = estimate(&depression).unwrap();
        let (low, high) = interval.unwrap();
        assert!((middle - 0.46).abs() < 1e-9 && (low - 0.01).abs() < 1e-9 && (high - 0.786).abs() < 1e-9);
        for (shift, inside) in [(low + 1e-6, true), (low - 1e-6, false), (high - 1e-6, true), (high + 1e-6, false)] {
            let shifted: Vec<f64> = depression.iter().map(|one| one - shift).collect();
            assert_eq!(p_value(&shifted) > 0.05, inside, "{shift}");
        }
        assert_eq!(estimate(&depression[..5]).unwrap().1, None);
        assert!(estimate(&depression[..6]).unwrap().1.is_some());
    }

    #[test]
    fn corrected_p_values_keep_their_order() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.5]);
        let expected = [0.04, 0.09, 0.09, 0.5];
        assert!(corrected.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-12), "{corrected:?}");
    }
}
