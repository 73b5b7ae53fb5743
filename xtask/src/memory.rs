//! Peak memory of a program: the high-water mark of its resident set, read when it exits.
//!
//! `ru_maxrss` would not do: it is inherited over exec, so a small program reports the size of the process that started
//! it. The kernel stops a traced process at its exit, when its memory is still there and its own mark can be read.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// What a traced run gave.
pub(crate) struct Run {
    /// Most bytes resident at any time (VmHWM of proc_pid_status(5)).
    pub(crate) peak: u64,
    /// What the program printed on stdout. It has to fit into a pipe (64 KiB).
    pub(crate) stdout: String,
}

/// How a traced program ended.
pub(crate) struct Ended {
    /// As [`Run::peak`].
    pub(crate) peak: u64,
    /// Its exit code, or the signal that killed it.
    pub(crate) status: Result<i32, Signal>,
}

/// Runs `command` to its end under ptrace, which slows nothing but its start and its exit.
///
/// # Errors
/// When the program cannot be started or traced (some containers forbid it), or does not end with exit code 0.
pub(crate) fn run(command: &mut Command) -> Result<Run> {
    let (child, ended) = traced(command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    if ended.status != Ok(0) {
        bail!("{:?} ended with {:?}", command.get_program(), ended.status);
    }
    let mut stdout = String::new();
    if let Some(mut pipe) = child.stdout {
        pipe.read_to_string(&mut stdout)?;
    }
    Ok(Run { peak: ended.peak, stdout })
}

/// Runs `command` to its end, whatever that is, with the input and output that it was given.
///
/// # Errors
/// When the program cannot be started or traced.
pub(crate) fn to_the_end(command: &mut Command) -> Result<Ended> {
    traced(command).map(|(_, ended)| ended)
}

fn traced(command: &mut Command) -> Result<(Child, Ended)> {
    // SAFETY: the hook makes one system call, which is safe between fork and exec.
    unsafe { command.pre_exec(|| ptrace::traceme().map_err(std::io::Error::from)) };
    let child = command.spawn().with_context(|| format!("cannot trace {:?}", command.get_program()))?;
    let pid = Pid::from_raw(i32::try_from(child.id()).context("a process id beyond pid_t")?);
    // The exec stops it first.
    if !matches!(waitpid(pid, None)?, WaitStatus::Stopped(_, Signal::SIGTRAP)) {
        bail!("{:?} did not stop at its exec", command.get_program());
    }
    // With TRACEEXEC a further exec of the program's own is an event, not a signal that would kill it.
    let options = [Options::PTRACE_O_TRACEEXIT, Options::PTRACE_O_TRACEEXEC, Options::PTRACE_O_EXITKILL];
    ptrace::setoptions(pid, Options::from_iter(options))?;
    ptrace::cont(pid, None)?;
    let mut peak = None;
    let status = loop {
        match waitpid(pid, None)? {
            WaitStatus::PtraceEvent(_, _, event) => {
                if event == ptrace::Event::PTRACE_EVENT_EXIT as i32 {
                    peak = Some(high_water_mark(pid)?);
                }
                ptrace::cont(pid, None)?;
            }
            WaitStatus::Stopped(_, signal) => ptrace::cont(pid, signal)?,
            WaitStatus::Exited(_, code) => break Ok(code),
            WaitStatus::Signaled(_, signal, _) => break Err(signal),
            other => bail!("{:?} ended with {other:?}", command.get_program()),
        }
    };
    Ok((child, Ended { peak: peak.context("no stop at the exit")?, status }))
}

fn high_water_mark(pid: Pid) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).context("cannot read the process's status")?;
    let field = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM in the status")?;
    let kibibytes: u64 = field.trim().trim_end_matches("kB").trim_end().parse().context("VmHWM is no number")?;
    Ok(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tracer is the thread that started the program, and this process may hold far more than it.
    #[test]
    fn the_peak_is_the_programs_own() {
        let held = vec![1u8; 64 << 20];
        let run = run(Command::new("sh").args(["-c", "echo done"])).unwrap();
        assert_eq!(run.stdout, "done\n");
        assert!((100 << 10..32 << 20).contains(&run.peak), "{} bytes beside our {}", run.peak, held.len());
    }

    #[test]
    fn a_program_may_become_another_one() {
        let run = run(Command::new("sh").args(["-c", "exec sh -c 'echo second'"])).unwrap();
        assert_eq!(run.stdout, "second\n");
    }

    #[test]
    fn a_program_that_fails_is_an_error() {
        assert!(run(Command::new("sh").args(["-c", "exit 3"])).is_err());
        assert!(run(&mut Command::new("/no such program")).is_err());
    }
}
