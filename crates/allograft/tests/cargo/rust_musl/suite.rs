//! The programs of `suite/rust`: real programs, with their dependencies from crates.io.

use std::path::Path;
use std::process::Command;

use crate::project::{Project, TARGET, toolchain};

/// Builds the package and returns what the program prints.
fn built(project: &Project, package: &str, arguments: &[&str]) -> String {
    let suite = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../suite/rust/Cargo.toml");
    let mut cargo = Command::new(toolchain().join("bin/cargo"));
    cargo.args(["allograft", "build", "--release", "--locked", "--target", TARGET, "--package", package]);
    cargo.arg("--manifest-path").arg(suite).arg("--target-dir").arg(project.path("target"));
    project.run(&mut cargo).exits(0).says(&["carries snmalloc ", " and strings"]);
    let program = project.program("release", package);
    project.carries(&program, "snmalloc", "static-pie");
    project.run(Command::new(program).args(arguments)).exits(0).out
}

/// wasmtime's compiler runs in threads that allocate all the time. Its output does not depend on their number.
#[test]
#[ignore = "hours: compiles wasmtime, which takes minutes"]
fn wasmtime_compiles_a_module() {
    let project = Project::empty();
    let one = built(&project, "compile", &["400", "1"]);
    assert!(one.starts_with("400 functions, "), "{one}");
    let many = Command::new(project.program("release", "compile")).args(["400", "8"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&many.stdout), one);
}

/// A formatter makes trees of small blocks, and threads catch panics.
#[test]
#[ignore = "rust: compiles with a toolchain of the slow tier"]
fn a_formatter_prints_sources() {
    let project = Project::empty();
    let sources = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let one = built(&project, "format", &["1", "2", sources]);
    assert!(one.contains(" files, ") && !one.starts_with("0 of"), "{one}");
    let many = Command::new(project.program("release", "format")).args(["8", "2", sources]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&many.stdout), one);
}
