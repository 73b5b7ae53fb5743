//! `cargo xtask bench lto-memory`: the memory of the linker with each allocator, counted by the kernel.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::ptrace::{self, Event, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;
use sha2::{Digest, Sha256};

use super::pages::{self, Pages};
use super::{DONORS, Linker, Load, load};
use tools::command;

use crate::experiment::Bench;
use crate::profiles::median;

/// The interval between two samples of figures for which the kernel keeps no maximum.
const LOOK: Duration = Duration::from_millis(10);

/// The command's arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct MemoryArgs {
    /// The allocators, glibc's own first
    #[arg(long, value_delimiter = ',', default_values = DONORS)]
    donors: Vec<String>,
    /// The linker's threads
    #[arg(long, default_value_t = 8)]
    threads: u32,
    /// Links with each allocator, in turn
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// The pages that the allocators are configured to take
    #[arg(long, value_enum, default_value = "own")]
    pages: Pages,
}

/// Memory in bytes, as the kernel counts it in proc_pid_status(5) and proc_pid_smaps(5).
#[derive(Debug, Clone, Copy, Default)]
struct Sizes {
    /// Resident pages (VmRSS, HugetlbPages), at the end.
    resident: u64,
    /// The kernel's maximum of resident pages (VmHWM), which does not count pages of hugetlbfs.
    resident_peak: u64,
    /// Committed memory (mappings with the flag `ac`), at the end. It does not include address space that an allocator
    /// reserves without commitment (MAP_NORESERVE: snmalloc, mimalloc), even if its pages are resident.
    committed: u64,
    /// The maximum of committed memory among samples every ten milliseconds.
    committed_peak: u64,
    /// Address space (VmSize), at the end.
    mapped: u64,
    /// The kernel's maximum of the address space (VmPeak).
    mapped_peak: u64,
    /// Huge pages at the end: transparent ones, and those of hugetlbfs.
    huge: u64,
}

/// Links by each allocator, and prints a table: the medians of all rounds.
///
/// # Errors
/// The system has no such pages, a part cannot be made, or an allocator's link differs from glibc's.
pub(crate) fn bench(args: &MemoryArgs) -> Result<()> {
    args.pages.present(Path::new(pages::SYSTEM))?;
    ensure!(args.rounds > 0, "`--rounds 0` measures nothing");
    let Load { lld, bench: Bench { home, .. }, objects, allograft } = &load()?;
    let mut arms = Vec::new();
    for name in std::iter::once("glibc").chain(args.donors.iter().map(String::as_str)) {
        let Some(told) = args.pages.options(name) else {
            println!("{name}: left out, since it has no option for such pages");
            continue;
        };
        let mut preload = None;
        if name != "glibc" {
            let file = home.join(format!("lib{name}.so"));
            let mut emit = Command::new(allograft);
            emit.args(["--quiet", "emit", "--target", "x86_64-linux-gnu", "--as", "shared", "--donor", name, "-o"]);
            emit.arg(&file).args(told.settings.iter().flat_map(|setting| ["--set", setting]));
            command::output(&mut emit)?;
            preload = Some(file);
        }
        arms.push((name.to_owned(), preload, told.variables, Vec::new()));
    }
    let mut expected = None;
    for _ in 0..args.rounds {
        for (name, preload, variables, found) in &mut arms {
            let began = Instant::now();
            let (sizes, sum) = link(lld, home, objects, args.threads, preload.as_deref(), variables)
                .with_context(|| format!("the link with {name}"))?;
            if expected.get_or_insert(sum) != &sum {
                bail!("the program that was linked with {name} is another one than with glibc's malloc");
            }
            eprintln!("{name}: {:.1} s", began.elapsed().as_secs_f64());
            found.push(sizes);
        }
    }
    println!(
        "{:16} {:>14} {:>14} {:>14} {:>14} {:>14} {:>14} {:>14}",
        "MiB", "resident peak", "at exit", "committed peak", "at exit", "mapped peak", "at exit", "huge at exit"
    );
    for (name, _, _, found) in &arms {
        print!("{name:16}");
        let figures: [fn(&Sizes) -> u64; 7] = [
            |sizes| sizes.resident_peak,
            |sizes| sizes.resident,
            |sizes| sizes.committed_peak,
            |sizes| sizes.committed,
            |sizes| sizes.mapped_peak,
            |sizes| sizes.mapped,
            |sizes| sizes.huge,
        ];
        for figure in figures {
            print!(" {:>14.1}", median(found.iter().map(figure).collect()) as f64 / f64::from(1 << 20));
        }
        println!();
    }
    Ok(())
}

/// Links once. Returns the memory, and the SHA-256 of the linked program.
fn link(
    lld: &Linker,
    home: &Path,
    objects: &[PathBuf],
    threads: u32,
    preload: Option<&Path>,
    variables: &[(&str, &str)],
) -> Result<(Sizes, [u8; 32])> {
    let out = home.join("program-memory");
    let mut command = Command::new(&lld.program);
    command.arg(format!("--thinlto-jobs={threads}")).arg(format!("--threads={threads}"));
    command.args(["--lto-O3", "-o"]).arg(&out).args(objects).stdin(Stdio::null());
    command.env("LD_LIBRARY_PATH", &lld.libraries).envs(variables.iter().copied());
    if let Some(preload) = preload {
        command.env("LD_PRELOAD", preload);
    }
    let sizes = followed(&mut command)?;
    Ok((sizes, Sha256::digest(fs::read(&out)?).into()))
}

/// Runs a program to its end under ptrace: the kernel stops it at its exit, while its memory is still mapped.
#[expect(unsafe_code, reason = "what runs between fork and exec is for the caller to vouch for")]
fn followed(command: &mut Command) -> Result<Sizes> {
    // SAFETY: the hook makes one system call and allocates nothing, which is safe between fork and exec.
    unsafe { command.pre_exec(|| ptrace::traceme().map_err(std::io::Error::from)) };
    let child = command.spawn()?;
    let pid = Pid::from_raw(child.id().cast_signed());
    ensure!(matches!(waitpid(pid, None)?, WaitStatus::Stopped(_, Signal::SIGTRAP)), "it did not stop at its exec");
    ptrace::setoptions(pid, Options::PTRACE_O_TRACEEXIT | Options::PTRACE_O_EXITKILL)?;
    let (over, committed) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                // The program may have ended.
                if let Ok(now) = promised(pid) {
                    committed.fetch_max(now, Ordering::Relaxed);
                }
                std::thread::sleep(LOOK);
            }
        });
        let ended = attend(pid);
        over.store(true, Ordering::Relaxed);
        ended
    })
    .map(|mut sizes| {
        sizes.committed_peak = committed.load(Ordering::Relaxed).max(sizes.committed);
        sizes
    })
}

/// Waits for the end of the program. Returns its memory at its exit.
fn attend(pid: Pid) -> Result<Sizes> {
    let mut last = None;
    ptrace::cont(pid, None)?;
    loop {
        match waitpid(pid, None)? {
            WaitStatus::PtraceEvent(_, _, event) => {
                if event == Event::PTRACE_EVENT_EXIT as i32 {
                    let mut sizes = sizes(pid)?;
                    sizes.committed = promised(pid)?;
                    sizes.huge += transparent(pid)?;
                    last = Some(sizes);
                }
                ptrace::cont(pid, None)?;
            }
            WaitStatus::Stopped(_, signal) => ptrace::cont(pid, signal)?,
            WaitStatus::Exited(_, 0) => return last.context("it did not stop at its exit"),
            other => bail!("it ended with {other:?}"),
        }
    }
}

/// Reads proc_pid_status(5). It has no figure of committed memory, and of huge pages only those of hugetlbfs.
fn sizes(pid: Pid) -> Result<Sizes> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let of_status = |name: &str| field(&text, name).with_context(|| format!("its status has no {name}"));
    // A kernel without hugetlbfs does not print this line.
    let reserved = field(&text, "HugetlbPages:").unwrap_or(0);
    Ok(Sizes {
        resident: of_status("VmRSS:")? + reserved,
        resident_peak: of_status("VmHWM:")?,
        committed: 0,
        committed_peak: 0,
        mapped: of_status("VmSize:")?,
        mapped_peak: of_status("VmPeak:")?,
        huge: reserved,
    })
}

/// Returns the bytes of the mappings that count as committed (proc_pid_smaps(5), `ac` in VmFlags).
fn promised(pid: Pid) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps"))?;
    let (mut size, mut sum) = (0, 0);
    for line in text.lines() {
        if let Some(found) = field(line, "Size:") {
            size = found;
        } else if let Some(flags) = line.strip_prefix("VmFlags:")
            && flags.split_whitespace().any(|flag| flag == "ac")
        {
            sum += size;
        }
    }
    Ok(sum)
}

/// Returns the bytes in transparent huge pages (proc_pid_smaps(5), smaps_rollup).
fn transparent(pid: Pid) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    field(&text, "AnonHugePages:").context("its smaps_rollup has no AnonHugePages")
}

/// Returns the value in kB of a line such as `VmRSS:  1024 kB`, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?.trim_end_matches("kB");
    line.trim().parse::<u64>().ok().map(|kilobytes| kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_s_memory_is_read_at_its_exit() {
        let sizes = followed(Command::new("/bin/sh").args(["-c", "exit 0"]).stdin(Stdio::null())).unwrap();
        assert!(sizes.resident > 0 && sizes.resident <= sizes.resident_peak, "{sizes:?}");
        assert!(sizes.committed > 0 && sizes.committed <= sizes.committed_peak, "{sizes:?}");
        assert!(sizes.committed_peak <= sizes.mapped_peak && sizes.mapped <= sizes.mapped_peak, "{sizes:?}");
        let failed = followed(Command::new("/bin/sh").args(["-c", "exit 3"]).stdin(Stdio::null())).unwrap_err();
        assert!(failed.to_string().contains("Exited"), "{failed}");
    }
}
