//! Samples the code that takes page faults, by perf events, where the kernel allows them (`perf_event_paranoid` of 2 or
//! less, and no seccomp filter against them).
//!
//! perf events are used for faults only. Stacks come from ptrace alone: a user's events leave out the time in the
//! kernel, so that samples of them would count the program's own code too often, and they do not contain the system
//! call.

use std::collections::HashMap;

use perf_event::data::Record;
use perf_event::events::Software;
use perf_event::{Builder, SampleFlag, Sampler};

/// One of this many faults is sampled. Samples give the places of faults; the kernel's figure gives their number.
const PERIOD: u64 = 31;
/// The events are on in one of this many moments: in programs that spend nearly all of their time in faults, permanent
/// counting takes a tenth of it.
const MOMENTS: usize = 32;
/// The bytes of a thread's buffer for samples. Together they count as locked memory, of which a user has little.
const BUFFER: usize = 4096;
/// The most threads that are observed at once: each takes a file descriptor.
const MANY: usize = 128;

/// The page faults of threads.
#[derive(Default)]
pub(crate) struct Faults {
    /// By thread, its process and its events.
    open: HashMap<i32, (i32, Sampler)>,
    /// Whether the kernel has refused.
    refused: bool,
}

impl Faults {
    /// Starts to observe a thread.
    pub(crate) fn open(&mut self, pid: i32, tid: i32) {
        if self.refused || self.open.len() >= MANY {
            return;
        }
        match events(tid) {
            Ok(events) => {
                self.open.insert(tid, (pid, events));
            }
            // The kernel does not refuse here: the thread has ended.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(_) => self.refused = true,
        }
    }

    /// Whether the faults of threads are counted.
    pub(crate) fn work(&self) -> bool {
        !self.refused && !self.open.is_empty()
    }

    /// Forgets threads that have ended.
    pub(crate) fn close(&mut self, lives: impl Fn(i32) -> bool) {
        self.open.retain(|tid, _| lives(*tid));
    }

    /// Is called at each moment, by its number. Calls `fault` with the process and the instruction of each page fault
    /// that was sampled since the last one.
    pub(crate) fn moment(&mut self, number: usize, fault: &mut dyn FnMut(i32, u64)) {
        let turn = number % MOMENTS;
        if turn > 1 {
            return;
        }
        for (pid, events) in self.open.values_mut() {
            let counter = events.as_counter_mut();
            // If this fails, the thread has no samples.
            let _ = if turn == 0 { counter.enable() } else { counter.disable() };
            while let Some(record) = events.next_record() {
                if let Ok(Record::Sample(sample)) = record.parse_record()
                    && let Some(place) = sample.ip()
                {
                    fault(*pid, place);
                }
            }
        }
    }
}

fn events(tid: i32) -> std::io::Result<Sampler> {
    Builder::new(Software::PAGE_FAULTS)
        .observe_pid(tid)
        .any_cpu()
        .sample(SampleFlag::IP)
        .sample_period(PERIOD)
        .build()?
        .sampled(BUFFER)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Touches new memory, which faults once per page.
    #[inline(never)]
    fn touch() -> usize {
        let memory = vec![1_u8; 64 << 20];
        std::hint::black_box(&memory).iter().step_by(4096).map(|byte| usize::from(*byte)).sum()
    }

    #[test]
    fn the_faults_of_a_thread_are_told_unless_the_kernel_refuses() {
        let mut faults = Faults::default();
        let (pid, tid) = (nix::unistd::getpid().as_raw(), nix::unistd::gettid().as_raw());
        faults.open(pid, tid);
        let mut seen = Vec::new();
        for number in 0..=MOMENTS {
            faults.moment(number, &mut |pid, place| seen.push((pid, place)));
            assert!(number > 0 || seen.is_empty());
            assert_eq!(touch(), (64 << 20) / 4096);
        }
        assert_eq!(seen.is_empty(), faults.refused, "{seen:?}");
        assert!(seen.iter().all(|(of, place)| *of == pid && *place != 0), "{seen:?}");
        faults.close(|_| false);
        assert!(faults.open.is_empty());
    }
}
