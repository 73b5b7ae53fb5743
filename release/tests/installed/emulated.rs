//! The packages for aarch64: installed by the same commands, and used, in trees whose other programs are for this
//! machine. The kernel runs the packages' programs by an emulator.

use std::path::Path;
use std::process::Command;

use fixtures::Arch;

use crate::page::{self, INSTALL};
use crate::tree::{BUSYBOX, DEBIAN, NODE, PYTHON, Tree};
use crate::{IN_PLACE, USE, Work, unpack_as_apk};

/// Returns a work folder for aarch64. If the test cannot run here, prints the reason and returns `None`.
fn work() -> Option<Work> {
    // Since Linux 6.7, a user namespace has formats of its own.
    let mount = ["--map-root-user", "--mount", "mount", "-t", "binfmt_misc", "formats", "/proc/sys/fs/binfmt_misc"];
    let tried = Command::new("unshare").args(mount).output().expect("`unshare` starts");
    if !tried.status.success() {
        eprintln!("skipped: no binfmt_misc in a namespace: {}", String::from_utf8_lossy(&tried.stderr).trim());
        return None;
    }
    let work = Work::for_arch(Arch::Aarch64)?;
    let is_there = work.files().iter().any(|path| path.to_string_lossy().ends_with("_arm64.deb"));
    if !is_there {
        eprintln!("skipped: these packages are not for aarch64");
    }
    is_there.then_some(work)
}

/// Returns the page's commands for aarch64.
fn commands(section: &str) -> String {
    let names = [("x86_64", "aarch64"), ("amd64", "arm64"), ("linux-x64", "linux-arm64")];
    names.iter().fold(page::commands(INSTALL, section), |text, (here, there)| text.replace(here, there))
}

#[track_caller]
fn run(work: &Work, tree: &Tree, before: Option<&Path>, script: &str) {
    let script = format!("{script}\nmachine=$(od -An -tx1 -j18 -N2 program)\n[ \"$machine\" = ' b7 00' ]\n");
    tree.run_emulated(work.0.folder(), before, &script).unwrap_or_else(|error| panic!("{error:#}"));
}

#[test]
#[ignore = "install: installs into a Debian of the slow tier, and emulates"]
fn the_archive_is_unpacked() {
    let Some(work) = work() else { return };
    run(&work, &DEBIAN, None, &[&commands(""), &commands("Any Linux"), USE].concat());
}

#[test]
#[ignore = "install: installs into a Debian of the slow tier, and emulates"]
fn dpkg_installs_and_removes_the_package() {
    let Some(work) = work() else { return };
    let foreign = "dpkg --add-architecture arm64\n";
    let remove = "dpkg --verify allograft\ndpkg --remove allograft\n! ls /usr/bin/*allograft\n";
    run(&work, &DEBIAN, None, &[foreign, &commands("Debian and Ubuntu"), IN_PLACE, USE, remove].concat());
}

#[test]
#[ignore = "install: installs into a root folder of the slow tier, and emulates"]
fn apk_unpacks_the_package() {
    let Some(work) = work() else { return };
    let unpack = unpack_as_apk(&work, Arch::Aarch64);
    run(&work, &BUSYBOX, Some(&unpack), &[IN_PLACE, USE].concat());
}

#[test]
#[ignore = "install: installs into a Debian of the slow tier, and emulates"]
fn pip_installs_the_wheel() {
    let Some(work) = work() else { return };
    // With this, Python for this machine takes wheels for aarch64.
    let platform = "export _PYTHON_HOST_PLATFORM=linux-aarch64\n";
    run(&work, &PYTHON, None, &[platform, &commands("Python"), "cargo-allograft --help >help\n", USE].concat());
}

#[test]
#[ignore = "install: installs into a Debian of the slow tier, and emulates"]
fn npm_installs_the_packages() {
    let Some(work) = work() else { return };
    work.script("arm64.cjs", "Object.defineProperty(process, \"arch\", { value: \"arm64\" });\n");
    let node = "export NODE_OPTIONS=--require=/mnt/arm64.cjs\n";
    let function = "allograft() { npx --offline allograft \"$@\"; }\nnpx --offline cargo-allograft --help >help\n";
    run(&work, &NODE, None, &[node, &commands("npm"), function, USE].concat());
}
