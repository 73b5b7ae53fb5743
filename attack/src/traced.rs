//! A run under ptrace. The main process is followed with all its threads; its children run free, but for those that
//! are the same program again, below other programs such as cargo.

use std::collections::{HashMap, HashSet};
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

/// Runs a program. `scratch` is where its output goes. With `through_children` the processes that it starts are
/// followed too, and disturbed where they are the same program; the run is over when all of them are.
///
/// # Errors
/// It cannot be started or followed.
pub(crate) fn run(program: &Command, scratch: &Path, through_children: bool, watch: &mut dyn Watch) -> Result<Ran> {
    let outputs = ["stdout", "stderr"].map(|name| scratch.join(name));
    let mut command = Command::new("sh");
    command.args(["-c", WAIT, "sh"]).arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(program.get_current_dir().context("the run has a folder")?);
    command.process_group(0).env_remove("RUST_BACKTRACE").env("TMPDIR", scratch);
    command.stdin(Stdio::piped()).stdout(File::create(&outputs[0])?).stderr(File::create(&outputs[1])?);
    let mut child = command.spawn().context("no shell starts")?;
    let main = Pid::from_raw(i32::try_from(child.id())?);
    let mut options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    if through_children {
        options |= Options::PTRACE_O_TRACEFORK | Options::PTRACE_O_TRACEVFORK;
    }
    ptrace::seize(main, options).context("cannot follow the shell")?;
    ptrace::interrupt(main)?;
    child.stdin.take().context("a pipe")?.write_all(b"\n")?;
    let program = fs::canonicalize(Path::new(program.get_program()))?;
    let outcome = Followed::new(main, program).follow(watch);
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
    while killpg(main, Signal::SIGKILL).is_ok() && has_running(main.as_raw().cast_unsigned()) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the group has a process that is not a zombie, which waits for its parent only.
pub(crate) fn has_running(group: u32) -> bool {
    let Ok(processes) = fs::read_dir("/proc") else { return false };
    processes.flatten().any(|process| {
        let text = fs::read_to_string(process.path().join("stat")).unwrap_or_default();
        // proc_pid_stat(5): state, parent and group follow the name in parentheses.
        let mut fields = text.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        let (state, group_of) = (fields.next(), fields.nth(1));
        group_of == Some(&*group.to_string()) && !matches!(state, Some("Z" | "X"))
    })
}

/// The processes of a run.
struct Followed {
    main: Pid,
    program: PathBuf,
    /// The processes that execute the program.
    processes: HashSet<Pid>,
    /// The process of each thread that has been seen.
    threads: HashMap<Pid, Pid>,
    pending: HashMap<Pid, Pending>,
    /// The number of calls.
    calls: usize,
}

impl Followed {
    fn new(main: Pid, program: PathBuf) -> Followed {
        let (processes, threads, pending) = Default::default();
        Followed { main, program, processes, threads, pending, calls: 0 }
    }

    /// Follows all of them until they have ended. Returns how the first one did, and the number of calls.
    fn follow(mut self, watch: &mut dyn Watch) -> Result<(End, usize)> {
        let mut end = None;
        loop {
            // Only this thread's: others attack at the same time.
            let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
            let status = match waitpid(None, Some(flags)) {
                Err(Errno::EINTR) => continue,
                Err(Errno::ECHILD) => break,
                status => status.context("cannot wait for the program")?,
            };
            let mut deliver = None;
            let thread = match status {
                WaitStatus::Exited(pid, code) => {
                    self.ended(pid);
                    end = end.or((pid == self.main).then_some(End::Exit(code)));
                    continue;
                }
                WaitStatus::Signaled(pid, signal, _) => {
                    self.ended(pid);
                    end = end.or((pid == self.main).then_some(End::Signal(signal)));
                    continue;
                }
                WaitStatus::PtraceSyscall(pid) => {
                    self.call(pid, watch)?;
                    pid
                }
                WaitStatus::PtraceEvent(pid, _, event) => {
                    if event == Event::PTRACE_EVENT_EXEC as i32 {
                        self.executes(pid)?;
                    }
                    pid
                }
                WaitStatus::Stopped(pid, signal) => {
                    deliver = Some(signal);
                    pid
                }
                other => bail!("an unknown state: {other:?}"),
            };
            let is_watched = self.process_of(thread).is_some_and(|process| self.processes.contains(&process));
            // A thread that was stopped may have been killed since.
            let _ = if is_watched { ptrace::syscall(thread, deliver) } else { ptrace::cont(thread, deliver) };
        }
        Ok((end.context("the program's end was not seen")?, self.calls))
    }

    fn ended(&mut self, thread: Pid) {
        self.pending.remove(&thread);
        self.threads.remove(&thread);
        self.processes.remove(&thread);
    }

    /// Returns the process that a thread belongs to. `None` if it is gone.
    fn process_of(&mut self, thread: Pid) -> Option<Pid> {
        if let Some(process) = self.threads.get(&thread) {
            return Some(*process);
        }
        let status = fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
        let number = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()?;
        self.threads.insert(thread, Pid::from_raw(number));
        Some(Pid::from_raw(number))
    }

    /// A process has begun to execute a file.
    fn executes(&mut self, process: Pid) -> Result<()> {
        self.pending.remove(&process);
        let is_it = fs::read_link(format!("/proc/{process}/exe")).is_ok_and(|file| file == self.program);
        // Tests attack scripts, whose file is a shell.
        if is_it || process == self.main && !is_shell(process)? {
            self.processes.insert(process);
            // The call that is left next is `execve`.
            let registers = ptrace::getregs(process)?;
            self.pending.insert(process, Pending { call: Call::new(process, &registers), result: None });
        } else {
            self.processes.remove(&process);
        }
        Ok(())
    }

    /// A thread enters a call, or leaves it.
    fn call(&mut self, thread: Pid, watch: &mut dyn Watch) -> Result<()> {
        let (Ok(mut registers), Some(process)) = (ptrace::getregs(thread), self.process_of(thread)) else {
            return Ok(());
        };
        match self.pending.remove(&thread) {
            None => {
                let call = Call::new(process, &registers);
                self.calls += 1;
                let act = watch.enters(self.calls, &call);
                let result = enter(process, thread, registers, &call, act)?;
                self.pending.insert(thread, Pending { call, result });
            }
            Some(Pending { call, result }) => {
                if let Some(result) = result {
                    registers.rax = result.cast_unsigned();
                    // The process may be gone by now: another thread ended it.
                    let _ = ptrace::setregs(thread, registers);
                }
                watch.leaves(&call, registers.rax.cast_signed());
            }
        }
        Ok(())
    }
}

/// Does to a call what was decided. Returns the result that it gets when it is left.
fn enter(
    process: Pid,
    thread: Pid,
    mut registers: libc::user_regs_struct,
    call: &Call,
    act: Act,
) -> Result<Option<i64>> {
    Ok(match act {
        Act::Let => None,
        Act::Kill => {
            kill(process, Signal::SIGKILL)?;
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
