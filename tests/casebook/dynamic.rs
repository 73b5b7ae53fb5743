//! Conformance programs that are linked dynamically, with musl or with glibc, and run.

use std::path::{Path, PathBuf};
use std::process::Command;

use conformance::Program;
use fixtures::link::Dynamic;
use fixtures::{Arch, glibcs};

use crate::bench::Bench;

/// The program whose runs check that the donor serves it. Other programs allow no other output.
pub const ASKED: &str = "family";

/// The libc that a program is linked with.
#[derive(Debug, Clone, Copy)]
pub enum Libc<'a> {
    /// musl.
    Musl {
        /// The architecture.
        arch: Arch,
        /// The folder of the `libc.so` to link with.
        library: &'a Path,
        /// The loader that the program names. Some programs start themselves again, so it has to be there.
        loader: &'a Path,
    },
    /// glibc: this machine's, or Debian's for a foreign architecture. Objects that were compiled against musl's headers
    /// are not right for it, so the program is compiled for it.
    Glibc(Arch),
    /// glibc of a newer release of Debian, for this machine's architecture.
    NewerGlibc(glibcs::Release),
}

impl Libc<'_> {
    /// Links the program to the file `name` on the bench, once. Returns the file's path.
    ///
    /// # Panics
    /// With a tool's message.
    pub fn link(self, bench: &Bench, program: &Program, position_independent: bool, name: &str) -> PathBuf {
        let out = bench.path(name);
        let mut command = match self {
            Libc::Musl { arch, library, loader } => {
                let object = bench.file(&format!("{} {arch}.o", program.name), program.object(arch));
                let runtime = bench.file(&format!("runtime {arch}.a"), conformance::runtime_library(arch));
                Dynamic { arch, library, loader, position_independent }.line(&[object], &[runtime], &out)
            }
            Libc::Glibc(arch) => glibc(fixtures::program::glibc_cc(arch), bench, program, position_independent, &out),
            Libc::NewerGlibc(release) => {
                let mut compiler = glibc(fixtures::cc(), bench, program, position_independent, &out);
                let libraries = release.libraries();
                compiler.arg(format!("--sysroot={}", release.root().display()));
                // The compiler looks for start files and libraries below its own folder first.
                compiler.arg("-B").arg(&libraries).arg("-L").arg(&libraries);
                // The kernel's headers, which are in a separate package.
                compiler.args(["-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"]);
                compiler.arg(format!("-Wl,-rpath,{}", libraries.display()));
                compiler.arg(format!("-Wl,--dynamic-linker={}", release.loader().display()));
                compiler
            }
        };
        bench.made(name, |_| {
            let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
            match output.status.success() {
                true => Ok(()),
                false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr))),
            }
        })
    }
}

/// Returns the compiler with the command line for a program for glibc.
fn glibc(mut compiler: Command, bench: &Bench, program: &Program, pie: bool, out: &Path) -> Command {
    bench.file("check.h", conformance::header().as_bytes());
    let source = bench.file(&format!("{}.c", program.name), conformance::source(program).as_bytes());
    // The suite's own flags: every call of the malloc family stays a call.
    compiler.args(["-std=c11", "-O2", "-pthread", "-fno-builtin", "-fno-stack-protector", "-U_FORTIFY_SOURCE"]);
    compiler.args(if pie { ["-fPIE", "-pie"] } else { ["-fno-pie", "-no-pie"] });
    compiler.arg(format!("-DPROGRAM_NAME=\"{}\"", program.name));
    // Its watchdog ends it before the time limit of `run` does.
    compiler.arg(format!("-DPROGRAM_SECONDS={}", program.seconds * 9 / 10)).arg(source);
    compiler.arg("-o").arg(out);
    compiler
}

/// Runs a linked program, under an emulator if need be, at `scale` percent of its work. With a donor, [`ASKED`] has to
/// be served by it.
///
/// # Errors
/// The program's message, if it does not pass; or that the donor does not serve it.
pub fn run(arch: Arch, path: &Path, program: &Program, donor: Option<&str>, scale: &str) -> Result<(), String> {
    let mut command = match fixtures::runs_here(arch) {
        true => {
            let mut command = Command::new("timeout");
            command.args(["-s", "KILL", &program.seconds.to_string()]).arg(path);
            command
        }
        false => {
            let mut command = fixtures::run(arch, path);
            // The emulator finds glibc there. A program for musl names its loader by a path.
            command.env("QEMU_LD_PREFIX", fixtures::glibc_root(arch));
            command
        }
    };
    let asked = donor.filter(|_| program.name == ASKED);
    if asked.is_some() {
        command.env("ALLOGRAFT_VERBOSE", "1");
    }
    command.env("ALLOGRAFT_SCALE", scale);
    let output = fixtures::conformance_output(arch, &mut command).map_err(|error| error.to_string())?;
    let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if let Some(donor) = asked
        && !said.contains(&format!("allograft: {donor} "))
    {
        return Err(format!("{donor} does not serve it: {}: {text}{said}", output.status));
    }
    match output.status.success() && text.lines().any(|line| line == format!("ok {}", program.name)) {
        true => Ok(()),
        false => Err(format!("{}: {text}{said}", output.status)),
    }
}
