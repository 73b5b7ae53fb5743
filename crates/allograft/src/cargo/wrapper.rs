//! Replaces rustc and rustdoc: programs for the target get the grafted libc first, everything else is passed on
//! unchanged.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde::{Deserialize, Serialize};

use super::check_program;
use super::configuration::Configuration;
use super::relink::Relink;
use crate::failure::{Failure, mend};
use crate::program::Expected;
use crate::rust::Rustc;
use crate::stand_in::{exit_code, is_zig, replaced_by};

/// The environment variable that passes the session to the programs that cargo calls.
pub(super) const VARIABLE: &str = "CARGO_ALLOGRAFT_SESSION";

/// The settings of one `cargo allograft` for the compilers that its cargo calls.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Session {
    /// The folder of the grafted `libc.a` for each target. Without `--target` the target's name is empty.
    pub(super) folders: BTreeMap<String, PathBuf>,
    pub(super) expected: Expected,
    /// The user's own wrapper, which calls rustc.
    pub(super) next: Option<PathBuf>,
    pub(super) rustdoc: PathBuf,
    /// The report: a file with a line for each program.
    pub(super) report: PathBuf,
    /// Links every program again for each arm. Then the folders are stock's, and programs are not checked.
    pub(super) relink: Option<Relink>,
}

/// Returns the settings as the value of an environment variable.
pub(super) fn written(settings: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(settings).map_err(|error| {
        Failure::usage(format!("a path here cannot be written down: {error}"))
            .with_help("paths of the project have to be UTF-8")
    })
}

/// A line of the report.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ReportLine {
    /// A program that was linked and passed the check.
    Carries { program: PathBuf, what: String },
    /// A program for a target that the session has no graft for.
    Without { program: PathBuf, target: String },
    /// A program that failed the check, or that allograft failed to link.
    Failed(Failure),
}

/// Returns the environment variable with a target's folder. Cargo records its value with each program, and links again
/// when it changes.
pub(super) fn folder_variable(target: &str) -> String {
    format!("CARGO_ALLOGRAFT_LIBC_{}", target.replace(['-', '.'], "_").to_uppercase())
}

/// Returns the name by which cargo calls this program: its bare name if it is found on the command path, else its path.
/// Cargo makes the wrapper's name a part of the names of symbols (cargo's `compute_metadata`), and a program's bytes
/// should not depend on the folder of allograft.
fn called_by_cargo(itself: &Path) -> PathBuf {
    let Some(name) = itself.file_name() else { return itself.to_owned() };
    let path = std::env::var_os("PATH").unwrap_or_default();
    // rustup puts this folder before the others.
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let folders = home.map(|home| home.join("bin")).into_iter().chain(std::env::split_paths(&path));
    let mut found = folders.map(|folder| folder.join(name)).filter(|file| file.is_file()).peekable();
    let is_itself = |file: PathBuf| file.canonicalize().is_ok_and(|file| file == itself);
    match found.peek().is_some() && found.all(is_itself) {
        true => PathBuf::from(name),
        false => itself.to_owned(),
    }
}

impl Session {
    /// Returns the session that this process belongs to.
    pub(super) fn of_environment() -> Option<Session> {
        serde_json::from_str(&std::env::var(VARIABLE).ok()?).ok()
    }

    /// Makes `cargo` call this program in place of rustc, with this session. The programs behind it are those of
    /// `configuration` and `rustc`. Returns the path of this program.
    ///
    /// # Errors
    /// When one of them cannot be found.
    pub(super) fn begin(
        &mut self,
        cargo: &mut Command,
        configuration: &Configuration,
        rustc: &Rustc,
    ) -> Result<PathBuf, Failure> {
        let itself = std::env::current_exe().map_err(|error| {
            Failure::usage(format!("cannot find this program: {error}"))
                .with_help("start it by its path; /proc has to be mounted")
        })?;
        let next = configuration.program("RUSTC_WORKSPACE_WRAPPER", "rustc-workspace-wrapper").map(PathBuf::from);
        let name = called_by_cargo(&itself);
        self.next = next.filter(|next| *next != itself && *next != name);
        self.rustdoc = match configuration.program("RUSTDOC", "rustdoc") {
            Some(rustdoc) => rustdoc.into(),
            None => Some(rustc.sysroot()?.join("bin/rustdoc")).filter(|own| own.is_file()).unwrap_or("rustdoc".into()),
        };
        cargo.env(VARIABLE, written(self)?).env("RUSTC_WORKSPACE_WRAPPER", name);
        Ok(itself)
    }

    /// Acts as `RUSTC_WORKSPACE_WRAPPER`: `arguments` are rustc and its arguments.
    pub(super) fn rustc(&self, arguments: &[OsString]) -> ExitCode {
        let unit = match Unit::read(arguments) {
            Ok(unit) => unit,
            Err(failure) => return self.failed(failure),
        };
        let target = unit.target.as_deref().unwrap_or_default();
        let linked = self.folders.get(target).filter(|_| unit.links);
        let mut compiler = match &self.next {
            Some(next) => {
                let mut command = Command::new(next);
                command.arg(&arguments[0]);
                command
            }
            None => Command::new(&arguments[0]),
        };
        let Some(folder) = linked else {
            // Without a target it is a build script, or another program for this machine's own use.
            if let (true, Some(target), Some(program)) = (unit.links, &unit.target, &unit.program) {
                self.report(&ReportLine::Without { program: program.clone(), target: target.clone() });
            }
            return replaced_by(compiler.args(&arguments[1..]));
        };
        // The first folder wins over those of build scripts and of the toolchain.
        compiler.arg("-L").arg(search(folder)).args(&arguments[1..]);
        match self.link(&unit, target, &mut compiler) {
            Ok(code) => code,
            Err(failure) => self.failed(failure),
        }
    }

    fn failed(&self, failure: Failure) -> ExitCode {
        self.report(&ReportLine::Failed(failure));
        ExitCode::FAILURE
    }

    fn link(&self, unit: &Unit, target: &str, compiler: &mut Command) -> Result<ExitCode, Failure> {
        let linker = unit.linker.as_deref().unwrap_or(OsStr::new("cc"));
        refuse_linker(linker)?;
        if let Some(relink) = &self.relink {
            relink.arrange(linker, compiler)?;
        }
        let cannot = |what: &str, error: std::io::Error| {
            Failure::usage(format!("cannot {what}: {error}")).with_help(mend(&error))
        };
        let status = compiler.status().map_err(|error| cannot("run rustc", error))?;
        if !status.success() {
            return Ok(exit_code(status));
        }
        let Some(program) = &unit.program else { return Ok(ExitCode::SUCCESS) };
        let what = match &self.relink {
            // The caller that links it again checks the results.
            Some(_) => String::new(),
            None => check_program(program, &self.expected).inspect_err(|_| {
                // Otherwise cargo would take it for complete.
                let _ = fs::remove_file(program);
            })?,
        };
        // The Cargo Book, Build Cache, Dep-Info Files: rustc's own lines of this form are for env!().
        let variable = folder_variable(target);
        let line = format!("# env-dep:{variable}={}\n", std::env::var(&variable).unwrap_or_default());
        let dep_info = program.with_extension("d");
        let written = File::options().append(true).open(&dep_info).and_then(|mut file| file.write_all(line.as_bytes()));
        match written {
            // Cargo did not ask for the list.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            written => written.map_err(|error| cannot("write cargo's list of dependencies", error))?,
        }
        self.report(&ReportLine::Carries { program: program.clone(), what });
        Ok(ExitCode::SUCCESS)
    }

    /// Acts as `RUSTDOC`, which links the programs of documentation tests.
    pub(super) fn rustdoc(&self, arguments: &[OsString]) -> ExitCode {
        let unit = match Unit::read(arguments) {
            Ok(unit) => unit,
            Err(failure) => return self.failed(failure),
        };
        let mut rustdoc = Command::new(&self.rustdoc);
        let folder = self.folders.get(unit.target.as_deref().unwrap_or_default());
        if let Some(folder) = folder.filter(|_| arguments.iter().any(|word| word == "--test")) {
            rustdoc.arg("-L").arg(search(folder));
        }
        replaced_by(rustdoc.args(arguments))
    }

    fn report(&self, line: &ReportLine) {
        // Without the line, cargo's own failure remains, with its message only.
        let Ok(mut text) = serde_json::to_string(line) else { return };
        text.push('\n');
        let file = File::options().create(true).append(true).open(&self.report);
        let _ = file.and_then(|mut file| file.write_all(text.as_bytes()));
    }
}

fn search(folder: &Path) -> OsString {
    let mut text = OsString::from("native=");
    text.push(folder);
    text
}

/// Refuses zig's C compiler. Its plain linker links what it is given.
fn refuse_linker(linker: &OsStr) -> Result<(), Failure> {
    if is_zig(linker) {
        return Err(Failure::refused(format!(
            "the linker `{}` is zig, which links a libc of its own: the graft would be ignored",
            linker.to_string_lossy()
        ))
        .with_help("leave cargo-zigbuild and zig out of `linker` (zig may still be CC), or put the donor on zig's link line: `allograft emit`"));
    }
    Ok(())
}

/// The parts of rustc's command line that matter here.
#[derive(Debug, Default, PartialEq, Eq)]
struct Unit {
    target: Option<String>,
    /// Whether rustc links a program.
    links: bool,
    linker: Option<OsString>,
    program: Option<PathBuf>,
}

impl Unit {
    fn read(arguments: &[OsString]) -> Result<Unit, Failure> {
        let words = expanded(arguments)?;
        let mut unit = Unit::default();
        let (mut name, mut folder, mut suffix, mut emits) = (None, None, OsString::new(), false);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let text = word.to_string_lossy();
            let (option, value) = match text.split_once('=').filter(|_| text.starts_with("--")) {
                Some((option, value)) => (option.to_owned(), OsString::from(value)),
                None if text.len() > 2 && text.starts_with("-C") => ("-C".to_owned(), text[2..].into()),
                None if TAKES_VALUE.contains(&&*text) => (text.into_owned(), words.next().cloned().unwrap_or_default()),
                None => (text.into_owned(), OsString::new()),
            };
            let value_text = value.to_string_lossy();
            match option.as_str() {
                "--target" => unit.target = Some(value_text.into_owned()),
                "--crate-name" => name = Some(value),
                "--out-dir" => folder = Some(PathBuf::from(value)),
                "--test" => unit.links = true,
                "--crate-type" => unit.links |= value_text == "bin",
                "--emit" => emits |= value_text.split(',').any(|kind| kind == "link"),
                "-C" | "--codegen" => match value_text.split_once('=') {
                    Some(("linker", linker)) => unit.linker = Some(linker.into()),
                    Some(("extra-filename", given)) => suffix = given.into(),
                    _ => {}
                },
                _ => {}
            }
        }
        unit.links &= emits;
        unit.program = name.zip(folder).map(|(mut name, folder)| {
            name.push(suffix);
            folder.join(name)
        });
        Ok(unit)
    }
}

/// The options of rustc that matter here and that cargo passes as two arguments.
const TAKES_VALUE: [&str; 7] = ["--target", "--crate-name", "--out-dir", "--crate-type", "--emit", "-C", "--codegen"];

/// Returns the arguments with those of argument files, one a line, which cargo uses when there are too many. A name
/// without a file stays a word, which is rustc's to refuse.
fn expanded(arguments: &[OsString]) -> Result<Vec<OsString>, Failure> {
    let mut words = Vec::new();
    for word in arguments {
        let path = word.to_str().and_then(|word| word.strip_prefix('@')).map(Path::new);
        match path.map(|path| (path, fs::read_to_string(path))) {
            Some((_, Ok(text))) => words.extend(text.lines().map(OsString::from)),
            Some((path, Err(error))) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::io("read", path)(error));
            }
            _ => words.push(word.clone()),
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(words: &str) -> Unit {
        Unit::read(&words.split_whitespace().map(OsString::from).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn what_cargo_asks_of_rustc() {
        let program = unit(
            "rustc --crate-name my_app --edition=2024 src/main.rs --crate-type bin --emit=dep-info,link -C opt-level=3 \
             -C extra-filename=-0123 --out-dir /t/deps --target x86_64-unknown-linux-musl -C linker=/usr/bin/ld.zig",
        );
        let expected = Unit {
            target: Some("x86_64-unknown-linux-musl".to_owned()),
            links: true,
            linker: Some("/usr/bin/ld.zig".into()),
            program: Some("/t/deps/my_app-0123".into()),
        };
        assert_eq!(program, expected);
        assert!(unit("rustc --crate-name a --test --emit=dep-info,link").links);
        assert!(!unit("rustc --crate-name a --crate-type bin --emit=dep-info,metadata").links, "cargo check");
        assert!(!unit("rustc --crate-name a --crate-type lib --emit=dep-info,metadata,link").links);
        assert_eq!(unit("rustc --target=T -Clinker=cc").linker, Some("cc".into()));
    }

    #[test]
    fn zig_is_told_by_its_name_and_by_what_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("cc-wrapper");
        // Another process writes it. A file that this process has open for writing stays open in the child of another
        // test for a moment too, and a file that is open for writing cannot be executed.
        let says = "echo '#!/bin/sh\necho clang version 20.1.2 [https://github.com/ziglang/zig-bootstrap x]' >\"$0\"; chmod +x \"$0\"";
        let written = std::process::Command::new("sh").args(["-ec", says]).arg(&script).status().unwrap();
        assert!(written.success());
        for linker in [script.as_os_str(), OsStr::new("/x/zigcc-x86_64-unknown-linux-musl.sh")] {
            assert_eq!(refuse_linker(linker).unwrap_err().exit_code, 3);
        }
        assert!(refuse_linker(OsStr::new("cc")).is_ok());
        assert!(
            refuse_linker(fixtures::lld_folder().join("ld.lld").as_os_str()).is_ok(),
            "zig's, and it links what it is given"
        );
        assert!(refuse_linker(OsStr::new("/no/such/linker")).is_ok(), "rustc has a message for that");
    }
}
