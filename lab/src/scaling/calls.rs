//! System calls of a stepped program: what they cost, and those that the model answers itself, so that each run is the
//! same: futexes, clocks, random bytes, numbers of threads and of processors.

use anyhow::{Context, Result, bail, ensure};
use nix::libc;

use super::caches::CORES;
use super::pages::Pages;
use super::processor::{RAX, RCX, RDI, RDX, RSI};
use super::program::{Program, State};
use super::tracee::{self, Stop};

/// The number of the call that marks the measured part. No kernel has a call of this number.
pub(crate) const MARKER: u64 = 0x0061_6c6c;
/// Its first argument: from here on, the program is stepped. The second: the number of threads with a measured part.
const STEP: u64 = 1;
/// The measured part of the calling thread begins, together with those of all others.
const BEGIN: u64 = 2;
/// It ends.
const END: u64 = 3;

/// The processors that the program finds.
const PROCESSORS: usize = 128;
/// Cycles of virtual time in a nanosecond, for the clocks that a program reads.
const CYCLES: u64 = 3;
/// The number of the first thread for the program.
const FIRST_ID: u64 = 1000;

// Cycles, each the least of 500 on the machine of the page (AMD EPYC of 2.6 GHz, virtual, Linux 6.18).
/// A system call that does nothing: getppid.
const CALL: u64 = 310;
/// FUTEX_WAKE beside that, without a waiting thread, and for each woken one.
const WAKE: u64 = 340;
const WAKE_EACH: u64 = 7600;
/// From that call until the woken thread's first instruction, on an idle core.
const WOKEN: u64 = 7500;
/// mmap, with the lock of the address space.
const MAP: u64 = 2500;
/// munmap of pages that were never written, with that lock.
const UNMAP: u64 = 5500;
/// madvise, mprotect, brk.
const CHANGE: u64 = 1700;
/// The part of each page that goes back.
const BACK: u64 = 470;
/// Not measured, as this machine has two cores: an interrupt of other cores that forget addresses (TLB shootdown) takes
/// the sender thousands of cycles, more with more cores, and each receiver a short system call (Amit et al., "Don't
/// shoot down TLB shootdowns!", EuroSys 2020).
const INTERRUPT: u64 = 2000;
const INTERRUPT_EACH: u64 = 50;
const INTERRUPTED: u64 = 1000;

/// Makes the start of each run the same: constant random bytes, and no functions of the kernel that read a clock.
/// `stack` is the stack pointer at the program's first instruction.
///
/// # Errors
/// The stack has no auxiliary vector.
pub(super) fn fix_start(pages: &mut Pages, stack: u64) -> Result<()> {
    let mut at = stack + 8 * (word(pages, stack)? + 2);
    while word(pages, at)? != 0 {
        at += 8;
    }
    at += 8;
    loop {
        match word(pages, at)? {
            libc::AT_NULL => break,
            libc::AT_SYSINFO_EHDR => pages.poke(at, &libc::AT_IGNORE.to_le_bytes())?,
            libc::AT_RANDOM => {
                let bytes = word(pages, at + 8)?;
                pages.poke(bytes, b"sixteen constant")?;
            }
            _ => {}
        }
        at += 16;
    }
    Ok(())
}

fn word(pages: &mut Pages, address: u64) -> Result<u64> {
    let mut bytes = [0; 8];
    pages.peek(address, &mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

fn error(code: i32) -> u64 {
    i64::from(-code).cast_unsigned()
}

/// Ends a thread's wait, whose time is over.
pub(super) fn time_out(program: &mut Program, at: usize) {
    let was_futex = program.futexes.leave(at);
    let thread = &mut program.threads[at];
    thread.state = State::Ready;
    if was_futex {
        thread.registers.general[RAX] = error(libc::ETIMEDOUT);
    }
}

/// Makes the system call of a thread, whose registers are those after it, with its number in RAX. Returns the exit code
/// if the program ends.
///
/// # Errors
/// The call is unknown, or fails in a way that the model does not know.
pub(super) fn make(program: &mut Program, at: usize) -> Result<Option<i32>> {
    let general = program.threads[at].registers.general;
    let number = general[RAX];
    let [first, second, third] = [general[RDI], general[RSI], general[RDX]];
    if number == MARKER {
        let result = mark(program, at, first, second)?;
        answer(program, at, result);
        return Ok(None);
    }
    program.count_inside(at, |inside| &mut inside.calls, 1);
    program.threads[at].clock += CALL;
    let result = match number.cast_signed() {
        libc::SYS_futex => {
            let result = futex(program, at)?;
            answer(program, at, result);
            return Ok(None);
        }
        libc::SYS_sched_yield => {
            program.yields(at);
            0
        }
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => {
            let (time, is_absolute) =
                if number.cast_signed() == libc::SYS_nanosleep { (first, false) } else { (third, second & 1 == 1) };
            let until = deadline(program, at, time, is_absolute)?;
            sleep(program, at, Some(until));
            0
        }
        libc::SYS_clock_gettime | libc::SYS_gettimeofday => {
            let nanoseconds = program.threads[at].clock / CYCLES;
            let (place, unit) =
                if number.cast_signed() == libc::SYS_clock_gettime { (second, 1) } else { (first, 1000) };
            program.pages.poke(place, &(1_000_000 + nanoseconds / 1_000_000_000).to_le_bytes())?;
            program.pages.poke(place + 8, &(nanoseconds % 1_000_000_000 / unit).to_le_bytes())?;
            0
        }
        libc::SYS_getrandom => {
            let bytes: Vec<u8> = (0..second).map(|byte| (byte * 167 + 13) as u8).collect();
            program.pages.poke(first, &bytes)?;
            second
        }
        libc::SYS_gettid => FIRST_ID + at as u64,
        libc::SYS_getpid => FIRST_ID,
        libc::SYS_getcpu => {
            let core = program.threads[at].core as u32;
            for (place, value) in [(first, core), (second, 0)] {
                if place != 0 {
                    program.pages.poke(place, &value.to_le_bytes())?;
                }
            }
            0
        }
        libc::SYS_sched_getaffinity => {
            let length = second.min(PROCESSORS as u64 / 8);
            program.pages.poke(third, &vec![0xff; usize::try_from(length)?])?;
            length
        }
        libc::SYS_rt_sigprocmask => {
            // No signal is ever sent, so none has to be blocked.
            if third != 0 {
                program.pages.poke(third, &[0; 8])?;
            }
            0
        }
        libc::SYS_set_robust_list | libc::SYS_membarrier => 0,
        // The kernel would write the processor's number at any time.
        libc::SYS_rseq | libc::SYS_clone3 => error(libc::ENOSYS),
        libc::SYS_set_tid_address => {
            execute(program, at, true)?;
            program.threads[at].clears = first;
            FIRST_ID + at as u64
        }
        libc::SYS_clone => return clone(program, at).map(|()| None),
        libc::SYS_exit => return exit(program, at).map(|()| None),
        libc::SYS_exit_group => return exit_group(program, at).map(Some),
        libc::SYS_mmap
        | libc::SYS_munmap
        | libc::SYS_mprotect
        | libc::SYS_madvise
        | libc::SYS_mremap
        | libc::SYS_brk => change_space(program, at, number.cast_signed())?,
        libc::SYS_open if tells_processors(program, first) => error(libc::ENOENT),
        libc::SYS_openat if tells_processors(program, second) => error(libc::ENOENT),
        call if IMMEDIATE.contains(&call) => execute(program, at, true)?,
        _ => {
            let place = program.place(at);
            bail!("unknown system call {number} in `{place}`: it could wait, or answer differently in each run")
        }
    };
    answer(program, at, result);
    Ok(None)
}

/// Calls that the kernel makes: they never wait, or only for files.
const IMMEDIATE: [i64; 34] = [
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_lseek,
    libc::SYS_readlink,
    libc::SYS_readlinkat,
    libc::SYS_access,
    libc::SYS_ioctl,
    libc::SYS_fcntl,
    libc::SYS_getrlimit,
    libc::SYS_prlimit64,
    libc::SYS_getrusage,
    libc::SYS_arch_prctl,
    libc::SYS_prctl,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_rt_sigaction,
    libc::SYS_sigaltstack,
    libc::SYS_mincore,
    libc::SYS_clock_getres,
    libc::SYS_mbind,
    libc::SYS_get_mempolicy,
    libc::SYS_sched_setaffinity,
    libc::SYS_getcwd,
];

/// Returns whether a path is that of a file with this machine's number of processors. glibc makes arenas by it. Without
/// such a file, it asks sched_getaffinity.
fn tells_processors(program: &mut Program, path: u64) -> bool {
    for known in ["/sys/devices/system/cpu/", "/proc/stat", "/proc/cpuinfo"] {
        let mut bytes = vec![0; known.len()];
        // A shorter path may end just before memory that is not there.
        if program.pages.peek(path, &mut bytes).is_ok() && bytes == known.as_bytes() {
            return true;
        }
    }
    false
}

/// Sets a call's result, and the registers that a call changes.
fn answer(program: &mut Program, at: usize, result: u64) {
    let registers = &mut program.threads[at].registers;
    registers.general[RAX] = result;
    registers.general[RCX] = registers.rip;
    registers.general[11] = registers.flags;
}

/// Lets the kernel make the thread's call. Returns the result.
fn execute(program: &mut Program, at: usize, with_memory: bool) -> Result<u64> {
    if with_memory {
        program.pages.give_back_all()?;
    }
    let stop = program.step_call(at)?;
    ensure!(stop == Stop::Trap, "a system call in `{}` ended with {stop:?}", program.place(at));
    let registers = tracee::registers(program.threads[at].id)?;
    program.threads[at].registers = registers;
    Ok(registers.general[RAX])
}

fn mark(program: &mut Program, at: usize, kind: u64, value: u64) -> Result<u64> {
    let clock = program.threads[at].clock;
    match kind {
        STEP => {
            ensure!(
                program.span.is_none() && value > 0,
                "the program marks a second measured part, or one of no thread"
            );
            program.expected = value;
            program.is_stepping = true;
            // Before this, clocks counted calls only.
            program.ready = program.ready.iter().map(|(time, thread)| ((*time).max(clock), *thread)).collect();
        }
        BEGIN if program.is_stepping && program.span.is_none() => program.begin_part(at),
        END if program.threads[at].counts.is_some() => program.end_part(at),
        _ => bail!("the program's marker {kind} is out of order"),
    }
    Ok(0)
}

/// Returns the virtual time of a `struct timespec`.
fn deadline(program: &mut Program, at: usize, time: u64, is_absolute: bool) -> Result<u64> {
    let (seconds, nanoseconds) = (word(&mut program.pages, time)?, word(&mut program.pages, time + 8)?);
    let seconds = if is_absolute { seconds.saturating_sub(1_000_000) } else { seconds };
    let cycles = seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds).saturating_mul(CYCLES);
    let now = program.threads[at].clock;
    Ok(if is_absolute { cycles.max(now) } else { now.saturating_add(cycles) })
}

fn sleep(program: &mut Program, at: usize, until: Option<u64>) {
    program.threads[at].state = State::Waiting;
    if let Some(until) = until {
        program.threads[at].clock = until;
        program.ready.insert((until, at));
    }
}

fn futex(program: &mut Program, at: usize) -> Result<u64> {
    let general = program.threads[at].registers.general;
    let [address, operation, value, fourth, second, third] =
        [general[RDI], general[RSI], general[RDX], general[10], general[8], general[9]];
    let command = (operation as i32) & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let mut bytes = [0; 4];
    program.pages.peek(address, &mut bytes)?;
    let found = u32::from_le_bytes(bytes);
    let bits = match command {
        libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAKE_BITSET => third as u32,
        _ => u32::MAX,
    };
    // A number of threads is an int; INT_MAX means all.
    let most = |number: u64| u64::from(number as u32);
    match command {
        libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET => {
            if found != value as u32 {
                return Ok(error(libc::EAGAIN));
            }
            let until = match fourth {
                0 => None,
                time => Some(deadline(program, at, time, command == libc::FUTEX_WAIT_BITSET)?),
            };
            program.count_inside(at, |inside| &mut inside.waits, 1);
            program.futexes.wait(address, at, bits);
            sleep(program, at, until);
            Ok(0)
        }
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => Ok(wake(program, at, address, most(value), bits)),
        libc::FUTEX_REQUEUE | libc::FUTEX_CMP_REQUEUE => {
            if command == libc::FUTEX_CMP_REQUEUE && found != third as u32 {
                return Ok(error(libc::EAGAIN));
            }
            let woken = wake(program, at, address, most(value), u32::MAX);
            let moved = program.futexes.requeue(address, second, most(fourth));
            Ok(if command == libc::FUTEX_REQUEUE { woken } else { woken + moved })
        }
        _ => bail!("unknown futex operation {operation:#x} in `{}`", program.place(at)),
    }
}

/// Wakes threads that wait at an address. Returns their number.
fn wake(program: &mut Program, at: usize, address: u64, most: u64, bits: u32) -> u64 {
    program.threads[at].clock += WAKE;
    let woken = program.futexes.wake(address, most, bits);
    for thread in &woken {
        let now = program.threads[at].clock;
        program.threads[at].clock += WAKE_EACH;
        let other = &mut program.threads[*thread];
        program.ready.remove(&(other.clock, *thread));
        other.clock = now + WOKEN;
        other.state = State::Ready;
        program.ready.insert((other.clock, *thread));
    }
    woken.len() as u64
}

/// Makes a call that changes the address space.
fn change_space(program: &mut Program, at: usize, call: i64) -> Result<u64> {
    let general = program.threads[at].registers.general;
    let [first, second, third] = [general[RDI], general[RSI], general[RDX]];
    let end = match call {
        // The heap ends below the next mapping, which is at least as far.
        libc::SYS_brk => first.saturating_add(1 << 30),
        _ => first.saturating_add(second),
    };
    if first != 0 {
        program.pages.give_back(first, end)?;
    }
    let present = if program.is_stepping && gives_pages(call, third) { program.pages.present(first, end)? } else { 0 };
    let result = execute(program, at, false)?;
    program.pages.forget_mappings();
    let clock = program.threads[at].clock;
    program.threads[at].clock = match call {
        libc::SYS_mmap => program.space.change(clock, MAP),
        libc::SYS_munmap | libc::SYS_mremap => program.space.change(clock, UNMAP + BACK * present),
        libc::SYS_madvise if present > 0 => program.space.share(clock, CHANGE + BACK * present),
        _ => program.space.change(clock, CHANGE),
    };
    // Only pages that were there can be in a different core's buffer of addresses.
    if present > 0 {
        let targets: Vec<usize> = program.ready.iter().map(|(_, thread)| *thread).collect();
        let targets: Vec<usize> =
            targets.into_iter().filter(|thread| program.threads[*thread].state == State::Ready).collect();
        if !targets.is_empty() {
            program.threads[at].clock += INTERRUPT + INTERRUPT_EACH * targets.len() as u64;
        }
        for target in targets {
            program.ready.remove(&(program.threads[target].clock, target));
            program.threads[target].clock += INTERRUPTED;
            program.ready.insert((program.threads[target].clock, target));
        }
    }
    Ok(result)
}

/// Returns whether a call takes pages, or rights to them, from a range.
fn gives_pages(call: i64, advice: u64) -> bool {
    match call {
        libc::SYS_madvise => [libc::MADV_DONTNEED, libc::MADV_FREE].contains(&(advice as i32)),
        _ => [libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect].contains(&call),
    }
}

fn clone(program: &mut Program, at: usize) -> Result<()> {
    let general = program.threads[at].registers.general;
    let [flags, parent_place, child_place] = [general[RDI], general[RDX], general[10]];
    let has = |flag: i32| flags & u64::from(flag.cast_unsigned()) != 0;
    ensure!(has(libc::CLONE_THREAD) && has(libc::CLONE_VM), "the program starts a process in `{}`", program.place(at));
    program.pages.give_back_all()?;
    let Stop::Clone(new) = program.step_call(at)? else {
        bail!("a thread could not be started in `{}`", program.place(at))
    };
    let id = program.threads[at].id;
    ensure!(program.tracee.step(id)? == Stop::Trap, "clone did not return");
    program.threads[at].registers = tracee::registers(id)?;
    let clears = if has(libc::CLONE_CHILD_CLEARTID) { child_place } else { 0 };
    let child = program.add_thread(at, new, clears)?;
    let number = FIRST_ID + child as u64;
    for (flag, place) in [(libc::CLONE_PARENT_SETTID, parent_place), (libc::CLONE_CHILD_SETTID, child_place)] {
        if has(flag) {
            program.pages.poke(place, &(number as u32).to_le_bytes())?;
        }
    }
    answer(program, at, number);
    Ok(())
}

fn exit(program: &mut Program, at: usize) -> Result<()> {
    ensure!(at != 0, "the program's first thread ends before the program");
    program.pages.give_back_all()?;
    let stop = program.step_call(at)?;
    ensure!(matches!(stop, Stop::Ended(_)), "a thread did not end: {stop:?}");
    program.threads[at].state = State::Ended;
    let address = program.threads[at].clears;
    if address != 0 {
        // The kernel has cleared the word.
        wake(program, at, address, 1, u32::MAX);
    }
    Ok(())
}

fn exit_group(program: &mut Program, at: usize) -> Result<i32> {
    program.pages.give_back_all()?;
    program.begin_call(at)?;
    let alive = program.threads.iter().filter(|thread| thread.state != State::Ended);
    let alive: Vec<_> = alive.map(|thread| thread.id).collect();
    program.tracee.end(&alive).context("the program did not end")
}

const _: () = assert!(PROCESSORS <= CORES);
