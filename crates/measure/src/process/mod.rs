//! Runs of real processes.

mod filter;
mod generators;
mod server;
mod spawn;
mod timed;
mod traced;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::case::Invocation;
use crate::executor::{CallsRun, Executor, MemoryRun, RunError, TimedRun};

pub use generators::service;
pub use spawn::end_group;
pub use timed::reap;

/// Runs programs as processes of their own process group.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    /// The working folder of programs. `None`: this process's.
    pub folder: Option<PathBuf>,
    /// The environment of programs, to which an [`Invocation`] adds. `None`: this process's.
    pub environment: Option<Vec<(OsString, OsString)>>,
    /// The part of a program's output that every run has to repeat.
    pub compared: Compared,
    /// Once it is set, running programs are ended, and no more are started.
    pub interrupted: Arc<AtomicBool>,
}

/// The part of a program's output that every run has to repeat. The default is all of standard output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Compared {
    /// Includes standard error, after standard output.
    pub errors: bool,
    /// Sorts the lines first: for programs whose threads print in any order.
    pub sorted: bool,
    /// Leaves out lines with this prefix.
    pub without: Option<String>,
}

impl Compared {
    fn select(&self, printed: &[u8]) -> Vec<u8> {
        let mut lines: Vec<&[u8]> = printed.split_inclusive(|byte| *byte == b'\n').collect();
        if let Some(start) = &self.without {
            lines.retain(|line| !line.starts_with(start.as_bytes()));
        }
        if self.sorted {
            lines.sort_unstable();
        }
        lines.concat()
    }
}

impl Processes {
    /// Returns an executor that ends running programs, and starts no more, once the flag is set.
    pub fn until(interrupted: Arc<AtomicBool>) -> Processes {
        Processes { interrupted, ..Processes::default() }
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

impl Executor for Processes {
    fn time(&mut self, invocation: &Invocation, limit: Duration) -> Result<TimedRun, RunError> {
        match &invocation.load {
            None => timed::run(invocation, limit, self),
            Some(load) => server::run(invocation, load, false, limit, self).map(|(timed, _)| timed),
        }
    }

    fn memory(&mut self, invocation: &Invocation, limit: Duration) -> Result<MemoryRun, RunError> {
        match &invocation.load {
            None => traced::memory(invocation, limit, self),
            Some(load) => {
                server::run(invocation, load, true, limit, self).map(|(TimedRun { figures, end }, memory)| MemoryRun {
                    memory: Some(memory),
                    wall_s: figures.wall_s,
                    end,
                })
            }
        }
    }

    fn calls(&mut self, invocation: &Invocation, limit: Duration) -> Result<CallsRun, RunError> {
        match &invocation.load {
            None => traced::calls(invocation, limit, self),
            Some(_) => Err(RunError::Measuring("system calls of servers are not counted".to_owned())),
        }
    }
}
