//! Runs under ptrace: measures memory when the program ends, and counts system calls.
//!
//! `ru_maxrss` is useless for memory: it is inherited over exec, so a small program reports the size of the process
//! that started it. The kernel stops a traced process at its exit, when its memory is still there and its own maximum
//! can be read.

use std::collections::HashSet;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{Processes, filter, spawn};
use crate::case::Invocation;
use crate::executor::{Calls, CallsRun, Memory, MemoryRun, RunError, Status};

/// Reads memory when each process of the program ends. Only the starts of processes are slower than usual.
pub(super) fn memory(invocation: &Invocation, limit: Duration, processes: &Processes) -> Result<MemoryRun, RunError> {
    let mut found: Option<Memory> = None;
    let options = [Options::PTRACE_O_TRACEEXIT, Options::PTRACE_O_TRACEFORK, Options::PTRACE_O_TRACEVFORK];
    let began = Instant::now();
    let end = follow(invocation, &options, None, limit, processes, &mut |pid, event| {
        if event == Event::PTRACE_EVENT_EXIT as i32
            && let Ok(memory) = resident(pid.as_raw())
            && found.is_none_or(|found| found.peak_bytes < memory.peak_bytes)
        {
            found = Some(memory);
        }
    })?;
    let wall_s = began.elapsed().as_secs_f64();
    match end {
        Ended::Itself(status, outputs) => {
            let end = outputs.end(raw(status), processes);
            match found {
                None if matches!(end.status, Status::Exit(_)) => Err(measuring("the program did not stop at its exit")),
                memory => Ok(MemoryRun { memory, wall_s, end }),
            }
        }
        Ended::Late => Err(RunError::TimeOut(limit)),
    }
}

/// Returns the status as `wait4` encodes it.
fn raw(status: WaitStatus) -> i32 {
    match status {
        WaitStatus::Exited(_, code) => code << 8,
        WaitStatus::Signaled(_, signal, _) => signal as i32,
        // `attend` returns only the statuses above.
        _ => 0xff,
    }
}

/// Counts the system calls of all threads and children.
pub(super) fn calls(invocation: &Invocation, limit: Duration, processes: &Processes) -> Result<CallsRun, RunError> {
    let mut calls = Calls::default();
    let options = [
        Options::PTRACE_O_TRACESECCOMP,
        Options::PTRACE_O_TRACECLONE,
        Options::PTRACE_O_TRACEFORK,
        Options::PTRACE_O_TRACEVFORK,
    ];
    let end = follow(invocation, &options, Some(filter::program()), limit, processes, &mut |pid, event| {
        if event == Event::PTRACE_EVENT_SECCOMP as i32
            && let Ok(place) = ptrace::getevent(pid)
        {
            filter::count(&mut calls, usize::try_from(place).unwrap_or(usize::MAX));
        }
    })?;
    match end {
        Ended::Itself(status, outputs) => Ok(CallsRun {
            calls: Calls { complete: true, ..calls },
            status: Some(outputs.end(raw(status), processes).status),
        }),
        Ended::Late => Ok(CallsRun { calls, status: None }),
    }
}

/// The end of a traced run.
enum Ended {
    Itself(WaitStatus, spawn::Outputs),
    Late,
}

fn measuring(what: &str) -> RunError {
    RunError::Measuring(what.to_owned())
}

fn failed(what: &'static str) -> impl Fn(Errno) -> RunError {
    move |error| RunError::Measuring(format!("{what}: {error}"))
}

/// Runs the program to its end, and calls `stopped` at every event of one of its processes or threads.
fn follow(
    invocation: &Invocation,
    options: &[Options],
    filter: Option<Vec<libc::sock_filter>>,
    limit: Duration,
    processes: &Processes,
    stopped: &mut dyn FnMut(Pid, i32),
) -> Result<Ended, RunError> {
    let outputs = spawn::Outputs::new()?;
    let mut command = spawn::command(invocation, &outputs, processes)?;
    let child = traced(&mut command, filter)?;
    let root = Pid::from_raw(child.id().cast_signed());
    // The first stop is at the exec.
    if !matches!(waitpid(root, None), Ok(WaitStatus::Stopped(_, Signal::SIGTRAP))) {
        spawn::end_group(child.id());
        let _ = waitpid(root, None);
        return Err(measuring("the program did not stop at its exec"));
    }
    // With TRACEEXEC, a later exec of the program is an event, not a signal that would kill it.
    let always = [Options::PTRACE_O_TRACEEXEC, Options::PTRACE_O_EXITKILL];
    ptrace::setoptions(root, options.iter().copied().chain(always).collect()).map_err(failed("tracing fails"))?;
    let began = Instant::now();
    let guard = Guard::new(child.id(), limit, processes);
    ptrace::cont(root, None).map_err(failed("tracing fails"))?;
    let end = attend(root, stopped);
    drop(guard);
    let end = end?;
    match end {
        _ if processes.interrupted() => Err(RunError::Interrupted),
        WaitStatus::Signaled(_, Signal::SIGKILL, _) if began.elapsed() >= limit => Ok(Ended::Late),
        end => Ok(Ended::Itself(end, outputs)),
    }
}

/// Starts the program, stopped at its exec and traced by this thread.
#[expect(unsafe_code, reason = "what runs between fork and exec is for the caller to vouch for")]
fn traced(command: &mut Command, filter: Option<Vec<libc::sock_filter>>) -> Result<std::process::Child, RunError> {
    // SAFETY: the hook makes system calls on memory that is there already, which is safe between fork and exec.
    unsafe {
        command.pre_exec(move || {
            ptrace::traceme().map_err(std::io::Error::from)?;
            match &filter {
                Some(program) => filter::install(program),
                None => Ok(()),
            }
        });
    }
    spawn::start(command)
}

/// Continues every stopped process and thread, until the first process has ended.
fn attend(root: Pid, stopped: &mut dyn FnMut(Pid, i32)) -> Result<WaitStatus, RunError> {
    // Wait for children of this thread only: other threads may have their own.
    let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    // A new thread begins with a SIGSTOP that does not come from the program.
    let mut known = HashSet::from([root]);
    loop {
        let status = match waitpid(Pid::from_raw(-1), Some(flags)) {
            Err(Errno::EINTR) => continue,
            status => status.map_err(failed("the program cannot be waited for"))?,
        };
        // Continuing fails if the process has ended meanwhile.
        match status {
            WaitStatus::PtraceEvent(pid, _, event) => {
                stopped(pid, event);
                let _ = ptrace::cont(pid, None);
            }
            WaitStatus::Stopped(pid, Signal::SIGSTOP) if known.insert(pid) => {
                let _ = ptrace::cont(pid, None);
            }
            WaitStatus::Stopped(pid, signal) => {
                known.insert(pid);
                let _ = ptrace::cont(pid, signal);
            }
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _) if pid == root => return Ok(status),
            _ => {}
        }
    }
}

/// Ends a running program that takes too long, or when the user interrupts.
struct Guard(Option<(mpsc::Sender<()>, std::thread::JoinHandle<()>)>);

impl Guard {
    fn new(group: u32, limit: Duration, processes: &Processes) -> Guard {
        let (over, wait) = mpsc::channel::<()>();
        let processes = processes.clone();
        let began = Instant::now();
        let watch = std::thread::spawn(move || {
            let nap = Duration::from_millis(50);
            while wait.recv_timeout(nap) == Err(mpsc::RecvTimeoutError::Timeout) {
                if processes.interrupted() || began.elapsed() >= limit {
                    return spawn::end_group(group);
                }
            }
        });
        Guard(Some((over, watch)))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some((over, watch)) = self.0.take() {
            drop(over);
            // The thread does not panic.
            let _ = watch.join();
        }
    }
}

/// VmHWM and VmRSS of proc_pid_status(5).
pub(super) fn resident(pid: i32) -> Result<Memory, RunError> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path)
        .map_err(|error| RunError::Measuring(format!("cannot read `{path}`: {error}")))?;
    let field = |name: &str| {
        let value = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 = value.trim().trim_end_matches("kB").trim_end().parse().ok()?;
        Some(kibibytes * 1024)
    };
    let missing = || RunError::Measuring(format!("`{path}` does not give the memory of the program"));
    let peak_bytes = field("VmHWM:").ok_or_else(missing)?;
    Ok(Memory { peak_bytes, last_bytes: field("VmRSS:").ok_or_else(missing)? })
}
