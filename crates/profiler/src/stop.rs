//! Reads running threads: seizes each, stops it for some microseconds, and lets it go.
//!
//! A thread is traced only between its stop and its release, so that the tracing leaves no trace in an attached
//! program: if the profiler is killed, the kernel releases the thread. Threads that are blocked in a system call are
//! never stopped, since some calls end early with EINTR after a stop (`epoll_wait`; signal(7)). A thread that enters
//! such a call at the very moment of its stop is the exception, and sees the effect of SIGSTOP and SIGCONT.

use std::collections::HashMap;

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::unistd::Pid;

use crate::memory::{self, Stack};
use crate::registers::{self, Registers};
use crate::wait::{self, Change, End, Patience};

/// The state of a stopped thread.
#[derive(Debug)]
pub(crate) struct StoppedThread {
    /// `None` if it ended before it stopped.
    pub(crate) registers: Option<Registers>,
    pub(crate) stack: Stack,
    /// Page faults between the decision to stop it and its release; 0 if they are not counted.
    pub(crate) faults: u64,
}

/// The end of one of this process's children that was reaped meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reaped {
    pub(crate) pid: i32,
    pub(crate) end: End,
    /// How often it yielded the processor voluntarily.
    pub(crate) switches: u64,
}

/// The longest time to wait for threads to stop. A thread that the kernel does not interrupt (vfork, a dead file
/// server), or that an exec has replaced, stops later, and is released then.
const LONGEST: Duration = Duration::from_millis(200);

/// Stops every one of `threads` (process and thread), and releases it; calls `seen` for each that has stopped, and
/// counts its page faults if requested. Children of this process that end meanwhile are added to `reaped`. Returns the
/// number of threads that could not be stopped because a different program traces them.
///
/// # Errors
/// The first thread may not be traced at all.
pub(crate) fn each(
    threads: &[(i32, i32)],
    counts_faults: bool,
    reaped: &mut Vec<Reaped>,
    seen: &mut dyn FnMut(usize, StoppedThread),
) -> Result<usize, Errno> {
    let mut lost = 0;
    let mut open: HashMap<Pid, (usize, u64)> = HashMap::new();
    let faults = |pid: i32, tid: i32| {
        let stat = counts_faults.then(|| crate::proc::stat(pid, Some(tid))).flatten();
        stat.map(|stat| stat.faults)
    };
    for (at, (pid, tid)) in threads.iter().enumerate() {
        let thread = Pid::from_raw(*tid);
        let before = faults(*pid, *tid).unwrap_or(0);
        match ptrace::seize(thread, Options::empty()) {
            Ok(()) => {}
            Err(Errno::ESRCH) => continue,
            Err(Errno::EPERM) if crate::proc::tracer(*pid, *tid).is_some() => {
                lost += 1;
                continue;
            }
            // A thread that is ending cannot be traced either.
            Err(Errno::EPERM) if !is_refused(*pid, *tid) => continue,
            Err(error) if open.is_empty() => return Err(error),
            Err(_) => continue,
        }
        // If this fails, the thread has ended, and the wait says so.
        let _ = ptrace::interrupt(thread);
        open.insert(thread, (at, before));
    }
    let began = Instant::now();
    let mut patience = Patience::default();
    loop {
        match wait::change() {
            Err(Errno::EINTR) => {}
            Err(_) => return Ok(lost),
            Ok(None) if open.is_empty() || began.elapsed() > LONGEST => return Ok(lost),
            Ok(None) => patience.wait(),
            Ok(Some((thread, Change::Ended(end, switches)))) => {
                open.remove(&Pid::from_raw(thread));
                reaped.push(Reaped { pid: thread, end, switches });
            }
            // If a signal came first, it is passed on with the release.
            Ok(Some((thread, Change::Stopped(signal)))) => {
                let looked = look(Pid::from_raw(thread), threads, &mut open);
                wait::release(thread, signal);
                // The rest does not need the thread to stand still.
                if let Some((at, before, registers, stack)) = looked {
                    let after = faults(threads[at].0, thread).unwrap_or(before);
                    seen(at, StoppedThread { registers, stack, faults: after.saturating_sub(before) });
                }
            }
            Ok(Some((thread, Change::Call))) => wait::release(thread, 0),
        }
    }
}

/// Reads a thread that has stopped, if it was to be stopped. Returns its place in `threads`, its page faults before,
/// its registers and its stack.
fn look(
    thread: Pid,
    threads: &[(i32, i32)],
    open: &mut HashMap<Pid, (usize, u64)>,
) -> Option<(usize, u64, Option<Registers>, Stack)> {
    let (at, before) = open.remove(&thread)?;
    let registers = registers::read(thread).ok().flatten();
    let stack = registers.map_or_else(Stack::default, |registers| memory::stack(threads[at].1, registers.sp));
    Some((at, before, registers, stack))
}

/// Whether a thread cannot be traced for lack of permission: it exists, is alive, and not traced.
fn is_refused(pid: i32, tid: i32) -> bool {
    let Ok(text) = std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")) else { return false };
    let field =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
    field("TracerPid:") == "0" && !field("State:").starts_with(['Z', 'X'])
}

/// Whether this process may trace that one, without trying it.
pub(crate) fn is_permitted(pid: i32) -> bool {
    // This file needs the permission to trace.
    std::fs::read_to_string(format!("/proc/{}/syscall", crate::proc::alive(pid))).is_ok()
}

/// Returns the end of a child of this process, once it has ended. Threads that stopped too late for their moment are
/// released, and those that have ended are forgotten: the kernel does not report a process's end before.
pub(crate) fn reap(pid: i32) -> Option<Reaped> {
    loop {
        match wait::change() {
            Ok(Some((thread, Change::Ended(end, switches)))) if thread == pid => {
                return Some(Reaped { pid, end, switches });
            }
            Ok(Some((_, Change::Ended(..)))) | Err(Errno::EINTR) => {}
            Ok(Some((thread, Change::Stopped(signal)))) => wait::release(thread, signal),
            Ok(Some((thread, Change::Call))) => wait::release(thread, 0),
            Err(Errno::ECHILD) => return Some(Reaped { pid, end: End::Unknown, switches: 0 }),
            Ok(None) | Err(_) => return None,
        }
    }
}
