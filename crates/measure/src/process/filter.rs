//! A seccomp filter that stops a traced program at the counted system calls, and lets all others pass at full speed.

use libc::{sock_filter, sock_fprog};

use crate::executor::Calls;

/// The field that counts a system call.
type Field = fn(&mut Calls) -> &mut u64;

/// The counted system calls, by number.
const COUNTED: [(libc::c_long, Field); 7] = [
    (libc::SYS_futex, |calls| &mut calls.futex),
    #[cfg(not(target_arch = "arm"))]
    (libc::SYS_mmap, |calls| &mut calls.mmap),
    #[cfg(target_arch = "arm")]
    (libc::SYS_mmap2, |calls| &mut calls.mmap),
    (libc::SYS_munmap, |calls| &mut calls.munmap),
    (libc::SYS_madvise, |calls| &mut calls.madvise),
    (libc::SYS_mremap, |calls| &mut calls.mremap),
    (libc::SYS_mprotect, |calls| &mut calls.mprotect),
    (libc::SYS_brk, |calls| &mut calls.brk),
];

/// Counts the system call at `place` of the list, which the filter passes on with the stop.
pub(super) fn count(calls: &mut Calls, place: usize) {
    if let Some((_, field)) = COUNTED.get(place) {
        *field(calls) += 1;
    }
}

/// Returns the filter's program: for each counted call a comparison and a result (seccomp(2)).
pub(super) fn program() -> Vec<sock_filter> {
    let statement = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    // `nr` is the first field of struct seccomp_data.
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0)];
    for (place, (number, _)) in COUNTED.iter().enumerate() {
        let number = u32::try_from(*number).unwrap_or(u32::MAX);
        program.push(sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: number,
        });
        let place = u32::try_from(place).unwrap_or(0);
        program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_TRACE | place));
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    program
}

/// Installs the filter on this process and on its future threads and children. Async-signal-safe: it only makes system
/// calls.
#[expect(unsafe_code, reason = "seccomp filters are installed by prctl with a pointer")]
pub(super) fn install(program: &[sock_filter]) -> std::io::Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| std::io::ErrorKind::InvalidInput)?;
    let filter = sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: plain numbers, and a structure that outlives the calls; the kernel copies the program.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
    };
    if done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
