//! Payloads and programs for tests.

use std::path::PathBuf;
use std::process::Command;

use format::Arch;

use crate::payload::{File, Payload, printed};

/// The name of this machine's architecture.
pub(crate) const HERE: &str = std::env::consts::ARCH;

/// Returns the header of a program for `arch`, which has no segments.
pub(crate) fn elf(arch: Arch) -> Vec<u8> {
    // 64 bits, little-endian, ET_EXEC.
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(64, 0);
    bytes[16] = 2;
    bytes[18] = if arch == Arch::X86_64 { 62 } else { 183 };
    bytes[20] = 1;
    bytes
}

/// Writes the package that `pack` makes from [`payload`] into a folder. Returns the folder and the package's path.
pub(crate) fn written(pack: fn(&Payload) -> anyhow::Result<File>) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = pack(&payload()).unwrap();
    let path = folder.path().join(&file.path);
    std::fs::write(&path, file.bytes).unwrap();
    (folder, path)
}

/// Runs a command, which must succeed, and returns what it prints.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> String {
    printed(command).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Whether the test cannot run for lack of a program. Prints the reason.
pub(crate) fn skipped(program: &str) -> bool {
    let missing = Command::new(program).arg("--version").output().is_err();
    if missing {
        eprintln!("skipped: there is no `{program}` here");
    }
    missing
}

/// Returns a payload for this machine, whose programs are scripts that print their name and arguments.
pub(crate) fn payload() -> Payload {
    let program = |name: &str| {
        let script = format!("#!/bin/sh\necho {name} \"$@\"\n");
        File { path: name.to_owned(), executable: true, bytes: script.into() }
    };
    Payload {
        version: "1.2.3".to_owned(),
        arch: Arch::from_name(HERE).unwrap(),
        time: 1_700_000_000,
        programs: ["allograft", "cargo-allograft"].map(program).into(),
        manuals: vec![File::new("allograft.1", ".TH allograft 1\n")],
        bash: File::new("allograft", "complete -W graft allograft\n"),
        zsh: File::new("_allograft", "#compdef allograft\n"),
        fish: File::new("allograft.fish", "complete -c allograft\n"),
        cmake: vec![File::new("allograft-config.cmake", "set(allograft_FOUND TRUE)\n")],
        meson: vec![File::new("meson.build", "project('allograft')\n")],
        bazel: vec![File::new("malloc.bzl", "\n")],
        licenses: ["LICENSE-APACHE", "LICENSE-MIT", "LICENSES-THIRD-PARTY.txt"]
            .map(|name| File::new(name, name))
            .into(),
        readme: File::new("README.md", "# allograft\n"),
        changelog: File::new("CHANGELOG.md", "# Changelog\n"),
    }
}
