//! A folder of its own for each test, archives to work on, and the program.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;

use fixtures::Arch;
pub(crate) use fixtures::lab::{Entry, Running, assert_same, long_ago};

/// A test's folder, in which it runs allograft; deleted in the end.
pub(crate) struct Lab(fixtures::lab::Lab);

impl Deref for Lab {
    type Target = fixtures::lab::Lab;

    fn deref(&self) -> &fixtures::lab::Lab {
        &self.0
    }
}

impl Lab {
    pub(crate) fn new() -> Lab {
        Lab(fixtures::lab::Lab::new(env!("CARGO_BIN_EXE_allograft")))
    }

    /// Makes a copy of Debian's musl for x86_64.
    pub(crate) fn libc(&self, name: impl AsRef<Path>) -> PathBuf {
        self.put(name, &debian())
    }
}

/// Debian's `libc.a` for x86_64.
pub(crate) fn debian() -> Vec<u8> {
    fs::read(fixtures::debian_musl(Arch::X86_64).libc).unwrap()
}

/// zig's `libc.a`.
pub(crate) fn zig(arch: Arch) -> Vec<u8> {
    fs::read(fixtures::zig_musl(arch)).unwrap()
}

/// Runs a tool that has to succeed.
#[track_caller]
pub(crate) fn tool(command: &mut Command) {
    fixtures::lab::succeeds(command);
}

/// Makes a program that names musl's dynamic linker. The linker is in the test's folder, under its usual name.
pub(crate) fn dynamic_with_musl(lab: &Lab, source: &str, name: &str) -> PathBuf {
    let interpreter = lab.path("ld-musl-x86_64.so.1");
    std::os::unix::fs::symlink(fixtures::musl_loader(Arch::X86_64), &interpreter).expect("a link");
    fixtures::program::linked_with_musl(&lab.path(""), name, source, true, &interpreter)
}

/// Whether a process runs a file of this folder, or has the folder or a file in it open.
pub(crate) fn is_used(folder: &Path) -> bool {
    let folder = fs::canonicalize(folder).unwrap();
    let uses = |process: &Path| {
        let leads = |link: &Path| fs::read_link(link).is_ok_and(|to| to.starts_with(&folder));
        let open = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        ["exe", "cwd"].iter().any(|name| leads(&process.join(name))) || open.into_iter().any(|file| leads(&file.path()))
    };
    fs::read_dir("/proc").unwrap().flatten().any(|process| uses(&process.path()))
}
