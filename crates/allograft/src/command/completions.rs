//! `allograft completions`: completion scripts for shells.

use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Args, Command};
use clap_complete::Shell;

use crate::arguments::parser;
use crate::command::inspect;
use crate::failure::Failure;
use crate::output::Output;
use crate::triple;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft completions bash > ~/.local/share/bash-completion/completions/allograft
  allograft completions fish > ~/.config/fish/completions/allograft.fish")]
pub(crate) struct Completions {
    /// Shell to complete for
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, output: &Output) -> Result<ExitCode, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut with_values(parser()), "allograft", &mut script);
        output.printed(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the command with the values that arguments usually have, also where they take others: triples, names of
/// allocators, options. The result completes, and parses nothing.
fn with_values(program: Command) -> Command {
    let names: Vec<String> = program.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let pages: Vec<String> = names.iter().filter(|name| *name != "help").cloned().chain(["cargo".to_owned()]).collect();
    let mut program = program;
    for name in names {
        program = program.mut_subcommand(name, |command| {
            command.mut_args(|argument| match argument.get_id().as_str() {
                "settings" => argument.value_parser(PossibleValuesParser::new(settings())),
                "expect" => argument.value_parser(PossibleValuesParser::new(inspect::names())),
                "donors" => argument.value_parser(PossibleValuesParser::new(arms())),
                _ => argument,
            })
        });
    }
    program
        .mut_subcommand("emit", |emit| {
            emit.mut_arg("target", |target| target.value_parser(PossibleValuesParser::new(triple::USUAL)))
        })
        .mut_subcommand("man", |man| man.mut_arg("command", |it| it.value_parser(PossibleValuesParser::new(pages))))
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
