//! Signals that end the program. It then leaves no temporary files, and every host is either stock or a graft.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

use crate::failure::{Failure, mend};

/// Handles SIGINT, SIGTERM and SIGHUP until it is dropped: deletes the temporary files, then ends the program as the
/// signal would have.
pub(crate) struct Cleanup {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Cleanup {
    pub(crate) fn on_signals() -> Result<Cleanup, Failure> {
        let failed = |error| Failure::usage(format!("cannot wait for signals: {error}")).with_help(mend(&error));
        let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
        let mut signals = Signals::new(wanted).map_err(failed)?;
        let handle = signals.handle();
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                // The guard stops the other thread: it waits here before it makes another file or prints anything.
                let _ending = hosts::remove_temporaries();
                let _ = emulate_default_handler(signal);
            }
        });
        Ok(Cleanup { handle, thread: Some(thread.map_err(failed)?) })
    }
}

impl Drop for Cleanup {
    fn drop(&mut self) {
        self.handle.close();
        if let Some(thread) = self.thread.take() {
            // If a signal has arrived, this does not return.
            let _ = thread.join();
        }
    }
}

/// Makes a write beyond the limit on file sizes (RLIMIT_FSIZE) fail, so that everything can be taken back, rather than
/// end the program. It sets a handler rather than ignore the signal: child processes would inherit an ignored signal,
/// but get the default action in place of a handler.
pub(crate) fn survive_limit_on_files() {
    if !is_ignored(SIGXFSZ) {
        // If this fails, the signal ends the program, as it does by default.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}

/// Whether the parent process made this program ignore the signal: `nohup`, `trap ''`, the `&` of a script.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_by(&status, signal)
}

/// Whether the text of `/proc/self/status` says so: `SigIgn` is a mask in hexadecimal, bit 0 for signal 1
/// (proc_pid_status(5)).
fn ignored_by(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored() {
        // Rust's runtime ignores this signal.
        assert!(is_ignored(signal_hook::consts::SIGPIPE));
        let status = "Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000001001002\n";
        assert!(ignored_by(status, SIGINT) && ignored_by(status, SIGXFSZ));
        assert!(!ignored_by(status, SIGTERM) && !ignored_by("", SIGINT));
    }
}
