//! Counts the calls of `futex` and of the `mmap` family that threads make.
//!
//! Without root, no file of the kernel counts them. So from time to time one of the running threads is followed from
//! system call to system call by ptrace, for a few milliseconds at most. That slows the thread down, by an amount that
//! depends on the machine. So calls are counted per second of processor time without the cost of the stops, and
//! multiplied by the whole program's processor time per second. The result is an estimate.
//!
//! A thread that enters any other call is let go before the call, since some calls end early with EINTR after a stop;
//! `futex` and `mmap` are restarted by the kernel.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;

use crate::registers::{self, Call};
use crate::stop::Reaped;
use crate::wait::{self, Change, Patience};

/// The time between two units, for the first ones, which a short recording needs, and for later ones. A unit slows down
/// a thread that calls all the time for some 2 ms.
const FIRST_PERIOD: Duration = Duration::from_millis(250);
const PERIOD: Duration = Duration::from_secs(1);
/// The number of first units.
const FIRST: usize = 4;
/// The longest time for which a thread is followed without a break.
const LONGEST: Duration = Duration::from_millis(8);
/// A unit is complete after this many counted calls, or this much processor time in nanoseconds.
const CALLS: u64 = 24;
const ENOUGH_NS: u64 = 2_000_000;
/// The processor time that a stop costs the thread at most; the default where it is unknown.
const STOP_NS: u64 = 2_000;
const MOST_STOP_NS: u64 = 6_000;
/// The number of intervals that the cost of a stop is estimated from.
const INTERVALS: usize = 16_384;

/// Calls per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Calls {
    pub(crate) futex: f64,
    pub(crate) memory: f64,
}

/// The counts of threads at nearly the same time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Unit {
    futex: u64,
    memory: u64,
    /// The number of stops.
    stops: u64,
    /// The processor time of the threads, with the stops.
    cpu_ns: u64,
}

impl Unit {
    fn is_complete(&self) -> bool {
        self.futex + self.memory >= CALLS || self.own_ns(STOP_NS) >= ENOUGH_NS
    }

    /// The processor time without the stops.
    fn own_ns(&self, stop_ns: u64) -> u64 {
        // Between two stops there is some work.
        self.cpu_ns.saturating_sub(self.stops * stop_ns).max(self.stops * 100)
    }
}

/// The counts so far.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    complete: Vec<Unit>,
    open: Unit,
    /// Processor time between two stops, in nanoseconds.
    intervals: Vec<u64>,
    began: Option<Instant>,
}

impl Watch {
    /// Whether it is time to follow a thread.
    pub(crate) fn is_due(&self) -> bool {
        let period = if self.complete.len() < FIRST { FIRST_PERIOD } else { PERIOD };
        self.began.is_none_or(|began| self.open != Unit::default() || began.elapsed() >= period)
    }

    /// Follows a thread for a short time. Children of this process that end meanwhile are added to `reaped`.
    pub(crate) fn follow(&mut self, pid: i32, tid: i32, reaped: &mut Vec<Reaped>) {
        if self.open == Unit::default() {
            self.began = Some(Instant::now());
        }
        let Ok(clock) = File::open(format!("/proc/{pid}/task/{tid}/schedstat")) else { return };
        let thread = Pid::from_raw(tid);
        // It may have ended, or be traced by a debugger.
        if ptrace::seize(thread, Options::PTRACE_O_TRACESYSGOOD).is_err() {
            return;
        }
        let _ = ptrace::interrupt(thread);
        self.count(thread, &clock, reaped);
        if self.open.is_complete() {
            self.complete.push(std::mem::take(&mut self.open));
        }
    }

    fn count(&mut self, thread: Pid, clock: &File, reaped: &mut Vec<Reaped>) {
        let tid = thread.as_raw();
        let until = Instant::now() + LONGEST;
        // A thread that does not stop in time is released when it does, by the next wait.
        let Some(Change::Stopped(signal)) = next(tid, until, reaped) else { return };
        let call = registers::read(thread).ok().flatten().and_then(|registers| registers.call);
        let (Some(mut before), false) = (processor_ns(clock), call.is_some_and(|call| !is_followed(call))) else {
            wait::release(tid, signal);
            return;
        };
        wait::resume(tid, signal);
        let mut inside = false;
        loop {
            let change = next(tid, until, reaped);
            let over = change.is_none();
            let change = change.or_else(|| {
                // If this fails, the thread has ended, and the wait says so.
                let _ = ptrace::interrupt(thread);
                next(tid, Instant::now() + LONGEST, reaped)
            });
            let signal = match change {
                Some(Change::Call) => 0,
                Some(Change::Stopped(signal)) => signal,
                Some(Change::Ended(..)) | None => return,
            };
            // Reading registers waits until the thread has left its processor; then the clock is right.
            let call = registers::read(thread).ok().flatten().and_then(|registers| registers.call);
            let Some(now) = processor_ns(clock) else {
                wait::release(tid, signal);
                return;
            };
            let took = now.saturating_sub(before);
            before = now;
            self.open.cpu_ns += took;
            self.open.stops += 1;
            let mut follow = !over && signal != 0;
            if change == Some(Change::Call) {
                inside = !inside;
                if self.intervals.len() < INTERVALS {
                    self.intervals.push(took);
                }
                follow = !over && (!inside || call.is_some_and(is_followed));
                match call.filter(|_| inside).map(registers::call) {
                    Some(Call::Futex) => self.open.futex += 1,
                    Some(Call::Memory) => self.open.memory += 1,
                    _ => {}
                }
            }
            if !follow || self.open.is_complete() {
                wait::release(tid, signal);
                return;
            }
            wait::resume(tid, signal);
        }
    }

    /// Calls per second, if the program takes `processor_s` of processor time per second outside of the calls that are
    /// not followed. `None` if nothing was counted.
    pub(crate) fn rates(&self, processor_s: f64) -> Option<Calls> {
        let mut units = self.complete.clone();
        if units.is_empty() && self.open.own_ns(STOP_NS) > 0 {
            units.push(self.open);
        }
        let stop_ns = self.stop_ns();
        let mean = |count: &dyn Fn(&Unit) -> u64| {
            let rates = units.iter().map(|unit| count(unit) as f64 / (unit.own_ns(stop_ns).max(1) as f64 * 1e-9));
            rates.sum::<f64>() / units.len() as f64 * processor_s
        };
        (!units.is_empty()).then(|| Calls { futex: mean(&|unit| unit.futex), memory: mean(&|unit| unit.memory) })
    }

    /// The processor time that one stop costs the followed thread, estimated from the shortest intervals: half of all
    /// intervals are within calls, or between two calls of one function, and contain little else.
    fn stop_ns(&self) -> u64 {
        let mut intervals = self.intervals.clone();
        intervals.sort_unstable();
        intervals
            .get(intervals.len() / 10)
            .filter(|_| intervals.len() >= 20)
            .map_or(STOP_NS, |at| *at.min(&MOST_STOP_NS))
    }
}

/// Whether a thread is followed through a call: one that is counted, or one that neither waits nor ends early.
pub(crate) fn is_followed(call: i64) -> bool {
    let quick = [libc::SYS_rt_sigprocmask, libc::SYS_clock_gettime, libc::SYS_gettid, libc::SYS_getpid];
    matches!(registers::call(call), Call::Futex | Call::Memory | Call::Yield)
        || quick.iter().any(|known| libc::c_long::try_from(call) == Ok(*known))
}

/// Waits for the next change of a thread; `None` if there is no change in time.
fn next(tid: i32, until: Instant, reaped: &mut Vec<Reaped>) -> Option<Change> {
    let mut patience = Patience::default();
    loop {
        match wait::change() {
            Ok(Some((thread, change))) if thread == tid => {
                if let Change::Ended(end, switches) = change {
                    reaped.push(Reaped { pid: thread, end, switches });
                }
                return Some(change);
            }
            Ok(Some((thread, Change::Ended(end, switches)))) => reaped.push(Reaped { pid: thread, end, switches }),
            Ok(Some((thread, Change::Stopped(signal)))) => wait::release(thread, signal),
            Ok(Some((thread, Change::Call))) => wait::release(thread, 0),
            Err(Errno::EINTR) => {}
            Err(_) => return None,
            Ok(None) if Instant::now() >= until => return None,
            Ok(None) => patience.wait(),
        }
    }
}

/// The processor time of a thread so far, by its file `schedstat`.
fn processor_ns(clock: &File) -> Option<u64> {
    let mut text = [0; 64];
    let length = clock.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(text.get(..length)?).ok()?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_per_second_are_told_without_the_stops() {
        let mut watch = Watch::default();
        assert_eq!(watch.rates(1.0), None);
        // Half of the intervals are as short as a stop; the others have 8 microseconds of work.
        watch.intervals = [1500, 9500].repeat(100);
        watch.complete.push(Unit { futex: 0, memory: 100, stops: 200, cpu_ns: 1_100_000 });
        watch.complete.push(Unit { futex: 10, memory: 0, stops: 20, cpu_ns: 2_030_000 });
        let calls = watch.rates(2.0).unwrap();
        assert!((calls.memory - 100.0 / 0.0008).abs() < 1.0, "{calls:?}");
        assert!((calls.futex - 10.0 / 0.002).abs() < 1.0, "{calls:?}");
    }

    #[test]
    fn calls_that_wait_are_not_followed() {
        assert!([libc::SYS_futex, libc::SYS_munmap, libc::SYS_gettid].into_iter().all(is_followed));
        assert!(![libc::SYS_read, libc::SYS_epoll_pwait, libc::SYS_clone, libc::SYS_exit].into_iter().any(is_followed));
    }
}
