//! The cost of a start, counted: page faults and system calls of a program that allocates nothing, or one block. Counts
//! are the same on a loaded machine; `cargo xtask bench rest` measures the times.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use casebook::bench::{Bench, Donors, Host};
use casebook::link::{LinkSetup, Linker, Mode};
use fixtures::Arch;
use fixtures::trials::room;
use libtest_mimic::Trial;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// The runs of each program. The kernel places stack and mappings at random, and so some of them cross a page more: the
/// least count is of none that does.
const RUNS: usize = 12;

/// The most that a start may cost beyond that of stock musl: page faults and system calls. The first are three or more
/// above the counts, since kernels differ in how many pages of a file they map at once.
const BOUNDS: [(&str, Cost); 11] = [
    ("snmalloc", Cost { faults: 7, calls: 0 }),
    // The default donor in a program that calls no function of the family.
    ("no block", Cost { faults: 7, calls: 0 }),
    ("snmalloc-checks", Cost { faults: 18, calls: 15 }),
    ("mimalloc", Cost { faults: 14, calls: 6 }),
    ("mimalloc-secure", Cost { faults: 14, calls: 9 }),
    ("mimalloc3", Cost { faults: 32, calls: 13 }),
    ("jemalloc", Cost { faults: 53, calls: 13 }),
    ("rpmalloc", Cost { faults: 9, calls: 0 }),
    ("scudo", Cost { faults: 23, calls: 1 }),
    ("hardened", Cost { faults: 225, calls: 9 }),
    ("hardened-light", Cost { faults: 47, calls: 9 }),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Cost {
    faults: u64,
    calls: u64,
}

pub(crate) fn trials() -> Vec<Trial> {
    room("starts", &[("no_donor_costs_more_than_its_bound", no_donor_costs_more_than_its_bound)])
}

fn no_donor_costs_more_than_its_bound() {
    let bench = Bench::new();
    let stock_program = link(&bench, None);
    let (stock, idle) = (least(&stock_program, &["x"]), least(&stock_program, &[]));
    let beyond = |cost: Cost, stock: Cost| Cost {
        faults: cost.faults.saturating_sub(stock.faults),
        calls: cost.calls.saturating_sub(stock.calls),
    };
    let mut found = Vec::new();
    for donor in donors::all() {
        let program = link(&bench, Some(donor.name));
        found.push((donor.name, beyond(least(&program, &["x"]), stock)));
        if donor.name == donors::default_for(Arch::X86_64).name {
            found.push(("no block", beyond(least(&program, &[]), idle)));
        }
    }
    println!("note: stock takes {stock:?}, and {idle:?} without a block; beyond that: {found:?}");
    for (name, cost) in found {
        let (_, bound) = BOUNDS.iter().find(|(known, _)| *known == name).expect("a bound for each donor");
        assert!(cost.faults <= bound.faults && cost.calls <= bound.calls, "{name}: {cost:?}, and at most {bound:?}");
    }
}

fn link(bench: &Bench, donor: Option<&'static str>) -> PathBuf {
    let way = LinkSetup { host: Host::Debian(Arch::X86_64), linker: Linker::Lld, mode: Mode::Static };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("start").join("once.c");
    let object = bench.object(Arch::X86_64, &source, &["-O2", "-fno-builtin", "-fno-sanitize=all"].map(Into::into));
    let libc = bench.libc(way.host, donor.map_or(Donors::STOCK, Donors::both), &[]);
    let path = bench.path(&format!("once {}", donor.unwrap_or("stock")));
    way.link(bench, &libc, &[object], &[], &path).unwrap_or_else(|error| panic!("{error}"));
    path
}

fn least(program: &Path, arguments: &[&str]) -> Cost {
    let costs: Vec<Cost> = (0..RUNS).map(|_| cost(program, arguments)).collect();
    let least = |part: fn(&Cost) -> u64| costs.iter().map(part).min().unwrap_or_default();
    Cost { faults: least(|cost| cost.faults), calls: least(|cost| cost.calls) }
}

/// Counts from the end of `execve` to the exit of the process. A shell waits for a line until it is traced, and then
/// executes the program.
fn cost(program: &Path, arguments: &[&str]) -> Cost {
    let mut command = Command::new("sh");
    command.args(["-c", "read line && exec \"$0\" \"$@\""]).arg(program).args(arguments).env_clear();
    let mut child = command.stdin(Stdio::piped()).spawn().expect("a shell");
    let pid = Pid::from_raw(child.id().cast_signed());
    ptrace::attach(pid).expect("it is ours");
    waitpid(pid, None).expect("it stops");
    let options = Options::PTRACE_O_TRACEEXEC | Options::PTRACE_O_TRACEEXIT | Options::PTRACE_O_TRACESYSGOOD;
    ptrace::setoptions(pid, options).expect("it is stopped");
    child.stdin.take().expect("a pipe").write_all(b"\n").expect("it waits");
    let (mut before, mut calls, mut faults) = (None, 0, 0);
    let mut signal = None;
    loop {
        match before {
            None => ptrace::cont(pid, signal.take()).expect("it is stopped"),
            Some(_) => ptrace::syscall(pid, signal.take()).expect("it is stopped"),
        }
        match waitpid(pid, None).expect("it is ours") {
            WaitStatus::PtraceEvent(_, _, event) if event == ptrace::Event::PTRACE_EVENT_EXEC as i32 => {
                before = Some(minor_faults(pid));
            }
            WaitStatus::PtraceEvent(..) => faults = minor_faults(pid) - before.expect("it was executed"),
            // The first stop is at the end of `execve`; then each call stops at its begin and at its end, except for
            // `exit_group`, which does not end.
            WaitStatus::PtraceSyscall(_) => calls += 1,
            WaitStatus::Stopped(_, other) => signal = Some(other).filter(|other| *other != Signal::SIGSTOP),
            WaitStatus::Exited(_, code) => {
                assert_eq!(code, 0, "{}", program.display());
                break;
            }
            other => panic!("{}: {other:?}", program.display()),
        }
    }
    drop(child.wait());
    Cost { faults, calls: calls / 2 }
}

/// Page faults of a process that needed no disk: the tenth field of its `stat` (proc(5)).
fn minor_faults(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it is stopped");
    let (_, fields) = text.rsplit_once(") ").expect("a name in parentheses");
    fields.split(' ').nth(7).and_then(|field| field.parse().ok()).expect("a number")
}
