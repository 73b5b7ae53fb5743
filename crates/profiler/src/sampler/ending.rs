//! Ends a program that was started here, with its children.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Sampler;
use crate::proc;
use crate::recording::Ended;
use crate::stop;
use crate::wait::End;

/// The time between SIGTERM and SIGKILL for a program whose time is over.
const GRACE: Duration = Duration::from_secs(2);

impl Sampler {
    /// Ends a program that was started here, with its children, and reaps it. A process with the rights of another user
    /// may not be ended: it is left, and named in the result.
    pub(super) fn end(&mut self) -> Option<Ended> {
        self.count_switches();
        let mut stopped = false;
        let mut left = Vec::new();
        let began = Instant::now();
        loop {
            self.status = self.status.or_else(|| stop::reap(self.root));
            if self.status.is_some() && !(stopped && self.runs_beside(&left)) {
                break;
            }
            if !stopped {
                stopped = true;
                self.open_children();
                self.signal(Signal::SIGTERM);
            } else if began.elapsed() > GRACE {
                left = self.signal(Signal::SIGKILL);
                if self.status.is_some() || left.contains(&self.root) {
                    break;
                }
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.left = left;
        match self.status.map(|reaped| reaped.end) {
            _ if stopped => Some(Ended::Stopped),
            Some(End::Exit(code)) => Some(Ended::Exit(code)),
            Some(End::Signal(signal)) => Some(Ended::Signal(signal)),
            Some(End::Unknown) | None => None,
        }
    }

    /// The recorded processes that still run. Processes that got a recorded number later are left out. The program is
    /// one of them even if it could not be recorded; nothing else gets its number before it is reaped.
    fn running(&self) -> impl Iterator<Item = i32> {
        let recorded = self.processes.iter().filter_map(|(pid, process)| {
            let stat = proc::stat(*pid, None).filter(proc::Stat::is_alive)?;
            (*pid != self.root && stat.started == process.last.started).then_some(*pid)
        });
        recorded.chain(self.status.is_none().then_some(self.root))
    }

    /// Whether a recorded process still runs that may be ended.
    fn runs_beside(&self, left: &[i32]) -> bool {
        self.running().any(|pid| !left.contains(&pid))
    }

    /// Sends a signal to all of them. Returns those that this user may not send one to.
    fn signal(&self, signal: Signal) -> Vec<i32> {
        // One that has ended meanwhile is as good as ended.
        self.running().filter(|pid| kill(Pid::from_raw(*pid), signal) == Err(Errno::EPERM)).collect()
    }
}
