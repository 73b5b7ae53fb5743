//! The interface that runs programs, and the results of a run. It is a trait so that tests of sessions can set the
//! clock and the cost of each run.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::case::Invocation;

/// Runs programs. Tests use a mock.
pub trait Executor {
    /// Runs a program once, undisturbed, for `limit` at most.
    ///
    /// # Errors
    /// The program cannot be run or takes too long. A program that fails is not an error: its end is part of the
    /// result.
    fn time(&mut self, invocation: &Invocation, limit: Duration) -> Result<TimedRun, RunError>;

    /// Runs a program once and measures its memory.
    ///
    /// # Errors
    /// As for [`Executor::time`], and when it cannot be traced.
    fn memory(&mut self, invocation: &Invocation, limit: Duration) -> Result<MemoryRun, RunError>;

    /// Runs a program once, or until `limit`, and counts the system calls by which allocators wait and get memory.
    ///
    /// # Errors
    /// As for [`Executor::memory`]. A run that reaches `limit` is not an error.
    fn calls(&mut self, invocation: &Invocation, limit: Duration) -> Result<CallsRun, RunError>;
}

/// A clock. Tests have one that they set themselves.
pub trait Clock {
    /// Returns the time since some moment in the past.
    fn now(&self) -> Duration;
}

/// The machine's monotonic clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.0.elapsed()
    }
}

/// The reason why a run has no result.
#[derive(Debug, Error)]
pub enum RunError {
    /// The program does not start.
    #[error("`{program}` cannot be started: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// It took too long and was ended.
    #[error("it was ended after {:.1} s, which is far longer than stock takes", .0.as_secs_f64())]
    TimeOut(Duration),
    /// The user pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// A part of the measurement does not work on this machine.
    #[error("{0}")]
    Measuring(String),
    /// The server or its load failed.
    #[error("{0}")]
    Server(String),
}

/// The end of a program, and what it printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The exit code, or the number of the signal that ended it.
    pub status: Status,
    /// SHA-256 of the compared output, which every run has to repeat: by default all of standard output.
    pub digest: [u8; 32],
    /// The size of the compared output in bytes.
    pub bytes: u64,
    /// The beginning of the compared output, for messages.
    pub head: String,
    /// The end of its standard error, for messages.
    pub complaint: String,
}

/// The way in which a program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// With this exit code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Status::Exit(code) => write!(f, "exit code {code}"),
            Status::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// A timed run. Except for `wall_s`, its figures are of the program and of the children that it waited for (`wait4`).
#[derive(Debug, Clone, PartialEq)]
pub struct TimedRun {
    /// Its figures.
    pub figures: Figures,
    /// The way in which it ended.
    pub end: End,
}

/// A run that measures memory. It takes a little longer than a timed one.
#[derive(Debug, Clone, PartialEq)]
pub struct MemoryRun {
    /// Its memory. `None` if it ended in a way that prevented the reading.
    pub memory: Option<Memory>,
    /// Seconds from its start to its end.
    pub wall_s: f64,
    /// The way in which it ended.
    pub end: End,
}

/// A run that counts system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallsRun {
    /// The counts.
    pub calls: Calls,
    /// The way in which it ended. `None` if the limit ended it.
    pub status: Option<Status>,
}

/// The figures of a timed run.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Seconds from before the start to after the end.
    pub wall_s: f64,
    /// Seconds of processor time in the program.
    pub user_s: f64,
    /// Seconds of processor time in the kernel.
    pub system_s: f64,
    /// Page faults without disk access.
    pub minor_faults: u64,
    /// Page faults with disk access.
    pub major_faults: u64,
    /// The number of times that it waited for something.
    pub voluntary_switches: u64,
    /// The number of times that it was preempted.
    pub involuntary_switches: u64,
    /// The results of the load on a server.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub service: Option<Service>,
}

/// The results of the load on a server.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Answered requests per second.
    pub requests_per_second: f64,
    /// The requests per second that the load had to keep. `None`: as many as the server answers.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rate: Option<u64>,
    /// The median time of a request, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p50_ms: Option<f64>,
    /// The 90th percentile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p90_ms: Option<f64>,
    /// The 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99_ms: Option<f64>,
    /// The 99.9th percentile.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p999_ms: Option<f64>,
}

/// The share of a rate's requests that have to be answered in time. The rest is for the moments in which a load
/// generator starts and ends.
pub const REACHED: f64 = 0.97;

impl Service {
    /// Returns the results of a load that had to keep a rate. If it did not, they have no percentiles: the requests
    /// queued up for as long as the load lasted, so that their times say how long that was.
    #[must_use]
    pub fn at_rate(self, rate: u64) -> Service {
        let service = Service { rate: Some(rate), ..self };
        match service.is_reached() {
            true => service,
            false => Service { p50_ms: None, p90_ms: None, p99_ms: None, p999_ms: None, ..service },
        }
    }

    /// Whether the load kept its rate, if it had one.
    pub fn is_reached(&self) -> bool {
        self.rate.is_none_or(|rate| self.requests_per_second >= rate as f64 * REACHED)
    }
}

impl Figures {
    /// Returns the figure that is compared: the time; for a server, the time per request.
    pub fn cost(&self) -> f64 {
        self.service.map_or(self.wall_s, |service| 1.0 / service.requests_per_second)
    }

    /// Returns the time of a server's slow requests in milliseconds: the 99th percentile, or the greatest percentile
    /// below it that the load reported. `None` if the load did not keep its rate, or reported none.
    pub fn latency_ms(&self) -> Option<f64> {
        let service = self.service?;
        service.p99_ms.or(service.p90_ms).or(service.p50_ms).filter(|latency| *latency > 0.0)
    }

    /// Returns the seconds of processor time, in the program and in the kernel; for a server, per request. `None` if
    /// the kernel counted none.
    pub fn processor_cost(&self) -> Option<f64> {
        let requests = self.service.map_or(1.0, |service| service.requests_per_second * self.wall_s);
        Some((self.user_s + self.system_s) / requests).filter(|cost| cost.is_finite() && *cost > 0.0)
    }
}

/// The memory of a run, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// The most that was resident at any time, of the largest of its processes.
    pub peak_bytes: u64,
    /// The memory that was still resident at the end; for a server, a second after the load.
    pub last_bytes: u64,
}

/// System calls of a run, of all its threads and children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Calls {
    /// Waiting for a lock, and waking waiters.
    pub futex: u64,
    /// Getting pages.
    pub mmap: u64,
    /// Returning pages.
    pub munmap: u64,
    /// Returning the contents of pages.
    pub madvise: u64,
    /// Moving or resizing mappings.
    pub mremap: u64,
    /// Changing the protection of pages.
    pub mprotect: u64,
    /// Moving the end of the heap.
    pub brk: u64,
    /// Whether the program ran to its end. If not, the counts are lower bounds.
    pub complete: bool,
}
