//! The time for which threads had a processor, by the kernel's accounts. Pictures, pprof and the document's figures
//! take it from here, so that they agree.
//!
//! A thread that can run is seen running whether it has a processor or waits for one. The kernel counts for each thread
//! the time for which it had one (`/proc/PID/task/TID/schedstat`), and adds to the count at each tick of its clock. So
//! the counts of several samples are added up.

use std::collections::HashMap;

use crate::recording::{Recording, Sample};

/// The seconds of a thread's samples that are added up: some ticks.
const WINDOW: f64 = 0.1;

/// The kernel's account of each thread, from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    /// By the thread's number: nanoseconds so far, and seconds since the sample before.
    known: HashMap<i32, (u64, Option<f64>)>,
}

impl Accounts {
    /// Updates a thread's account, in nanoseconds since the thread began. Returns the seconds since the sample before.
    /// At the first sample these are all, if the recording has seen the thread begin.
    pub(crate) fn look(&mut self, tid: i32, run: Option<u64>, from_begin: bool) -> Option<f64> {
        let seconds = |nanoseconds: u64| nanoseconds as f64 * 1e-9;
        let run = run?;
        let since = match self.known.get(&tid) {
            // A new thread has got the number.
            Some((before, _)) if *before > run => Some(seconds(run)),
            Some((before, _)) => Some(seconds(run - before)),
            None => from_begin.then(|| seconds(run)),
        };
        self.known.insert(tid, (run, since));
        since
    }

    /// The last result of [`Accounts::look`] for the thread.
    pub(crate) fn last(&self, tid: i32) -> Option<f64> {
        self.known.get(&tid)?.1
    }
}

/// The division of the time of running threads' samples.
#[derive(Debug, Default)]
pub(crate) struct ProcessorTime {
    /// The seconds with a processor that each sample represents; 0 for blocked threads. Their sum is the total, if any
    /// thread was seen running.
    pub(crate) with: Vec<f64>,
    /// The seconds for which each sample's thread waited for a processor; 0 for blocked threads.
    pub(crate) without: Vec<f64>,
    /// The processor time of all threads in the recording.
    pub(crate) total_s: f64,
}

impl ProcessorTime {
    /// Divides the time of the samples that `runs` says are of running threads.
    pub(crate) fn new(recording: &Recording, runs: &dyn Fn(usize) -> bool) -> ProcessorTime {
        let samples = &recording.samples;
        let span = |sample: &Sample| recording.moments[sample.moment as usize].span.as_secs_f64();
        let mut threads: HashMap<u32, Vec<usize>> = HashMap::new();
        for (at, sample) in samples.iter().enumerate() {
            threads.entry(sample.thread).or_default().push(at);
        }
        let counted: f64 = samples.iter().filter_map(|sample| sample.ran).sum();
        // The kernel's figures of processes include the threads that came and went between two samples.
        let total_s = counted.max(recording.counts.user_s + recording.counts.system_s);
        let seen: f64 = samples.iter().enumerate().filter(|(at, _)| runs(*at)).map(|(_, sample)| span(sample)).sum();
        // Without a count for each thread, all threads are assumed to have the same part of their time.
        let alike = if counted > 0.0 { 1.0 } else { (total_s / seen.max(f64::MIN_POSITIVE)).min(1.0) };
        let mut time = ProcessorTime { with: vec![0.0; samples.len()], without: vec![0.0; samples.len()], total_s };
        for members in threads.into_values() {
            let (mut window, mut running, mut ran) = (Vec::new(), 0.0, 0.0);
            for (place, at) in members.iter().enumerate() {
                let sample = &samples[*at];
                // A sample without a count gets the ratio of the rest of the window.
                match (runs(*at), sample.ran) {
                    (true, Some(seconds)) => (running, ran) = (running + span(sample), ran + seconds),
                    (false, Some(seconds)) => ran += seconds,
                    (_, None) => {}
                }
                if runs(*at) {
                    window.push(*at);
                }
                if running < WINDOW && place + 1 < members.len() {
                    continue;
                }
                let part = if running > 0.0 && counted > 0.0 { ran / running } else { alike };
                for at in window.drain(..) {
                    time.with[at] = span(&samples[at]) * part;
                    time.without[at] = span(&samples[at]) * (1.0 - part).max(0.0);
                }
                if running > 0.0 {
                    (running, ran) = (0.0, 0.0);
                }
            }
        }
        let sum: f64 = time.with.iter().sum();
        if sum > 0.0 && total_s > 0.0 {
            time.with.iter_mut().for_each(|seconds| *seconds *= total_s / sum);
        }
        time
    }

    /// The part of the time of threads that could run in which they waited for a processor.
    pub(crate) fn waiting(&self) -> f64 {
        let [with, without] = [&self.with, &self.without].map(|part| part.iter().sum::<f64>());
        if with + without > 0.0 { without / (with + without) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::recording::{Counts, Moment, State};

    /// A recording of threads that run at each of `moments` moments of 10 ms. `ran` is the kernel's count for a thread
    /// since the moment before.
    fn recording(threads: u32, moments: u32, ran: impl Fn(u32, u32) -> Option<f64>, processor_s: f64) -> Recording {
        let span = Duration::from_millis(10);
        let samples = (0..moments).flat_map(|moment| (0..threads).map(move |thread| (moment, thread)));
        let samples = samples.map(|(moment, thread)| {
            let ran = ran(moment, thread);
            Sample { moment, thread, state: State::Running, walk: 0, own_word: false, faults: 0, ran }
        });
        Recording {
            samples: samples.collect(),
            moments: (0..moments).map(|number| Moment { at: span * number, span }).collect(),
            counts: Counts { user_s: processor_s, ..Counts::default() },
            ..Recording::default()
        }
    }

    fn sum(seconds: &[f64]) -> f64 {
        seconds.iter().sum()
    }

    #[track_caller]
    fn is_about(found: f64, expected: f64) {
        assert!((found - expected).abs() < 0.02 * expected.abs() + 1e-9, "found {found}, expected {expected}");
    }

    #[test]
    fn threads_that_wait_for_a_processor_do_not_have_one() {
        // Eight threads take turns of 40 ms on two processors, for 1.6 s.
        let has = |moment: u32, thread: u32| (moment / 4 + thread).is_multiple_of(4);
        let recording = recording(8, 160, |moment, thread| Some(if has(moment, thread) { 0.01 } else { 0.0 }), 3.2);
        let time = ProcessorTime::new(&recording, &|_| true);
        is_about(time.total_s, 3.2);
        is_about(sum(&time.with), 3.2);
        is_about(sum(&time.without), 8.0 * 1.6 - 3.2);
        is_about(time.waiting(), 0.75);
    }

    #[test]
    fn a_thread_alone_does_not_wait_though_the_clock_ticks_seldom() {
        // The kernel adds to its count only every 4 ms, and some ticks fall into the next moment.
        let ran = |moment: u32, _| Some(if moment.is_multiple_of(2) { 0.008 } else { 0.012 });
        let time = ProcessorTime::new(&recording(1, 100, ran, 1.0), &|_| true);
        is_about(sum(&time.with), 1.0);
        assert!(sum(&time.without) < 0.02, "{}", sum(&time.without));
    }

    #[test]
    fn without_a_count_for_each_thread_all_share_the_processes() {
        let time = ProcessorTime::new(&recording(40, 100, |_, _| None, 6.8), &|_| true);
        is_about(sum(&time.with), 6.8);
        is_about(sum(&time.without), 40.0 - 6.8);
    }

    #[test]
    fn time_of_blocked_threads_is_not_lost() {
        // It is seen running at each tenth moment, and has run for 2 ms before each.
        let recording = recording(1, 100, |_, _| Some(0.002), 0.2);
        let time = ProcessorTime::new(&recording, &|at: usize| at.is_multiple_of(10));
        is_about(sum(&time.with), 0.2);
        assert!(time.with.iter().enumerate().all(|(at, seconds)| at.is_multiple_of(10) || *seconds == 0.0));
        // Threads that ended between two samples are only in the processes' figures.
        let recording = Recording { counts: Counts { user_s: 0.5, ..Counts::default() }, ..recording };
        is_about(sum(&ProcessorTime::new(&recording, &|at: usize| at.is_multiple_of(10)).with), 0.5);
    }

    #[test]
    fn accounts_are_kept_from_look_to_look() {
        let mut accounts = Accounts::default();
        assert_eq!(accounts.look(1, Some(2_000_000_000), true), Some(2.0));
        assert_eq!(accounts.look(1, Some(2_500_000_000), true), Some(0.5));
        assert_eq!(accounts.last(1), Some(0.5));
        assert_eq!((accounts.look(2, Some(7), false), accounts.look(3, None, true)), (None, None));
        // A new thread has the number.
        assert_eq!(accounts.look(1, Some(1_000_000_000), true), Some(1.0));
    }
}
