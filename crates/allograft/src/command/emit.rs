//! `allograft emit`: writes a donor as a file to link or to preload.

mod folder;
mod snippets;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use format::Note;
use hosts::{Candidate, Locking, Watch};
use relocatable::{Binding, merge, symbols};
use surgery::archive::{Archive, Insert};

use crate::choice::Choice;
use crate::command::graft::named;
use crate::failure::{Failure, REPORT, commit_reported};
use crate::json::Form;
use crate::json::{self, Snippet};
use crate::output::{Output, Page, Style};
use crate::shell::shell_quoted;
use crate::signals::Cleanup;
use crate::triple::{Libc, Triple};
use crate::tuning;

/// Write a donor as a file, or a build system's files
///
/// Use this if you cannot or do not want to change libc.a. An object on the link line replaces libc's malloc and its
/// string functions. An archive does the same, for build systems that take only libraries. A shared object is preloaded
/// into dynamic programs, of musl or of glibc. For Windows there are objects, for GNU and LLVM toolchains.
///
/// For build systems there are folders of files, which a project takes in: a package for CMake, a subproject for Meson,
/// rules for Bazel, a file for make, an overlay for Nix. They run this program when the project is built.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft emit --target x86_64-linux-musl
  allograft emit --donor mimalloc3 --target aarch64-swift-linux-musl --set purge_delay=0 -o donor.o
  allograft emit --target x86_64-unknown-linux-musl --as archive
  allograft emit --target x86_64-linux-gnu --as shared
  allograft emit --as cmake -o allograft-cmake
  allograft emit --target x86_64-pc-windows-gnu

Spell the target as Rust, clang, Swift or zig do.")]
pub(crate) struct Emit {
    #[command(flatten)]
    choice: Choice,
    /// Target, such as x86_64-linux-musl
    ///
    /// The target of the program, such as x86_64-linux-musl
    #[arg(long, value_name = "TRIPLE", value_parser = Triple::parse)]
    target: Option<Triple>,
    /// Kind of file, or a build system
    ///
    /// The kind of file: object, archive or shared; or the build system whose files to write
    #[arg(long = "as", value_name = "KIND", value_enum, default_value_t = Kind::Object)]
    kind: Kind,
    /// File or folder to write
    ///
    /// The file to write [default: allograft.o, liballograft.a or liballograft.so in the current folder]
    #[arg(short, long, value_name = "OUT")]
    out: Option<PathBuf>,
}

/// `--as`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// One relocatable object, for any link line
    Object,
    /// A static library with the object, for -l
    Archive,
    /// A shared object, for LD_PRELOAD
    Shared,
    /// A folder with rules for Bazel
    Bazel,
    /// A folder with a package for CMake
    Cmake,
    /// A folder with a file to include for make
    Make,
    /// A folder with a subproject for Meson
    Meson,
    /// A folder with an overlay for Nix
    Nix,
}

/// The result of a [`Kind`].
enum Artifact {
    /// A file with a donor.
    Donor(Form),
    /// The folder of the build system with this name.
    Integration(&'static str),
}

impl Kind {
    fn artifact(self) -> Artifact {
        match self {
            Kind::Object => Artifact::Donor(Form::Object),
            Kind::Archive => Artifact::Donor(Form::Archive),
            Kind::Shared => Artifact::Donor(Form::Shared),
            Kind::Bazel => Artifact::Integration("bazel"),
            Kind::Cmake => Artifact::Integration("cmake"),
            Kind::Make => Artifact::Integration("make"),
            Kind::Meson => Artifact::Integration("meson"),
            Kind::Nix => Artifact::Integration("nix"),
        }
    }
}

/// A file to make.
struct Order {
    choice: Choice,
    target: Triple,
    form: Form,
    out: Option<PathBuf>,
}

impl Form {
    /// The default name of the file.
    fn file(self) -> &'static str {
        match self {
            Form::Object => "allograft.o",
            Form::Archive => "liballograft.a",
            Form::Shared => "liballograft.so",
        }
    }
}

/// The contents of the file.
struct EmittedBytes {
    bytes: Vec<u8>,
    malloc: Option<Note>,
    strings: Option<Note>,
    /// The reason why the requested string functions are not in it.
    left_out: Option<String>,
}

impl Emit {
    pub(crate) fn run(self, output: &Output) -> Result<ExitCode, Failure> {
        let _cleanup = Cleanup::on_signals()?;
        let Emit { choice, target, kind, out } = self;
        let form = match kind.artifact() {
            Artifact::Donor(form) => form,
            Artifact::Integration(name) => {
                let integration = integrations::find(name)
                    .ok_or_else(|| Failure::usage(format!("this build has no files for `{name}`")).with_help(REPORT))?;
                folder::write(integration, out, target.as_ref(), &choice, output)?;
                return Ok(ExitCode::SUCCESS);
            }
        };
        let target = target.ok_or_else(|| {
            Failure::usage("the program's target is not named: --target <TRIPLE>").with_help(
                "such as `--target x86_64-linux-musl`; files for a build system are for every target: `--as cmake`",
            )
        })?;
        Order { choice, target, form, out }.run(output)
    }
}

impl Order {
    fn run(self, output: &Output) -> Result<ExitCode, Failure> {
        let made = self.make()?;
        let out = self.out.clone().unwrap_or_else(|| self.form.file().into());
        let locking = |locking: Locking<'_>| output.locking(locking);
        let watch = Watch { locking: Some(&locking), ..Watch::default() };
        let file = tuning::verified(made.bytes.clone(), [made.malloc.as_ref(), made.strings.as_ref()])?;
        let written = hosts::write(&out, file, &watch)?;
        if let Some(reason) = &made.left_out {
            output.warn(reason);
        }
        // The path is absolute because build systems run in folders of their own.
        let out = std::path::absolute(&out).unwrap_or(out);
        if self.form == Form::Shared && out.as_os_str().as_encoded_bytes().iter().any(|byte| b" :\t\n".contains(byte)) {
            output.warn(format_args!(
                "`{}` cannot be named in LD_PRELOAD, where blanks and colons separate files: move it, or name it by a \
                 relative path",
                out.display()
            ));
        }
        let snippets = snippets::all(self.form, &self.target, &out);
        commit_reported(written, |()| match output.json {
            true => output.document(self.document(&made, &out, &snippets)),
            false => output.text(&self.summary(&made, &out, &snippets, output)),
        })?;
        Ok(ExitCode::SUCCESS)
    }

    fn make(&self) -> Result<EmittedBytes, Failure> {
        match (self.form, self.target.libc) {
            (_, Libc::WindowsGnu) => return self.windows(),
            (_, Libc::WindowsMsvc) => {
                return Err(Failure::refused(format!(
                    "`{}`: no donor has been tried with Microsoft's linker and its static C runtime",
                    self.target.text
                ))
                .with_help(
                    "link by a GNU or LLVM toolchain, `--target x86_64-pc-windows-gnu`; the page on Windows explains \
                     what Microsoft's linker would need",
                ));
            }
            (Form::Shared, _) => return self.library(),
            (_, Libc::Glibc) => {
                return Err(Failure::refused(format!(
                    "`{}` is glibc's: an object is for static musl programs",
                    self.target.text
                ))
                .with_help("name the musl target, such as x86_64-linux-musl, or preload the donor: `--as shared`"));
            }
            (_, Libc::Musl) => {}
        }
        let arch = self.target.arch;
        let candidates = self.choice.candidates()?;
        let malloc = Candidate::choose(&candidates, |donor| donor.supports(arch));
        let malloc = malloc.map(|one| tuning::object(one.donor, arch, &one.settings)).transpose()?;
        let strings = donors::strings();
        let (strings, left_out) = match (self.choice.strings().unwrap_or(true), strings.object(self.target.arch)) {
            (false, _) => (None, None),
            (true, Some(_)) => (Some(tuning::object(strings, self.target.arch, &[])?), None),
            (true, None) => {
                let offered: Vec<&str> = strings.arches().map(|arch| arch.name()).collect();
                let (arch, offered) = (self.target.arch, offered.join(", "));
                (
                    None,
                    Some(format!(
                        "libc's string functions stay: there are none of ours for {arch}, only for {offered}"
                    )),
                )
            }
        };
        let object = match (&malloc, &strings) {
            (Some((malloc, _)), Some((strings, _))) => merge(malloc, strings)
                .map_err(|error| Failure::usage(format!("cannot make one object: {error}")).with_help(REPORT))?,
            (Some((one, _)), None) | (None, Some((one, _))) => one.clone(),
            (None, None) => {
                return Err(match left_out {
                    Some(reason) => Failure::refused(reason).with_help("name a donor"),
                    None => Failure::usage("there is nothing to emit: neither a donor nor string functions")
                        .with_help("name a donor, or leave `--strings off` out"),
                });
            }
        };
        let bytes = match self.form {
            Form::Archive => archive(&object)?,
            Form::Object | Form::Shared => object,
        };
        Ok(EmittedBytes {
            bytes,
            malloc: malloc.map(|(_, note)| note),
            strings: strings.map(|(_, note)| note),
            left_out,
        })
    }

    /// Returns the donor as an object for Windows.
    fn windows(&self) -> Result<EmittedBytes, Failure> {
        let Triple { arch, text, .. } = &self.target;
        if self.form != Form::Object {
            return Err(Failure::refused(format!("`{text}`: for Windows there are objects only"))
                .with_help("leave `--as` out, and put the object before every library"));
        }
        if self.choice.strings() == Some(true) {
            return Err(Failure::refused(format!("`{text}`: the string functions are for programs of musl"))
                .with_help("leave `--strings on` out"));
        }
        let candidates = self.choice.candidates()?;
        let one = Candidate::choose(&candidates, |donor| donor.has_windows(*arch)).ok_or_else(|| {
            Failure::usage("there is nothing to emit for Windows but an allocator, and `--donor strings` names none")
                .with_help("name a donor")
        })?;
        let (bytes, note) = tuning::windows(one.donor, *arch, &one.settings)?;
        Ok(EmittedBytes { bytes, malloc: Some(note), strings: None, left_out: None })
    }

    /// Returns the donor as a shared object, which was linked when allograft was built.
    fn library(&self) -> Result<EmittedBytes, Failure> {
        let Triple { arch, libc, text } = &self.target;
        if self.choice.strings() == Some(true) {
            return Err(Failure::refused("the string functions are for static programs: a shared object holds none")
                .with_help("leave `--strings on` out"));
        }
        let candidates = self.choice.candidates()?;
        let one = Candidate::choose(&candidates, |donor| donor.has_library(*arch)).ok_or_else(|| {
            Failure::usage("a shared object is of an allocator, and `--donor strings` names none")
                .with_help("name a donor")
        })?;
        // With musl, mmap's offset and times have 64 bits; with a 32-bit glibc they have 32.
        if *libc == Libc::Glibc && matches!(arch, format::Arch::I686 | format::Arch::Arm) {
            return Err(Failure::refused(format!("`{text}`: shared objects for 32-bit systems are musl's"))
                .with_help("there is one for glibc on x86_64, aarch64 and riscv64"));
        }
        let (bytes, note) = tuning::library(one.donor, *arch, &one.settings)?;
        Ok(EmittedBytes { bytes, malloc: Some(note), strings: None, left_out: None })
    }

    fn document<'e>(&'e self, made: &'e EmittedBytes, out: &Path, snippets: &'e [Snippet]) -> json::Emitted<'e> {
        json::Emitted {
            path: out.display().to_string(),
            form: self.form,
            target: &self.target.text,
            arch: self.target.arch,
            donor: made.malloc.as_ref(),
            strings: made.strings.as_ref(),
            size: made.bytes.len(),
            sha256: hosts::sha256(&made.bytes),
            snippets,
        }
    }

    fn summary(&self, made: &EmittedBytes, out: &Path, snippets: &[Snippet], output: &Output) -> Page {
        let brings = named(made.malloc.as_ref(), made.strings.is_some());
        let path = shell_quoted(&out.display().to_string());
        let word = output.paint(Style::Good, "emitted");
        let mut text = output.page();
        // Writing to a page does not fail.
        let _ = writeln!(text, "{word}  {path}  {}  {}", self.target.arch, brings);
        print(&mut text, snippets, output);
        text
    }
}

/// Adds how something is used, for each place.
fn print(text: &mut Page, snippets: &[Snippet], output: &Output) {
    for snippet in snippets {
        text.blank();
        // Writing to a page does not fail.
        let _ = writeln!(text, "{}", output.paint(Style::Strong, format_args!("{}:", snippet.name)));
        for line in snippet.text.lines() {
            text.whole(format_args!("  {line}"));
        }
    }
}

/// Returns a static library with the object as its only member. A program that needs any of its symbols gets all of it.
fn archive(object: &[u8]) -> Result<Vec<u8>, Failure> {
    // An archive with only an empty index: its header, then the number of its entries.
    const EMPTY: &[u8] = b"!<arch>\n/               0           0     0     0       4         `\n\0\0\0\0";
    let failed =
        |error: &dyn std::fmt::Display| Failure::usage(format!("cannot make an archive: {error}")).with_help(REPORT);
    let symbols = symbols(object).map_err(|error| failed(&error))?;
    let defined = symbols.iter().filter(|symbol| symbol.defined && symbol.binding != Binding::Local);
    let names = defined.map(|symbol| symbol.name).collect();
    let member = Insert::new(1, Form::Object.file(), object, names).map_err(|error| failed(&error))?;
    let empty = Archive::parse(EMPTY).map_err(|error| failed(&error))?;
    Ok(empty.edit(&std::collections::BTreeSet::new(), Some(&member)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_of_one_member() {
        let object = donors::strings().object(format::Arch::X86_64).unwrap();
        let made = archive(object).unwrap();
        let archive = Archive::parse(&made).unwrap();
        assert_eq!(archive.members().len(), 1);
        assert_eq!(archive.members()[0].data, object);
        assert!(archive.indexed().any(|(ordinal, symbol)| (ordinal, symbol) == (1, b"memcpy")));
    }

    /// Each build system's name is that of files that the program has, and each of these has a kind.
    #[test]
    fn every_kind_is_a_form_or_has_files() {
        let names = Kind::value_variants().iter().filter_map(|kind| match kind.artifact() {
            Artifact::Donor(_) => None,
            Artifact::Integration(name) => Some(name),
        });
        let (names, known): (Vec<_>, Vec<_>) = (names.collect(), integrations::ALL.iter().map(|it| it.name).collect());
        assert!(known.len() == names.len() && known.iter().all(|name| names.contains(name)), "{names:?} {known:?}");
    }
}
