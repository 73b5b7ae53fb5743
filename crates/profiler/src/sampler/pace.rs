//! The pauses between moments.
//!
//! The recording's processor time so far may not exceed its share of the time so far, except for the start and for
//! reading each file once. A fixed rate would keep to that only for programs with few threads and shallow stacks.

/// The share of one processor that the recording may take.
const SHARE: f64 = 0.012;
/// The processor time in seconds that it may take beyond that: the first samples of a program take longest.
const CREDIT: f64 = 0.02;
/// The longest pause that compensates for the samples so far, as a part of the recording's time so far. The start costs
/// most, and the time after it has to be sampled, too.
const SILENCE: f64 = 0.25;
/// The share of one processor that samples may take during that time.
const BURST: f64 = 0.05;
/// The number of samples after which the rate is halved: samples take memory.
const MANY: f64 = 2e6;
/// The shortest and the longest time in seconds between two moments.
const SHORTEST: f64 = 0.0002;
const LONGEST: f64 = 10.0;

/// A recording's progress. Times are in seconds.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) elapsed: f64,
    /// The processor time that the recording has taken, without the time to read files.
    pub(super) taken: f64,
    /// The time that the last moment took.
    pub(super) took: f64,
    pub(super) moments: usize,
    pub(super) samples: usize,
}

/// Returns the seconds to wait for the next moment. `rate` is in moments per second, and `random` between 0 and 1.
pub(super) fn pause(rate: f64, random: f64, progress: &Progress) -> f64 {
    let Progress { elapsed, taken, took, moments, samples } = *progress;
    let paid_after = (taken - CREDIT) / SHARE;
    // The first moments do not wait for that: a short recording could end with too few.
    let debt = if moments < super::FEWEST { 0.0 } else { paid_after - elapsed };
    let debt = debt.min((elapsed * SILENCE).max(took / BURST));
    let interval = (1.0 + samples as f64 / MANY) / rate;
    (interval * (0.5 + random) - took).max(debt).clamp(SHORTEST, LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{FEWEST, RATE};

    /// Plays a recording whose moments take `took` seconds each, and their whole time of a processor. Returns the times
    /// of its moments.
    fn played(took: f64, threads: usize, seconds: f64) -> Vec<f64> {
        let (mut progress, mut times) = (Progress::default(), Vec::new());
        for turn in 0.. {
            if progress.elapsed > seconds {
                break;
            }
            times.push(progress.elapsed);
            progress.moments += 1;
            progress.samples += threads;
            progress.took = took;
            progress.taken += took;
            progress.elapsed += took;
            // Evenly between 0 and 1, in an order that does not repeat soon.
            progress.elapsed += pause(RATE, (f64::from(turn) * 0.618_034).fract(), &progress);
        }
        times
    }

    #[test]
    fn cheap_moments_keep_the_rate() {
        let times = played(20e-6, 1, 10.0);
        assert!((1450..1550).contains(&times.len()), "{}", times.len());
        let pauses: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let (least, most) =
            pauses.iter().fold((f64::MAX, 0.0_f64), |(least, most), it| (least.min(*it), most.max(*it)));
        assert!(least > 0.49 / RATE && most < 1.51 / RATE && most > 2.0 * least, "{least} to {most}: not in step");
    }

    #[test]
    fn dear_moments_take_a_bounded_share_of_a_processor() {
        for took in [200e-6, 2e-3, 50e-3] {
            let times = played(took, 1000, 100.0);
            let share = times.len() as f64 * took / 100.0;
            // The first ones come at once, whatever they cost.
            let most = SHARE + (CREDIT + FEWEST as f64 * took + took) / 100.0;
            assert!(share < most, "{took} s each: {} moments, {share} of a processor", times.len());
            assert!(share > 0.9 * SHARE, "{took} s each: {share} of a processor is too few samples");
        }
    }

    #[test]
    fn a_dear_start_is_not_followed_by_a_long_silence() {
        let start = Progress { elapsed: 2.0, taken: 0.5, took: 1e-3, moments: FEWEST, samples: FEWEST };
        assert!((pause(RATE, 0.5, &start) - 0.5).abs() < 1e-9, "a quarter of the time so far");
        // While there are too few moments for a verdict, nothing is paid.
        let early = Progress { moments: FEWEST - 1, ..start };
        assert!(pause(RATE, 0.5, &early) < 1.0 / RATE);
    }

    #[test]
    fn many_samples_lower_the_rate() {
        let progress = |samples| Progress { elapsed: 1000.0, moments: 1000, samples, ..Progress::default() };
        let few = pause(RATE, 0.5, &progress(0));
        assert!((pause(RATE, 0.5, &progress(MANY as usize)) - 2.0 * few).abs() < 1e-9);
    }

    #[test]
    fn pauses_have_limits() {
        let late = Progress { elapsed: 0.1, took: 1.0, ..Progress::default() };
        assert_eq!(pause(RATE, 0.5, &late).to_bits(), SHORTEST.to_bits());
        let seldom = Progress { elapsed: 1.0, ..Progress::default() };
        assert_eq!(pause(0.01, 0.5, &seldom).to_bits(), LONGEST.to_bits());
    }
}
