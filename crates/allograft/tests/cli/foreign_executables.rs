//! Executables for aarch64, on machines that do not run them natively.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use fixtures::Arch;
use fixtures::program::Build;

use crate::lab::{Lab, assert_same};

/// A static program for aarch64 that prints its argument, linked with stock musl.
pub(crate) fn program(lab: &Lab) -> PathBuf {
    let source = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n\
          int main(int count, char **arguments)\n{\n\
          \tchar *copy = count > 1 ? malloc(strlen(arguments[1]) + 1) : 0;\n\
          \tif (copy)\n\t\tputs(strcpy(copy, arguments[1]));\n\tfree(copy);\n\treturn copy ? 0 : 7;\n}\n";
    Build { arch: Arch::Aarch64, ..Build::PLAIN }.program(&lab.path(""), "echo", source)
}

/// Runs the program, either without any emulator on the command path or with the one in the folder of tools.
pub(crate) fn run(lab: &Lab, path: Option<&OsStr>, arguments: &[&str]) -> Output {
    lab.command().env("PATH", path.unwrap_or(OsStr::new("/nowhere"))).args(arguments).output().unwrap()
}

#[test]
#[ignore = "aarch64: links with that architecture's runtime library"]
fn what_cannot_be_tested_is_grafted_only_when_that_is_said() {
    let lab = Lab::new();
    let path = program(&lab);
    let stock = fs::read(&path).unwrap();
    // If the kernel runs it, natively or through binfmt_misc, nothing is refused.
    if Command::new(&path).arg("one").output().is_ok() {
        return;
    }
    let before = lab.snapshot();
    let refused = run(&lab, None, &["graft", "echo"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("no emulator") && said.contains("--untested"), "{said}");
    assert_same(&before, &lab.snapshot());

    let untested = run(&lab, None, &["graft", "echo", "--untested", "--json"]);
    assert_eq!(untested.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&untested.stderr).contains("has not been tested"));
    let document: serde_json::Value = serde_json::from_slice(&untested.stdout).unwrap();
    assert_eq!(document["hosts"][0]["arch"], "aarch64");
    assert_eq!(document["hosts"][0]["tried"][0], "self-test: not run (--untested)");
    lab.run(["inspect", "echo", "--expect", "snmalloc"]).exits(0);
    let verified = run(&lab, None, &["verify", "echo", "--json"]);
    let document: serde_json::Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!((verified.status.code(), &document["ok"]), (Some(0), &true.into()), "{document}");
    assert_eq!(document["not_run"][0]["name"], "self-test");
    lab.run(["undo", "echo"]).exits(0);
    assert!(fs::read(&path).unwrap() == stock);
    assert_eq!(lab.names(), ["echo"]);
}

#[test]
#[ignore = "aarch64: links with that architecture's runtime library"]
fn an_emulator_on_the_path_tests_it() {
    let lab = Lab::new();
    let path = program(&lab);
    let Some(emulator) = fixtures::emulator(Arch::Aarch64) else { return };
    let folder = emulator.parent().unwrap().as_os_str();
    let grafted = run(&lab, Some(folder), &["graft", "echo", "--json", "--try", "--", "one"]);
    assert_eq!(grafted.status.code(), Some(0), "{}", String::from_utf8_lossy(&grafted.stderr));
    let document: serde_json::Value = serde_json::from_slice(&grafted.stdout).unwrap();
    let tried = &document["hosts"][0]["tried"];
    assert!(tried[0].as_str().unwrap().starts_with("self-test: passed"), "{tried}");
    assert!(tried[1].as_str().unwrap().contains("exit status: 0 and the same 4 bytes"), "{tried}");
    let output = fixtures::run(Arch::Aarch64, &path).arg("three").env("ALLOGRAFT_VERBOSE", "1").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "three\n");
    assert!(String::from_utf8_lossy(&output.stderr).contains("serves malloc"));
    let verified = run(&lab, Some(folder), &["verify", "echo"]);
    assert_eq!(verified.status.code(), Some(0));
    assert!(String::from_utf8_lossy(&verified.stdout).contains("self-test: passed"));
}
