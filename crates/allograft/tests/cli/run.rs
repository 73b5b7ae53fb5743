//! `allograft run`: real builds by make, cmake and a script in the manner of configure, whose compilers it wraps.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

use fixtures::Ran;

use crate::emit::PROGRAM;
use crate::lab::Lab;

/// A folder with `musl-gcc` on the command path, and sources.
struct Place {
    lab: Lab,
}

impl Place {
    fn new() -> Place {
        let lab = Lab::new();
        fs::create_dir(lab.path("bin")).unwrap();
        fixtures::musl_gcc(&lab.path("bin")).unwrap();
        lab.put("server.c", PROGRAM.as_bytes());
        Place { lab }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_allograft"));
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.lab.path("bin").display()));
        command.env("XDG_CACHE_HOME", self.lab.path("the cache")).env_remove("MAKEFLAGS");
        command.arg("run").args(words).current_dir(self.lab.path("")).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        self.command(words).output().unwrap().into()
    }

    #[track_caller]
    fn carries(&self, program: &str, donor: &str) {
        let ran: Ran = Command::new(self.lab.path(program)).output().unwrap().into();
        assert_eq!(ran.exits(0).out, "ok\n");
        self.lab.run(["inspect", "--expect", donor, program]).exits(0);
    }
}

/// The compiler is not a variable that anybody could set.
const MAKEFILE: &str = "all: server dynamic glibc part.o libpart.a\n\
    server: server.o\n\tmusl-gcc -static -o $@ $^\n\
    server.o: server.c\n\tmusl-gcc -O1 -fno-builtin -c -o $@ $<\n\
    dynamic: server.o\n\tmusl-gcc -o $@ $^\n\
    glibc: server.c\n\tcc -static -o $@ $<\n\
    part.o: server.o\n\tld -r -o $@ $^\n\
    libpart.a: server.o\n\tar rcs $@ $^\n\
    fails:\n\t@exit 3\n";

#[test]
fn a_makefile_with_compilers_of_its_own() {
    let place = Place::new();
    place.lab.put("Makefile", MAKEFILE.as_bytes());
    let ran = place.run(&["make", "-j2"]).exits(0);
    ran.says(&["note: with snmalloc", "and strings: `server`", "linked dynamically: `dynamic`", "not musl's: `glibc`"]);
    place.carries("server", "snmalloc");
    let malloc = |program: &str| place.lab.run(["inspect", "--json", program]).exits(0).json()["files"][0].clone();
    assert_eq!(malloc("dynamic")["link"], "dynamic");
    assert_eq!(malloc("glibc")["malloc"]["name"], "glibc");
    // Nothing is linked the second time.
    place.run(&["make"]).exits(0).says(&["linked no program with a donor"]);
    // Another donor; and what it links with stock is stock's again without `run`.
    fs::remove_file(place.lab.path("server")).unwrap();
    place.run(&["--donor", "mimalloc", "--set", "purge_delay=0", "make", "server"]).exits(0).says(&["mimalloc"]);
    place.carries("server", "mimalloc");
    assert!(place.lab.run(["inspect", "-v", "server"]).exits(0).out.contains("purge_delay=0"));
    fs::remove_file(place.lab.path("server")).unwrap();
    assert_eq!(place.run(&["-q", "make", "server"]).exits(0).err, "");
    // The exit code is the command's.
    place.run(&["make", "fails"]).exits(2).says(&["Error 3"]);
    place.run(&["sh", "-c", "exit 42"]).exits(42);
    place.run(&["-q", "--", "sh", "-c", "musl-gcc no-such.c"]).exits(1).says(&["no-such.c"]);
}

/// The compiler itself answers the questions of configure scripts, and the path that cmake keeps works outside of
/// `run`.
#[test]
fn scripts_that_look_for_a_compiler() {
    let place = Place::new();
    let configure = "set -e\ncommand -v musl-gcc >found\nmusl-gcc --version >asked\n\
        echo 'int main(void) { return 0; }' >conftest.c\nmusl-gcc -static -o conftest conftest.c && ./conftest\n\
        ! musl-gcc -static -o conftest -lnone conftest.c 2>said\nrm conftest*\n\
        \"$(cat found)\" -O1 -fno-builtin -static -o server server.c\n";
    place.lab.put("configure", configure.as_bytes());
    let ran = place.run(&["sh", "./configure"]).exits(0).says(&["snmalloc"]);
    assert!(!ran.err.contains("conftest") && !ran.err.contains("warning"), "{}", ran.err);
    place.carries("server", "snmalloc");
    let found = fs::read_to_string(place.lab.path("found")).unwrap();
    assert!(found.contains("the cache/allograft/run/"), "{found}");
    // That compiler without `run`: stock.
    let path = format!("{}:{}", place.lab.path("bin").display(), std::env::var("PATH").unwrap());
    let mut compiler = Command::new(found.trim());
    compiler.args(["-static", "-O1", "-fno-builtin", "-o", "server", "server.c"]).current_dir(place.lab.path(""));
    Ran::from(compiler.env("PATH", path).output().unwrap()).exits(0);
    place.carries("server", "mallocng");
    let gone: Ran = Command::new(found.trim()).env("PATH", "/nowhere").output().unwrap().into();
    gone.exits(127).says(&["no `musl-gcc` behind the wrappers", "help: "]);
}

#[test]
fn a_linker_that_is_called_by_its_name() {
    let place = Place::new();
    let lib = fixtures::debian_musl(fixtures::Arch::X86_64).libdir;
    let lib = fixtures::shell::word(&lib);
    let script = format!(
        "set -e\nlib={lib}\nmusl-gcc -O1 -fno-builtin -c server.c\nld -static -o server \"$lib/crt1.o\" \
         \"$lib/crti.o\" server.o -L \"$lib\" -lc \"$lib/crtn.o\"\n"
    );
    place.run(&["sh", "-c", &script]).exits(0).says(&["`server`"]);
    place.carries("server", "snmalloc");
    // Where the folders are not known, the link is the linker's own, and a note says so.
    let script = format!(
        "set -e\nlib={lib}\nld -static -o other \"$lib/crt1.o\" \"$lib/crti.o\" server.o --library-path=\"$lib\" \
         -lc \"$lib/crtn.o\"\n"
    );
    place.run(&["sh", "-c", &script]).exits(0).says(&["no libc.a is in the folders that it links from: `other`"]);
    place.carries("other", "mallocng");
}

#[test]
fn what_fails_as_cc_does() {
    let place = Place::new();
    place.lab.put(
        "own.c",
        b"char own[9]; void *malloc(unsigned long n) { return own; } void free(void *p) {}\n\
                             int main(void) { free(malloc(1)); return 0; }\n",
    );
    let own = ["musl-gcc", "-static", "-fno-builtin", "-o", "own", "own.c"];
    place.run(&own).exits(1).says(&["`own`", "expected `snmalloc`", "help: "]);
    assert!(!place.lab.path("own").exists());
    place.run(&["no-such-build"]).exits(2).says(&["cannot run `no-such-build`", "help: "]);
    place.run(&[]).exits(2).says(&["COMMAND"]);
    place.run(&["--donor", "none", "--set", "a=1", "true"]).exits(2).says(&["help: "]);
}

#[test]
fn signals_reach_the_command_and_its_end_is_told() {
    let place = Place::new();
    // The command ends itself: the caller sees the signal, not a code.
    let output = place.command(&["sh", "-c", "kill -KILL $$"]).output().unwrap();
    assert_eq!(output.status.signal(), Some(9));
    // A signal to allograft alone is handed on.
    let script = "trap 'echo told; exit 7' TERM; echo ready; while :; do sleep 0.01; done";
    let mut child = place.command(&["sh", "-c", script]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "told");
    assert_eq!(child.wait().unwrap().code(), Some(7));
}
