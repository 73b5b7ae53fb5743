//! One run of `cargo allograft`: makes the graft, calls cargo, and checks the linked programs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};

use clap::ColorChoice;
use hosts::Candidate;
use tempfile::TempDir;

use super::arguments::{self, CargoCommand, Order};
use super::configuration::Configuration;
use super::report::Report;
use super::wrapper::{self, ReportLine, Session};
use super::{bench, check_program, copy};
use crate::arguments::tell_and_end;
use crate::failure::{Failure, mend};
use crate::global::Global;
use crate::output::Output;
use crate::program::Expected;
use crate::rust::Rustc;
use crate::similar::similar;
use crate::stand_in::exit_code;
use crate::triple::{Libc, Triple};

pub(super) fn main(words: &[OsString]) -> ExitCode {
    if bench::asked(words) {
        return bench::main(words);
    }
    let arguments = match arguments::parse(words) {
        Ok(arguments) => arguments,
        Err(error) => return tell_and_end(error, "cargo allograft"),
    };
    let color = ColorChoice::Auto;
    let quiet = words.iter().take_while(|word| *word != "--").any(|word| word == "-q" || word == "--quiet");
    let output = Output::new(&Global { json: false, quiet, verbose: false, color });
    match arguments.order().and_then(|order| run(order, &output)) {
        Ok(code) => code,
        Err(failure) => output.fail(&failure),
    }
}

fn run(mut order: Order, output: &Output) -> Result<ExitCode, Failure> {
    if order.has(&["--help", "-h"]) {
        let status = cargo(&order).status().map_err(no_cargo)?;
        return Ok(exit_code(status));
    }
    if order.command == CargoCommand::Other {
        check_command(&order.name)?;
    }
    let here = std::env::current_dir().map_err(|error| {
        Failure::usage(format!("no current folder: {error}")).with_help("change to the project's folder")
    })?;
    let configuration = Configuration::read(&here, &order.values("--config"))?;
    let rustc = Rustc::at(configuration.program("RUSTC", "rustc").unwrap_or_else(|| "rustc".into()));
    let had_target = order.has(&["--target"]);
    let targets = targets(&mut order, &configuration, &rustc, output)?;
    let passed_target = match order.command {
        // It may not take `--target`; every cargo that it calls reads the variable.
        CargoCommand::Other if !had_target => take_target(&mut order),
        _ => None,
    };
    if order.values("--config").iter().any(|text| text.to_string_lossy().contains("rustc-workspace-wrapper")) {
        return Err(Failure::refused(
            "`--config build.rustc-workspace-wrapper` would take the place of `cargo allograft`",
        )
        .with_help("set RUSTC_WORKSPACE_WRAPPER to it, and it is called as well"));
    }
    let copies = CopyFolder::for_order(&order)?;
    let mut folders = BTreeMap::new();
    let mut calls = cargo(&order);
    if let Some(target) = &passed_target {
        calls.env(TARGET, target);
    }
    for (name, triple) in &targets {
        let folder = copy::make(copies.folder(), triple, &rustc.libc(triple)?, &order, output)?;
        calls.env(wrapper::folder_variable(name), &folder);
        folders.insert(name.clone(), folder);
    }
    let report = Report::begin(copies.folder())?;
    let expected = Expected { malloc: donors_of(&targets, &order), strings: order.strings };
    let mut session = Session { folders, expected, report: report.path.clone(), ..Session::default() };
    let itself = session.begin(&mut calls, &configuration, &rustc)?;
    calls.env("RUSTDOC", link_as_rustdoc(&copies, &itself)?);
    let status = call(calls, &order, &session, output)?;
    if !status.success() {
        copies.forget_answers()?;
    }
    conclude(exit_code(status), &order, &report.path, output)
}

/// The variable that names the target for every cargo that reads it (The Cargo Book, Configuration, `build.target`).
const TARGET: &str = "CARGO_BUILD_TARGET";

/// Takes the target that was added at the end of the options, if there is one.
fn take_target(order: &mut Order) -> Option<OsString> {
    let at = order.options.iter().position(|word| word == "--target")?;
    let target = order.options.get(at + 1).cloned();
    order.options.truncate(at);
    target
}

/// Checks that cargo has a command of this name: its own, an alias, or a program `cargo-NAME`.
///
/// # Errors
/// Exit code 2 if cargo has no such command; the message suggests a similar name.
fn check_command(name: &OsString) -> Result<(), Failure> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let output = command.arg("--list").stdin(Stdio::null()).output().map_err(no_cargo)?;
    let text = String::from_utf8_lossy(&output.stdout);
    // A heading, then a name on each line, which is followed by what it is.
    let names: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(' ')?.split_whitespace().next()).collect();
    if !output.status.success() || names.iter().any(|known| name == known) {
        return Ok(());
    }
    let typed = name.to_string_lossy();
    Err(Failure::usage(format!("cargo has no command `{typed}`")).with_help(match similar(&typed, names) {
        Some(meant) => format!("did you mean `cargo allograft {meant}`?"),
        None => format!("`cargo --list` lists them; `cargo-{typed}` would have to be on the command path"),
    }))
}

/// Returns the names of the donors that programs for these targets get.
fn donors_of(targets: &[(String, String)], order: &Order) -> Vec<String> {
    let archs = targets.iter().filter_map(|(_, triple)| Triple::parse(triple).ok()).map(|triple| triple.arch);
    let chosen = archs.filter_map(|arch| Candidate::choose(&order.candidates, |donor| donor.supports(arch)));
    let mut names: Vec<String> = chosen.map(|one| one.donor.name.to_owned()).collect();
    names.dedup();
    names
}

/// Runs cargo. With `build`, checks every program that cargo names, including those of earlier runs.
fn call(mut cargo: Command, order: &Order, session: &Session, output: &Output) -> Result<ExitStatus, Failure> {
    let own_format = !order.values("--message-format").is_empty();
    if order.command != CargoCommand::Build || own_format {
        let status = cargo.status().map_err(no_cargo)?;
        explain(status, order, output);
        return Ok(status);
    }
    let (programs, status) = build(cargo)?;
    explain(status, order, output);
    if status.success() {
        for path in &programs {
            let what = check_program(path, &session.expected)?;
            output.note(format_args!("`{}` carries {what}", path.display()));
        }
    }
    Ok(status)
}

/// Notes that `--profile` is cargo's, if cargo failed with the name of a donor's profile.
fn explain(status: ExitStatus, order: &Order, output: &Output) {
    let named = order.values("--profile").pop().map(|name| name.to_string_lossy().into_owned());
    if let Some(name) = named.filter(|name| !status.success() && donors::PROFILES.contains(&name.as_str())) {
        output.note(format_args!("`--profile` is cargo's own; a donor's profile is `--donor-profile {name}`"));
    }
}

/// Runs cargo's `build`. Returns the programs that it names, those of earlier runs too, and how it ended.
pub(super) fn build(mut cargo: Command) -> Result<(Vec<PathBuf>, ExitStatus), Failure> {
    // Messages for people stay unchanged, on standard error.
    cargo.args(["--message-format", "json-render-diagnostics"]).stdout(Stdio::piped());
    let mut child = cargo.spawn().map_err(no_cargo)?;
    let mut programs = Vec::new();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(|pipe| pipe.split(b'\n')) {
        let line = line
            .map_err(|error| Failure::usage(format!("cannot read what cargo says: {error}")).with_help(mend(&error)))?;
        // Programs that cargo runs print among its messages.
        let message: serde_json::Value = serde_json::from_slice(&line).unwrap_or_default();
        programs.extend(message["executable"].as_str().map(PathBuf::from));
    }
    Ok((programs, child.wait().map_err(no_cargo)?))
}

/// Evaluates the wrappers' report.
pub(super) fn conclude(code: ExitCode, order: &Order, report: &Path, output: &Output) -> Result<ExitCode, Failure> {
    let text = match fs::read_to_string(report) {
        // No program was linked, or cargo has deleted its own folder (`clean`).
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        text => text.map_err(Failure::io("read", report))?,
    };
    if text.is_empty() && order.command == CargoCommand::Other {
        output.note(format_args!("`cargo {}` linked no program for a musl target", order.name.to_string_lossy()));
    }
    for line in text.lines().filter_map(|line| serde_json::from_str(line).ok()) {
        match line {
            ReportLine::Failed(failure) => return Err(failure),
            ReportLine::Without { program, target } => {
                let name = order.name.to_string_lossy();
                return Err(Failure::unexpected(format!(
                    "`{}` was linked without a donor: `cargo {name}` chose the target `{target}` itself",
                    program.display()
                ))
                .with_help(match Triple::parse(&target) {
                    Ok(Triple { libc: Libc::Musl, .. }) => {
                        format!("name the target: `CARGO_BUILD_TARGET={target} cargo allograft {name}`")
                    }
                    _ => "have it build for a musl target; `allograft graft` puts a donor into finished programs"
                        .to_owned(),
                }));
            }
            ReportLine::Carries { program, what } => {
                if !matches!(order.command, CargoCommand::Build | CargoCommand::Run) {
                    output.note(format_args!("`{}` carries {what}", program.display()));
                }
            }
        }
    }
    Ok(code)
}

/// Returns the cargo command with the user's arguments.
pub(super) fn cargo(order: &Order) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.arg(&order.name).args(&order.options).args(&order.rest);
    command
}

fn no_cargo(error: std::io::Error) -> Failure {
    Failure::usage(format!("cannot run cargo: {error}")).with_help("install cargo, or set CARGO to it")
}

/// Returns the targets that cargo builds for: each as rustc gets it (empty without `--target`), and its triple.
pub(super) fn targets(
    order: &mut Order,
    configuration: &Configuration,
    rustc: &Rustc,
    output: &Output,
) -> Result<Vec<(String, String)>, Failure> {
    let text = |name: OsString| name.to_string_lossy().into_owned();
    let mut named: Vec<String> = order.values("--target").into_iter().map(text).collect();
    if named.is_empty() {
        named.extend(std::env::var("CARGO_BUILD_TARGET").ok().filter(|target| !target.is_empty()));
    }
    if named.is_empty() {
        named = configuration.targets();
    }
    if named.is_empty() {
        let host = rustc.host()?;
        if host.contains("-linux-musl") {
            return Ok(vec![(String::new(), host)]);
        }
        let arch = host.split('-').next().unwrap_or_default();
        let target = format!("{arch}-unknown-linux-musl");
        output.note(format_args!("no target is named: building for `{target}`"));
        order.options.extend(["--target".into(), target.clone().into()]);
        named.push(target);
    }
    let mut targets = Vec::new();
    for name in named {
        let name = if name == "host-tuple" { rustc.host()? } else { name };
        let musl = |message: String| {
            Failure::usage(message).with_help("name a musl target, such as `--target x86_64-unknown-linux-musl`")
        };
        match Triple::parse(&name) {
            Ok(Triple { libc: Libc::Musl, .. }) => targets.push((name.clone(), name)),
            Ok(_) => {
                return Err(musl(format!("the target `{name}` is not musl's: its programs take libc.so's malloc")));
            }
            Err(problem) => return Err(musl(format!("the target `{name}`: {problem}"))),
        }
    }
    Ok(targets)
}

/// The place of grafted copies.
pub(super) enum CopyFolder {
    /// In the project's target folder.
    Target(PathBuf),
    /// A temporary folder: `cargo install` of a remote package has no target folder.
    Passing(TempDir),
}

impl CopyFolder {
    pub(super) fn for_order(order: &Order) -> Result<CopyFolder, Failure> {
        let given = order.path("--target-dir");
        let given =
            given.or_else(|| std::env::var_os("CARGO_TARGET_DIR").filter(|path| !path.is_empty()).map(PathBuf::from));
        let target = match (given, order.command) {
            (Some(folder), _) => std::path::absolute(&folder).unwrap_or(folder),
            (None, CargoCommand::Install) if order.path("--path").is_none() => {
                let folder = tempfile::Builder::new().prefix("cargo-allograft-").tempdir();
                return folder.map(CopyFolder::Passing).map_err(Failure::io("write in", &std::env::temp_dir()));
            }
            (None, _) => target_folder(order)?,
        };
        let folder = target.join("allograft");
        fs::create_dir_all(&folder).map_err(Failure::io("write in", &folder))?;
        Ok(CopyFolder::Target(folder))
    }

    pub(super) fn folder(&self) -> &Path {
        match self {
            CopyFolder::Target(folder) => folder,
            CopyFolder::Passing(folder) => folder.path(),
        }
    }

    /// Deletes cargo's cache of what the compiler has said of itself, after a build that failed: cargo keeps failures
    /// in it, too, and a wrapper that was killed, or had no memory, would fail each later build.
    fn forget_answers(&self) -> Result<(), Failure> {
        let CopyFolder::Target(folder) = self else { return Ok(()) };
        let file = folder.with_file_name(".rustc_info.json");
        match fs::remove_file(&file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Failure::io("delete", &file)(error)),
            _ => Ok(()),
        }
    }
}

/// Returns the target folder, as cargo reports it.
fn target_folder(order: &Order) -> Result<PathBuf, Failure> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    let manifest = order.path("--manifest-path").or_else(|| order.path("--path").map(|path| path.join("Cargo.toml")));
    if let Some(manifest) = manifest {
        command.arg("--manifest-path").arg(manifest);
    }
    for (name, values) in ["--config", "-Z"].map(|name| (name, order.values(name))) {
        for value in values {
            command.arg(name).arg(value);
        }
    }
    let output = command.stdin(Stdio::null()).output().map_err(no_cargo)?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Failure::usage("`cargo metadata` failed")
            .with_help("run it in a Cargo project, and mend what cargo says")
            .saying(said.trim_start_matches("error: ")));
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let folder = metadata["target_directory"].as_str().map(PathBuf::from);
    folder.ok_or_else(|| {
        Failure::usage("`cargo metadata` did not say where the target folder is")
            .with_help("name it: `--target-dir FOLDER`")
    })
}

/// Returns a link to this program, by whose name it knows that it has to act as rustdoc.
fn link_as_rustdoc(copies: &CopyFolder, itself: &Path) -> Result<PathBuf, Failure> {
    // Each program has a folder of its own: so no link is ever replaced, and several runs may do this at once.
    let folder = copies.folder().join("bin").join(&hosts::sha256(itself.as_os_str().as_encoded_bytes())[..16]);
    let link = folder.join("rustdoc");
    let made = fs::create_dir_all(&folder).and_then(|()| match std::os::unix::fs::symlink(itself, &link) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => Err(error),
        _ => fs::read_link(&link),
    });
    match made.map_err(Failure::io("write in", &folder))? {
        to if to == itself => Ok(link),
        to => Err(Failure::usage(format!("`{}` leads to `{}`, not to this program", link.display(), to.display()))
            .with_help("delete it, and run the command again")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_a_compiler_that_failed_are_forgotten() {
        let target = tempfile::tempdir().unwrap();
        let copies = CopyFolder::Target(target.path().join("allograft"));
        let cache = target.path().join(".rustc_info.json");
        fs::write(&cache, "{}").unwrap();
        copies.forget_answers().unwrap();
        assert!(!cache.exists());
        copies.forget_answers().unwrap();
    }
}
