//! Runs that are killed before every system call that can change a file: what each leaves starts programs, and the
//! next run comes to the same end as if there had been no kill. `crates/hosts/src/trials/killed.rs` does the same at
//! each stage, for more kinds of hosts and file systems.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use ::nix::libc;
use ::nix::sys::ptrace::{self, Options};
use ::nix::sys::signal::Signal;
use ::nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use ::nix::unistd::Pid;

use crate::lab::{Lab, assert_same};

/// The system calls that can change a file, its names or its attributes, or write what was changed to disk. Those of
/// [`OPENS`] do so by some of their flags only.
const CHANGES: [(i64, &str); 42] = [
    (libc::SYS_creat, "creat"),
    (libc::SYS_write, "write"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_pwritev, "pwritev"),
    (libc::SYS_pwritev2, "pwritev2"),
    (libc::SYS_truncate, "truncate"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_fallocate, "fallocate"),
    (libc::SYS_sendfile, "sendfile"),
    (libc::SYS_splice, "splice"),
    (libc::SYS_copy_file_range, "copy_file_range"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_rename, "rename"),
    (libc::SYS_renameat, "renameat"),
    (libc::SYS_renameat2, "renameat2"),
    (libc::SYS_link, "link"),
    (libc::SYS_linkat, "linkat"),
    (libc::SYS_symlink, "symlink"),
    (libc::SYS_symlinkat, "symlinkat"),
    (libc::SYS_unlink, "unlink"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_mkdir, "mkdir"),
    (libc::SYS_mkdirat, "mkdirat"),
    (libc::SYS_rmdir, "rmdir"),
    (libc::SYS_chmod, "chmod"),
    (libc::SYS_fchmod, "fchmod"),
    (libc::SYS_fchmodat, "fchmodat"),
    (libc::SYS_chown, "chown"),
    (libc::SYS_fchown, "fchown"),
    (libc::SYS_lchown, "lchown"),
    (libc::SYS_fchownat, "fchownat"),
    (libc::SYS_utimensat, "utimensat"),
    (libc::SYS_setxattr, "setxattr"),
    (libc::SYS_lsetxattr, "lsetxattr"),
    (libc::SYS_fsetxattr, "fsetxattr"),
    (libc::SYS_removexattr, "removexattr"),
    (libc::SYS_lremovexattr, "lremovexattr"),
    (libc::SYS_fremovexattr, "fremovexattr"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_syncfs, "syncfs"),
];

/// The calls that change something by flags: the place of the flags among the arguments.
const OPENS: [(i64, usize); 2] = [(libc::SYS_open, 1), (libc::SYS_openat, 2)];

/// Returns the name of the system call that a stopped process is about to make, if it can change a file.
fn change(pid: Pid) -> Option<&'static str> {
    // x86_64 ABI: rdi, rsi, rdx are the first arguments.
    let registers = ptrace::getregs(pid).expect("the registers of a stopped process");
    let number = registers.orig_rax.cast_signed();
    if let Some((_, at)) = OPENS.iter().find(|(opens, _)| *opens == number) {
        let flags = [registers.rdi, registers.rsi, registers.rdx][*at];
        let changing = libc::O_WRONLY | libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
        return (flags & u64::from(changing.cast_unsigned()) != 0).then_some("open");
    }
    CHANGES.iter().find(|(changes, _)| *changes == number).map(|(_, name)| *name)
}

/// Runs the program and kills it before the `last`th of its [changes](change), counted from 1. Returns the name of that
/// call; nothing if the program ended before it, with success.
///
/// The program's other threads and its children are not stopped: none of them changes a file of the host's.
#[expect(clippy::zombie_processes, reason = "waitpid takes its status")]
#[expect(unsafe_code, reason = "what runs between fork and exec is for the caller to vouch for")]
fn killed_before(mut command: Command, last: usize) -> Option<&'static str> {
    let mut said = tempfile::tempfile().expect("a file for messages");
    // SAFETY: the hook makes one system call.
    unsafe { command.pre_exec(|| ptrace::traceme().map_err(std::io::Error::from)) };
    let output = command.stdout(Stdio::null()).stderr(said.try_clone().expect("a second descriptor"));
    let mut child = output.spawn().expect("the program");
    let pid = Pid::from_raw(child.id().cast_signed());
    let wait = || waitpid(pid, Some(WaitPidFlag::__WALL)).expect("the process is a child");
    assert!(matches!(wait(), WaitStatus::Stopped(_, Signal::SIGTRAP)), "it stops at its exec");
    ptrace::setoptions(pid, Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL).expect("options");
    let (mut enters, mut count, mut signal) = (true, 0, None);
    loop {
        ptrace::syscall(pid, signal.take()).expect("a stopped process");
        match wait() {
            WaitStatus::PtraceSyscall(_) => {
                if enters && let Some(name) = change(pid) {
                    count += 1;
                    if count == last {
                        child.kill().expect("a process");
                        child.wait().expect("it is gone");
                        return Some(name);
                    }
                }
                enters = !enters;
            }
            WaitStatus::Stopped(_, other) => signal = Some(other),
            WaitStatus::Exited(_, 0) => return None,
            ended => {
                let mut text = String::new();
                said.rewind().and_then(|()| said.read_to_string(&mut text)).expect("messages");
                panic!("{ended:?}: {text}");
            }
        }
    }
}

/// A host that is in place, and what to do with it.
struct Case {
    /// The arguments behind `graft`, and behind `undo`.
    graft: Vec<&'static str>,
    undo: Vec<&'static str>,
    host: PathBuf,
    /// A program that prints "done", by the host or as the host.
    program: PathBuf,
    donor: &'static str,
}

impl Case {
    fn started(&self, context: &str) -> String {
        let output = Command::new(&self.program).env("ALLOGRAFT_VERBOSE", "1").output();
        let output = output.unwrap_or_else(|error| panic!("{context}: {error}"));
        assert!(output.status.success() && output.stdout == b"done\n", "{context}: {output:?}");
        String::from_utf8(output.stderr).expect("text")
    }
}

fn of(verb: &'static str, rest: &[&'static str]) -> Vec<&'static str> {
    [&[verb], rest].concat()
}

/// Kills graft, and then undo, before each change.
fn killed_anywhere(lab: &Lab, case: &Case) {
    let stock = fs::read(&case.host).unwrap();
    let (graft, undo) = (of("graft", &case.graft), of("undo", &case.undo));
    let before = lab.files();
    lab.run(&graft).exits(0);
    let grafted = fs::read(&case.host).unwrap();
    lab.run(&undo).exits(0);
    assert_same(&before, &lab.files());
    let serves = |context: &str| assert!(case.started(context).contains(&format!("allograft: {} ", case.donor)));
    for killed in [&graft, &undo] {
        let mut names = BTreeSet::new();
        'kills: for number in 1.. {
            for graft_first in [true, false] {
                if killed[0] == "undo" {
                    lab.run(&graft).exits(0);
                }
                let mut command = lab.command();
                command.args(killed);
                let Some(name) = killed_before(command, number) else {
                    println!("{}: {} kills, before {names:?}", killed[0], number - 1);
                    break 'kills;
                };
                names.insert(name);
                let context = format!("{} killed before change {number}, {name}", killed[0]);
                let left = fs::read(&case.host).unwrap();
                assert!(left == stock || left == grafted, "{context}: neither stock nor graft");
                case.started(&context);
                if graft_first {
                    lab.run(&graft).exits(0);
                    assert!(fs::read(&case.host).unwrap() == grafted, "{context}");
                    serves(&context);
                }
                let undone = lab.run(&undo);
                assert_eq!(undone.code, 0, "{context}: {undone:?}");
                assert_same(&before, &lab.files());
            }
        }
        // What takes effect at all: a run that only read would not be killed once.
        assert!(names.iter().any(|name| name.starts_with("rename")), "{names:?}");
        assert!(names.iter().any(|name| name.starts_with("unlink")), "{names:?}");
        assert!(names.contains("fsync"), "{names:?}");
        assert!(fs::read(&case.host).unwrap() == if killed[0] == "graft" { &grafted } else { &stock }[..]);
        lab.run(&undo).exits(0);
    }
}

#[test]
#[ignore = "minutes: every graft of a loader is tested before it is placed"]
fn a_loader_starts_programs_after_every_kill() {
    let lab = Lab::new();
    let (host, program) = crate::loaders::system(&lab, crate::loaders::PROGRAM);
    let loader = "/lib/ld-musl-x86_64.so.1";
    let graft = vec!["--root", "root", loader, "--donor", "rpmalloc"];
    killed_anywhere(&lab, &Case { graft, undo: vec!["--root", "root", loader], host, program, donor: "rpmalloc" });
}

#[test]
#[ignore = "minutes: every graft is tested before it is placed"]
fn a_merged_program_starts_after_every_kill() {
    let lab = Lab::new();
    let program = lab.path("program");
    let source = lab.put("program.c", crate::loaders::PROGRAM.as_bytes());
    crate::lab::tool(fixtures::cc().args(["-O1", "-fno-builtin"]).arg(&source).arg("-o").arg(&program));
    killed_anywhere(&lab, &executable(program));
}

#[test]
#[ignore = "minutes: every graft is tested before it is placed"]
fn a_static_program_starts_after_every_kill() {
    let lab = Lab::new();
    let build = fixtures::program::Build::PLAIN;
    let program = build.program(&lab.path(""), "program", crate::loaders::PROGRAM);
    killed_anywhere(&lab, &executable(program));
}

fn executable(path: PathBuf) -> Case {
    let donor = donors::DEFAULTS[0];
    Case { graft: vec!["program"], undo: vec!["program"], host: path.clone(), program: path, donor }
}
