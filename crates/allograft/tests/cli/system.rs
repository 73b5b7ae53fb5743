//! `inspect --root` of a whole system: every dynamic program of a Debian in a folder, compared with what that Debian's
//! own loader binds, traced and started.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

use crate::lab::Lab;

/// Below these folders are the programs.
const FOLDERS: [&str; 7] =
    ["/usr/bin", "/usr/sbin", "/usr/libexec", "/usr/lib/apt", "/usr/lib/cargo", "/usr/lib/git-core", "/usr/lib/klibc"];

/// Dynamic programs that have all their libraries and are `unknown` all the same: how their path begins, a part of the
/// evidence, and why nothing better can be said.
const UNKNOWN: [(&str, &str, &str); 2] = [
    ("/usr/bin/mold", "mimalloc is in the file", "mimalloc is linked into it, and its symbols are stripped"),
    ("/usr/lib/klibc/bin/", "neither glibc's loader nor musl's", "klibc has a loader and an allocator of its own"),
];

/// Programs that are not started: this one ends every other process, whatever its arguments.
const NOT_STARTED: [&str; 1] = ["/usr/sbin/killall5"];

/// Programs that another loader starts, which knows no tracing: `halt` would halt.
const NOT_GLIBC: &str = "/usr/lib/klibc/";

/// Asks the loader about each program of the list, twice. First it maps the program and its libraries, binds every
/// symbol, and starts nothing (`ldd -r`). Then the program is started with `--version`, for five seconds at most.
/// Prints lines: how it was asked, the program, the file that asks for `malloc`, the file that it gets it from.
const ASK: &str = r#"
export LD_BIND_NOW=yes
told() {
	sed -n "s/.*binding file \(.*\) \[[0-9]*\] to \(.*\) \[[0-9]*\]: normal symbol .malloc'.*/\1|\2/p" | sort -u |
		while IFS='|' read -r from to; do
			printf '%s|%s|%s|%s\n' "$1" "$2" "$(realpath "$from")" "$(realpath "$to")"
		done
}
mkdir /tmp/started /tmp/empty
while read -r program; do
	LD_TRACE_LOADED_OBJECTS=1 LD_WARN=yes LD_DEBUG=bindings "$program" 2>&1 >/dev/null </dev/null | told traced "$program"
	if grep -qxF "$program" not-started; then
		continue
	fi
	(
		cd /tmp/empty
		timeout -s KILL 5 env LD_DEBUG=bindings LD_DEBUG_OUTPUT=/tmp/started/it "$program" --version
	) </dev/null >/dev/null 2>&1
	cat /tmp/started/* 2>/tmp/none | told started "$program"
	rm -rf /tmp/started/*
done <programs 2>/tmp/none
echo "end|||"
"#;

/// The files to which the loader bound `malloc`, by program: the program's own binding or, if it has none, those of its
/// libraries.
fn bindings(said: &str, how: &str) -> BTreeMap<String, BTreeSet<String>> {
    let (mut own, mut all) = (BTreeMap::<String, BTreeSet<String>>::new(), BTreeMap::<String, BTreeSet<String>>::new());
    for line in said.lines() {
        let [asked, program, from, to] = line.split('|').collect::<Vec<_>>()[..] else { continue };
        if asked == how {
            if from == program {
                own.entry(program.to_owned()).or_default().insert(to.to_owned());
            }
            all.entry(program.to_owned()).or_default().insert(to.to_owned());
        }
    }
    all.extend(own);
    // The address of a function, in a program at a fixed address, is in the program, and leads on.
    for (program, files) in &mut all {
        if files.len() > 1 {
            files.remove(program);
        }
    }
    all
}

fn evidence(malloc: &Value) -> String {
    let lines = malloc["evidence"].as_array().unwrap().iter();
    lines.map(|line| line["detail"].as_str().unwrap()).collect::<Vec<_>>().join("; ")
}

#[test]
#[ignore = "system: takes a Debian of 2.2 GB, and a minute"]
fn every_program_of_a_debian_agrees_with_its_loader() {
    if fixtures::system::is_left_out() {
        return;
    }
    let lab = Lab::new();
    let root = fixtures::system::folder();
    let arguments = ["inspect", "--json", "--root", root.to_str().unwrap()];
    let document = lab.run(arguments.into_iter().chain(FOLDERS)).exits(0).json();
    let files = document["files"].as_array().unwrap();
    let dynamic: Vec<(&str, &Value)> = files
        .iter()
        .filter(|file| file["link"] == "dynamic")
        .map(|file| (file["path"].as_str().unwrap().strip_prefix(root.to_str().unwrap()).unwrap(), &file["malloc"]))
        .collect();
    let names = |names: &[&str]| names.iter().map(|name| format!("{name}\n")).collect::<String>();
    let programs: Vec<&str> = dynamic.iter().map(|(path, _)| *path).collect();
    let asked: Vec<&str> = programs.iter().copied().filter(|path| !path.starts_with(NOT_GLIBC)).collect();
    lab.put("work/programs", names(&asked).as_bytes());
    lab.put("work/not-started", names(&NOT_STARTED).as_bytes());
    fs::create_dir(lab.path("scratch")).unwrap();
    let output = fixtures::system::command(&lab.path("work"), &lab.path("scratch"), ASK).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let whole = said.ends_with("end|||\n");
    assert!(whole, "{}: {}\n{said}", output.status, String::from_utf8_lossy(&output.stderr));
    let (traced, started) = (bindings(&said, "traced"), bindings(&said, "started"));

    let mut problems = Vec::new();
    let (mut compared, mut compared_started) = (0, 0);
    for (path, malloc) in dynamic {
        let found = BTreeSet::from([malloc["file"].as_str().unwrap_or(path).to_owned()]);
        let evidence = evidence(malloc);
        if malloc["name"] == "unknown" {
            let known = UNKNOWN.iter().any(|(start, part, _)| path.starts_with(start) && evidence.contains(part));
            if !known {
                problems.push(format!("{path} is `unknown`: {evidence}"));
            }
            continue;
        }
        // A program without a binding has no libc: nothing in the process has or wants a `malloc`.
        let Some(expected) = traced.get(path) else {
            if malloc["file"].is_string() {
                problems.push(format!("{path}: the loader binds nothing, found {found:?}"));
            }
            continue;
        };
        compared += 1;
        if *expected != found {
            problems.push(format!("{path}: the loader binds to {expected:?}, found {found:?}: {evidence}"));
        }
        // Started programs may start others, whose lines are in the same place; only its own count.
        if let Some(expected) = started.get(path) {
            compared_started += 1;
            if !expected.is_superset(&found) || expected.len() > 1 {
                problems.push(format!("{path}: started, it is bound to {expected:?}, found {found:?}: {evidence}"));
            }
        }
    }
    println!("{} dynamic programs, {compared} compared, {compared_started} of them started", programs.len());
    assert!(problems.is_empty(), "{} problems\n{}", problems.len(), problems.join("\n"));
    assert!(programs.len() >= 300, "only {} dynamic programs", programs.len());
    assert!(compared * 100 >= programs.len() * 90, "only {compared} of {} compared", programs.len());
    assert!(compared_started * 100 >= compared * 90, "only {compared_started} of {compared} started");
    let bound = |file: &str| traced.values().any(|files| files.iter().any(|found| found.contains(file)));
    assert!(bound("/libc.so.6") && bound("/libjemalloc.so"), "programs of one kind only");
}
