//! Runs that are stopped or kept waiting: by signals, limits, other runs.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::bundle;
use crate::executables::program;
use fixtures::Ran;

use crate::lab::{Lab, debian};

/// Longer than any step takes; only a failing test waits that long.
const LONG: Duration = Duration::from_secs(120);

/// Returns the temporary files that allograft left in the folder.
fn strays(lab: &Lab) -> Vec<String> {
    lab.names().into_iter().filter(|name| name.contains(".allograft-tmp-")).collect()
}

/// Makes a full pipe: a process that writes to it waits.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
    rustix::fs::fcntl_setfl(&writer, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
    for size in [4096, 1] {
        while writer.write(&vec![0; size]).is_ok() {}
    }
    rustix::fs::fcntl_setfl(&writer, flags).unwrap();
    (reader, writer)
}

fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    for _ in 0..LONG.as_millis() / 5 {
        if there() {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{what}: not there");
}

/// The program with signals at their defaults, even if the process that runs the tests ignores them.
fn interruptible(lab: &Lab) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_allograft")]).current_dir(lab.path(""));
    command
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Between the last rename and the end, the new files are in place and the old ones lie beside them. The run waits at
/// that point, since nothing reads its output.
#[test]
fn signals_leave_nothing_but_stock_or_graft() {
    for (wanted, arguments) in [
        (Signal::INT, &["graft", "."][..]),
        (Signal::TERM, &["graft", "."]),
        (Signal::HUP, &["undo", "."]),
        (Signal::TERM, &["graft", "one", "-o", "out"]),
        (Signal::INT, &["emit", "--target", "x86_64-linux-musl", "-o", "out.o"]),
    ] {
        let lab = Lab::new();
        let hosts = [lab.libc("one/libc.a"), lab.libc("two/libc.a")];
        lab.put("out.o", b"mine");
        fs::create_dir(lab.path("out")).unwrap();
        if arguments[0] == "undo" {
            lab.run(["graft", "."]).exits(0);
        }
        let (_reader, writer) = full_pipe();
        let mut child = interruptible(&lab).args(arguments).stdout(writer).stderr(Stdio::null()).spawn().unwrap();
        let done = || match arguments {
            ["emit", ..] => fs::read(lab.path("out.o")).unwrap() != b"mine",
            ["graft", "one", ..] => lab.path("out/libc.a").exists(),
            ["undo", ..] => hosts.iter().all(|host| !host.with_extension("a.allograft.json").exists()),
            _ => hosts.iter().all(|host| fs::read(host).unwrap() != debian()),
        };
        wait_for("the change", done);
        assert!(!strays(&lab).is_empty(), "{arguments:?}: it is not final yet");
        signal(&child, wanted);
        let status = child.wait().unwrap();
        assert_eq!(status.signal(), Some(wanted.as_raw()), "{arguments:?}: {status}");
        assert_eq!(strays(&lab), [""; 0], "{arguments:?}");
        if !arguments.contains(&"-o") {
            lab.run(["undo", "."]).exits(0);
        }
        assert!(hosts.iter().all(|host| fs::read(host).unwrap() == debian()));
    }
}

/// The signal comes before anything is replaced, during a trial run that does not end.
#[test]
fn a_signal_while_a_program_is_tried() {
    let lab = Lab::new();
    let source = "#include <stdlib.h>\n#include <unistd.h>\n\
        int main(int count, char **arguments)\n{\n\tfree(realloc(malloc(10), 1000));\n\
        \tfor (; count > 1 && access(arguments[1], F_OK);)\n\t\tusleep(10000);\n\treturn 0;\n}\n";
    crate::executables_refused::program(&lab, "program", source);
    let before = lab.files();
    let mut child = interruptible(&lab).args(["graft", "program", "--try", "--", "end"]).spawn().unwrap();
    wait_for("the copy that is tried", || !strays(&lab).is_empty());
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().signal(), Some(Signal::TERM.as_raw()));
    crate::lab::assert_same(&before, &lab.files());
    // This makes the program of the trial run end, which has to see it before the folder is gone.
    lab.put("end", b"");
    wait_for("the end of the program", || !crate::lab::is_used(&lab.path("")));
}

/// `nohup` and the shell's `&` make the program ignore signals. They stay ignored.
#[test]
fn signals_that_are_ignored_stay_ignored() {
    let lab = Lab::new();
    lab.libc("libc.a");
    let (mut reader, writer) = full_pipe();
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' INT; exec \"$0\" graft libc.a", env!("CARGO_BIN_EXE_allograft")]);
    let mut child = command.current_dir(lab.path("")).stdout(writer).spawn().unwrap();
    drop(command);
    wait_for("the change", || fs::read(lab.path("libc.a")).unwrap() != debian());
    signal(&child, Signal::INT);
    let read = thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    assert_eq!(child.wait().unwrap().code(), Some(0));
    read.join().unwrap().unwrap();
}

#[test]
fn a_limit_on_the_size_of_files_is_an_error_like_any_other() {
    let lab = Lab::new();
    lab.libc("libc.a");
    let before = lab.files();
    // The unit of `ulimit -f` is 512 bytes: 1 MB.
    lab.run_after("ulimit -f 2000", &["graft", "libc.a"]).exits(2).says(&["File too large", "help: "]);
    crate::lab::assert_same(&before, &lab.files());
}

/// Programs that allograft starts have the default action again: such a write ends them.
#[test]
fn programs_that_are_started_get_the_default_back() {
    let lab = Lab::new();
    lab.libc("libc.a");
    let source = "#include <signal.h>\n#include <stdio.h>\n#include <stdlib.h>\nint main(void)\n{\n\
        \tstruct sigaction now;\n\tfree(realloc(malloc(10), 1000));\n\tif (sigaction(SIGXFSZ, 0, &now))\n\t\treturn 9;\n\
        \treturn now.sa_handler == SIG_DFL ? 0 : 7;\n}\n";
    crate::executables_refused::program(&lab, "program", source);
    let ran = lab.run(["graft", "program", "--try", "--", "x"]).exits(0);
    assert!(ran.out.contains("exit status: 0"), "{}", ran.out);
}

#[test]
fn what_killed_runs_left_goes_although_there_is_nothing_to_do() {
    let lab = Lab::new();
    program(&lab, "program");
    bundle::pack_tar(&lab, "sdk.artifactbundle.tar.gz", "gnu");
    bundle::pack_zip(&lab, "sdk.artifactbundle.zip");
    lab.libc("libc.a");
    for host in ["program", "sdk.artifactbundle.tar.gz", "sdk.artifactbundle.zip", "libc.a"] {
        lab.run(["graft", host]).exits(0);
        lab.put(format!(".allograft-tmp-{host}-aBcDeF.tmp"), b"half a graft");
        let ran = lab.run(["graft", host]).exits(0);
        assert!(ran.out.contains("unchanged"), "{}", ran.out);
        assert_eq!(strays(&lab), [""; 0], "{host}");
    }
    lab.put(".allograft-tmp-donor.o-aBcDeF.tmp", b"half an object");
    lab.run(["emit", "--target", "x86_64-linux-musl", "-o", "donor.o"]).exits(0);
    assert_eq!(strays(&lab), [""; 0]);
}

/// A run that waits names the folder, and then goes on.
#[test]
fn waiting_for_another_run_is_said() {
    for arguments in [&["graft", "lib/libc.a"][..], &["emit", "--target", "x86_64-linux-musl", "-o", "lib/donor.o"]] {
        let lab = Lab::new();
        lab.libc("lib/libc.a");
        let folder = File::open(lab.path("lib")).unwrap();
        folder.lock().unwrap();
        let mut child = lab.command().args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let (send, lines) = mpsc::channel();
        let stderr = child.stderr.take().unwrap();
        thread::spawn(move || BufReader::new(stderr).lines().for_each(|line| drop(send.send(line))));
        let said = lines.recv_timeout(LONG);
        folder.unlock().unwrap();
        let status = child.wait().unwrap();
        let said = said.expect("a line").unwrap();
        assert!(said.contains("waiting for another allograft") && said.contains("lib`"), "{said}");
        assert!(status.success());
        assert_eq!(lines.iter().count(), 0);
    }
}

/// A run was killed while it waited to print its result; the next run follows.
#[test]
fn killed_before_it_has_told() {
    for arguments in [&["graft", "."][..], &["graft", ".", "--donor", "mimalloc3"], &["undo", "."]] {
        let lab = Lab::new();
        let hosts = [lab.libc("one/libc.a"), lab.libc("two/libc.a")];
        let fresh = arguments.len() == 2 && arguments[0] == "graft";
        if !fresh {
            lab.run(["graft", "."]).exits(0);
        }
        let before = fs::read(&hosts[1]).unwrap();
        let (_reader, writer) = full_pipe();
        let mut child = lab.command().args(arguments).stdout(writer).spawn().unwrap();
        wait_for("the change", || fs::read(&hosts[1]).unwrap() != before);
        child.kill().unwrap();
        child.wait().unwrap();
        let ran: Ran = lab.run(["graft", "."]).exits(0);
        assert_eq!(ran.err, "");
        assert_eq!(strays(&lab), [""; 0]);
        lab.run(["undo", "."]).exits(0);
        assert!(hosts.iter().all(|host| fs::read(host).unwrap() == debian()));
        assert_eq!(lab.names(), ["one", "one/libc.a", "two", "two/libc.a"]);
    }
}
