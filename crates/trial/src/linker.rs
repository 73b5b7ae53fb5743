//! Linkers: which ones the machine has, and their command lines for a static program.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use inspector::Arch;

use crate::command_path;

/// The kinds of program that a donor has to link into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Static,
    StaticPie,
}

impl Mode {
    /// Returns its start file in musl.
    pub(crate) fn start_file(self) -> &'static str {
        match self {
            Mode::Static => "crt1.o",
            Mode::StaticPie => "rcrt1.o",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Static => "static",
            Mode::StaticPie => "static-pie",
        })
    }
}

/// The form of a linker's command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Interface {
    /// `ld` and every linker with the same arguments.
    Direct,
    /// A C compiler.
    Driver,
    /// zig, which contains lld.
    Zig,
}

#[derive(Debug, Clone)]
pub(crate) struct Linker {
    /// The linker's name in checks.
    pub(crate) name: String,
    program: PathBuf,
    interface: Interface,
}

/// The files of a link.
pub(crate) struct Inputs<'i> {
    pub(crate) start: &'i StartFiles,
    /// The objects before the archive.
    pub(crate) first: &'i [PathBuf],
    pub(crate) libc: &'i Path,
    /// The objects after the archive. The archive is searched again for them.
    pub(crate) last: &'i [PathBuf],
    pub(crate) output: &'i Path,
}

/// Returns the names to look for on the command path. A toolchain's own linker comes first, since most users have one.
pub(crate) fn looked_for(arch: Arch) -> Vec<String> {
    let mut names = Vec::new();
    if is_native(arch) {
        names.push("cc".to_owned());
    }
    names.extend(["ld", "ld.lld", "mold", "zig"].map(str::to_owned));
    if !is_native(arch) {
        let abi = if arch == Arch::Arm { "eabihf" } else { "" };
        names.push(format!("{arch}-linux-gnu{abi}-ld"));
        names.push(format!("{arch}-linux-musl{abi}-ld"));
    }
    names
}

pub(crate) fn is_native(arch: Arch) -> bool {
    arch.name() == std::env::consts::ARCH
}

/// Returns the linkers to use for `arch`: those given, those that the environment names, or those on the command path.
pub(crate) fn find(given: Option<&[PathBuf]>, arch: Arch) -> Vec<Linker> {
    let named = std::env::var_os("ALLOGRAFT_LINKERS").filter(|paths| !paths.is_empty());
    let programs: Vec<PathBuf> = match (given, named) {
        (Some(given), _) => given.to_vec(),
        (None, Some(named)) => std::env::split_paths(&named).collect(),
        (None, None) => looked_for(arch).iter().filter_map(command_path::find).collect(),
    };
    programs.into_iter().map(Linker::new).filter(|linker| linker.works_for(arch)).collect()
}

impl Linker {
    fn new(program: PathBuf) -> Self {
        let name = program.file_name().unwrap_or(OsStr::new("linker")).to_string_lossy().into_owned();
        let ends =
            |suffixes: &[&str]| suffixes.iter().any(|suffix| name == *suffix || name.ends_with(&format!("-{suffix}")));
        let (name, interface) = if name == "zig" {
            ("zig ld.lld".to_owned(), Interface::Zig)
        } else if ends(&["cc", "gcc", "clang"]) || name.starts_with("gcc-") || name.starts_with("clang-") {
            (name, Interface::Driver)
        } else {
            (name, Interface::Direct)
        };
        Linker { name, program, interface }
    }

    /// Whether the linker links for `arch`. lld and mold link for every architecture; a GNU ld names those it was built
    /// for.
    fn works_for(&self, arch: Arch) -> bool {
        let answer = |argument: &str| -> Option<String> {
            let output = Command::new(&self.program).arg(argument).stdin(Stdio::null()).output().ok()?;
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        match self.interface {
            Interface::Zig => true,
            Interface::Driver => answer("-dumpmachine").is_some_and(|triple| triple.trim().starts_with(&*arch.name())),
            Interface::Direct => answer("-V").is_some_and(|text| {
                let emulation = emulation(arch);
                text.contains("LLD") || text.contains("mold") || emulation.is_some_and(|name| text.contains(name))
            }),
        }
    }

    /// Links a program. The error is the reason why it failed.
    pub(crate) fn link(&self, inputs: &Inputs<'_>, mode: Mode, arch: Arch, folder: &Path) -> Result<(), String> {
        let mut command = self.command(inputs, mode, arch);
        command.current_dir(folder).stdin(Stdio::null());
        let output =
            command.output().map_err(|error| format!("`{}` does not start: {error}", self.program.display()))?;
        if output.status.success() && inputs.output.is_file() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let errors: Vec<&str> = said.lines().filter(|line| !line.contains("warning:")).take(6).collect();
        Err(format!("does not link ({}): {}", output.status, errors.join(" | ")))
    }

    fn command(&self, inputs: &Inputs<'_>, mode: Mode, arch: Arch) -> Command {
        let mut command = Command::new(&self.program);
        let (open, close) = match self.interface {
            Interface::Driver => {
                command.args(["-nostdlib", "-nostartfiles"]);
                command.args(if mode == Mode::Static { &["-static", "-no-pie"][..] } else { &["-static-pie"] });
                ("-Wl,--start-group", "-Wl,--end-group")
            }
            Interface::Direct | Interface::Zig => {
                command.args((self.interface == Interface::Zig).then_some("ld.lld"));
                command.args(emulation(arch).into_iter().flat_map(|emulation| ["-m", emulation]));
                command.args(["-static", "--eh-frame-hdr"]);
                if mode == Mode::StaticPie {
                    // Garbage collection in the linker must not remove the note.
                    command.args(["-pie", "--no-dynamic-linker", "-z", "text", "--gc-sections"]);
                }
                ("--start-group", "--end-group")
            }
        };
        let archives = |command: &mut Command| {
            command.arg(open).arg(inputs.libc).arg(&inputs.start.runtime).arg(close);
        };
        command.arg("-o").arg(inputs.output).args(inputs.start.before(mode)).args(inputs.first);
        archives(&mut command);
        if !inputs.last.is_empty() {
            command.args(inputs.last);
            archives(&mut command);
        }
        command.args(inputs.start.after());
        command
    }
}

/// Returns GNU ld's name of its emulation for an architecture; lld and mold know it too.
fn emulation(arch: Arch) -> Option<&'static str> {
    match arch {
        Arch::X86_64 => Some("elf_x86_64"),
        Arch::Aarch64 => Some("aarch64linux"),
        Arch::Riscv64 => Some("elf64lriscv"),
        Arch::I686 => Some("elf_i386"),
        Arch::Arm => Some("armelf_linux_eabi"),
        _ => None,
    }
}

/// The start and end files of every program: those beside the archive, or allograft's own.
pub(crate) struct StartFiles {
    start: PathBuf,
    /// The start file for static-pie. allograft has none of its own.
    relocating_start: Option<PathBuf>,
    prologue: Option<PathBuf>,
    epilogue: Option<PathBuf>,
    /// The functions that compilers call implicitly.
    pub(crate) runtime: PathBuf,
}

impl StartFiles {
    pub(crate) fn beside(libc: &Path, arch: format::Arch, folder: &Path) -> io::Result<Self> {
        let beside = |name: &str| Some(libc.with_file_name(name)).filter(|path| path.is_file());
        let runtime = folder.join("runtime.a");
        std::fs::write(&runtime, conformance::runtime_library(arch))?;
        let start = match beside("crt1.o") {
            Some(start) => start,
            None => {
                let own = folder.join("start.o");
                std::fs::write(&own, conformance::start_object(arch))?;
                own
            }
        };
        // One file of the pair without the other is wrong: then musl's archive replaces both.
        let (prologue, epilogue) = (beside("crti.o"), beside("crtn.o"));
        let both = prologue.is_some() && epilogue.is_some();
        Ok(StartFiles {
            start,
            relocating_start: beside("rcrt1.o"),
            prologue: prologue.filter(|_| both),
            epilogue: epilogue.filter(|_| both),
            runtime,
        })
    }

    pub(crate) fn has(&self, mode: Mode) -> bool {
        mode == Mode::Static || self.relocating_start.is_some()
    }

    fn before(&self, mode: Mode) -> impl Iterator<Item = &Path> {
        let start = match mode {
            Mode::Static => Some(&self.start),
            Mode::StaticPie => self.relocating_start.as_ref(),
        };
        start.into_iter().chain(&self.prologue).map(PathBuf::as_path)
    }

    fn after(&self) -> impl Iterator<Item = &Path> {
        self.epilogue.iter().map(PathBuf::as_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linkers_are_told_apart_by_name() {
        let interface = |path: &str| Linker::new(PathBuf::from(path)).interface;
        assert_eq!(interface("/usr/bin/cc"), Interface::Driver);
        assert_eq!(interface("x86_64-linux-gnu-gcc"), Interface::Driver);
        assert_eq!(interface("/opt/zig"), Interface::Zig);
        assert_eq!(interface("ld.lld"), Interface::Direct);
        assert_eq!(interface("aarch64-linux-gnu-ld"), Interface::Direct);
        assert_eq!(interface("mold"), Interface::Direct);
    }
}
