//! Programs that the donor would not get into are refused, with an exit code and a message.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use fixtures::shell::word;

use crate::project::{Project, TARGET};

#[test]
#[ignore = "rust: compiles with a toolchain of the slow tier"]
fn linkers_and_flags_that_leave_the_graft_out() {
    let mut project = Project::app();
    let variable = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER";
    let zig = format!("exec {} cc -target x86_64-linux-musl \"$@\"", word(fixtures::zig().program()));
    project.set(variable, project.script("cross-cc", &zig).display().to_string());
    project.cargo("allograft build").exits(3).says(&["is zig", "ignored", "help: "]);
    project.set(variable, "cc");
    project.set("RUSTFLAGS", "-Ctarget-feature=-crt-static");
    project.cargo("allograft build").exits(1).says(&["linked dynamically", "help: "]);
    // A program that failed its check is not run, and is not taken for up to date the next time.
    let ran = project.cargo("allograft run").exits(1).says(&["linked dynamically"]);
    assert_eq!(ran.out, "");
    project.set("RUSTFLAGS", "");
    project.cargo("allograft --config x.y=1 build").exits(2);
    let own = "allograft build --config build.rustc-workspace-wrapper=\"x\"";
    project.cargo(own).exits(3).says(&["RUSTC_WORKSPACE_WRAPPER", "help: "]);
}

#[test]
#[ignore = "rust: compiles with a toolchain of the slow tier"]
fn a_program_with_a_malloc_of_its_own() {
    let project = Project::app();
    project.append(
        "src/main.rs",
        "#[no_mangle]\npub extern \"C\" fn malloc(_: usize) -> *mut u8 {\n    std::ptr::null_mut()\n}\n\
         #[no_mangle]\npub extern \"C\" fn free(_: *mut u8) {}\n",
    );
    let ran = project.cargo(&format!("allograft build --target {TARGET}")).exits(1);
    ran.says(&["carries the malloc `unknown`, expected `snmalloc`", "help: "]);
    assert!(!project.program("debug", "app").exists());
}

#[test]
#[ignore = "rust: needs a toolchain of the slow tier"]
fn targets_that_are_not_musls_or_not_there() {
    let project = Project::app();
    project.cargo("allograft build --target x86_64-unknown-linux-gnu").exits(2).says(&["not musl's", "help: "]);
    project
        .cargo("allograft build --target riscv64gc-unknown-linux-musl")
        .exits(2)
        .says(&["not installed", "rustup target add"]);
    project.cargo("allograft build --target no-such-linux-musl").exits(2).says(&["`no`"]);
    project.cargo("allograft build --set cook=1").exits(2).says(&["`cook`"]);
    project.cargo("allograft clean").exits(2).says(&["`cargo clean`", "help: "]);
    project.put(".cargo/config.toml", "[build]\ntarget = [\"x86_64-unknown-linux-gnu\"]\n");
    project.cargo("allograft build").exits(2).says(&["not musl's"]);
    let empty = Project::empty();
    empty.cargo("allograft build").exits(2).says(&["Cargo.toml"]);
}

#[test]
fn help_and_wrong_usage_take_no_toolchain() {
    let program = env!("CARGO_BIN_EXE_cargo-allograft");
    let run = |words: &[&str]| Command::new(program).args(words).output().unwrap();
    for words in [&["allograft", "--help"][..], &["--help"]] {
        let help = run(words);
        assert!(help.status.success());
        let text = String::from_utf8_lossy(&help.stdout).into_owned();
        for part in ["cargo allograft", "--donor-profile", "install", "Examples:"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    assert!(String::from_utf8_lossy(&run(&["allograft", "--version"]).stdout).starts_with("cargo-allograft "));
    for wrong in [&["allograft"][..], &["allograft", "cook"], &["allograft", "build", "--donor", "cook"]] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
}

/// The rustc of this test prints what a rustup toolchain without the target prints.
#[test]
fn a_target_that_is_not_installed_is_said_with_the_cure() {
    let folder = tempfile::tempdir().unwrap();
    let rustc = folder.path().join("rustc");
    let libdir = folder.path().join("lib/rustlib/x86_64-unknown-linux-musl/lib");
    std::fs::write(&rustc, format!("#!/bin/sh\necho {}\n", word(&libdir))).unwrap();
    std::fs::set_permissions(&rustc, std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = |target: &str, rustc: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_allograft"));
        command.args(["graft", target]).env("RUSTC", rustc);
        fixtures::Ran::from(command.output().unwrap())
    };
    run("rust:x86_64-unknown-linux-musl", &rustc).exits(2).says(&["not installed", "rustup target add x86_64"]);
    run("rust:x86_64-unknown-linux-gnu", &rustc).exits(2).says(&["not musl's", "help: "]);
    run("rust:x86_64-unknown-linux-musl", Path::new("/no/rustc")).exits(2).says(&["cannot run `/no/rustc`", "help: "]);
    std::fs::create_dir_all(&libdir).unwrap();
    run("rust:x86_64-unknown-linux-musl", &rustc).exits(2).says(&["brings no musl", "help: "]);
}
