//! A program under ptrace(2): it starts with fixed addresses and without a clock, and all but one of its threads are
//! stopped at any time.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::processor::{RAX, RBX, RCX, RDI, RDX, RSI, RSP, Registers};

/// Processor seconds after which the kernel ends the program: a thread may wait in a loop for a thread that is stopped.
const LIMIT: u64 = 60;

/// The reason of a stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// After one step, or before a system call.
    Trap,
    /// In clone(2), with the new thread.
    Clone(Pid),
    /// The thread has ended.
    Ended(i32),
    /// A signal is to be delivered.
    Signal(Signal),
}

/// A started program. It is killed with this value.
#[derive(Debug)]
pub(crate) struct Tracee {
    pub(crate) process: Pid,
    /// Its standard output.
    output: File,
    /// All threads that it has started.
    threads: Vec<Pid>,
    is_over: bool,
}

impl Tracee {
    /// Starts a program, which stops before its first instruction.
    ///
    /// # Errors
    /// It cannot be started, or the system refuses ptrace.
    #[expect(unsafe_code, reason = "what runs between fork and exec is for the caller to vouch for")]
    pub(crate) fn start(program: &Path, arguments: &[String], output: File) -> Result<Tracee> {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().stdin(Stdio::null()).stdout(output.try_clone()?);
        let hook = || {
            let checked = |result: i32| if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) };
            let limit = libc::rlimit { rlim_cur: LIMIT, rlim_max: LIMIT };
            // SAFETY: each is one system call, and the limit lives until it returns.
            unsafe {
                checked(libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong))?;
                checked(libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV))?;
                checked(libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0))?;
                checked(libc::setrlimit(libc::RLIMIT_CPU, &raw const limit))?;
            }
            ptrace::traceme().map_err(std::io::Error::from)
        };
        // SAFETY: the hook makes system calls only, which are safe between fork and exec.
        unsafe { command.pre_exec(hook) };
        let child = command.spawn().with_context(|| format!("cannot start `{}` under ptrace", program.display()))?;
        let process = Pid::from_raw(i32::try_from(child.id()).context("a process id beyond pid_t")?);
        let tracee = Tracee { process, output, threads: Vec::new(), is_over: false };
        match waitpid(process, None)? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
            other => bail!("`{}` did not start under ptrace: {other:?}", program.display()),
        }
        ptrace::setoptions(process, Options::PTRACE_O_EXITKILL | Options::PTRACE_O_TRACECLONE)?;
        Ok(tracee)
    }

    /// Lets one thread execute one instruction.
    ///
    /// # Errors
    /// ptrace fails.
    pub(crate) fn step(&mut self, thread: Pid) -> Result<Stop> {
        ptrace::step(thread, None)?;
        self.stop(thread)
    }

    /// Lets one thread run to its next system call, which is not executed: its registers are as after it.
    ///
    /// # Errors
    /// ptrace fails.
    pub(crate) fn run_to_call(&mut self, thread: Pid) -> Result<Stop> {
        ptrace::sysemu(thread, None)?;
        self.stop(thread)
    }

    fn stop(&mut self, thread: Pid) -> Result<Stop> {
        Ok(match waitpid(thread, Some(WaitPidFlag::__WALL))? {
            WaitStatus::Stopped(_, Signal::SIGTRAP) => Stop::Trap,
            WaitStatus::Stopped(_, signal) => Stop::Signal(signal),
            WaitStatus::PtraceEvent(_, _, libc::PTRACE_EVENT_CLONE) => {
                let new = Pid::from_raw(i32::try_from(ptrace::getevent(thread)?).context("a thread id beyond pid_t")?);
                // The new thread stops before its first instruction.
                waitpid(new, Some(WaitPidFlag::__WALL))?;
                self.threads.push(new);
                Stop::Clone(new)
            }
            WaitStatus::Exited(_, code) => Stop::Ended(code),
            WaitStatus::Signaled(_, signal, _) => Stop::Signal(signal),
            other => bail!("a thread stopped with {other:?}"),
        })
    }

    /// Waits for the end of the process, in which `threads` have been told to end. Returns its exit code.
    ///
    /// # Errors
    /// A signal has ended it.
    pub(crate) fn end(&mut self, threads: &[Pid]) -> Result<i32> {
        self.is_over = true;
        let first = self.process;
        for thread in threads.iter().filter(|thread| **thread != first) {
            while !matches!(self.stop(*thread)?, Stop::Ended(_) | Stop::Signal(Signal::SIGKILL)) {}
        }
        match self.stop(self.process)? {
            Stop::Ended(code) => Ok(code),
            other => bail!("the program ended with {other:?}"),
        }
    }

    /// Returns what the program has printed.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn printed(&mut self) -> Result<String> {
        let mut text = String::new();
        std::io::Seek::rewind(&mut self.output)?;
        self.output.read_to_string(&mut text)?;
        Ok(text)
    }
}

impl Drop for Tracee {
    fn drop(&mut self) {
        if !self.is_over {
            // An error means that it has ended by itself.
            let _ = nix::sys::signal::kill(self.process, Signal::SIGKILL);
            let is_alive = |status| !matches!(status, WaitStatus::Exited(..) | WaitStatus::Signaled(..));
            // The first thread's end is reported after those of all others. An error means that a thread has ended.
            for thread in self.threads.iter().chain([&self.process]) {
                while waitpid(*thread, Some(WaitPidFlag::__WALL)).is_ok_and(is_alive) {}
            }
        }
    }
}

/// Reads a stopped thread's registers.
///
/// # Errors
/// ptrace fails.
#[expect(unsafe_code, reason = "nix has no request for vector registers")]
pub(crate) fn registers(thread: Pid) -> Result<Registers> {
    let user = ptrace::getregs(thread)?;
    let mut vectors = std::mem::MaybeUninit::<libc::user_fpregs_struct>::uninit();
    // SAFETY: the kernel fills the structure, or returns an error.
    let vectors = unsafe {
        ensure!(
            libc::ptrace(libc::PTRACE_GETFPREGS, thread.as_raw(), 0, vectors.as_mut_ptr()) == 0,
            "cannot read vector registers: {}",
            std::io::Error::last_os_error()
        );
        vectors.assume_init()
    };
    let mut registers =
        Registers { rip: user.rip, flags: user.eflags, fs: user.fs_base, gs: user.gs_base, ..Registers::default() };
    let high = [user.r8, user.r9, user.r10, user.r11, user.r12, user.r13, user.r14, user.r15];
    registers.general[8..].copy_from_slice(&high);
    let low = [
        (RAX, user.rax),
        (RCX, user.rcx),
        (RDX, user.rdx),
        (RBX, user.rbx),
        (RSP, user.rsp),
        (5, user.rbp),
        (RSI, user.rsi),
        (RDI, user.rdi),
    ];
    for (at, value) in low {
        registers.general[at] = value;
    }
    for (place, words) in registers.vectors.iter_mut().zip(vectors.xmm_space.chunks_exact(4)) {
        *place = words.iter().rev().fold(0, |value, word| value << 32 | u128::from(*word));
    }
    Ok(registers)
}

/// Writes a stopped thread's registers.
///
/// # Errors
/// ptrace fails.
#[expect(unsafe_code, reason = "nix has no request for vector registers")]
pub(crate) fn set_registers(thread: Pid, registers: &Registers) -> Result<()> {
    let mut user = ptrace::getregs(thread)?;
    let general = &registers.general;
    (user.rip, user.eflags) = (registers.rip, registers.flags);
    (user.fs_base, user.gs_base) = (registers.fs, registers.gs);
    (user.rax, user.rcx, user.rdx, user.rbx) = (general[RAX], general[RCX], general[RDX], general[RBX]);
    (user.rsp, user.rbp, user.rsi, user.rdi) = (general[RSP], general[5], general[RSI], general[RDI]);
    (user.r8, user.r9, user.r10, user.r11) = (general[8], general[9], general[10], general[11]);
    (user.r12, user.r13, user.r14, user.r15) = (general[12], general[13], general[14], general[15]);
    // The kernel must not take this for the end of a system call to begin again.
    user.orig_rax = u64::MAX;
    ptrace::setregs(thread, user)?;
    let mut vectors = std::mem::MaybeUninit::<libc::user_fpregs_struct>::uninit();
    // SAFETY: the kernel fills the structure, or returns an error; then it reads it.
    unsafe {
        let get = libc::ptrace(libc::PTRACE_GETFPREGS, thread.as_raw(), 0, vectors.as_mut_ptr());
        ensure!(get == 0, "cannot read vector registers: {}", std::io::Error::last_os_error());
        let mut vectors = vectors.assume_init();
        for (words, value) in vectors.xmm_space.chunks_exact_mut(4).zip(registers.vectors) {
            for (at, word) in words.iter_mut().enumerate() {
                *word = (value >> (32 * at)) as u32;
            }
        }
        let set = libc::ptrace(libc::PTRACE_SETFPREGS, thread.as_raw(), 0, &raw const vectors);
        ensure!(set == 0, "cannot write vector registers: {}", std::io::Error::last_os_error());
    }
    Ok(())
}
