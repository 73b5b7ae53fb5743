//! `cargo allograft bench --donors`: one compilation, one link for each arm, and the results.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use fixtures::shell::word;
use serde_json::Value;

use crate::project::{Project, TARGET};

fn arm<'d>(document: &'d Value, name: &str) -> &'d Value {
    document["arms"].as_array().unwrap().iter().find(|arm| arm["name"] == name).unwrap()
}

/// Returns the files below a folder, each with its time and its content.
fn files(folder: &Path) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => {
                let modified = entry.metadata().unwrap().modified().unwrap();
                found.insert(entry.path(), (modified, fs::read(entry.path()).unwrap()));
            }
        }
    }
    found
}

#[test]
#[ignore = "rust: compiles with a toolchain of the slow tier"]
fn a_project_is_compiled_once_and_measured_with_every_donor() {
    let before = Project::toolchain_state();
    let mut project = Project::app();
    // The log counts how often rustc makes the program, and how often the linker links.
    let log = project.path("log");
    let wrapper = format!(
        "case \"$*\" in *'--crate-name app '*'--crate-type bin'*) echo rustc >>{};; esac\nexec \"$@\"",
        word(&log)
    );
    let wrapper = project.script("wrapper", &wrapper);
    // With `--version`, the linker links nothing.
    let linker = format!("[ \"$1\" = --version ] || echo link >>{}\nexec cc \"$@\"", word(&log));
    let linker = project.script("cc", &linker);
    project.set("RUSTC_WORKSPACE_WRAPPER", wrapper.to_str().unwrap());
    project.set("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER", linker.to_str().unwrap());
    // `carries` reads the running program, so it distinguishes the arms.
    project.put(
        "src/main.rs",
        "fn main() {\n    let donor = std::env::args().nth(1).unwrap();\n    println!(\"{} {}\", app::work(2000), app::carries(&donor));\n}\n",
    );
    // The user's own program and cargo's records of it are not changed.
    project.cargo(&format!("allograft build --release --target {TARGET}")).exits(0);
    fs::remove_file(&log).unwrap();
    let built = project.path("target").join(TARGET);
    let before_bench = files(&built);
    let all = format!("allograft bench --target {TARGET} --donors all --rounds 1 --budget 1s --json");
    let document = |line: &str, code: i32| -> Value {
        let ran = project.cargo(line).exits(code);
        serde_json::from_str(&ran.out).unwrap()
    };
    let first = document(&format!("{all} -- none"), 0);
    assert_eq!(first["input"]["kind"], "cargo");
    let arms = first["arms"].as_array().unwrap();
    assert!(arms.len() > 8 && arms.iter().all(|arm| arm["failure"].is_null()), "{arms:?}");
    let count = |what: &str| fs::read_to_string(&log).unwrap().lines().filter(|line| *line == what).count();
    // One link is for cargo's own program, and one for each arm.
    assert_eq!((count("rustc"), count("link")), (1, 1 + arms.len()));

    assert_eq!(files(&built), before_bench);
    project.carries(&project.program("release", "app"), "snmalloc", "static-pie");

    // Each arm is the program with its donor: when the program looks for mimalloc, that arm's output differs from
    // stock's.
    fs::remove_file(&log).unwrap();
    let arms =
        format!("allograft bench --target={TARGET} --donors mimalloc:small:only,mimalloc3,strings --rounds 1 --json");
    let second = document(&format!("{arms} --budget=1s -- mimalloc"), 1);
    assert_eq!((count("rustc"), count("link")), (1, 5), "what is built already is linked again");
    let failure = |name: &str| arm(&second, name)["failure"].as_str().map(str::to_owned);
    assert!(failure("mimalloc:small:only").unwrap().contains("prints `2000 true`"), "{second}");
    assert_eq!((failure("mimalloc3"), failure("strings")), (None, None));

    // The recommended command builds that program.
    let command = arm(&second, "mimalloc:small:only")["command"].as_str().unwrap();
    let wanted = format!(
        "cargo allograft build --target={TARGET} --release --donor mimalloc --donor-profile small --strings off"
    );
    assert_eq!(command, wanted);
    project.cargo(command.strip_prefix("cargo ").unwrap()).exits(0).says(&["carries mimalloc "]);
    project.carries(&project.program("release", "app"), "mimalloc", "static-pie");
    let ran = project.run(Command::new(project.program("release", "app")).arg("mimalloc")).exits(0);
    assert_eq!(ran.out, "2000 true\n");

    // Nothing is left behind.
    assert_eq!(Project::toolchain_state(), before);
    let left = fs::read_dir(project.path("target/allograft")).unwrap();
    let left: Vec<String> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(left.iter().all(|name| !name.starts_with("bench-")), "{left:?}");
}

#[test]
#[ignore = "rust: compiles with a toolchain of the slow tier"]
fn what_cannot_be_compared_is_said() {
    let project = Project::app();
    let bench = |more: &str| project.cargo(&format!("allograft bench --target {TARGET} {more}"));
    bench("--donors mimaloc").exits(2).says(&["no arm `mimaloc`", "help: "]);
    bench("--donors glibc").exits(2).says(&["arm `glibc`"]);
    bench("--donors mimalloc --threads 1,2").exits(2).says(&["number of threads", "--threads-var"]);
    bench("--donors mimalloc --html missing/report.html").exits(2).says(&["missing/report.html"]);
    bench("--server {out} --load true").exits(2).says(&["does not say `{port}`", "help: "]);
    bench("--server x").exits(2).says(&["--load", "Usage: cargo allograft bench"]);
    bench("--build x").exits(2).says(&["`--build` is not for `cargo allograft bench`"]);
    assert!(bench("--help").exits(0).out.contains("Usage: cargo allograft bench"));
    project.put("src/bin/other.rs", "fn main() {}\n");
    bench("--donors mimalloc").exits(2).says(&["several programs: ", "other", "--bin NAME"]);
    let ran = bench("--donors mimalloc --bin other --rounds 1 --budget 1s").exits(0);
    assert!(ran.out.contains("take:"), "{}", ran.out);
    project.put("src/main.rs", "fn main() { nonsense }\n");
    bench("--donors mimalloc --bin app").exits(2).says(&["cannot find value `nonsense`", "cargo did not build"]);
}
