//! No permission, no space, no pipe, two runs at once: one clear message each, and an unchanged host.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use fixtures::Ran;

use crate::lab::{Lab, debian};

/// Runs the program as a user without rights to the test's files, or as the current user if that is not root.
pub(crate) fn run_unprivileged(lab: &Lab, arguments: &[&str]) -> Ran {
    if !rustix::process::geteuid().is_root() {
        return lab.run(arguments);
    }
    // Other users may not be able to reach the build folder.
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("allograft");
    // Another process writes the copy. A file that this process has open for writing stays open for a moment in a child
    // that another test starts, and a file that is open for writing cannot be executed.
    crate::lab::tool(Command::new("cp").arg(env!("CARGO_BIN_EXE_allograft")).arg(&program));
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]).arg(program).args(arguments);
    command.current_dir(lab.path("")).output().unwrap().into()
}

fn refused_by_permissions(mode: u32, arguments: &[&str], says: &[&str]) {
    let lab = Lab::new();
    lab.libc("lib/libc.a");
    fs::set_permissions(lab.path("lib"), Permissions::from_mode(mode)).unwrap();
    let before = lab.snapshot();
    let ran = run_unprivileged(&lab, arguments).exits(2).says(says).says(&["Permission denied", "help: "]);
    assert_eq!(ran.err.matches("error:").count(), 1, "{}", ran.err);
    crate::lab::assert_same(&before, &lab.snapshot());
    fs::set_permissions(lab.path("lib"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_folder_that_is_read_only() {
    refused_by_permissions(0o555, &["graft", "lib/libc.a"], &["lib"]);
    refused_by_permissions(0o555, &["graft", "lib"], &["lib"]);
}

#[test]
fn a_dry_run_needs_no_permission_to_write() {
    let lab = Lab::new();
    lab.libc("lib/libc.a");
    fs::set_permissions(lab.path("lib"), Permissions::from_mode(0o555)).unwrap();
    run_unprivileged(&lab, &["graft", "lib/libc.a", "--dry-run"]).exits(0);
    fs::set_permissions(lab.path("lib"), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn a_file_that_may_not_be_read() {
    let lab = Lab::new();
    let libc = lab.libc("libc.a");
    fs::set_permissions(&libc, Permissions::from_mode(0o0)).unwrap();
    run_unprivileged(&lab, &["graft", "libc.a"]).exits(2).says(&["`libc.a`", "Permission denied"]);
    fs::set_permissions(&libc, Permissions::from_mode(0o644)).unwrap();
}

/// A limit on file sizes acts like a disk that fills up: the write fails half-way.
#[test]
fn a_disk_that_fills_up() {
    let lab = Lab::new();
    lab.libc("a/libc.a");
    lab.libc("b/libc.a");
    for arguments in [&["graft", "a/libc.a"][..], &["graft", "."], &["graft", "a/libc.a", "-o", "out.a"]] {
        let before = lab.snapshot();
        // The unit of `ulimit -f` is 512 bytes: 1 MB.
        let ran = lab.run_after("trap '' XFSZ; ulimit -f 2000", arguments).exits(2).says(&["File too large", "help: "]);
        assert_eq!(ran.err.matches("error:").count(), 1, "{}", ran.err);
        let mut after = lab.snapshot();
        // The folders' files were replaced and restored, which changes the folders' times.
        for folder in ["", "a", "b"].map(Path::new) {
            after.insert(folder.to_owned(), before[folder].clone());
        }
        crate::lab::assert_same(&before, &after);
    }
    // `undo` writes no data.
    lab.run(["graft", "."]).exits(0);
    lab.run_after("trap '' XFSZ; ulimit -f 0", &["undo", "."]).exits(0);
    assert!(fs::read(lab.path("a/libc.a")).unwrap() == debian());
}

#[test]
fn many_at_once() {
    let lab = Lab::new();
    let hosts = [lab.libc("a/libc.a"), lab.libc("b/libc.a")];
    let start = |arguments: &[&str]| {
        lab.command().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let runs: Vec<_> = [
        &["graft", "."][..],
        &["graft", ".", "--donor", "mimalloc3"],
        &["graft", "a/libc.a"],
        &["graft", "b/libc.a", "--donor", "mimalloc3"],
    ]
    .into_iter()
    .map(start)
    .collect();
    for run in runs {
        Ran::from(run.wait_with_output().unwrap()).exits(0);
    }
    lab.changes_nothing(0, ["graft", ".", "--dry-run"]);
    let runs: Vec<_> = (0..3).map(|_| start(&["undo", "."])).collect();
    for run in runs {
        Ran::from(run.wait_with_output().unwrap()).exits(0);
    }
    assert!(hosts.iter().all(|host| fs::read(host).unwrap() == debian()));
    assert_eq!(lab.names(), ["a", "a/libc.a", "b", "b/libc.a"]);
}

#[test]
fn a_closed_pipe_is_no_error() {
    let lab = Lab::new();
    lab.libc("libc.a");
    for arguments in ["graft libc.a --json", "donors", "man", "--help"] {
        let script = format!("{{ \"$0\" {arguments}; echo $? > code; }} | true");
        let program = env!("CARGO_BIN_EXE_allograft");
        let output = Command::new("sh").args(["-c", &script, program]).current_dir(lab.path("")).output().unwrap();
        assert_eq!(fs::read_to_string(lab.path("code")).unwrap(), "0\n", "{arguments}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments}");
    }
}

#[test]
fn a_result_that_cannot_be_printed_is_an_error() {
    let lab = Lab::new();
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let ran: Ran = lab.command().arg("donors").stdout(full).output().unwrap().into();
    ran.exits(2).says(&["standard output"]);
}

/// A file that the user may not read or write gets one message, and a help about rights, not about kinds of files.
#[test]
fn what_another_user_may_not_touch() {
    let lab = Lab::new();
    lab.libc("lib/libc.a");
    lab.libc("open/libc.a");
    crate::executables::program(&lab, "lib/program");
    for (name, mode) in [("lib/libc.a", 0o600), ("lib/program", 0o700), ("lib", 0o755), ("open", 0o755)] {
        fs::set_permissions(lab.path(name), Permissions::from_mode(mode)).unwrap();
    }
    let before = lab.snapshot();
    let owner = "run it as a user who may write there, or write the graft elsewhere with `-o OUT`; nothing was changed";
    let rights = "get the permission, or work as a user who has it";
    for (arguments, help) in [
        (&["graft", "lib/libc.a"][..], rights),
        (&["graft", "lib/program", "--donor", "mimalloc"], rights),
        (&["graft", "open/libc.a", "-o", "lib/out.a"], owner),
        (&["undo", "lib/libc.a"], rights),
        (&["verify", "lib/libc.a"], rights),
        (&["inspect", "lib/libc.a"], rights),
        (&["inspect", "lib/program", "--expect", "mallocng"], rights),
        (&["emit", "--target", "x86_64-linux-musl", "-o", "lib/allograft.o"], owner),
        (&["emit", "--as", "cmake", "-o", "lib/cmake"], owner),
        (&["bench", "lib/program"], rights),
        (&["profile", "lib/program"], rights),
    ] {
        let ran = run_unprivileged(&lab, arguments);
        assert!(ran.code == 2 && ran.err.contains("ermission denied"), "{arguments:?}: {} {}", ran.code, ran.err);
        assert!(ran.err.contains(help), "{arguments:?}: {}", ran.err);
        assert_eq!(ran.err.matches("error:").count(), 1, "{arguments:?}: {}", ran.err);
    }
    crate::lab::assert_same(&before, &lab.snapshot());
}
