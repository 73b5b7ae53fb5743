//! Waits for traced threads and for children. nix knows no real-time signals: with them its `waitpid` fails after the
//! kernel has forgotten the change, which leaves the thread stopped for good.

use std::mem::MaybeUninit;

use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Exit(i32),
    Signal(i32),
    /// It is no longer a child of this process; its end is unknown.
    Unknown,
}

/// A change of a traced thread or a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// It has ended. The number is how often its threads, and the children that it waited for, yielded the processor
    /// voluntarily; it is valid for a process only.
    Ended(End, u64),
    /// It has stopped, and is to be released with this signal; 0 for none.
    Stopped(i32),
    /// It has stopped at the beginning or the end of a system call.
    Call,
}

/// The wait between two polls for a change.
///
/// A thread on another processor stops within some microseconds. A thread that waits for this processor gets it only if
/// this one sleeps: `sched_yield` would yield for a whole time slice, and stopped threads would wait that long.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    looks: u32,
}

impl Patience {
    /// The number of polls without a wait between them.
    const AT_ONCE: u32 = 16;
    const STEP: Duration = Duration::from_micros(10);
    const LONGEST: Duration = Duration::from_micros(200);

    /// Waits before the next poll.
    pub(crate) fn wait(&mut self) {
        std::thread::sleep(self.next());
    }

    /// Returns the time to wait before the next poll. `sleep` does not call the kernel for no time.
    fn next(&mut self) -> Duration {
        self.looks += 1;
        (Patience::STEP * self.looks.saturating_sub(Patience::AT_ONCE)).min(Patience::LONGEST)
    }
}

/// Returns the next change of any thread that this one traces, or of any of its children; `None` if there is no change
/// yet.
///
/// # Errors
/// ECHILD if there is nothing to wait for.
#[expect(unsafe_code, reason = "nix has no wait for real-time signals, and none with the kernel's figures")]
pub(crate) fn change() -> Result<Option<(i32, Change)>, Errno> {
    let mut status = 0;
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let flags = libc::WNOHANG | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: the kernel writes to `status` and `usage` only.
    let got = unsafe { libc::wait4(-1, &raw mut status, flags, usage.as_mut_ptr()) };
    let thread = Errno::result(got)?;
    if thread == 0 {
        return Ok(None);
    }
    // SAFETY: it is made of integers only, which were zero at first.
    let usage = unsafe { usage.assume_init() };
    Ok(meaning(status, u64::try_from(usage.ru_nvcsw).unwrap_or(0)).map(|change| (thread, change)))
}

/// The meaning of a status of wait(2).
fn meaning(status: i32, switches: u64) -> Option<Change> {
    if libc::WIFEXITED(status) {
        Some(Change::Ended(End::Exit(libc::WEXITSTATUS(status)), switches))
    } else if libc::WIFSIGNALED(status) {
        Some(Change::Ended(End::Signal(libc::WTERMSIG(status)), switches))
    } else if libc::WIFSTOPPED(status) {
        // The stop that PTRACE_O_TRACESYSGOOD requests.
        if status >> 8 == libc::SIGTRAP | 0x80 {
            return Some(Change::Call);
        }
        // A ptrace event, or a stop of the whole process, which stays one after the release.
        let is_event = status >> 16 != 0;
        Some(Change::Stopped(if is_event { 0 } else { libc::WSTOPSIG(status) }))
    } else {
        None
    }
}

/// Releases a stopped thread, which gets a signal; 0 for none.
#[expect(unsafe_code, reason = "nix does not know real-time signals")]
pub(crate) fn release(thread: i32, signal: i32) {
    let (thread, signal) = (i64::from(thread), i64::from(signal));
    // SAFETY: PTRACE_DETACH takes a thread and a signal, and touches no memory. If it fails, the thread has ended.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, thread, 0_i64, signal) };
}

/// Lets a stopped thread go on to its next system call, or to the end of the one that it is in, with a signal; 0 for
/// none.
#[expect(unsafe_code, reason = "nix does not know real-time signals")]
pub(crate) fn resume(thread: i32, signal: i32) {
    let (thread, signal) = (i64::from(thread), i64::from(signal));
    // SAFETY: PTRACE_SYSCALL takes a thread and a signal, and touches no memory. If it fails, the thread has ended.
    unsafe { libc::ptrace(libc::PTRACE_SYSCALL, thread, 0_i64, signal) };
}

#[cfg(test)]
#[expect(clippy::zombie_processes, reason = "the functions under test wait for the children")]
mod tests {
    use super::*;

    #[test]
    fn real_time_signals_are_changes_like_others() {
        // As the kernel encodes them (bits/waitstatus.h).
        assert_eq!(meaning(35 << 8 | 0x7f, 0), Some(Change::Stopped(35)));
        assert_eq!(meaning(0x85 << 8 | 0x7f, 0), Some(Change::Call));
        assert_eq!(meaning(128 << 16 | 5 << 8 | 0x7f, 0), Some(Change::Stopped(0)));
        assert_eq!(meaning(35, 7), Some(Change::Ended(End::Signal(35), 7)));
        assert_eq!(meaning(3 << 8, 8), Some(Change::Ended(End::Exit(3), 8)));
    }

    #[test]
    fn polls_are_close_together_at_first_and_never_far_apart() {
        let mut patience = Patience::default();
        let pauses: Vec<Duration> = (0..100).map(|_| patience.next()).collect();
        assert!(pauses[..16].iter().all(Duration::is_zero));
        assert_eq!(pauses[16..18], [Patience::STEP, Patience::STEP * 2]);
        assert!(pauses.is_sorted() && pauses[99] == Patience::LONGEST);
    }

    /// Returns the next change of a child; waits for it.
    fn next_change() -> (i32, Change) {
        loop {
            match change() {
                Ok(Some(change)) => return change,
                Ok(None) => std::thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn a_real_time_signal_stops_a_thread_and_reaches_it_with_the_release() {
        use nix::sys::ptrace;
        use nix::unistd::Pid;
        let command = &mut std::process::Command::new("cat");
        let child = command.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let thread = child.id().cast_signed();
        assert_eq!(change(), Ok(None), "it waits");
        ptrace::seize(Pid::from_raw(thread), ptrace::Options::PTRACE_O_TRACESYSGOOD).unwrap();
        // The stop that was asked for comes first, with no signal.
        ptrace::interrupt(Pid::from_raw(thread)).unwrap();
        assert_eq!(next_change(), (thread, Change::Stopped(0)));
        // It goes on to its next system call: the wait for input, again, or the one after it.
        resume(thread, 0);
        assert_eq!(next_change(), (thread, Change::Call));
        let signal = libc::SIGRTMIN() + 1;
        resume(thread, signal);
        let mut next = next_change();
        // The call that it enters ends first.
        while next == (thread, Change::Call) {
            resume(thread, 0);
            next = next_change();
        }
        assert_eq!(next, (thread, Change::Stopped(signal)));
        release(thread, signal);
        let (ended, end) = next_change();
        assert!(ended == thread && matches!(end, Change::Ended(End::Signal(number), _) if number == signal), "{end:?}");
        assert_eq!(change(), Err(Errno::ECHILD), "nothing is left to wait for");
    }
}
