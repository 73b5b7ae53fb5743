//! Valid archives and programs of many forms, grafted, and looked at by tools that are not ours: the verifier shares no
//! code with the editors, and binutils none with the verifier. Programs are run, stock and graft.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

mod archives;
mod programs;

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use proptest::prelude::*;

/// A generator's configuration: failures are printed, not kept in a file.
fn cases(count: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, max_shrink_iters: 60, ..ProptestConfig::with_cases(count) }
}

/// Runs one of binutils' tools in a folder. Returns its lines; it must not complain.
#[track_caller]
fn tool<A: AsRef<OsStr>>(folder: &Path, name: &str, arguments: &[A]) -> Vec<String> {
    let output = Command::new(name).args(arguments).current_dir(folder).env("LC_ALL", "C").output();
    let output = output.unwrap_or_else(|error| panic!("`{name}` does not start: {error}"));
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && complaints.trim().is_empty(), "{name}: {}\n{complaints}", output.status);
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
}
