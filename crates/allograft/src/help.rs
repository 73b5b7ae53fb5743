//! Help that fits on a screen. What the doc comments of commands and flags say beyond their first paragraph is for the
//! manual pages.

use clap::Command;

/// Returns the command with the short texts only, for `-h`, `--help` and `help` alike.
pub(crate) fn on_a_screen(command: Command) -> Command {
    let page = details(command.get_name());
    let after = command.get_after_help().map(ToString::to_string);
    let names: Vec<String> = command.get_subcommands().map(|command| command.get_name().to_owned()).collect();
    let mut command = command.long_about(None::<&str>).after_long_help(None::<&str>).mut_args(|argument| {
        // Values that are explained would take lines of their own.
        let is_explained = argument.get_possible_values().iter().any(|value| value.get_help().is_some());
        let argument = argument.long_help(None::<&str>);
        if is_explained { argument.hide_possible_values(true) } else { argument }
    });
    command = match (after, page) {
        (Some(after), Some(page)) => command.after_help(format!("{after}\n\n{page}")),
        (None, Some(page)) => command.after_help(page),
        _ => command,
    };
    for name in names {
        command = command.mut_subcommand(name, on_a_screen);
    }
    command
}

/// Returns the line on a command's page. `None` for the commands of cargo, whose texts name it.
fn details(name: &str) -> Option<String> {
    match name {
        "allograft" => Some("Details: `allograft man`, and `allograft man COMMAND` for each command".to_owned()),
        "help" | "cargo-allograft" | "cargo-allograft-bench" => None,
        name => Some(format!("Details: `allograft man {name} | man -l -`")),
    }
}

#[cfg(test)]
mod tests {
    use clap::{ArgAction, CommandFactory};

    use super::*;
    use crate::arguments::{Arguments, parser};

    /// The greatest number of lines of a command's help. `bench` has 25 flags of its own.
    fn lines(command: &str) -> usize {
        if command.ends_with("bench") { 52 } else { 40 }
    }

    /// Checks one help: its width, its length, and the words of each flag's text.
    fn check(command: &mut Command, faults: &mut Vec<String>) {
        let name = command.get_name().to_owned();
        let help = command.clone().term_width(80).render_help().to_string();
        let count = help.lines().count();
        if count > lines(&name) {
            faults.push(format!("{name}: {count} lines:\n{help}"));
        }
        for line in help.lines().filter(|line| line.chars().count() > 80) {
            faults.push(format!("{name}: wider than 80 columns: {line}"));
        }
        let shown = command.get_arguments().filter(|argument| !argument.is_hide_set());
        for argument in shown.filter(|argument| {
            !matches!(argument.get_action(), ArgAction::Help | ArgAction::HelpShort | ArgAction::Version)
        }) {
            let text = argument.get_help().map(ToString::to_string).unwrap_or_default();
            let words = text.split(" [").next().unwrap_or_default().split_whitespace().count();
            if !(2..=8).contains(&words) {
                faults.push(format!("{name} {}: {words} words: {text}", argument.get_id()));
            }
        }
        // An example is a line that runs, or a comment.
        let mut after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        after.push('\n');
        for line in after.lines().skip_while(|line| *line != "Examples:").skip(1).take_while(|line| !line.is_empty()) {
            let begins = ["  allograft ", "  cargo ", "  make ", "  ./configure ", "  # "];
            if !begins.iter().any(|begin| line.starts_with(begin))
                || line.split("  ").count() > 2 && !line.contains(" # ")
            {
                faults.push(format!("{name}: no command and no comment: {line}"));
            }
        }
        let unbuilt: Vec<Command> = command.get_subcommands().cloned().collect();
        for mut subcommand in unbuilt.into_iter().filter(|command| command.get_name() != "help") {
            check(&mut subcommand, faults);
        }
    }

    #[test]
    fn every_help_fits_on_a_screen() {
        let mut faults = Vec::new();
        let mut program = parser();
        program.build();
        check(&mut program, &mut faults);
        let mut cargo = crate::cargo::parser();
        cargo.build();
        check(&mut cargo, &mut faults);
        let mut measuring = crate::cargo::Measuring::parser();
        measuring.build();
        check(&mut measuring, &mut faults);
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    #[test]
    fn the_parser_is_that_of_the_manual_pages() {
        let full = Arguments::command();
        let flags = |command: &Command| -> Vec<String> {
            let all = command.get_subcommands().flat_map(Command::get_arguments);
            all.map(|argument| argument.get_id().to_string()).collect()
        };
        assert_eq!(flags(&full), flags(&parser()));
    }
}
