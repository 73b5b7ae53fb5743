//! Cargo without allograft's subcommand: with an archive and a build script.

use std::process::Command;

use crate::place::{Place, succeeds};

#[test]
#[ignore = "rust: compiles with a toolchain of the slow tier"]
fn a_build_script_for_an_archive() {
    const TARGET: &str = "x86_64-unknown-linux-musl";
    let place = Place::new("the source");
    let script = &place.emit(&["--target", TARGET, "--as", "archive"])["Cargo, in build.rs"];
    place.write("Cargo.toml", "[package]\nname = \"server\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    place.write("build.rs", script);
    place.write("src/main.rs", "fn main() {\n    println!(\"{}\", vec![\"o\", \"k\"].concat());\n}\n");
    let bin = fixtures::rust_musl().join("bin");
    let mut cargo = Command::new(bin.join("cargo"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        // Cargo sets these variables for the test. They must not reach the cargo that the test runs.
        if (text.starts_with("CARGO") && text != "CARGO_HOME") || text.starts_with("RUST") {
            cargo.env_remove(&name);
        }
    }
    let path = std::env::var("PATH").expect("a path");
    cargo.env("PATH", format!("{}:{path}", bin.display())).args(["run", "--quiet", "--target", TARGET]);
    assert_eq!(succeeds(cargo.current_dir(place.folder())), "ok\n");
    place.carries(&place.path("target").join(TARGET).join("debug/server"), "snmalloc");
}
