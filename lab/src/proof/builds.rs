//! The builds of the proof: the compilers and flags on which the search for musl's malloc was tuned, and those that
//! were held out. Only the held-out ones can show that the search works for programs that it has never seen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use zigcc::Arch;

use super::compilers::{self, Driver, ZIGS};
use super::musl;
use tools::{command, workspace};

/// The purpose of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Set {
    /// The rules were made with these builds available (tests/casebook/executables.rs has all of them).
    Tuning,
    /// The rules were made without these builds.
    Proof,
}

/// A kind of static program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Static,
    StaticPie,
}

impl Mode {
    pub(crate) const ALL: [Mode; 2] = [Mode::Static, Mode::StaticPie];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Mode::Static => "static",
            Mode::StaticPie => "static-pie",
        }
    }
}

/// A way to build a program.
#[derive(Debug, Clone)]
pub(crate) struct Build {
    pub(crate) set: Set,
    /// The names of compiler and musl, for the table.
    pub(crate) name: String,
    pub(crate) flags: &'static [&'static str],
    how: How,
}

#[derive(Debug, Clone)]
enum How {
    /// zig compiles the program and its musl with the flags.
    Zig(PathBuf),
    /// This compiler compiles the program; the musl is Debian's.
    Debian(Driver),
    /// This compiler compiles musl with the flags, and the program too.
    Musl(Driver),
    /// This compiler compiles the program's object; rustc compiles main and links.
    Rust(Driver, PathBuf),
}

const LEVELS: [&[&str]; 5] = [&["-O0"], &["-O1"], &["-O2"], &["-O3"], &["-Os"]];
const LTO: &[&str] = &["-O2", "-flto"];
/// Flags for zig before 0.14, which optimises musl and the program together in every release build unless told not to.
const ZIG_WITHOUT_LTO: [&[&str]; 3] = [&["-O2", "-fno-lto"], &["-O3", "-fno-lto"], &["-Os", "-fno-lto"]];
/// Flags for musl itself: those that distributions use for hardening, and those that profilers need.
const OTHERS: [&[&str]; 4] = [
    &["-Os", "-fcf-protection=none"],
    &["-O2", "-fno-omit-frame-pointer"],
    &["-O2", "-march=x86-64-v3"],
    &["-O2", "-fcf-protection=full"],
];
const RUST: [&[&str]; 5] = [
    &["-Copt-level=0"],
    &["-Copt-level=2"],
    &["-Copt-level=3", "-Clto=fat", "-Ccodegen-units=1"],
    &["-Copt-level=s", "-Cpanic=abort"],
    &["-Copt-level=3", "-Clto=thin"],
];

/// Returns every build that this machine can make.
pub(crate) fn all() -> Vec<Build> {
    let mut builds = Vec::new();
    let mut add = |set, name: String, flags, how| builds.push(Build { set, name, flags, how });
    let levels = || LEVELS.into_iter().chain([LTO]);
    let drivers = Driver::all();
    for driver in &drivers {
        // Debian's own build of musl was used for tuning, with this machine's linker and with lld. The compiler of the
        // program does not change musl.
        for flags in levels() {
            let name = format!("{}, Debian's musl 1.2.3", driver.name);
            add(Set::Tuning, name, flags, How::Debian(driver.clone()));
        }
    }
    if let Some(driver) = drivers.first() {
        let folder = fixtures::tools().join("rust-musl");
        if fixtures::rust_libc_below(&folder, Arch::X86_64).is_file() {
            for flags in RUST {
                let name = "rustc 1.96, Debian's musl 1.2.3".to_owned();
                add(Set::Proof, name, flags, How::Rust(driver.clone(), folder.clone()));
            }
        } else {
            eprintln!("proof: WARNING: left out rustc: `cargo xtask setup rust` brings it");
        }
    }
    for (version, _) in ZIGS {
        let program = compilers::home(&format!("zig-{version}")).join("ziglang/zig");
        let without_lto = ZIG_WITHOUT_LTO.into_iter().filter(|_| version < "0.14");
        for flags in levels().chain(without_lto) {
            add(Set::Proof, format!("zig {version} and its musl"), flags, How::Zig(program.clone()));
        }
    }
    for driver in &drivers {
        for flags in levels().chain(OTHERS) {
            add(Set::Proof, format!("{}, musl 1.2.5 by the same", driver.name), flags, How::Musl(driver.clone()));
        }
    }
    builds
}

/// The flags for every program; conformance/build.rs has the reasons.
const PROGRAM: &str = "-std=c11 -pthread -fno-builtin -fno-stack-protector -w";

impl Build {
    pub(crate) fn title(&self) -> String {
        format!("{} {}", self.name, self.flags.join(" "))
    }

    /// Compiles and links one program.
    ///
    /// # Errors
    /// The program does not build; the message is the compiler's or linker's.
    pub(crate) fn link(&self, source: &Path, mode: Mode, out: &Path) -> Result<()> {
        match &self.how {
            How::Zig(zig) => {
                let mut command = Command::new(zig);
                let cache = compilers::folder().join("zig-cache");
                command.env("ZIG_GLOBAL_CACHE_DIR", &cache).env("ZIG_LOCAL_CACHE_DIR", &cache);
                command.args(["cc", "-target", "x86_64-linux-musl", "-static", "-fno-sanitize=all"]);
                command.args(match mode {
                    Mode::Static => ["-fno-pie", "-no-pie"],
                    Mode::StaticPie => ["-fPIE", "-pie"],
                });
                command.args(PROGRAM.split_whitespace()).args(self.flags).arg(own_name(source));
                command::output(command.arg(source).arg("-o").arg(out)).map(drop)
            }
            How::Debian(driver) => {
                let musl = fixtures::debian_musl(Arch::X86_64);
                let object = out.with_extension("o");
                compile(driver, self.flags, std::slice::from_ref(&musl.include), mode, &[], source, &object)?;
                link(driver, self.flags, &musl.libdir, mode, &object, out)
            }
            How::Musl(driver) => {
                let object = out.with_extension("o");
                compile(driver, self.flags, &musl::includes(), mode, &[], source, &object)?;
                link(driver, self.flags, &musl::built(driver, self.flags)?, mode, &object, out)
            }
            How::Rust(driver, folder) => {
                let musl = fixtures::debian_musl(Arch::X86_64);
                let (object, main) = (out.with_extension("o"), out.with_extension("rs"));
                let renamed = ["-Dmain=conformance_main"];
                let include = std::slice::from_ref(&musl.include);
                compile(driver, &["-O2"], include, Mode::StaticPie, &renamed, source, &object)?;
                fs::write(&main, MAIN)?;
                let mut rustc = Command::new(folder.join("bin/rustc"));
                rustc.args(["--edition=2024", "--crate-type=bin", "--crate-name=program"]);
                rustc.args(["--target", fixtures::rust_target(Arch::X86_64)]).args(self.flags);
                if mode == Mode::Static {
                    rustc.arg("-Crelocation-model=static");
                }
                // The object comes after libc, so libc has to be searched again.
                rustc.arg(format!("-Clink-arg={}", object.display())).arg("-Clink-arg=-lc").arg(&main);
                rustc.arg("-o").arg(out);
                command::output(&mut rustc).map(drop)
            }
        }
    }
}

/// A Rust program that runs the conformance program's main with its own arguments, since some programs start
/// themselves. `println` and a thread link the parts of libc that Rust's startup and threads use.
const MAIN: &str = "use std::ffi::{CString, c_char, c_int};\n\
    use std::os::unix::ffi::OsStringExt;\n\
    unsafe extern \"C\" { fn conformance_main(argc: c_int, argv: *const *const c_char) -> c_int; }\n\
    fn main() {\n\
    \x20   let sum: usize = std::thread::spawn(|| vec![1usize; 1000].iter().sum()).join().unwrap();\n\
    \x20   assert_eq!(format!(\"{sum}\"), \"1000\");\n\
    \x20   let words: Vec<CString> = std::env::args_os().map(|word| CString::new(word.into_vec()).unwrap()).collect();\n\
    \x20   let mut argv: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();\n\
    \x20   argv.push(std::ptr::null());\n\
    \x20   std::process::exit(unsafe { conformance_main(words.len() as c_int, argv.as_ptr()) });\n}\n";

/// Returns the name that a program prints for itself.
fn own_name(source: &Path) -> String {
    format!("-DPROGRAM_NAME=\"{}\"", source.file_stem().unwrap_or_default().to_string_lossy())
}

fn compile(
    driver: &Driver,
    flags: &[&str],
    includes: &[PathBuf],
    mode: Mode,
    more: &[&str],
    source: &Path,
    object: &Path,
) -> Result<()> {
    let mut command = driver.command();
    command.args(PROGRAM.split_whitespace()).args(flags).args(more).arg(own_name(source)).arg("-nostdinc");
    // The compiler's own headers (stdatomic.h) come after musl's.
    let own = command::output(driver.command().arg("-print-file-name=include"))?;
    for include in includes.iter().map(PathBuf::as_path).chain([Path::new(own.trim())]) {
        command.arg("-isystem").arg(include);
    }
    // The kernel's headers, which are not part of musl.
    for include in ["x86-linux-any", "any-linux-any"] {
        command.arg("-idirafter").arg(compilers::zig_libc(compilers::SOURCES).join("include").join(include));
    }
    command.arg(if mode == Mode::StaticPie { "-fPIE" } else { "-fno-pie" });
    command::output(command.arg("-c").arg(source).arg("-o").arg(object)).map(drop)
}

/// Links as musl-gcc's specs do.
fn link(driver: &Driver, flags: &[&str], musl: &Path, mode: Mode, object: &Path, out: &Path) -> Result<()> {
    let mut command = driver.command();
    command.args(["-nostdlib", "-nostartfiles"]).args(flags);
    if driver.is_clang() {
        command.arg("-fuse-ld=lld").arg("-B").arg(fixtures::lld_folder());
    }
    let start = match mode {
        Mode::Static => {
            command.args(["-static", "-no-pie"]);
            "crt1.o"
        }
        Mode::StaticPie => {
            command.arg("-static-pie");
            "rcrt1.o"
        }
    };
    command.arg(musl.join(start));
    command.args([musl.join("crti.o")].iter().filter(|file| file.is_file()));
    command.arg(object).arg("-Wl,--start-group").arg(musl.join("libc.a")).arg(libgcc()?).arg("-Wl,--end-group");
    command.args([musl.join("crtn.o")].iter().filter(|file| file.is_file()));
    command::output(command.arg("-o").arg(out)).map(drop)
}

fn libgcc() -> Result<PathBuf> {
    let said = command::output(Command::new("gcc").arg("-print-libgcc-file-name")).context("gcc is needed")?;
    Ok(PathBuf::from(said.trim()))
}

/// Returns the conformance programs' names and sources.
///
/// # Errors
/// They cannot be read.
pub(crate) fn programs() -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(workspace::root().join("conformance/programs"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "c") {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            found.push((name, path));
        }
    }
    found.sort();
    Ok(found)
}
