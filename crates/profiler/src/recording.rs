//! A recording: samples of threads with their stacks, and the kernel's figures.

use std::collections::HashMap;
use std::time::Duration;

use crate::calls::Watch;
use crate::library::Library;
use crate::proc::Stat;
use crate::space::Walk;

/// The state of a thread when it was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum State {
    /// It ran, or waited for a processor, in its own code.
    Running,
    /// It ran in the kernel, in the system call of this number.
    Kernel(i64),
    /// It was blocked in a system call, with these first three arguments; -1 is a page fault.
    Blocked(i64, [u64; 3]),
}

/// One thread at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sample {
    /// The moment, by its number.
    pub(crate) moment: u32,
    /// The thread, by its number.
    pub(crate) thread: u32,
    pub(crate) state: State,
    /// The calls, by the number of the walk.
    pub(crate) walk: u32,
    /// Whether it waits for a word on its own stack.
    pub(crate) own_word: bool,
    /// Page faults that were seen during the stop.
    pub(crate) faults: u32,
    /// The seconds for which its thread had a processor since the sample before, by the kernel; `None` for the thread's
    /// first sample, or if the kernel does not count them.
    pub(crate) ran: Option<f64>,
}

/// A moment at which all threads were sampled.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Since the start of the recording.
    pub(crate) at: Duration,
    /// The time that it represents: the time since the moment before.
    pub(crate) span: Duration,
}

/// A thread.
#[derive(Debug, Clone)]
pub(crate) struct Thread {
    pub(crate) pid: i32,
    pub(crate) tid: i32,
    pub(crate) name: String,
}

/// The kernel's figures for the time of the recording.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Counts {
    /// Seconds in the program's own code.
    pub(crate) user_s: f64,
    /// Seconds in the kernel.
    pub(crate) system_s: f64,
    pub(crate) faults: u64,
    pub(crate) voluntary_switches: u64,
}

impl Counts {
    /// Adds the kernel's figures for a process between two moments.
    pub(crate) fn add(&mut self, first: &Stat, last: &Stat) {
        // sysconf(_SC_CLK_TCK), which is 100 in every Linux.
        const TICK: f64 = 0.01;
        self.user_s += last.user.saturating_sub(first.user) as f64 * TICK;
        self.system_s += last.system.saturating_sub(first.system) as f64 * TICK;
        self.faults += last.faults.saturating_sub(first.faults);
    }
}

/// The end of a program that was started here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    /// With this exit code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// It was ended, since the time was over.
    Stopped,
}

/// A recording of a program.
#[derive(Default)]
pub struct Recording {
    pub(crate) library: Library,
    /// The file of the program, by its number in the library.
    pub(crate) program: Option<u32>,
    /// The path of the program's file.
    pub(crate) path: String,
    pub(crate) threads: Vec<Thread>,
    pub(crate) moments: Vec<Moment>,
    pub(crate) samples: Vec<Sample>,
    pub(crate) walks: Vec<Walk>,
    pub(crate) counts: Counts,
    pub(crate) watch: Watch,
    /// Page faults that perf events have sampled, by the number of a walk that consists of their place. Empty if the
    /// kernel allows no perf events.
    pub(crate) faults: HashMap<u32, u64>,
    /// The time from the first moment to the last.
    pub(crate) duration: Duration,
    /// The moments per second that were asked for.
    pub(crate) rate: f64,
    /// The processor time that the recording itself took, in seconds.
    pub(crate) own_s: f64,
    /// The number of processors that the program may use.
    pub(crate) processors: usize,
    pub(crate) ended: Option<Ended>,
    /// The processes that still run, since this user may not end them.
    pub(crate) left: Vec<i32>,
    /// Samples that were lost because the thread was stopped, or because a different program traced it.
    pub(crate) lost: usize,
    pub(crate) interrupted: bool,
    pub(crate) pid: i32,
}

impl Recording {
    /// The number of moments that were asked for in its time.
    pub(crate) fn due(&self) -> f64 {
        self.rate * self.duration.as_secs_f64()
    }

    /// The inspector's report on the program's file.
    pub(crate) fn report(&self) -> Option<&inspector::Report> {
        self.library.modules.get(self.program? as usize)?.report.as_ref()
    }
}

/// Walks, each kept once.
#[derive(Default)]
pub(crate) struct Walks {
    pub(crate) all: Vec<Walk>,
    known: HashMap<Walk, u32>,
}

impl Walks {
    /// The number of a walk. After many different walks, only the innermost frames of new ones are kept.
    pub(crate) fn number(&mut self, mut walk: Walk) -> u32 {
        const MANY: usize = 100_000;
        const KEPT: usize = 16;
        if let Some(number) = self.known.get(&walk) {
            return *number;
        }
        if self.all.len() >= MANY && walk.places.len() > KEPT {
            walk.places.truncate(KEPT);
            walk.truncated = true;
            return self.number(walk);
        }
        let number = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        self.all.push(walk.clone());
        self.known.insert(walk, number);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::CodeAddress;

    fn walk(addresses: std::ops::Range<u64>) -> Walk {
        Walk { places: addresses.map(|address| CodeAddress { module: None, address }).collect(), truncated: false }
    }

    #[test]
    fn after_many_walks_new_ones_keep_only_their_innermost_frames() {
        let mut walks = Walks::default();
        assert_eq!([walks.number(walk(0..30)), walks.number(walk(1..2)), walks.number(walk(0..30))], [0, 1, 0]);
        for address in 2..100_000 {
            walks.number(walk(address..address + 1));
        }
        let number = walks.number(walk(50..90));
        assert_eq!(walks.all[number as usize], Walk { truncated: true, ..walk(50..66) });
        assert_eq!(walks.number(walk(50..80)), number, "alike in what is kept");
        assert_eq!(walks.number(walk(0..30)), 0, "known as a whole");
    }
}
