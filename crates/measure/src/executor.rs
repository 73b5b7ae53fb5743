//! What a run gives.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::case::Invocation;

/// Runs programs. Tests have one that pretends.
pub trait Executor {
    /// Runs it once, undisturbed; `limit` is how long it may take.
    ///
    /// # Errors
    /// When it cannot be run or takes too long. However the program ends is no error: it is part of the outcome.
    fn time(&mut self, invocation: &Invocation, limit: Duration) -> Result<Timed, RunError>;

    /// Runs it once for its memory.
    ///
    /// # Errors
    /// As [`Executor::time`], and when it cannot be traced.
    fn memory(&mut self, invocation: &Invocation, limit: Duration) -> Result<Watched, RunError>;

    /// Runs it once, or until `limit`, and counts the system calls by which allocators wait and get memory.
    ///
    /// # Errors
    /// As [`Executor::memory`]. Time that runs out is no error.
    fn calls(&mut self, invocation: &Invocation, limit: Duration) -> Result<Counted, RunError>;
}

/// Tells the time; tests have one that they turn themselves.
pub trait Clock {
    /// Time since some moment in the past.
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

/// Why there is no outcome.
#[derive(Debug, Error)]
pub enum RunError {
    /// The program does not start.
    #[error("`{program}` cannot be started: {source}")]
    Start {
        /// What was to be started.
        program: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// It took too long and was ended.
    #[error("it was ended after {:.1} s, which is far longer than stock takes", .0.as_secs_f64())]
    TimeOut(Duration),
    /// Somebody pressed Ctrl-C.
    #[error("interrupted")]
    Interrupted,
    /// Something about measuring does not work here.
    #[error("{0}")]
    Measuring(String),
    /// The server or its load did not do what they should.
    #[error("{0}")]
    Server(String),
}

/// How a program ended, and what it printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// The exit code, or the number of the signal that ended it.
    pub status: Status,
    /// SHA-256 of what it printed and every run has to repeat: all of standard output, where nobody says otherwise.
    pub digest: [u8; 32],
    /// How many bytes that are.
    pub bytes: u64,
    /// The beginning of that, for messages.
    pub head: String,
    /// The end of what it printed on standard error, for messages.
    pub complaint: String,
}

/// How a program ended.
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

/// A timed run. Everything but `wall_s` is of the program and those of its children that it waited for (`wait4`).
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// Its figures.
    pub figures: Figures,
    /// How it ended.
    pub end: End,
}

/// A run for memory, which takes a little longer than a timed one.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// What it held; nothing where it ended so that it could not be read.
    pub memory: Option<Memory>,
    /// Seconds from its start to its end.
    pub wall_s: f64,
    /// How it ended.
    pub end: End,
}

/// A run that counts system calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// What was counted.
    pub calls: Calls,
    /// How it ended; nothing where the limit ended it.
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
    /// Page faults that needed no disk.
    pub minor_faults: u64,
    /// Page faults that did.
    pub major_faults: u64,
    /// Times that it waited for something.
    pub voluntary_switches: u64,
    /// Times that it was made to give way to another program.
    pub involuntary_switches: u64,
    /// What the load on a server said.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub service: Option<Service>,
}

/// What the load on a server said.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Service {
    /// Answered requests in a second.
    pub requests_per_second: f64,
    /// Half of the requests took no longer, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p50_ms: Option<f64>,
    /// 90 % of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p90_ms: Option<f64>,
    /// 99 % of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub p99_ms: Option<f64>,
}

impl Figures {
    /// What is compared: the time, of a server that for one request.
    pub fn cost(&self) -> f64 {
        self.service.map_or(self.wall_s, |service| 1.0 / service.requests_per_second)
    }
}

/// What a run for memory gave, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Most that was resident at any time: of the largest of its processes.
    pub peak_bytes: u64,
    /// What was still resident when it ended; of a server, a second after the load.
    pub last_bytes: u64,
}

/// System calls of a run, of all its threads and children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Calls {
    /// Waiting for a lock, and waking who waits.
    pub futex: u64,
    /// Getting pages.
    pub mmap: u64,
    /// Giving them back.
    pub munmap: u64,
    /// Giving back what is in them.
    pub madvise: u64,
    /// Moving them.
    pub mremap: u64,
    /// Changing their protection.
    pub mprotect: u64,
    /// Moving the end of the heap.
    pub brk: u64,
    /// Whether the program came to its end; otherwise there are at least as many.
    pub complete: bool,
}
