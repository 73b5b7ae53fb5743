//! A run under ptrace. The main process is followed with all its threads; its children run free.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::call::Call;

/// An interference with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Let,
    /// Ends the process before the call.
    Kill,
    /// The call returns this error without having been made.
    Fail(Errno),
    /// The call is made, and returns this error: `close` frees its descriptor whatever it returns.
    FailAfter(Errno),
    /// The call's number of bytes is halved.
    Halve,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Exit(i32),
    Signal(Signal),
}

/// A run that has ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) end: End,
    /// The number of calls.
    pub(crate) calls: usize,
    /// Its standard output and standard error, one after the other.
    pub(crate) said: String,
}

/// An observer of a run, which may interfere.
pub(crate) trait Watch {
    /// Decides what is done to the call, which is the `number`th, counted from 1.
    fn enters(&mut self, number: usize, call: &Call) -> Act;

    /// Is called when the call has returned `result`.
    fn leaves(&mut self, _call: &Call, _result: i64) {}
}

/// A run that is not disturbed.
pub(crate) struct Calm;

impl Watch for Calm {
    fn enters(&mut self, _number: usize, _call: &Call) -> Act {
        Act::Let
    }
}

/// A thread between the entry and the exit of a call.
struct Pending {
    call: Call,
    result: Option<i64>,
}

/// Runs a program in `folder`. `scratch` is where its output goes.
///
/// # Errors
/// It cannot be started or followed.
pub(crate) fn run<S: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = S>,
    folder: &Path,
    scratch: &Path,
    watch: &mut dyn Watch,
) -> Result<Ran> {
    let outputs = ["stdout", "stderr"].map(|name| scratch.join(name));
    let mut command = Command::new("sh");
    command.args(["-c", WAIT, "sh"]).arg(program).args(arguments);
    command.current_dir(folder).process_group(0).env_remove("RUST_BACKTRACE").env("TMPDIR", scratch);
    command.stdin(Stdio::piped()).stdout(File::create(&outputs[0])?).stderr(File::create(&outputs[1])?);
    let mut child = command.spawn().context("no shell starts")?;
    let main = Pid::from_raw(i32::try_from(child.id())?);
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(main, options).context("cannot follow the shell")?;
    ptrace::interrupt(main)?;
    child.stdin.take().context("a pipe")?.write_all(b"\n")?;
    let outcome = follow(main, watch);
    end_group(main);
    let (end, calls) = outcome?;
    let said = outputs.iter().map(fs::read).collect::<std::io::Result<Vec<_>>>()?.concat();
    Ok(Ran { end, calls, said: String::from_utf8_lossy(&said).into_owned() })
}

/// The shell that waits until it is followed, and becomes the program.
const WAIT: &str = "read -r _ && exec \"$@\" </dev/null";

/// Whether a process is still that shell: its own start may be over only when it is followed already.
fn is_shell(process: Pid) -> std::io::Result<bool> {
    let words = fs::read(format!("/proc/{process}/cmdline"))?;
    Ok(words.split(|byte| *byte == 0).any(|word| word == WAIT.as_bytes()))
}

/// Ends the children that are left, and waits until they are gone, so that none writes to the folder any more.
fn end_group(main: Pid) {
    while killpg(main, Signal::SIGKILL).is_ok() && has_running(main) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the group has a process that is not a zombie, which waits for its parent only.
fn has_running(group: Pid) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| {
        let text = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // proc_pid_stat(5): state, parent and group follow the name in parentheses.
        let mut fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let (state, group_of) = (fields.next(), fields.nth(1));
        group_of == Some(&*group.to_string()) && !matches!(state, Some("Z" | "X"))
    })
}

fn follow(main: Pid, watch: &mut dyn Watch) -> Result<(End, usize)> {
    let mut pending: HashMap<Pid, Pending> = HashMap::new();
    let (mut started, mut calls) = (false, 0);
    loop {
        // Only this thread's: others attack at the same time.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        let status = match waitpid(None, Some(flags)) {
            Err(Errno::EINTR) => continue,
            status => status.context("cannot wait for the program")?,
        };
        let mut deliver = None;
        let thread = match status {
            WaitStatus::Exited(pid, code) if pid == main => return Ok((End::Exit(code), calls)),
            WaitStatus::Signaled(pid, signal, _) if pid == main => return Ok((End::Signal(signal), calls)),
            WaitStatus::PtraceSyscall(pid) => {
                let Ok(registers) = ptrace::getregs(pid) else { continue };
                match pending.remove(&pid) {
                    None => {
                        let call = Call::of(main, &registers);
                        let act = if started {
                            calls += 1;
                            watch.enters(calls, &call)
                        } else {
                            Act::Let
                        };
                        let result = enter(main, pid, registers, &call, act)?;
                        pending.insert(pid, Pending { call, result });
                    }
                    Some(Pending { call, result }) => {
                        let mut registers = registers;
                        if let Some(result) = result {
                            registers.rax = result.cast_unsigned();
                            // The process may be gone by now: another thread ended it.
                            let _ = ptrace::setregs(pid, registers);
                        }
                        if started {
                            watch.leaves(&call, registers.rax.cast_signed());
                        }
                    }
                }
                pid
            }
            WaitStatus::PtraceEvent(pid, _, event) => {
                if event == Event::PTRACE_EVENT_EXEC as i32 && pid == main && !is_shell(main)? {
                    started = true;
                    // The call that is left next is `execve`.
                    let registers = ptrace::getregs(pid)?;
                    pending.insert(pid, Pending { call: Call::of(main, &registers), result: None });
                }
                pid
            }
            WaitStatus::Stopped(pid, signal) => {
                deliver = Some(signal);
                pid
            }
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => {
                pending.remove(&pid);
                continue;
            }
            other => bail!("an unknown state: {other:?}"),
        };
        // A thread that was stopped may have been killed since.
        let _ = ptrace::syscall(thread, deliver);
    }
}

/// Does to a call what was decided. Returns the result that it gets when it is left.
fn enter(main: Pid, thread: Pid, mut registers: libc::user_regs_struct, call: &Call, act: Act) -> Result<Option<i64>> {
    Ok(match act {
        Act::Let => None,
        Act::Kill => {
            kill(main, Signal::SIGKILL)?;
            None
        }
        Act::Fail(error) => {
            // No call has this number: the kernel makes none.
            registers.orig_rax = u64::MAX;
            ptrace::setregs(thread, registers)?;
            Some(-i64::from(error as i32))
        }
        Act::FailAfter(error) => Some(-i64::from(error as i32)),
        Act::Halve => {
            let count = match call.length() {
                Some(2) => &mut registers.rdx,
                Some(4) => &mut registers.r8,
                Some(3) => &mut registers.r10,
                _ => bail!("{} has no number of bytes", call.name()),
            };
            *count = (*count / 2).max(1);
            ptrace::setregs(thread, registers)?;
            None
        }
    })
}

/// Reads a text that ends with a zero byte from the memory of a stopped process.
pub(crate) fn text_at(process: Pid, address: u64) -> Option<PathBuf> {
    use std::io::{Read, Seek, SeekFrom};
    use std::os::unix::ffi::OsStringExt;
    let mut memory = File::open(format!("/proc/{process}/mem")).ok()?;
    let mut text = Vec::new();
    memory.seek(SeekFrom::Start(address)).ok()?;
    // A path has at most 4096 bytes. What follows it may not be mapped: one byte at a time.
    let mut byte = [0];
    while text.len() < 4096 {
        memory.read_exact(&mut byte).ok()?;
        if byte == [0] {
            return Some(std::ffi::OsString::from_vec(text).into());
        }
        text.push(byte[0]);
    }
    None
}
