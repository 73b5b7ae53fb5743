//! Targets given by name, and targets for other machines.

use std::fs;
use std::process::Command;

use fixtures::Arch;
use fixtures::shell::word;

use crate::project::{Project, TARGET, toolchain};

#[test]
#[ignore = "rust: compiles with a toolchain of the slow tier"]
fn another_architecture() {
    let mut project = Project::app();
    let target = fixtures::rust_target(Arch::Aarch64);
    let lld = fixtures::lld_folder().join("ld.lld");
    project.set("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER", lld.display().to_string());
    // With both targets at once, each is linked with its own copy.
    project.cargo(&format!("allograft build --target {target} --target {TARGET}")).exits(0);
    let program = project.path("target").join(target).join("debug/app");
    // This is rustc's default kind of program for aarch64.
    project.carries(&program, "snmalloc", "static");
    project.carries(&project.program("debug", "app"), "snmalloc", "static-pie");
    let output = fixtures::run(Arch::Aarch64, &program).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2000 []\n", "{output:?}");
}

#[test]
#[ignore = "rust: needs a toolchain of the slow tier"]
fn a_toolchain_is_grafted_by_the_name_of_its_target() {
    let project = Project::empty();
    // The test copies the parts that rustc looks at, since other tests use the toolchain itself.
    let copy = project.path("toolchain");
    fs::create_dir_all(copy.join("bin")).unwrap();
    let own = fixtures::rust_libc_below(&toolchain(), Arch::X86_64);
    let libc = fixtures::rust_libc_below(&copy, Arch::X86_64);
    fs::create_dir_all(libc.parent().unwrap()).unwrap();
    fs::copy(&own, &libc).unwrap();
    let real = toolchain().join("bin/rustc");
    let rustc = project.script("rustc", &format!("exec {} --sysroot {} \"$@\"", word(&real), word(&copy)));
    let allograft = |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_allograft"));
        command.args(words.split_whitespace()).env("RUSTC", &rustc);
        // `Project::cargo` would remove RUSTC, so the test starts the program itself.
        command.current_dir(project.path("")).output().map(fixtures::Ran::from).unwrap()
    };
    let target = format!("rust:{TARGET}");
    allograft(&format!("graft {target} --donor mimalloc3")).exits(0);
    assert!(fs::read(&libc).unwrap() != fs::read(&own).unwrap());
    allograft(&format!("verify {target} --static-only")).exits(0);
    allograft(&format!("undo {target}")).exits(0);
    assert!(fs::read(&libc).unwrap() == fs::read(&own).unwrap());
}
