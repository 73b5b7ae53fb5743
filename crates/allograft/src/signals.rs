//! Signals that end the program: it leaves no temporary files, and no host but stock or graft.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::low_level::emulate_default_handler;

use crate::failure::Failure;

/// Until it is dropped, SIGINT, SIGTERM and SIGHUP delete the temporary files, and then end the program as they would
/// have.
pub(crate) struct Cleanup {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
}

impl Cleanup {
    pub(crate) fn on_signals() -> Result<Cleanup, Failure> {
        let failed = |error| Failure::usage(format!("cannot wait for signals: {error}"));
        let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| !is_ignored(*signal));
        let mut signals = Signals::new(wanted).map_err(failed)?;
        let handle = signals.handle();
        let thread = thread::Builder::new().name("signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                // The other thread makes no more of them, and says nothing more either: it waits for this one.
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
            // Where a signal has come, it does not return.
            let _ = thread.join();
        }
    }
}

/// A write beyond the limit on the size of files shall fail, and all be taken back, rather than end the program. A
/// handler, since programs that are started get the default again then; a signal that is ignored they would inherit.
pub(crate) fn survive_limit_on_files() {
    if !is_ignored(SIGXFSZ) {
        // Without it, the signal ends the program, as ever.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}

/// Whether whoever started the program wants it to ignore the signal: `nohup`, `trap ''`, the `&` of a script.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    ignored_by(&status, signal)
}

/// The same by the text of that file. (proc_pid_status(5): a mask in hexadecimal, bit 0 for signal 1.)
fn ignored_by(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ignored() {
        // The one that Rust's programs ignore.
        assert!(is_ignored(signal_hook::consts::SIGPIPE));
        let status = "Name:\tx\nSigBlk:\tffffffffffffffff\nSigIgn:\t0000000001001002\n";
        assert!(ignored_by(status, SIGINT) && ignored_by(status, SIGXFSZ));
        assert!(!ignored_by(status, SIGTERM) && !ignored_by("", SIGINT));
    }
}
