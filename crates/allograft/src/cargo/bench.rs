//! `cargo allograft bench --donors ...`: the project's program, compiled once, linked once for each arm, and measured.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};

use clap::Parser;
use clap::error::ErrorKind;

use super::arguments::{self, CargoCommand, Order};
use super::configuration::Configuration;
use super::program::{self, Expected};
use super::relink::{self, Relink};
use super::run::{Place, cannot_make, cargo, conclude, no_cargo, rustdoc, targets};
use super::wrapper::{self, Session};
use crate::arguments::{Global, tell};
use crate::command::bench::{Arm, Bench, Host, Libc, Linked, typed};
use crate::failure::Failure;
use crate::output::Output;
use crate::rust::Rustc;

/// The option that asks for it: without, `cargo allograft bench` is `cargo bench` with a donor.
const ASKS: &str = "--donors";
/// Options of `allograft bench` that have a meaning here, and whether a value follows.
const OURS: [(&str, bool); 15] = [
    (ASKS, true),
    ("--threads", true),
    ("--threads-var", true),
    ("--for", true),
    ("--budget", true),
    ("--precision", true),
    ("--rounds", true),
    ("--seed", true),
    ("--html", true),
    ("--markdown", true),
    ("--csv", true),
    ("--save", true),
    ("--color", true),
    ("--any-output", false),
    ("--json", false),
];

#[derive(Debug, Parser)]
#[command(name = "cargo allograft bench")]
struct Measuring {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    bench: Bench,
}

/// Whether these words ask for it.
pub(super) fn asked(words: &[OsString]) -> bool {
    let mut own = words.iter().take_while(|word| *word != "--");
    let (mut is_bench, mut asks) = (false, false);
    own.by_ref().for_each(|word| {
        is_bench |= word == "bench";
        asks |= word.to_str().is_some_and(|word| word.split('=').next() == Some(ASKS));
    });
    is_bench && asks
}

/// Cargo's words, and ours.
fn parted(words: &[OsString]) -> (Vec<OsString>, Vec<OsString>) {
    let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
    let (mut cargos, mut ours) = (Vec::new(), Vec::new());
    let mut own = words[..end].iter();
    while let Some(word) = own.next() {
        let text = word.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        match OURS.iter().find(|(option, _)| *option == name) {
            None => cargos.push(word.clone()),
            Some((_, takes_value)) => {
                ours.push(word.clone());
                if *takes_value && name == text {
                    ours.extend(own.next().cloned());
                }
            }
        }
        // It is cargo's as well: no progress of ours beside none of cargo's.
        if matches!(name, "-q" | "--quiet") {
            ours.push(word.clone());
        }
    }
    ours.extend(words[end..].iter().cloned());
    (cargos, ours)
}

pub(super) fn main(words: &[OsString]) -> ExitCode {
    let (cargos, ours) = parted(words);
    let parsed = arguments::parse(&cargos).and_then(|arguments| {
        let measuring = Measuring::try_parse_from(std::iter::once("bench".into()).chain(ours))?;
        Ok((arguments, measuring))
    });
    let (arguments, measuring) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            let error = tell(error);
            let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
            return if asked { ExitCode::SUCCESS } else { ExitCode::from(2) };
        }
    };
    let output = Output::new(&measuring.global);
    match arguments.order().and_then(|order| run(order, &measuring.bench, &output)) {
        Ok(code) => code,
        Err(failure) => output.fail(&failure),
    }
}

fn run(mut order: Order, bench: &Bench, output: &Output) -> Result<ExitCode, Failure> {
    if order.command != CargoCommand::Bench {
        return Err(Failure::usage(format!("`{ASKS}` belongs to `cargo allograft bench`")));
    }
    order.command = CargoCommand::Build;
    let mut typed_options = order.options.clone();
    if !order.has(&["--release", "-r"]) && order.values("--profile").is_empty() {
        order.options.push("--release".into());
        typed_options.push("--release".into());
    }
    let here = std::env::current_dir().map_err(|error| Failure::usage(format!("no current folder: {error}")))?;
    let configuration = Configuration::read(&here, &order.values("--config"))?;
    let rustc = Rustc::at(configuration.program("RUSTC", "rustc").unwrap_or_else(|| "rustc".into()));
    let targets = targets(&mut order, &configuration, &rustc, output)?;
    let [(name, triple)] = targets.as_slice() else {
        return Err(
            Failure::usage("programs of several targets cannot be compared").with_help("name one: `--target TRIPLE`")
        );
    };
    let host = Host::find(Some(&rustc.libc(triple)?))?;
    if host.arch.name() != std::env::consts::ARCH {
        return Err(Failure::usage(format!("programs for `{triple}` do not run on this machine"))
            .with_help("measure on a machine of that architecture: rankings do not carry over"));
    }
    let arms = bench.arms_to_link(host.arch)?;
    let place = Place::of(&order)?;
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(place.folder());
    let folder = folder.map_err(|error| cannot_make(place.folder(), &error))?;
    let homes: Vec<PathBuf> = (0..arms.len()).map(|number| folder.path().join(format!("arm{number}"))).collect();
    for (arm, home) in arms.iter().zip(&homes) {
        host.copy(arm, &relink::lib(home))?;
    }
    let program = link(&order, &configuration, &rustc, name, folder.path(), &homes)?;
    let file = program.file_name().unwrap_or_default();
    let programs = arms.iter().zip(&homes).map(|(arm, home)| {
        let program = Relink::program(home, file)?;
        check(arm, &host, &program).map(|()| program).map_err(|failure| failure.message)
    });
    let programs: Vec<Result<PathBuf, String>> = programs.collect();
    match programs.first() {
        Some(Ok(_)) => {}
        Some(Err(reason)) => return Err(Failure::usage(format!("{}: {reason}", arms[0].name))),
        None => return Err(Failure::usage("there are no arms")),
    }
    let mut command = "cargo allograft build".to_owned();
    for word in &typed_options {
        command = format!("{command} {}", typed(std::slice::from_ref(word)));
    }
    bench.run_linked(Linked { arms: &arms, programs, command, host: &host, folder }, output)
}

/// Has cargo build the one program, and the wrappers link it for every arm; the program as cargo names it.
fn link(
    order: &Order,
    configuration: &Configuration,
    rustc: &Rustc,
    name: &str,
    folder: &Path,
    homes: &[PathBuf],
) -> Result<PathBuf, Failure> {
    let itself =
        std::env::current_exe().map_err(|error| Failure::usage(format!("cannot find this program: {error}")))?;
    let stock = relink::lib(&homes[0]);
    let next = configuration.program("RUSTC_WORKSPACE_WRAPPER", "rustc-workspace-wrapper").map(PathBuf::from);
    let session = Session {
        folders: BTreeMap::from([(name.to_owned(), stock.clone())]),
        expected: Expected { malloc: None, strings: false },
        next: next.filter(|next| *next != itself),
        rustdoc: rustdoc(configuration, rustc)?,
        report: folder.join("report"),
        relink: Some(Relink { links: folder.join("links"), linker: PathBuf::new(), arms: homes.to_vec() }),
    };
    let text = serde_json::to_string(&session)
        .map_err(|error| Failure::usage(format!("a path here cannot be written down: {error}")))?;
    let mut order_of_cargo = cargo(&Order { rest: Vec::new(), ..order.clone() });
    // This folder is a new one each time, so that cargo links again what it has linked before.
    order_of_cargo.env(wrapper::folder_variable(name), &stock);
    order_of_cargo.env(wrapper::VARIABLE, text).env("RUSTC_WORKSPACE_WRAPPER", &itself);
    order_of_cargo.args(["--message-format", "json-render-diagnostics"]).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = order_of_cargo.spawn().map_err(|error| no_cargo(&error))?;
    let mut programs = Vec::new();
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines).map_while(Result::ok) {
        let message: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        programs.extend(message["executable"].as_str().map(PathBuf::from));
    }
    let status = child.wait().map_err(|error| no_cargo(&error))?;
    let quiet = Output::new(&Global { json: false, quiet: true, verbose: false, color: clap::ColorChoice::Never });
    conclude(ExitCode::SUCCESS, order, &session.report, &quiet)?;
    if !status.success() {
        return Err(Failure::usage("cargo did not build the program"));
    }
    match programs.as_slice() {
        [program] => Ok(program.clone()),
        [] => Err(Failure::usage("the project has no program").with_help("name an example: `--example NAME`")),
        several => {
            let names: Vec<_> = several.iter().filter_map(|path| Some(path.file_name()?.to_string_lossy())).collect();
            Err(Failure::usage(format!("the project has several programs: {}", names.join(", ")))
                .with_help("name one: `--bin NAME`"))
        }
    }
}

/// That the arm's program carries what it should.
fn check(arm: &Arm, host: &Host, program: &Path) -> Result<(), Failure> {
    match &arm.libc {
        Libc::Graft(graft) => {
            let strings = graft.strings && host.has_strings();
            let malloc = graft.donor.map(|donor| donor.name.to_owned());
            program::check(program, &Expected { malloc, strings }).map(|_| ())
        }
        _ => {
            let what = program::check(program, &Expected { malloc: None, strings: false })?;
            match donors::all().iter().find(|donor| what.split(' ').next() == Some(donor.name)) {
                None => Ok(()),
                Some(donor) => Err(Failure::usage(format!(
                    "it carries {}: something else on its link line brings that",
                    donor.name
                ))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn arms_are_asked_for_by_name() {
        assert!(asked(&words("bench --donors all")) && asked(&words("--donors=a bench --release")));
        assert!(
            !asked(&words("bench --release"))
                && !asked(&words("bench -- --donors a"))
                && !asked(&words("run --donors a"))
        );
    }

    #[test]
    fn words_go_to_whom_they_concern() {
        let (cargos, ours) =
            parted(&words("bench --bin app --donors a,b --budget=2s -q --any-output -F x -- --threads 2"));
        assert_eq!(cargos, words("bench --bin app -q -F x"));
        assert_eq!(ours, words("--donors a,b --budget=2s -q --any-output -- --threads 2"));
        let measuring = Measuring::try_parse_from(std::iter::once("bench".into()).chain(ours)).unwrap();
        assert!(measuring.global.quiet);
    }
}
