//! Links static programs as toolchains do, but by calling the linker directly, and runs them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Output;

use fixtures::link;

use crate::bench::{Bench, Host};

/// A linker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linker {
    /// This machine's GNU ld.
    Gnu,
    /// lld.
    Lld,
}

/// A kind of static program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// At a fixed address.
    Static,
    /// Position-independent; it relocates itself.
    StaticPie,
}

/// A way to link a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkSetup {
    /// The libc.
    pub host: Host,
    /// The linker.
    pub linker: Linker,
    /// The kind of program.
    pub mode: Mode,
}

impl LinkSetup {
    /// Returns its part of a test's name.
    pub fn name(self) -> String {
        let linker = match self.linker {
            Linker::Gnu => "ld",
            Linker::Lld => "lld",
        };
        let mode = match self.mode {
            Mode::Static => "static",
            Mode::StaticPie => "static-pie",
        };
        format!("{}/{linker}/{mode}", self.host.name())
    }

    /// Links `objects` with `libc` into `program`.
    ///
    /// # Errors
    /// The linker's message.
    pub fn link(
        self,
        bench: &Bench,
        libc: &Path,
        objects: &[PathBuf],
        flags: &[OsString],
        program: &Path,
    ) -> Result<(), String> {
        let mut linker = match self.linker {
            Linker::Gnu => link::gnu(),
            Linker::Lld => link::lld(),
        };
        linker.args(flags);
        let stock = self.host.libc();
        let start_files = stock.parent().unwrap_or(Path::new(""));
        let way = link::Static { start_files, libc, position_independent: self.mode == Mode::StaticPie };
        let of_zig = Some(start_files.join("libzigc.a")).filter(|file| file.is_file());
        let mut command = way.line(linker, objects, of_zig.into_iter().chain([runtime(bench, self.host)]), program);
        let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        Err(format!("{command:?}\n{}", String::from_utf8_lossy(&output.stderr)))
    }

    /// Runs a program that was linked this way, under an emulator if need be.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn run(self, program: &Path, environment: &[(String, String)]) -> Result<Output, String> {
        let mut command = fixtures::run(self.host.arch(), program);
        for (name, _) in std::env::vars_os() {
            let ours =
                name.to_string_lossy().starts_with("ALLOGRAFT_") || name.to_string_lossy().starts_with("MIMALLOC_");
            if ours && name != "ALLOGRAFT_SCALE" {
                command.env_remove(name);
            }
        }
        if !fixtures::runs_here(self.host.arch()) {
            command.env("ALLOGRAFT_TEST_EMULATED", "1");
        }
        command.envs(environment.iter().cloned()).current_dir(program.parent().unwrap_or(Path::new(".")));
        let output = fixtures::conformance_output(self.host.arch(), &mut command);
        output.map_err(|error| format!("{command:?}: {error}"))
    }
}

/// Returns the functions that compilers call implicitly. They belong to the toolchain, not to libc.
fn runtime(bench: &Bench, host: Host) -> PathBuf {
    let arch = host.arch();
    bench.file(&format!("runtime {arch}.a"), conformance::runtime_library(arch))
}
