//! The registers of a stopped thread that unwinding needs.

use std::io;

use nix::unistd::Pid;

/// The registers of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Registers {
    /// The address of the next instruction.
    pub(crate) pc: u64,
    /// The stack pointer.
    pub(crate) sp: u64,
    /// The frame pointer. `None` for a thread that was read without a stop.
    pub(crate) fp: Option<u64>,
    /// The link register, on architectures that have one.
    pub(crate) lr: Option<u64>,
    /// The system call that the thread is in, if any.
    pub(crate) call: Option<i64>,
}

/// The kind of a system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// Waits for another thread, or wakes one.
    Futex,
    /// Maps memory, gives it back, or changes it.
    Memory,
    /// Waits for events, a time, a child or a signal: for work to come.
    Wait,
    /// Reads, writes, opens, sends: everything that moves data.
    Io,
    /// Gives the processor away.
    Yield,
}

/// The kind of a system call of this machine, by its number.
pub(crate) fn call(number: i64) -> Call {
    let any = |calls: &[libc::c_long]| calls.iter().any(|call| libc::c_long::try_from(number) == Ok(*call));
    if any(&[libc::SYS_futex]) {
        Call::Futex
    } else if any(&[
        libc::SYS_mmap,
        libc::SYS_munmap,
        libc::SYS_madvise,
        libc::SYS_mremap,
        libc::SYS_mprotect,
        libc::SYS_brk,
    ]) {
        Call::Memory
    } else if any(&[libc::SYS_sched_yield]) {
        Call::Yield
    } else if any(&[
        libc::SYS_nanosleep,
        libc::SYS_clock_nanosleep,
        libc::SYS_restart_syscall,
        libc::SYS_ppoll,
        libc::SYS_pselect6,
        libc::SYS_epoll_pwait,
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_rt_sigsuspend,
        libc::SYS_accept,
        libc::SYS_accept4,
    ]) || waits(number)
    {
        Call::Wait
    } else {
        Call::Io
    }
}

/// The waiting calls that only x86_64 has.
#[cfg(target_arch = "x86_64")]
fn waits(number: i64) -> bool {
    [libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_wait, libc::SYS_pause].contains(&number)
}

#[cfg(not(target_arch = "x86_64"))]
fn waits(_: i64) -> bool {
    false
}

/// The longest set of registers of the architectures: aarch64's x0 to x30, sp, pc and pstate.
const MOST: usize = 34;
/// The set of general registers (elf.h).
const NT_PRSTATUS: libc::c_int = 1;

/// Reads one of a stopped thread's sets of registers. Returns as many words as the kernel has written.
#[expect(unsafe_code, reason = "the kernel writes registers where a pointer says")]
fn set(thread: Pid, kind: libc::c_int) -> io::Result<([u64; MOST], usize)> {
    let mut words = [0; MOST];
    let mut room = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: size_of_val(&words) };
    // SAFETY: the kernel writes at most `iov_len` bytes to memory that is ours, and the new length to `room`.
    let done = unsafe { libc::ptrace(libc::PTRACE_GETREGSET, thread.as_raw(), kind, &raw mut room) };
    if done == 0 { Ok((words, room.iov_len / size_of::<u64>())) } else { Err(io::Error::last_os_error()) }
}

/// Reads the registers of a stopped thread. `None` if it runs in a different mode than this program: a 32-bit program.
///
/// # Errors
/// The thread has ended, or is not stopped.
pub(crate) fn read(thread: Pid) -> io::Result<Option<Registers>> {
    let (words, count) = set(thread, NT_PRSTATUS)?;
    Ok(from_words(thread, &words, count))
}

/// struct user_regs_struct (sys/user.h): rbp is the fifth word, orig_rax the 16th, rip the 17th, rsp the 20th.
#[cfg(target_arch = "x86_64")]
fn from_words(_: Pid, words: &[u64; MOST], count: usize) -> Option<Registers> {
    // The set of a 32-bit program is shorter.
    if count < 27 {
        return None;
    }
    // After an interrupt or an exception the kernel leaves -1 there.
    let call = Some(words[15].cast_signed()).filter(|call| *call >= 0);
    Some(Registers { pc: words[16], sp: words[19], fp: Some(words[4]), lr: None, call })
}

/// struct user_pt_regs (asm/ptrace.h): x0 to x30, sp, pc.
#[cfg(target_arch = "aarch64")]
fn from_words(thread: Pid, words: &[u64; MOST], count: usize) -> Option<Registers> {
    /// NT_ARM_SYSTEM_CALL (linux/elf.h): one int, -1 outside of a system call.
    const SYSTEM_CALL: libc::c_int = 0x404;
    if count < MOST {
        return None;
    }
    let call = set(thread, SYSTEM_CALL).ok().map(|(words, _)| i64::from(words[0] as u32 as i32));
    let call = call.filter(|call| *call >= 0);
    Some(Registers { pc: words[32], sp: words[31], fp: Some(words[29]), lr: Some(words[30]), call })
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn from_words(_: Pid, _: &[u64; MOST], _: usize) -> Option<Registers> {
    None
}

/// Whether programs of this machine's architecture can be profiled.
pub(crate) const SUPPORTED: bool = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_of_the_kind_of_their_purpose() {
        for (number, kind) in [
            (libc::SYS_futex, Call::Futex),
            (libc::SYS_brk, Call::Memory),
            (libc::SYS_mremap, Call::Memory),
            (libc::SYS_sched_yield, Call::Yield),
            (libc::SYS_ppoll, Call::Wait),
            (libc::SYS_wait4, Call::Wait),
            (libc::SYS_accept4, Call::Wait),
            (libc::SYS_read, Call::Io),
            (libc::SYS_openat, Call::Io),
        ] {
            assert_eq!(call(number), kind, "{number}");
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn registers_are_those_words_of_the_kernel_s_set() {
        let mut words: [u64; MOST] = std::array::from_fn(|at| at as u64);
        let thread = Pid::from_raw(1);
        let expected = Registers { pc: 16, sp: 19, fp: Some(4), lr: None, call: Some(15) };
        assert_eq!(from_words(thread, &words, 27), Some(expected));
        words[15] = u64::MAX;
        assert_eq!(from_words(thread, &words, 27), Some(Registers { call: None, ..expected }));
        assert_eq!(from_words(thread, &words, 17), None, "a 32-bit program");
    }
}
