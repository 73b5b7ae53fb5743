//! Links the programs against a host and runs them.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use conformance::Program;
use fixtures::Arch;
use libtest_mimic::Failed;

/// The percentage of the full loops if `ALLOGRAFT_SCALE` is not set. It reaches every line in a fraction of a second.
const SCALE: &str = "5";

/// The files that a program is linked with.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    /// The files' architecture.
    pub(crate) arch: Arch,
    /// `-no-pie` or `-static-pie`, the C compiler's options.
    pub(crate) form: &'static str,
    /// The start objects. If it is empty, the crate's own start object is used.
    pub(crate) before: Vec<PathBuf>,
    /// The `libc.a`.
    pub(crate) libc: PathBuf,
    /// End objects.
    pub(crate) after: Vec<PathBuf>,
}

impl Host {
    /// Returns Debian's musl with its own start objects.
    pub(crate) fn debian(arch: Arch, form: &'static str) -> Host {
        let musl = fixtures::debian_musl(arch);
        let start = if form == "-static-pie" { "rcrt1.o" } else { "crt1.o" };
        let before = vec![musl.libdir.join(start), musl.libdir.join("crti.o")];
        Host { arch, form, before, after: vec![musl.libdir.join("crtn.o")], libc: musl.libc }
    }

    /// Returns a host from a `libc.a` alone, with the crate's own start object.
    pub(crate) fn bare(arch: Arch, libc: PathBuf) -> Host {
        Host { arch, form: "-no-pie", before: Vec::new(), libc, after: Vec::new() }
    }

    /// Links `program` in `folder`, with the `extra` objects before the `libc.a`. The error is the linker's output.
    pub(crate) fn link(&self, program: &Program, extra: &[PathBuf], folder: &Path) -> Result<PathBuf, Failed> {
        let arch = self.arch;
        let (object, start) = (folder.join("program.o"), folder.join("start.o"));
        let (runtime, executable) = (folder.join("runtime.a"), folder.join(program.name));
        fs::write(&object, program.object(arch))?;
        fs::write(&start, conformance::start_object(arch))?;
        fs::write(&runtime, conformance::runtime_library(arch))?;

        let mut command = if fixtures::native(self.arch) {
            let mut command = fixtures::cc();
            command.args(["-nostdlib", "-static", self.form, "-Wl,--fatal-warnings"]);
            command
        } else {
            let emulation = match self.arch {
                Arch::X86_64 => "elf_x86_64",
                Arch::Aarch64 => "aarch64linux",
                Arch::Riscv64 => "elf64lriscv",
                Arch::I686 => "elf_i386",
                Arch::Arm => "armelf_linux_eabi",
            };
            let mut command = Command::new(fixtures::lld_folder().join("ld.lld"));
            command.args(["-static", "-m", emulation]);
            command
        };
        command.arg("-o").arg(&executable);
        match self.before.is_empty() {
            true => command.arg(&start),
            false => command.args(&self.before),
        };
        command.arg(&object).args(extra);
        let group = if fixtures::native(self.arch) {
            ["-Wl,--start-group", "-Wl,--end-group"]
        } else {
            ["--start-group", "--end-group"]
        };
        command.arg(group[0]).arg(&self.libc).arg(&runtime).arg(group[1]).args(&self.after);
        let output = command.output()?;
        match output.status.success() {
            true => Ok(executable),
            false => Err(format!("`{command:?}`:\n{}", String::from_utf8_lossy(&output.stderr)).into()),
        }
    }

    /// Links the program and runs it. The error is the output of the linker or the program.
    pub(crate) fn check(&self, program: &Program, extra: &[PathBuf], settings: &[(&str, &str)]) -> Result<(), Failed> {
        let folder = tempfile::tempdir()?;
        let executable = self.link(program, extra, folder.path())?;
        let mut command = fixtures::run(self.arch, &executable);
        if std::env::var_os("ALLOGRAFT_SCALE").is_none() {
            command.env("ALLOGRAFT_SCALE", SCALE);
        }
        // Files go into this folder, so that /tmp's memory does not count as the program's.
        command.env("TMPDIR", folder.path()).envs(settings.iter().copied());
        let output = fixtures::conformance_output(self.arch, &mut command)?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let expected = format!("ok {}\n", program.name);
        if output.status.success() && out == expected {
            return Ok(());
        }
        let end = match (output.status.code(), output.status.signal()) {
            (Some(code), _) => format!("left with {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "ended".to_owned(),
        };
        Err(format!("{}: {end}; it printed {out:?} and, on stderr:\n{err}", program.name).into())
    }
}
