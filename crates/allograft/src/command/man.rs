//! `allograft man`: prints manual pages.

mod page;
mod roff;
mod surroundings;

use std::process::ExitCode;

use clap::{Args, CommandFactory};

use crate::arguments::Arguments;
use crate::failure::{Failure, REPORT};
use crate::output::Output;
use crate::similar::similar;

/// Print the manual page of a command
///
/// Without a command, it is the page of the program. `allograft man cargo` is the page of `cargo allograft`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft man > ~/.local/share/man/man1/allograft.1
  allograft man graft | man -l -")]
pub(crate) struct Man {
    /// Command with the page [default: the program]
    command: Option<String>,
}

/// The name of the page on `cargo allograft`.
const CARGO: &str = "cargo";

impl Man {
    pub(crate) fn run(&self, output: &Output) -> Result<ExitCode, Failure> {
        let mut program = Arguments::command();
        program.build();
        let text = match self.command.as_deref() {
            None => page::of_program(&program),
            Some(CARGO) => {
                let mut command = crate::cargo::Arguments::command();
                command.build();
                page::of_cargo(&command)
            }
            Some(name) => match program.find_subcommand(name).filter(|command| command.get_name() != "help") {
                Some(command) => page::of_command(&program, command),
                None => return Err(unknown(&program, name)),
            },
        };
        let text = text
            .map_err(|problem| Failure::usage(format!("cannot make the manual page: {problem}")).with_help(REPORT))?;
        output.printed(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn unknown(program: &clap::Command, name: &str) -> Failure {
    let names = program.get_subcommands().map(clap::Command::get_name).chain([CARGO]);
    Failure::usage(format!("there is no command `{name}`")).with_help(match similar(name, names) {
        Some(meant) => format!("did you mean `allograft man {meant}`?"),
        None => "`allograft help` lists them".to_owned(),
    })
}
