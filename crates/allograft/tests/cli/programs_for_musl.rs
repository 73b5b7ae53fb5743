//! Released programs that were built on Alpine, started by a grafted loader.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::wheels::{FOR_MUSL, Wheel};

use crate::lab::Lab;

/// The donors that a loader can have.
const DONORS: [&str; 3] = ["snmalloc", "mimalloc", "rpmalloc"];

/// musl 1.2.5 of Debian 13: the programs need 1.2.4 or later.
fn stock() -> PathBuf {
    fixtures::system::folder().join("usr/lib/x86_64-linux-musl/libc.so")
}

/// What a program does, in a folder of its own.
fn arguments(program: &Wheel) -> &'static [&'static str] {
    match program.name {
        "node" => &["deflate.js"],
        "clang-format" => &["source.c"],
        "cmake" => &["-P", "strings.cmake"],
        "ninja" => &["-j4", "--quiet", "all"],
        other => panic!("{other} has no work"),
    }
}

/// Input for all of them.
fn fill(folder: &Path) {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for name in ["deflate.js", "strings.cmake"] {
        fs::copy(checkout.join("tests/dynamic").join(name), folder.join(name)).unwrap();
    }
    let programs = fs::read_dir(checkout.join("conformance/programs")).unwrap();
    let mut sources: Vec<PathBuf> = programs.map(|entry| entry.unwrap().path()).collect();
    sources.sort();
    let source: String = sources.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    fs::write(folder.join("source.c"), source).unwrap();
    let mut rules = String::from("rule write\n command = echo $in >$out\n");
    let mut all = String::from("build all: phony");
    for number in 1..=200 {
        let before = number / 2;
        writeln!(rules, "build out{number}: write {}", if before > 0 { format!("out{before}") } else { String::new() })
            .unwrap();
        write!(all, " out{number}").unwrap();
    }
    fs::write(folder.join("build.ninja"), rules + &all + "\n").unwrap();
}

/// Runs a program by a loader. Returns what it prints, with the files that it made, and what it says on standard error.
fn run(lab: &Lab, loader: &Path, program: &Wheel, label: &str) -> (Vec<u8>, String) {
    let folder = lab.path(label);
    fs::create_dir(&folder).unwrap();
    fill(&folder);
    let mut command = Command::new(loader);
    command.arg(program.program()).args(arguments(program)).current_dir(&folder).env("ALLOGRAFT_VERBOSE", "1");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{} by `{}`: {}\n{said}", program.name, loader.display(), output.status);
    let mut result = output.stdout;
    for number in 1..=200 {
        result.extend(fs::read(folder.join(format!("out{number}"))).unwrap_or_default());
    }
    (result, said)
}

/// Tests that need a Debian, by that part of their names.
mod system {
    use super::*;

    /// The program's result is the same by each grafted loader as by stock.
    fn agrees(name: &str) {
        if fixtures::system::is_left_out() {
            return;
        }
        let program = FOR_MUSL.iter().find(|program| program.name == name).unwrap();
        let lab = Lab::new();
        let (expected, said) = run(&lab, &stock(), program, "stock");
        // cmake prints on standard error.
        let words = |text: &str| -> Vec<String> {
            text.lines().filter(|line| !line.starts_with("allograft: ")).map(str::to_owned).collect()
        };
        assert!(expected.len() + words(&said).len() > 0, "{name} has a result");
        for donor in DONORS {
            let out = lab.path(format!("{donor}.so"));
            lab.run([
                "graft".as_ref(),
                stock().as_os_str(),
                "--donor".as_ref(),
                donor.as_ref(),
                "-o".as_ref(),
                out.as_os_str(),
            ])
            .exits(0);
            let (result, said_by_graft) = run(&lab, &out, program, donor);
            assert!(said_by_graft.contains(&format!("allograft: {donor} ")), "{donor} serves {name}: {said_by_graft}");
            assert!(result == expected, "{name} on {donor}");
            assert_eq!(words(&said_by_graft), words(&said), "{name} on {donor}");
        }
    }

    #[test]
    #[ignore = "takes a Debian and a node of 460 MB, which `cargo xtask test-slow cli` unpacks"]
    fn node_compresses_in_threads() {
        agrees("node");
    }

    #[test]
    #[ignore = "takes a Debian of 400 MB, which `cargo xtask test-slow cli` unpacks"]
    fn clang_format_formats() {
        agrees("clang-format");
    }

    #[test]
    #[ignore = "takes a Debian of 400 MB, which `cargo xtask test-slow cli` unpacks"]
    fn cmake_runs_a_script() {
        agrees("cmake");
    }

    #[test]
    #[ignore = "takes a Debian of 400 MB, which `cargo xtask test-slow cli` unpacks"]
    fn ninja_starts_programs() {
        agrees("ninja");
    }
}
