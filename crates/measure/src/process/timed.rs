//! A timed, undisturbed run.
//! Memory and system calls are measured in separate runs (`traced`): a trace takes time.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{Processes, spawn};
use crate::case::Invocation;
use crate::executor::{Figures, RunError, TimedRun};

/// Runs the program to its end.
pub(super) fn run(invocation: &Invocation, limit: Duration, processes: &Processes) -> Result<TimedRun, RunError> {
    let outputs = spawn::Outputs::new()?;
    let mut command = spawn::command(invocation, &outputs, processes)?;
    let began = Instant::now();
    let child = spawn::start(&mut command)?;
    let waited = wait(child.id(), limit, processes);
    let wall = began.elapsed();
    // Background processes would disturb the next run. End them before waiting for the child: until then no other
    // process group can have its number.
    spawn::end_group(child.id());
    let (status, mut figures) = reap(child.id())?;
    waited?;
    figures.wall_s = wall.as_secs_f64();
    Ok(TimedRun { figures, end: outputs.end(status, processes) })
}

/// Sleeps until the process has ended.
pub(super) fn wait(pid: u32, limit: Duration, processes: &Processes) -> Result<(), RunError> {
    let unwatched = |error| RunError::Measuring(format!("the program cannot be waited for: {error}"));
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(RunError::Interrupted)?;
    let file: OwnedFd = pidfd_open(pid, PidfdFlags::empty()).map_err(unwatched)?;
    let began = Instant::now();
    loop {
        if processes.interrupted() {
            return Err(RunError::Interrupted);
        }
        let Some(left) = limit.checked_sub(began.elapsed()) else { return Err(RunError::TimeOut(limit)) };
        // A signal ends the wait, but may arrive just before it. Therefore wake up now and then.
        let nap = Timespec { tv_sec: left.as_secs().min(5).cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&nap)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(unwatched(error)),
        }
    }
}

/// Waits for a child of this process, and reaps it. Returns its status as the kernel encodes it, and its figures,
/// without the time by the wall clock.
///
/// # Errors
/// There is no such child.
#[expect(unsafe_code, reason = "wait4 gives the figures of one child, and nix has no wrapper of it")]
pub fn reap(pid: u32) -> Result<(i32, Figures), RunError> {
    let mut status = 0;
    // SAFETY: a structure of numbers, for which zero is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: both pointers are to values of this function.
        let waited = unsafe { libc::wait4(pid.cast_signed(), &raw mut status, 0, &raw mut usage) };
        if waited == pid.cast_signed() {
            break;
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(RunError::Measuring(format!("the program's figures are not available: {error}")));
        }
    }
    let count = |value: libc::c_long| u64::try_from(value).unwrap_or(0);
    Ok((
        status,
        Figures {
            wall_s: 0.0,
            user_s: seconds(usage.ru_utime),
            system_s: seconds(usage.ru_stime),
            minor_faults: count(usage.ru_minflt),
            major_faults: count(usage.ru_majflt),
            voluntary_switches: count(usage.ru_nvcsw),
            involuntary_switches: count(usage.ru_nivcsw),
            service: None,
        },
    ))
}

fn seconds(time: libc::timeval) -> f64 {
    time.tv_sec as f64 + time.tv_usec as f64 * 1e-6
}
