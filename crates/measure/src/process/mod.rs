//! Real runs.

mod filter;
mod server;
mod spawn;
mod timed;
mod traced;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::case::Invocation;
use crate::executor::{Counted, Executor, RunError, Timed, Watched};

pub use server::service;
pub use spawn::end_group;

/// Runs programs as processes of their own process group.
#[derive(Debug, Clone, Default)]
pub struct Processes {
    interrupted: Arc<AtomicBool>,
}

impl Processes {
    /// Ends what runs, and runs nothing more, once the flag is set.
    pub fn until(interrupted: Arc<AtomicBool>) -> Processes {
        Processes { interrupted }
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}

impl Executor for Processes {
    fn time(&mut self, invocation: &Invocation, limit: Duration) -> Result<Timed, RunError> {
        match &invocation.load {
            None => timed::run(invocation, limit, self),
            Some(load) => server::run(invocation, load, limit, self).map(|(timed, _)| timed),
        }
    }

    fn memory(&mut self, invocation: &Invocation, limit: Duration) -> Result<Watched, RunError> {
        match &invocation.load {
            None => traced::memory(invocation, limit, self),
            Some(load) => server::run(invocation, load, limit, self).map(|(Timed { figures, end }, memory)| Watched {
                memory: Some(memory),
                wall_s: figures.wall_s,
                end,
            }),
        }
    }

    fn calls(&mut self, invocation: &Invocation, limit: Duration) -> Result<Counted, RunError> {
        match &invocation.load {
            None => traced::calls(invocation, limit, self),
            Some(_) => Err(RunError::Measuring("system calls of servers are not counted".to_owned())),
        }
    }
}
