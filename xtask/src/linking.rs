//! Compiles the demo's program once for each libc, and links it against copies of a musl.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use zigcc::{Arch, Zig, ZigTarget};

use tools::{command, workspace};

/// The flags for every libc. Some distributions turn on protections by default that exist under one libc only.
const FLAGS: [&str; 7] = [
    "-std=c11",
    "-O2",
    "-pthread",
    "-fno-stack-protector",
    "-U_FORTIFY_SOURCE",
    "-fno-pie",
    "-Wno-unused-command-line-argument",
];

/// A C compiler for this machine: its own, or zig's if it has none.
pub enum Compiler {
    /// The machine's compiler.
    System(PathBuf),
    /// zig's.
    Zig(Zig),
}

impl Compiler {
    /// Returns `$CC`, else `cc`, `gcc` or `clang` on the command path, else zig.
    ///
    /// # Errors
    /// When zig does not exist either.
    pub fn find() -> Result<Compiler> {
        let chosen = std::env::var_os("CC").filter(|cc| !cc.is_empty()).map(PathBuf::from);
        let system = chosen.or_else(|| ["cc", "gcc", "clang"].into_iter().find_map(command::on_path));
        Ok(match system {
            Some(program) => Compiler::System(program),
            None => Compiler::Zig(Zig::find(&fixtures::tools(), &workspace::zig_cache())?),
        })
    }

    /// Its name in a sentence.
    pub fn name(&self) -> String {
        match self {
            Compiler::System(program) => program.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            Compiler::Zig(_) => "zig cc".to_owned(),
        }
    }

    fn command(&self, target: &str) -> Command {
        match self {
            Compiler::System(program) => Command::new(program),
            Compiler::Zig(zig) => zig_cc(zig, target),
        }
    }

    /// Links a static program with a musl: the files that musl-gcc's specs name, and the compiler's own runtime
    /// library.
    fn link_static(&self, arch: Arch, objects: &[PathBuf], libraries: &[PathBuf], out: &Path) -> Result<()> {
        let mut link = self.command(arch.triple());
        link.args(["-static", "-no-pie", "-nostdlib", "-nostartfiles"]).args(objects);
        link.arg("-Wl,--start-group").args(libraries);
        if matches!(self, Compiler::System(_)) {
            link.arg("-lgcc");
        }
        command::output(link.arg("-Wl,--end-group").arg("-o").arg(out)).map(|_| ())
    }
}

fn zig_cc(zig: &Zig, target: &str) -> Command {
    let mut command = zig.command();
    command.args(["cc", "-target", target]);
    command
}

/// A musl to graft: Debian's, or zig's if there is no apt.
pub struct Musl {
    /// Its name in a sentence.
    pub name: String,
    arch: Arch,
    /// The folder of its files; [`Musl::copy`] copies those that a link needs.
    libdir: PathBuf,
    /// Debian's headers. `None` for zig, which has its own built in.
    include: Option<PathBuf>,
}

impl Musl {
    /// Returns the musl for this machine.
    ///
    /// # Errors
    /// When the machine is of an architecture without donors.
    pub fn find() -> Result<Musl> {
        let arch = Arch::ALL.into_iter().find(|arch| fixtures::native(*arch));
        let arch = arch.with_context(|| format!("there are no donors for {}", std::env::consts::ARCH))?;
        Ok(match fixtures::debian_musl_if_present(arch) {
            Some(musl) => {
                let name = format!("Debian's musl-dev for {}", arch.name());
                Musl { name, arch, libdir: musl.libdir, include: Some(musl.include) }
            }
            None => {
                let libc = fixtures::zig_musl(arch);
                let libdir = libc.parent().context("libc.a has no folder")?.to_owned();
                Musl {
                    name: format!("zig's musl for {} (Debian's is not to be had here)", arch.name()),
                    arch,
                    libdir,
                    include: None,
                }
            }
        })
    }

    /// Returns the folder of its `libc.a`.
    pub fn libdir(&self) -> &Path {
        &self.libdir
    }

    /// Returns the folder of its headers, or `None` if the compiler has them built in.
    pub fn include(&self) -> Option<&Path> {
        self.include.as_deref()
    }

    /// Copies the files that a program is linked with into a new folder. Returns the path of `libc.a` there.
    ///
    /// # Errors
    /// When a file cannot be copied.
    pub fn copy(&self, folder: &Path) -> Result<PathBuf> {
        fs::create_dir_all(folder)?;
        for name in ["libc.a", "crt1.o", "crti.o", "crtn.o", "libzigc.a", "libcompiler_rt.a"] {
            let from = self.libdir.join(name);
            if from.is_file() {
                fs::copy(&from, folder.join(name)).with_context(|| format!("cannot copy `{}`", from.display()))?;
            }
        }
        Ok(folder.join("libc.a"))
    }

    /// Compiles `source` to `object` as `musl-gcc` does: with musl's headers only.
    ///
    /// # Errors
    /// When it does not compile.
    pub fn compile(&self, compiler: &Compiler, source: &Path, object: &Path) -> Result<()> {
        self.compile_with(compiler, &[], source, object)
    }

    /// Compiles a source with more flags.
    ///
    /// # Errors
    /// When it does not compile.
    pub fn compile_with(&self, compiler: &Compiler, flags: &[String], source: &Path, object: &Path) -> Result<()> {
        let mut compile = match &self.include {
            Some(include) => {
                let mut compile = compiler.command(self.arch.triple());
                compile.arg("-nostdinc").arg("-isystem").arg(include);
                compile
            }
            None => zig_cc(&Zig::find(&fixtures::tools(), &workspace::zig_cache())?, self.arch.triple()),
        };
        command::output(compile.args(FLAGS).args(flags).arg("-c").arg(source).arg("-o").arg(object)).map(|_| ())
    }

    /// Links `object` with the copy of this musl in `libdir`, as a static program.
    ///
    /// # Errors
    /// When it does not link.
    pub fn link(&self, compiler: &Compiler, object: &Path, libdir: &Path, out: &Path) -> Result<()> {
        self.link_all(compiler, &[object.to_owned()], libdir, out)
    }

    /// Links several objects and archives.
    ///
    /// # Errors
    /// When it does not link.
    pub fn link_all(&self, compiler: &Compiler, files: &[PathBuf], libdir: &Path, out: &Path) -> Result<()> {
        let present = |names: &[&str]| {
            let paths = names.iter().map(|name| libdir.join(name));
            paths.filter(|path| path.is_file()).collect::<Vec<_>>()
        };
        let mut objects = present(&["crt1.o", "crti.o"]);
        objects.extend_from_slice(files);
        objects.extend(present(&["crtn.o"]));
        compiler.link_static(self.arch, &objects, &present(&["libc.a", "libzigc.a", "libcompiler_rt.a"]), out)
    }
}

/// Compiles `source` to `object` for this machine's glibc, with more flags.
///
/// # Errors
/// When it does not compile.
pub fn compile_for_glibc(compiler: &Compiler, flags: &[String], source: &Path, object: &Path) -> Result<()> {
    let mut compile = compiler.command(&glibc_target());
    command::output(compile.args(FLAGS).args(flags).arg("-c").arg(source).arg("-o").arg(object)).map(drop)
}

/// Links objects and archives with this machine's glibc, dynamically, as programs usually are.
///
/// # Errors
/// When they do not link.
pub fn link_for_glibc(compiler: &Compiler, files: &[PathBuf], out: &Path) -> Result<()> {
    let mut link = compiler.command(&glibc_target());
    link.args(["-no-pie", "-pthread"]).args(files).args(["-lm", "-ldl", "-o"]).arg(out);
    command::output(&mut link).map(drop)
}

/// Links an object with this machine's glibc, as a static program.
///
/// # Errors
/// When it does not link, as without glibc's `libc.a`.
pub fn link_for_static_glibc(compiler: &Compiler, object: &Path, out: &Path) -> Result<()> {
    let mut link = compiler.command(&glibc_target());
    link.args(["-static", "-no-pie", "-pthread"]).arg(object).arg("-o").arg(out);
    command::output(&mut link).map(drop)
}

fn glibc_target() -> String {
    format!("{}-linux-gnu", std::env::consts::ARCH)
}

/// Builds `source` against this machine's glibc, dynamically, as programs usually are, and tries it with `short` work.
/// Returns false if there is no glibc.
///
/// # Errors
/// When the result cannot be read.
pub fn with_glibc(compiler: &Compiler, source: &Path, short: &[&str], folder: &Path) -> Result<Option<PathBuf>> {
    fs::create_dir_all(folder)?;
    let program = folder.join(source.file_stem().unwrap_or_default());
    let object = program.with_extension("o");
    let target = glibc_target();
    let compiled = command::output(compiler.command(&target).args(FLAGS).arg("-c").arg(source).arg("-o").arg(&object));
    let mut link = compiler.command(&target);
    link.args(["-no-pie", "-pthread"]).arg(&object).arg("-o").arg(&program);
    let runs = || command::output(Command::new(&program).args(short));
    if compiled.and_then(|_| command::output(&mut link)).and_then(|_| runs()).is_err() {
        return Ok(None);
    }
    // glibc's interpreter is ld-linux-ARCH.so; that of a system with musl is ld-musl-ARCH.so.
    let bytes = fs::read(&program)?;
    Ok(bytes.windows(10).any(|window| window == b"/ld-linux-").then_some(program))
}
