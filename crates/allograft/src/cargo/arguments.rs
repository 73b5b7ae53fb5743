//! The command line of `cargo allograft`: allograft's options, at any place, and a cargo command.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::Parser;
use hosts::Candidate;

use crate::choice::Choice;
use crate::failure::Failure;

/// Run cargo's build, run, test, bench or install with a modern allocator in every program
///
/// Links programs for a musl target with a private grafted copy of the target's libc.a. The copy lies in the project's
/// target folder; the toolchain and everything else stay untouched. Inspects each program when it is linked; a program
/// without the donor is an error.
#[derive(Debug, Parser)]
#[command(
    name = "cargo-allograft",
    bin_name = "cargo allograft",
    version,
    override_usage = "cargo allograft [OPTIONS] <build|run|test|bench|install> [CARGO OPTIONS] [-- ARGUMENTS]",
    mut_arg("profile", |profile| profile.long("donor-profile").help(PROFILE)),
    after_help = AFTER_HELP
)]
pub(super) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// A cargo command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    cargo: Vec<OsString>,
}

/// Help of `--donor-profile`: `--profile` is cargo's.
const PROFILE: &str = "Bake in one of the donor's sets of options: see `allograft donors` (`--profile` is cargo's)";

const AFTER_HELP: &str = "\
The options may come before or after the command, up to `--`. Without `--target`, and without a target in cargo's
configuration, programs are built for the musl target of this machine.

Exit codes: 0 done; 1 a program does not carry the donor; 2 wrong usage; 3 refused; otherwise cargo's own.

Examples:
  cargo allograft build --release --target x86_64-unknown-linux-musl
  cargo allograft --donor mimalloc3 test
  cargo allograft run --set purge_delay=0 --release -- --port 8080
  cargo allograft install ripgrep --target x86_64-unknown-linux-musl
  cargo allograft bench --donors all -- --input data.txt     measure the program with every donor: see `bench --help`";

/// allograft's options with a value that are accepted after the cargo command too.
const OURS: [&str; 4] = ["--donor", "--strings", "--donor-profile", "--set"];

/// Whether `name` is one of allograft's options that take a value.
pub(super) fn takes_value(name: &str) -> bool {
    OURS.contains(&name)
}

/// The parsed command line.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// The donors of which the first that there is for a target is linked into its programs.
    pub(super) candidates: Vec<Candidate>,
    pub(super) strings: bool,
    pub(super) command: CargoCommand,
    /// The arguments after the cargo command, up to `--`.
    pub(super) options: Vec<OsString>,
    /// `--` and the arguments after it.
    pub(super) rest: Vec<OsString>,
}

/// A cargo command that links programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CargoCommand {
    Build,
    Run,
    Test,
    Bench,
    Install,
}

impl CargoCommand {
    pub(super) fn of(name: &OsStr) -> Option<CargoCommand> {
        Some(match name.to_str()? {
            "build" | "b" => CargoCommand::Build,
            "run" | "r" => CargoCommand::Run,
            "test" | "t" => CargoCommand::Test,
            "bench" => CargoCommand::Bench,
            "install" => CargoCommand::Install,
            _ => return None,
        })
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            CargoCommand::Build => "build",
            CargoCommand::Run => "run",
            CargoCommand::Test => "test",
            CargoCommand::Bench => "bench",
            CargoCommand::Install => "install",
        }
    }
}

/// Parses the command line without the program's name and cargo's word for it. The error is the parser's: help,
/// version, or wrong usage.
pub(super) fn parse(arguments: &[OsString]) -> Result<Arguments, clap::Error> {
    Arguments::try_parse_from(std::iter::once("cargo-allograft".into()).chain(ours_first(arguments)))
}

/// Returns the same arguments with allograft's options and their values first.
fn ours_first(arguments: &[OsString]) -> Vec<OsString> {
    let end = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
    let (mut ours, mut rest) = (Vec::new(), Vec::new());
    let mut words = arguments[..end].iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        if !takes_value(name) {
            rest.push(word.clone());
            continue;
        }
        ours.push(word.clone());
        if name == text {
            ours.extend(words.next().cloned());
        }
    }
    ours.into_iter().chain(rest).chain(arguments[end..].iter().cloned()).collect()
}

impl Arguments {
    pub(super) fn order(self) -> Result<Order, Failure> {
        let mut words = self.cargo.into_iter();
        let name = words.next().unwrap_or_default();
        let command = CargoCommand::of(&name).ok_or_else(|| {
            Failure::usage(format!("`cargo allograft` has no command `{}`", name.to_string_lossy()))
                .with_help("it has build, run, test, bench and install; nothing else links programs")
        })?;
        let words: Vec<OsString> = words.collect();
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        let (options, rest) = words.split_at(end);
        let (candidates, strings) = (self.choice.candidates()?, self.choice.strings().unwrap_or(true));
        Ok(Order { candidates, strings, command, options: options.to_vec(), rest: rest.to_vec() })
    }
}

impl Order {
    /// Returns the values of a cargo option, by its name, in both of its forms.
    pub(super) fn values(&self, name: &str) -> Vec<OsString> {
        let mut values = Vec::new();
        let mut words = self.options.iter();
        while let Some(word) = words.next() {
            if word == name {
                values.extend(words.next().cloned());
            } else if let Some(value) = word.to_str().and_then(|word| word.strip_prefix(name)?.strip_prefix('=')) {
                values.push(value.into());
            }
        }
        values
    }

    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.options.iter().any(|word| names.iter().any(|name| word == name))
    }

    /// Returns the folder that an option such as `--target-dir` names.
    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        self.values(name).pop().map(PathBuf::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(words: &str) -> Result<Order, Failure> {
        let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
        parse(&words).unwrap_or_else(|error| panic!("{error}")).order()
    }

    #[test]
    fn ours_may_stand_on_either_side() {
        for words in [
            "--donor mimalloc3 --set purge_delay=0 build --release --target T",
            "build --donor=mimalloc3 --release --set purge_delay=0 --target T",
            "b --release --target T --donor mimalloc3 --set=purge_delay=0",
        ] {
            let order = order(words).unwrap();
            assert_eq!(order.candidates[0].donor.name, "mimalloc3", "{words}");
            assert_eq!(order.candidates[0].settings, [("purge_delay".to_owned(), 0)]);
            assert_eq!((order.command, order.options.len()), (CargoCommand::Build, 3));
            assert_eq!(order.values("--target"), ["T"]);
        }
    }

    #[test]
    fn what_follows_the_dashes_is_the_programs() {
        let order = order("run --target=T --profile dev -- --donor x --strings").unwrap();
        assert_eq!((order.command, order.candidates[0].donor.name), (CargoCommand::Run, donors::DEFAULTS[0]));
        assert_eq!(order.rest, ["--", "--donor", "x", "--strings"]);
        assert_eq!((order.values("--target").len(), order.values("--profile").len()), (1, 1));
    }

    #[test]
    fn wrong_usage() {
        assert_eq!(order("check").unwrap_err().exit_code, 2);
        assert_eq!(order("--donor none --donor-profile small build").unwrap_err().exit_code, 2);
        for words in [&["--donor", "cook", "build"][..], &["build", "--set", "x"], &[]] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }
}
