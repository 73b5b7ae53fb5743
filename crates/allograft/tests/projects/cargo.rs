//! fd by cargo, and by `cargo allograft`.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::projects::FD;

use crate::built::{Built, Place, succeeds};

const TARGET: &str = "x86_64-unknown-linux-musl";

/// fd without its own allocator, which it takes on musl for being faster than musl's.
const FEATURES: &str = "test --locked --offline --no-default-features --features completions --target";

/// Links the toolchain's programs, and the subcommand.
fn toolchain(place: &Place) {
    let link = |program: &Path, name: &str| symlink(program, place.path("bin").join(name)).expect("a link");
    for name in ["cargo", "rustc", "rustdoc"] {
        link(&fixtures::rust_musl().join("bin").join(name), name);
    }
    link(Path::new(env!("CARGO_BIN_EXE_cargo-allograft")), "cargo-allograft");
}

fn cargo(place: &Place, words: &str) -> Command {
    let mut command = place.command("cargo");
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        // Cargo sets these variables for the test. They must not reach the cargo that the test runs.
        if (text.starts_with("CARGO") && text != "CARGO_HOME") || text.starts_with("RUST") {
            command.env_remove(&name);
        }
    }
    command.args(words.split_whitespace()).current_dir(place.path("source"));
    command
}

/// `name`: the target folder. `subcommand`: the words before `test`.
fn build(place: &Place, name: &str, subcommand: &str) -> Built {
    let words = format!("{subcommand} {FEATURES} {TARGET} --target-dir {name}");
    let said = succeeds(&mut cargo(place, &words));
    let tests = said.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
    let tests = tests.map(|(name, said)| (name.to_owned(), said.to_owned())).collect();
    Built { tests, programs: programs(&place.path("source").join(name).join(TARGET).join("debug")) }
}

/// Returns the program and the programs with its tests.
fn programs(debug: &Path) -> Vec<PathBuf> {
    let tests = fs::read_dir(debug.join("deps")).expect("a folder").map(|entry| entry.expect("an entry").path());
    let tests = tests.filter(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        path.extension().is_none() && (name.starts_with("fd-") || name.starts_with("tests-"))
    });
    let mut programs: Vec<PathBuf> = tests.collect();
    programs.push(debug.join("fd"));
    programs
}

#[test]
#[ignore = "projects: builds another project, and runs its tests"]
fn fd_passes_its_tests() {
    if let Some(reason) = fixtures::rust_musl_unavailable() {
        eprintln!("skipped: {reason}");
        return;
    }
    let Some(place) = Place::new(FD) else { return };
    toolchain(&place);
    let stock = build(&place, "stock", "");
    stock.passes(268, 4, &["ok"], false);
    let graft = build(&place, "graft", "allograft");
    graft.passes(268, 4, &["ok"], true);
    assert_eq!(stock.tests, graft.tests);
}
