//! The command line of `cargo allograft`: allograft's options, at any place, and a cargo command.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser};
use hosts::Candidate;

use crate::choice::Choice;
use crate::failure::Failure;
use crate::help::on_a_screen;

/// Run a cargo command, with a donor in every program
///
/// Links programs for a musl target with a private grafted copy of the target's libc.a. The copy is in the project's
/// target folder; the toolchain and everything else stay untouched. Inspects each program when it is linked; a program
/// without the donor is an error.
#[derive(Debug, Parser)]
#[command(
    name = "cargo-allograft",
    bin_name = "cargo allograft",
    version,
    override_usage = "cargo allograft [OPTIONS] <COMMAND> [CARGO OPTIONS] [-- ARGUMENTS]",
    mut_arg("profile", |profile| profile.long("donor-profile").help(PROFILE)),
    after_help = AFTER_HELP,
    after_long_help = AT_LENGTH
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// Cargo command and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    cargo: Vec<OsString>,
}

/// Help of `--donor-profile`: `--profile` is cargo's.
const PROFILE: &str = "Options for one purpose: small, fast, secure";

const AFTER_HELP: &str = "\
Options may come before or after the command, up to `--`. All others are cargo's.

Exit codes: 0 done, 1 a program does not carry the donor, 2 wrong usage,
  3 refused; otherwise cargo's own.

Examples:
  cargo allograft build --release --target x86_64-unknown-linux-musl
  cargo allograft --donor mimalloc3 test
  cargo allograft run --set purge_delay=0 --release -- --port 8080
  cargo allograft nextest run
  cargo allograft install ripgrep --target x86_64-unknown-linux-musl
  # measures the program with every donor
  cargo allograft bench --donors all -- --input data.txt

Details: `allograft man cargo | man -l -`";

/// Notes, exit codes and examples for the manual page.
const AT_LENGTH: &str = "\
Any other command of cargo's goes the same way: `rustc`, `check`, `clippy`, `nextest`, `deb`, `dist` and the like, with the
programs that they link. zig as the linker (`zigbuild`) is refused: it links a libc of its own. So is a build elsewhere,
such as in a container, which never calls this program.

The options may come before or after the command, up to `--`. Without `--target`, and without a target in cargo's
configuration, programs are built for the musl target of this machine.

Exit codes:
  0  done
  1  a program does not carry the donor
  2  wrong usage
  3  refused, because it would not be safe
Others are cargo's own.

Examples:
  cargo allograft build --release --target x86_64-unknown-linux-musl
  cargo allograft --donor mimalloc3 test
  cargo allograft run --set purge_delay=0 --release -- --port 8080
  cargo allograft nextest run
  cargo allograft install ripgrep --target x86_64-unknown-linux-musl
  # measures the program with every donor: see `cargo allograft bench --help`
  cargo allograft bench --donors all -- --input data.txt";

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
    /// The command in the user's spelling.
    pub(super) name: OsString,
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
    /// Any other: cargo's own, an alias, or a program `cargo-NAME`.
    Other,
}

/// Cargo's commands that link nothing, whatever their arguments.
const LINK_NOTHING: [&str; 27] = [
    "add",
    "clean",
    "fetch",
    "fmt",
    "generate-lockfile",
    "help",
    "info",
    "init",
    "locate-project",
    "login",
    "logout",
    "metadata",
    "new",
    "owner",
    "pkgid",
    "read-manifest",
    "remove",
    "rm",
    "report",
    "search",
    "tree",
    "uninstall",
    "update",
    "vendor",
    "verify-project",
    "version",
    "yank",
];

impl CargoCommand {
    pub(super) fn parse(name: &OsStr) -> CargoCommand {
        match name.to_str() {
            Some("build" | "b") => CargoCommand::Build,
            Some("run" | "r") => CargoCommand::Run,
            Some("test" | "t") => CargoCommand::Test,
            Some("bench") => CargoCommand::Bench,
            Some("install") => CargoCommand::Install,
            _ => CargoCommand::Other,
        }
    }
}

/// The parser, with help that fits on a screen.
pub(crate) fn parser() -> clap::Command {
    on_a_screen(Arguments::command())
}

/// Parses the command line without the program's name and cargo's word for it. The error is the parser's: help,
/// version, or wrong usage.
pub(super) fn parse(arguments: &[OsString]) -> Result<Arguments, clap::Error> {
    let words = std::iter::once("cargo-allograft".into()).chain(ours_first(arguments));
    parser().try_get_matches_from(words).and_then(|matches| Arguments::from_arg_matches(&matches))
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
        let typed = name.to_string_lossy();
        if LINK_NOTHING.contains(&&*typed) {
            return Err(Failure::usage(format!("`cargo {typed}` links no program"))
                .with_help(format!("run it without allograft: `cargo {typed}`")));
        }
        if typed.starts_with('+') {
            return Err(Failure::usage(format!("`{typed}` names a toolchain, and `cargo allograft` has one already"))
                .with_help(format!("name it first: `cargo {typed} allograft COMMAND`")));
        }
        if typed.starts_with('-') {
            let help = match typed.split('=').next() {
                Some("--profile") => "allograft's is `--donor-profile NAME`; cargo's follows the command".to_owned(),
                _ => format!("cargo's options follow the command: `cargo allograft COMMAND {typed}`"),
            };
            return Err(Failure::usage(format!("`{typed}` is before the command, and not allograft's")).with_help(help));
        }
        let command = CargoCommand::parse(&name);
        let words: Vec<OsString> = words.collect();
        let end = words.iter().position(|word| word == "--").unwrap_or(words.len());
        let (options, rest) = words.split_at(end);
        let (candidates, strings) = (self.choice.candidates()?, self.choice.strings().unwrap_or(true));
        Ok(Order { candidates, strings, command, name, options: options.to_vec(), rest: rest.to_vec() })
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
    fn any_other_command_is_passed_on() {
        let order = order("nextest run --donor mimalloc3 --no-capture --target T -- --skip x").unwrap();
        assert_eq!((order.command, order.name.as_os_str()), (CargoCommand::Other, OsStr::new("nextest")));
        assert_eq!(order.options, ["run", "--no-capture", "--target", "T"]);
        assert_eq!((order.rest.len(), order.candidates[0].donor.name), (3, "mimalloc3"));
    }

    #[test]
    fn wrong_usage() {
        for (typed, says) in [
            ("clean", "`cargo clean` links no program"),
            ("+nightly build", "names a toolchain"),
            ("--profile small build", "`--profile` is before the command"),
            ("-q build", "`-q` is before the command"),
        ] {
            let failure = order(typed).unwrap_err();
            assert!(failure.exit_code == 2 && failure.message.contains(says), "{}", failure.message);
        }
        assert_eq!(order("--donor none --donor-profile small build").unwrap_err().exit_code, 2);
        for words in [&["--donor", "cook", "build"][..], &["build", "--set", "x"], &[]] {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }
}
