//! `allograft man`: prints manual pages.

use std::process::ExitCode;

use clap::{Args, CommandFactory};

use crate::arguments::Arguments;
use crate::failure::{Failure, REPORT};
use crate::output::Output;
use crate::similar::similar;

/// Print the manual page of the program or of one command
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft man > ~/.local/share/man/man1/allograft.1
  allograft man graft | man -l -")]
pub(crate) struct Man {
    /// The command to print the page of
    command: Option<String>,
}

impl Man {
    pub(crate) fn run(&self, output: &Output) -> Result<ExitCode, Failure> {
        let mut program = Arguments::command();
        program.build();
        let page = match &self.command {
            None => program.clone(),
            Some(name) => program.find_subcommand(name).cloned().ok_or_else(|| {
                Failure::usage(format!("there is no command `{name}`")).with_help(
                    match similar(name, program.get_subcommands().map(clap::Command::get_name)) {
                        Some(meant) => format!("did you mean `allograft man {meant}`?"),
                        None => "`allograft help` lists them".to_owned(),
                    },
                )
            })?,
        };
        let mut text = Vec::new();
        clap_mangen::Man::new(page)
            .render(&mut text)
            .map_err(|error| Failure::usage(format!("cannot render the manual page: {error}")).with_help(REPORT))?;
        output.raw(&String::from_utf8_lossy(&text))?;
        Ok(ExitCode::SUCCESS)
    }
}
