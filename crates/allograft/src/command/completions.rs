//! `allograft completions`: completion scripts for shells.

use std::process::ExitCode;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::arguments::Arguments;
use crate::failure::Failure;
use crate::output::Output;

/// Print a completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  allograft completions bash > ~/.local/share/bash-completion/completions/allograft
  allograft completions fish > ~/.config/fish/completions/allograft.fish")]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    pub(crate) fn run(&self, output: &Output) -> Result<ExitCode, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Arguments::command(), "allograft", &mut script);
        output.raw(&String::from_utf8_lossy(&script))?;
        Ok(ExitCode::SUCCESS)
    }
}
