//! The contents of the packages for one architecture.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use format::Arch;
use jiff::{Timestamp, Zoned, tz::TimeZone};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, elf};

/// A file in a package, or a package itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its path in the package, with `/` between the parts.
    pub path: String,
    /// Whether it is a program or a script.
    pub executable: bool,
    /// Its content.
    pub bytes: Vec<u8>,
}

impl File {
    /// Returns a file that is not executable.
    pub(crate) fn new(path: impl Into<String>, bytes: impl Into<Vec<u8>>) -> File {
        File { path: path.into(), executable: false, bytes: bytes.into() }
    }

    /// Returns a copy of the file at a different path.
    pub(crate) fn with_path(&self, path: impl Into<String>) -> File {
        File { path: path.into(), ..self.clone() }
    }
}

/// The contents of the packages for one architecture. The paths of its files are bare names.
#[derive(Debug, Clone)]
pub struct Payload {
    /// The version: numbers with dots between them.
    pub version: String,
    /// The architecture of the programs.
    pub arch: Arch,
    /// The time of every entry, in seconds since 1970.
    pub time: u64,
    /// `allograft` and `cargo-allograft`.
    pub programs: Vec<File>,
    /// The manual pages, all of section 1.
    pub manuals: Vec<File>,
    /// The completion script for bash, as `allograft`.
    pub bash: File,
    /// The completion script for zsh, as `_allograft`.
    pub zsh: File,
    /// The completion script for fish, as `allograft.fish`.
    pub fish: File,
    /// The package for CMake.
    pub cmake: Vec<File>,
    /// The subproject for Meson.
    pub meson: Vec<File>,
    /// The rules for Bazel.
    pub bazel: Vec<File>,
    /// The texts of allograft's licences and of the donors'.
    pub licenses: Vec<File>,
    /// README.md.
    pub readme: File,
    /// CHANGELOG.md.
    pub changelog: File,
}

/// The sources of a payload's parts.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// The version of the release.
    pub version: &'a str,
    /// The architecture of the programs.
    pub arch: Arch,
    /// The time of the release, in seconds since 1970: see [`crate::time`].
    pub time: u64,
    /// The folder with the programs to pack: `allograft` and `cargo-allograft`.
    pub programs: &'a Path,
    /// A folder with the same programs, built for this machine. They print the manual pages and the completions.
    pub native: &'a Path,
    /// The checkout: licences, README.md, CHANGELOG.md, and the files for build systems.
    pub checkout: &'a Path,
    /// The licences of the donors and of the libraries, as one text: see [`crate::licenses`].
    pub licenses: &'a str,
}

/// The programs in each package.
pub(crate) const PROGRAMS: [&str; 2] = ["allograft", "cargo-allograft"];

impl Payload {
    /// Reads a payload.
    ///
    /// # Errors
    /// When a file is missing, a program is not static or not for that architecture, or the programs of this machine
    /// cannot be run.
    pub fn read(inputs: Inputs<'_>) -> Result<Payload> {
        let Inputs { version, arch, time, programs, native, checkout, licenses } = inputs;
        // Only such a version has the same form in every package format.
        let plain = version.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
        ensure!(plain, "the version `{version}` has other parts than numbers");
        let text = |name: &str| Ok::<_, anyhow::Error>(File::new(name, read(&checkout.join(name))?));
        let script = |shell: &str, name: &str| {
            let script = printed(run(native, "allograft").args(["completions", shell]))?;
            Ok::<_, anyhow::Error>(File::new(name, script))
        };
        Ok(Payload {
            version: version.to_owned(),
            arch,
            time,
            programs: PROGRAMS.into_iter().map(|name| program(programs, name, arch)).collect::<Result<_>>()?,
            manuals: manuals(native)?,
            bash: script("bash", "allograft")?,
            zsh: script("zsh", "_allograft")?,
            fish: script("fish", "allograft.fish")?,
            cmake: cmake(&checkout.join("integrations/cmake"), version)?,
            meson: meson(&checkout.join("integrations/meson"), version)?,
            bazel: bazel(&checkout.join("integrations/bazel"), version)?,
            licenses: vec![
                text("LICENSE-APACHE")?,
                text("LICENSE-MIT")?,
                File::new("LICENSES-THIRD-PARTY.txt", licenses),
            ],
            readme: text("README.md")?,
            changelog: text("CHANGELOG.md")?,
        })
    }

    /// Returns the name of the architecture's target in Rust.
    pub(crate) fn target(&self) -> &'static str {
        fixtures::rust_target(self.arch)
    }

    /// Returns the time of every entry as a date, in UTC.
    pub(crate) fn date(&self) -> Result<Zoned> {
        Ok(Timestamp::from_second(self.time.try_into()?)?.to_zoned(TimeZone::UTC))
    }
}

/// Reads a program, which must be static and for `arch`: the packages promise that it runs on every such Linux.
fn program(folder: &Path, name: &str, arch: Arch) -> Result<File> {
    let path = folder.join(name);
    let bytes = read(&path)?;
    let machine = match arch {
        Arch::X86_64 => elf::EM_X86_64,
        Arch::Aarch64 => elf::EM_AARCH64,
        _ => bail!("there are no packages for {arch}"),
    };
    let file =
        ElfFile64::<Endianness>::parse(&*bytes).with_context(|| format!("`{}` is no program", path.display()))?;
    let endian = file.endian();
    ensure!(file.elf_header().e_machine(endian) == machine, "`{}` is not a program for {arch}", path.display());
    let mut segments = file.elf_program_headers().iter();
    let dynamic = segments.any(|segment| segment.p_type(endian) == elf::PT_INTERP);
    ensure!(!dynamic, "`{}` is not static: it asks for a dynamic linker", path.display());
    Ok(File { path: name.to_owned(), executable: true, bytes })
}

/// Returns the page of the program, one for each of its commands, and that of the cargo command.
fn manuals(native: &Path) -> Result<Vec<File>> {
    let page = |arguments: &[&str]| printed(run(native, "allograft").arg("man").args(arguments));
    let main = page(&[])?;
    let commands = main.lines().filter_map(|line| line.strip_prefix(r"allograft\-")?.strip_suffix("(1)"));
    let commands: Vec<&str> = commands.collect();
    ensure!(!commands.is_empty(), "`allograft man` names no page of a command");
    let mut manuals = vec![File::new("allograft.1", main.clone())];
    for name in commands {
        manuals.push(File::new(format!("allograft-{name}.1"), page(&[name])?));
    }
    manuals.push(File::new("cargo-allograft.1", page(&["cargo"])?));
    manuals.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(manuals)
}

/// Returns a command that runs a program of this machine, without an environment: `COLUMNS` would set the line length.
fn run(native: &Path, name: &str) -> Command {
    let mut command = Command::new(native.join(name));
    command.env_clear();
    command
}

/// Returns the files of the package for CMake. The one that names a version gets `version`.
fn cmake(folder: &Path, version: &str) -> Result<Vec<File>> {
    let versioned = "allograft-config-version.cmake";
    let names = [versioned, "allograft-config.cmake", "allograft-everywhere.cmake", "sanitizers.cmake"];
    integration(folder, &names, versioned, ["PACKAGE_VERSION ", ")"], version)
}

/// Returns the files of the subproject for Meson. The one that names a version gets `version`.
fn meson(folder: &Path, version: &str) -> Result<Vec<File>> {
    let versioned = "meson.build";
    integration(folder, &[versioned, "meson.options", "emitter.py"], versioned, ["version: '", "', license"], version)
}

/// Returns the rules for Bazel. The one that names a version gets `version`.
fn bazel(folder: &Path, version: &str) -> Result<Vec<File>> {
    let versioned = "MODULE.bazel";
    let names = [versioned, "WORKSPACE", "BUILD.bazel", "extension.bzl", "malloc.bzl", "repository.bzl"];
    integration(folder, &names, versioned, ["name = \"allograft_bazel\",\n    version = \"", "\""], version)
}

/// Returns the files with these names. The one called `versioned` has this checkout's version between two texts, and
/// gets `version` in its place.
fn integration(folder: &Path, names: &[&str], versioned: &str, around: [&str; 2], version: &str) -> Result<Vec<File>> {
    let [before, after] = around;
    let current = format!("{before}{}{after}", env!("CARGO_PKG_VERSION"));
    let file = |name: &&str| {
        let text = String::from_utf8(read(&folder.join(name))?)?;
        if *name != versioned {
            return Ok(File::new(*name, text));
        }
        ensure!(text.contains(&current), "`{name}` has no `{current}`");
        Ok(File::new(*name, text.replace(&current, &format!("{before}{version}{after}"))))
    };
    names.iter().map(file).collect()
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read `{}`", path.display()))
}

/// Runs a command and returns what it prints.
///
/// # Errors
/// When it cannot be started or fails.
pub(crate) fn printed(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}\n{}", output.status, said.trim_end());
    String::from_utf8(output.stdout).with_context(|| format!("{command:?} printed no text"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn each_integration_is_whole_and_has_the_version_of_the_release() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../integrations");
        let check = |name: &str, files: Vec<File>, versioned: &str| {
            let mut packed: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
            let entries = fs::read_dir(folder.join(name)).unwrap();
            let mut there: Vec<String> = entries.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
            packed.sort();
            there.sort();
            assert_eq!(packed, there);
            assert!(files.iter().any(|file| String::from_utf8_lossy(&file.bytes).contains(versioned)), "{name}");
        };
        check("cmake", cmake(&folder.join("cmake"), "9.8.7").unwrap(), "set(PACKAGE_VERSION 9.8.7)");
        check("meson", meson(&folder.join("meson"), "9.8.7").unwrap(), "project('allograft', version: '9.8.7',");
        check("bazel", bazel(&folder.join("bazel"), "9.8.7").unwrap(), "    version = \"9.8.7\",");
    }

    #[test]
    fn a_program_must_be_static_and_for_the_architecture() {
        let folder = tempfile::tempdir().unwrap();
        let read = |bytes: &[u8]| {
            fs::write(folder.path().join("allograft"), bytes).unwrap();
            program(folder.path(), "allograft", Arch::Aarch64).map_err(|error| error.to_string())
        };
        assert!(read(&sample::elf(Arch::Aarch64)).unwrap().executable);
        assert!(read(&sample::elf(Arch::X86_64)).unwrap_err().ends_with("is not a program for aarch64"));
        assert!(read(b"#!/bin/sh\n").unwrap_err().ends_with("is no program"));
        let mut dynamic = sample::elf(Arch::Aarch64);
        // One program header of 56 bytes, right after the file's: PT_INTERP.
        dynamic[32] = 64;
        dynamic[54..58].copy_from_slice(&[56, 0, 1, 0]);
        dynamic.push(3);
        dynamic.resize(64 + 56, 0);
        assert!(read(&dynamic).unwrap_err().contains("is not static"));
    }
}
