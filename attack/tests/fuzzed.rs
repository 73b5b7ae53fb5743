//! Inputs that a target once failed with, and the valid ones that the fuzzers start with.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::fs;
use std::sync::atomic::Ordering;

use targets::{GRAFTS, TARGETS, Target, seeds};

/// Runs a target on a thread of its own, whose panic names the input.
fn runs(target: &'static Target, name: &str, input: Vec<u8>) {
    let outcome = std::thread::spawn(move || target.run(&input)).join();
    assert!(outcome.is_ok(), "`{}` fails with `{name}`", target.name);
}

#[test]
fn nothing_that_was_found_comes_back() {
    let folder = tools::workspace::root().join("fuzz/finds");
    for entry in fs::read_dir(&folder).into_iter().flatten() {
        let entry = entry.unwrap();
        let target = entry.file_name().into_string().unwrap();
        let target = Target::find(&target).unwrap_or_else(|| panic!("there is no target `{target}`"));
        for input in fs::read_dir(entry.path()).unwrap() {
            let input = input.unwrap().path();
            runs(target, &input.display().to_string(), fs::read(&input).unwrap());
        }
    }
}

#[test]
fn seeds_are_valid() {
    for target in TARGETS {
        let seeds = seeds::for_target(target.name);
        assert!(!seeds.is_empty(), "{}", target.name);
        let before = GRAFTS.load(Ordering::Relaxed);
        for (name, seed) in seeds {
            assert!(seed.len() <= target.longest, "{} {name}: {} bytes", target.name, seed.len());
            runs(target, &name, seed);
        }
        let grafts = GRAFTS.load(Ordering::Relaxed) - before;
        let editors = [("archive", 2), ("executable", 4), ("dynamic", 10), ("loader", 1)];
        let least = editors.iter().find(|(name, _)| *name == target.name).map_or(0, |(_, least)| *least);
        assert!(grafts >= least, "`{}` made {grafts} grafts of its seeds, expected {least}", target.name);
    }
}

#[test]
fn each_target_has_a_program() {
    let manifest = fs::read_to_string(tools::workspace::root().join("fuzz/Cargo.toml")).unwrap();
    let named: Vec<&str> = manifest.lines().filter_map(|line| line.strip_prefix("path = \"fuzz_targets/")).collect();
    let expected: Vec<String> = TARGETS.iter().map(|target| format!("{}.rs\"", target.name)).collect();
    assert_eq!(named, expected);
    for target in TARGETS {
        let path = tools::workspace::root().join(format!("fuzz/fuzz_targets/{}.rs", target.name));
        let text = fs::read_to_string(path).unwrap();
        assert!(text.contains(&format!("targets::run(\"{}\", input)", target.name)), "{text}");
    }
}
