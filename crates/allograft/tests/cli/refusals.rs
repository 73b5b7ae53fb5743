//! Archives that must not be grafted: each is refused or called malformed, with the right exit code, and stays
//! untouched.

use std::fs;
use std::process::Command;

use crate::lab::{Lab, debian, tool};

/// Compiles C source to an object file.
fn compile(lab: &Lab, name: &str, source: &str) {
    let path = lab.put(format!("{name}.c"), source.as_bytes());
    tool(fixtures::cc().args(["-c", "-O1", "-fno-builtin", "-o"]).arg(lab.path(name)).arg(path));
}

fn ar(lab: &Lab, arguments: &[&str]) {
    tool(Command::new("ar").args(arguments).current_dir(lab.path("")));
}

#[test]
fn glibc_is_refused() {
    let lab = Lab::new();
    lab.put("libc.a", &fs::read(fixtures::glibc()).unwrap());
    let ran = lab.changes_nothing(3, ["graft", "libc.a", "--json"]).says(&["error: `libc.a`", "help: "]);
    let error = &ran.json()["error"];
    assert_eq!(error["exit_code"], 3);
    assert!(error["message"].as_str().unwrap().contains("libc.a"));
    assert!(error["help"].is_string());
}

#[test]
fn threads_that_need_the_old_allocators_insides_are_refused() {
    // As in Chimera Linux, pthread_create refers to a function in malloc's member.
    let lab = Lab::new();
    lab.libc("libc.a");
    compile(
        &lab,
        "lite_malloc.lo",
        "void *__libc_malloc(unsigned long n) { return 0; }
         void *malloc(unsigned long n) __attribute__((weak, alias(\"__libc_malloc\")));
         void __malloc_tls_default(void *p) {}",
    );
    compile(
        &lab,
        "pthread_create.lo",
        "void __malloc_tls_default(void *);
         int pthread_create(void *a, void *b, void *c, void *d) { __malloc_tls_default(a); return 0; }",
    );
    ar(&lab, &["r", "libc.a", "lite_malloc.lo", "pthread_create.lo"]);
    lab.changes_nothing(3, ["graft", "libc.a"]).says(&["__malloc_tls_default", "help: "]);
}

#[test]
fn an_archive_without_malloc_is_refused() {
    let lab = Lab::new();
    compile(&lab, "square.o", "int square(int n) { return n * n; }");
    ar(&lab, &["rc", "libc.a", "square.o"]);
    lab.changes_nothing(3, ["graft", "libc.a"]).says(&["libc.a", "help: "]);
    lab.put("libc.a", b"!<arch>\n");
    lab.changes_nothing(3, ["graft", "libc.a"]).says(&["libc.a", "help: "]);
}

#[test]
fn a_truncated_archive_is_malformed() {
    let lab = Lab::new();
    let whole = debian();
    for length in [4, 7, 9, 40, 67, 1000, 100_000, whole.len() / 3, whole.len() / 2, whole.len() - 100] {
        lab.put("libc.a", &whole[..length]);
        let ran = lab.changes_nothing(2, ["graft", "libc.a", "--json"]).says(&["error: `libc.a`", "help: "]);
        assert_eq!(ran.json()["error"]["exit_code"], 2, "{length}");
    }
}

#[test]
fn what_is_no_archive_is_malformed() {
    let lab = Lab::new();
    for (bytes, found) in [
        (&b"/* GNU ld script */\nGROUP ( libc.a )\n"[..], "a text file"),
        (b"", "empty"),
        (b"\0\0\0\0", "unknown kind"),
    ] {
        lab.put("libc.a", bytes);
        lab.changes_nothing(2, ["graft", "libc.a"]).says(&[found, "help: "]);
        lab.changes_nothing(2, ["undo", "libc.a"]).says(&[found, "help: "]);
    }
}

#[test]
fn what_is_not_supported_is_refused() {
    let lab = Lab::new();
    lab.put("program", &fs::read(env!("CARGO_BIN_EXE_allograft")).unwrap()[..4096]);
    lab.changes_nothing(2, ["graft", "program"]).says(&["malformed", "outside the file", "help: "]);
    lab.put("program", &fs::read(env!("CARGO_BIN_EXE_allograft")).unwrap());
    lab.changes_nothing(3, ["graft", "program", "--strings", "on"]).says(&["it is dynamic", "help: "]);
    lab.put("libc.a", b"!<thin>\n");
    lab.changes_nothing(3, ["graft", "libc.a"]).says(&["a thin archive", "help: "]);
}

#[test]
fn what_is_not_there_or_no_file() {
    let lab = Lab::new();
    lab.changes_nothing(2, ["graft", "libc.a"]).says(&["`libc.a`", "No such file"]);
    lab.changes_nothing(2, ["undo", "libc.a"]).says(&["`libc.a`", "No such file"]);
    let ran = lab.run(["graft", "/dev/null"]).exits(2).says(&["a device"]);
    assert_eq!(ran.out, "");
}

#[test]
fn a_backup_is_no_host() {
    let lab = Lab::new();
    lab.libc("libc.a");
    lab.run(["graft", "libc.a"]).exits(0);
    for command in ["graft", "undo"] {
        lab.changes_nothing(3, [command, "libc.a.allograft-stock"])
            .says(&["backup of `libc.a`", "allograft undo libc.a"]);
    }
    lab.changes_nothing(2, ["graft", "libc.a.allograft.json"]);
}
