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

#[cfg(test)]
#[expect(clippy::zombie_processes, reason = "the functions under test wait for the children")]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc::channel;

    use super::*;

    /// Starts a program that waits for the end of its input.
    fn waiting() -> Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    fn pid(child: &Child) -> i32 {
        child.id().cast_signed()
    }

    /// Returns the end of a child, once it has ended.
    fn ended(pid: i32) -> End {
        loop {
            if let Some(reaped) = reap(pid) {
                return reaped.end;
            }
            std::thread::yield_now();
        }
    }

    /// Stops a thread as often as it takes until it was read. Returns its state, and the ends of children.
    fn read(pid: i32) -> (StoppedThread, Vec<Reaped>) {
        let (mut seen, mut reaped) = (Vec::new(), Vec::new());
        while seen.is_empty() {
            let lost = each(&[(pid, pid)], true, &mut reaped, &mut |at, thread| seen.push((at, thread))).unwrap();
            assert_eq!(lost, 0);
        }
        assert_eq!((seen.len(), seen[0].0), (1, 0));
        (seen.remove(0).1, reaped)
    }

    #[test]
    fn a_thread_is_read_and_goes_on() {
        let mut child = waiting();
        let own = pid(&child);
        for _ in 0..3 {
            let (thread, reaped) = read(own);
            let registers = thread.registers.unwrap();
            assert!(thread.stack.word(registers.sp).is_some(), "its stack begins at its stack pointer");
            assert_eq!(reaped, []);
        }
        assert!(crate::proc::tracer(own, own).is_none(), "nothing traces it between two stops");
        drop(child.stdin.take());
        assert_eq!(ended(own), End::Exit(0));
    }

    #[test]
    fn threads_that_have_ended_are_left_out_and_ends_of_children_are_kept() {
        let child = Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
        let gone = pid(&child);
        let mut seen = 0;
        let mut reaped = Vec::new();
        // It ends at some time; then there is nothing left to trace, and its end was noticed once.
        while reaped.is_empty() {
            let lost = each(&[(gone, gone), (i32::MAX, i32::MAX)], false, &mut reaped, &mut |_, _| seen += 1).unwrap();
            assert_eq!(lost, 0);
        }
        assert!(matches!(reaped[..], [Reaped { pid, end: End::Exit(3), .. }] if pid == gone), "{reaped:?}");
        let before = seen;
        assert_eq!(each(&[(gone, gone)], false, &mut reaped, &mut |_, _| seen += 1), Ok(0));
        assert_eq!((seen, reaped.len()), (before, 1));
        assert_eq!(ended(gone), End::Unknown, "this process has no such child any more");
    }

    #[test]
    fn a_thread_that_is_traced_already_is_counted_as_lost() {
        let mut child = waiting();
        let own = pid(&child);
        let (traced, is_traced) = channel();
        let (done, is_done) = channel::<()>();
        std::thread::scope(|scope| {
            // The kernel traces by thread, so that another thread is as good as a debugger.
            scope.spawn(move || {
                ptrace::seize(Pid::from_raw(own), Options::empty()).unwrap();
                traced.send(()).unwrap();
                // Its end releases the child.
                let _ = is_done.recv();
            });
            is_traced.recv().unwrap();
            let found = each(&[(own, own)], false, &mut Vec::new(), &mut |_, _| panic!("it was not stopped here"));
            assert_eq!(found, Ok(1));
            drop(done);
        });
        drop(child.stdin.take());
        assert_eq!(ended(own), End::Exit(0));
    }

    #[test]
    fn this_process_may_be_read_and_one_that_is_gone_may_not() {
        assert!(is_permitted(std::process::id().cast_signed()));
        assert!(!is_permitted(i32::MAX));
        assert!(!is_refused(i32::MAX, i32::MAX), "a thread that is gone is not one that may not be traced");
    }
}
