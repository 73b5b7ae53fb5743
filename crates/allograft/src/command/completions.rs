//! `allograft completions`: completion scripts for shells.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Args, Command};
use clap_complete::Shell;

use crate::arguments::parser;
use crate::cargo::{self, Measuring};
use crate::command::inspect;
use crate::failure::Failure;
use crate::output::Output;
use crate::shell::quoted;
use crate::triple;

/// Print a completion script for a shell
///
/// bash also completes `cargo allograft` where the script is read when the shell starts, behind what completes `cargo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft completions bash > ~/.local/share/bash-completion/completions/allograft
  allograft completions fish > ~/.config/fish/completions/allograft.fish
  # for `cargo allograft` too, in ~/.bashrc: source <(allograft completions bash)")]
pub(crate) struct Completions {
    /// Shell to complete for
    #[arg(required_unless_present = "swift_sdks")]
    shell: Option<Shell>,
    /// Print the IDs of installed Swift SDKs, for the script
    #[arg(long, hide = true, conflicts_with = "shell")]
    swift_sdks: bool,
}

impl Completions {
    pub(crate) fn run(&self, output: &Output) -> Result<ExitCode, Failure> {
        let script = match self.shell {
            Some(shell) => script(shell),
            // These words are part of a command line that bash types: others need quotes, and are left to the user.
            None => {
                let plain = |id: &String| quoted(id) == *id;
                hosts::installed_swift_sdks()?.into_iter().filter(plain).map(|id| id + "\n").collect()
            }
        };
        output.printed(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The functions that bash needs besides the generated ones.
const WORDS: &str = include_str!("completions/words.bash");

/// Returns the script that completes allograft's commands in a shell.
fn script(shell: Shell) -> String {
    let generate = |mut program: Command, name: &str| {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut program, name, &mut script);
        String::from_utf8_lossy(&script).into_owned()
    };
    let script = generate(with_values(parser()), "allograft");
    if shell != Shell::Bash {
        return script;
    }
    let targets: Vec<String> = triple::rust_names().map(|name| format!("rust:{name}")).collect();
    let measuring = Measuring::parser().mut_args(with_usual_values);
    [
        script,
        generate(for_cargo(), "cargo-allograft"),
        generate(measuring, "cargo-allograft-bench"),
        WORDS.replace("{rust-targets}", &targets.join(" ")),
    ]
    .join("\n")
}

/// Returns the parser of `cargo allograft` with the names of commands, to complete by.
fn for_cargo() -> Command {
    let commands = PossibleValuesParser::new(CARGO_COMMANDS);
    cargo::parser().mut_args(|argument| match argument.get_id().as_str() {
        "cargo" => argument.value_parser(commands.clone()),
        _ => with_usual_values(argument),
    })
}

/// Commands of cargo that link programs.
const CARGO_COMMANDS: [&str; 9] = ["build", "run", "test", "bench", "install", "check", "clippy", "nextest", "rustc"];

/// Returns the command with the values that arguments usually have, also where they take others: triples, names of
/// allocators, options. The result completes, and parses nothing.
fn with_values(program: Command) -> Command {
    let names: Vec<String> = program.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let pages: Vec<String> = names.iter().filter(|name| *name != "help").cloned().chain(["cargo".to_owned()]).collect();
    let mut program = program;
    for name in names {
        program = program.mut_subcommand(name, |command| command.mut_args(with_usual_values));
    }
    program
        .mut_subcommand("emit", |emit| {
            emit.mut_arg("target", |target| target.value_parser(PossibleValuesParser::new(triple::USUAL)))
        })
        .mut_subcommand("man", |man| man.mut_arg("command", |it| it.value_parser(PossibleValuesParser::new(pages))))
}

/// Returns the argument with the values that it usually has.
fn with_usual_values(argument: Arg) -> Arg {
    match argument.get_id().as_str() {
        "settings" => argument.value_parser(PossibleValuesParser::new(settings())),
        "expect" => argument.value_parser(PossibleValuesParser::new(inspect::names())),
        "donors" => argument.value_parser(PossibleValuesParser::new(arms())),
        _ => argument,
    }
}

/// Every donor's options, each once, up to the equals sign.
fn settings() -> Vec<String> {
    let options = donors::all().iter().filter_map(|donor| donor.options().ok()).flatten();
    let mut names: Vec<String> = options.map(|option| option.name + "=").collect();
    names.sort();
    names.dedup();
    names
}

/// The names of arms that `bench --donors` takes, without variants.
fn arms() -> Vec<&'static str> {
    ["all", "profiles", "stock", "strings", "glibc"].into_iter().chain(donors::all().iter().map(|it| it.name)).collect()
}
