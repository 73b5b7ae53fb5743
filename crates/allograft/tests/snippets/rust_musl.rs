//! Cargo: what `emit` prints for it, with allograft's subcommand, and with an archive and a build script.

use std::path::Path;
use std::process::Command;

use crate::place::{Place, succeeds};

const TARGET: &str = "x86_64-unknown-linux-musl";

/// Makes a package whose program prints `ok`.
fn package(place: &Place) {
    place.write("Cargo.toml", "[package]\nname = \"server\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    place.write("src/main.rs", "fn main() {\n    println!(\"{}\", vec![\"o\", \"k\"].concat());\n}\n");
}

/// A command in the package's folder, with the toolchain and this build's programs first on the command path.
fn command(place: &Place, program: &Path) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        // Cargo sets these variables for the test. They must not reach the cargo that the test runs.
        if (text.starts_with("CARGO") && text != "CARGO_HOME") || text.starts_with("RUST") {
            command.env_remove(&name);
        }
    }
    let built = Path::new(env!("CARGO_BIN_EXE_cargo-allograft")).parent().expect("a folder");
    let path = std::env::var_os("PATH").expect("a path");
    let first = [fixtures::rust_musl().join("bin"), built.to_owned()];
    let path = std::env::join_paths(first.into_iter().chain(std::env::split_paths(&path))).expect("paths");
    command.env("PATH", path).current_dir(place.folder());
    command
}

#[test]
#[ignore = "rust: compiles with a toolchain of the slow tier"]
fn a_build_script_for_an_archive() {
    let place = Place::new("the source");
    let script = &place.emit(&["--target", TARGET, "--as", "archive"])["Cargo, in build.rs"];
    package(&place);
    place.write("build.rs", script);
    let mut cargo = command(&place, &fixtures::rust_musl().join("bin/cargo"));
    assert_eq!(succeeds(cargo.args(["run", "--quiet", "--target", TARGET])), "ok\n");
    place.carries(&place.path("target").join(TARGET).join("debug/server"), "snmalloc");
}

/// The printed line runs, whatever spelling of the target was typed.
#[test]
#[ignore = "rust: compiles with a toolchain of the slow tier"]
fn the_line_for_cargo() {
    for typed in ["x86_64-linux-musl", "x86_64-swift-linux-musl", TARGET] {
        let place = Place::new("the source");
        let line = &place.emit(&["--target", typed])["Cargo"];
        package(&place);
        succeeds(command(&place, Path::new("sh")).args(["-ec", line]));
        place.carries(&place.path("target").join(TARGET).join("debug/server"), "snmalloc");
    }
}
