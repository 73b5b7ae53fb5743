//! Manual pages, in the sections that man-pages(7) names.

use std::fmt::Write;

use clap::{Arg, ArgAction, Command};

use super::roff::{escaped, item, literal, prose};
use super::surroundings::{FILES, OTHERS, VARIABLES};

/// The page, or what is wrong with the command that it is made of.
type PageText = Result<String, String>;

/// Returns the page of the program: its commands, and what holds for each.
pub(super) fn of_program(program: &Command) -> PageText {
    let own = Texts::read(program)?;
    let mut page = head("allograft", program)?;
    page += &synopsis("allograft", program);
    page += ".PP\n.B allograft\n\\fICOMMAND\\fR ...\n";
    page += &description(program);
    page += ".SH COMMANDS\n";
    let commands: Vec<&Command> = program.get_subcommands().filter(|command| command.get_name() != "help").collect();
    for command in &commands {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        page += &item(&format!("allograft\\-{}(1)", escaped(command.get_name())), &(prose(&about) + "."));
    }
    page += &options(program);
    page += &own.exit_status;
    page += &environment(None);
    page += &files(None);
    page += &own.notes;
    page += &own.examples;
    let pages = commands.iter().map(|command| format!("allograft-{}(1)", command.get_name()));
    page += &see_also(pages.chain(["cargo-allograft(1)".to_owned()]), None);
    Ok(page)
}

/// Returns the page of one command. Exit codes that it does not name are those of the program.
pub(super) fn of_command(program: &Command, command: &Command) -> PageText {
    let name = command.get_name();
    with_texts(&format!("allograft-{name}"), &format!("allograft {name}"), name, command, &Texts::read(program)?)
}

/// Returns the page of `cargo allograft`.
pub(super) fn of_cargo(command: &Command) -> PageText {
    with_texts("cargo-allograft", "cargo allograft", "cargo", command, &Texts::default())
}

fn with_texts(title: &str, typed: &str, name: &str, command: &Command, general: &Texts) -> PageText {
    let own = Texts::read(command)?;
    let mut page = head(title, command)?;
    page += &synopsis(typed, command);
    page += &description(command);
    page += &arguments(command);
    page += &options(command);
    page += if own.exit_status.is_empty() { &general.exit_status } else { &own.exit_status };
    page += &environment(Some(name));
    page += &files(Some(name));
    page += &own.notes;
    page += &own.examples;
    page += &see_also(["allograft(1)".to_owned()], Some(name));
    Ok(page)
}

fn head(title: &str, command: &Command) -> PageText {
    let about = command.get_about().ok_or_else(|| format!("`{title}` says nothing of itself"))?.to_string();
    let version = env!("CARGO_PKG_VERSION");
    Ok(format!(
        ".TH {} 1 \"\" \"allograft {version}\" \"allograft\"\n.nh\n.ad l\n.SH NAME\n{} \\- {}\n",
        title,
        escaped(title),
        prose(&about)
    ))
}

/// The name of a value in italics.
fn value(name: &str) -> String {
    format!("\\fI{}\\fR", escaped(name))
}

/// The names of a flag's value; empty for a flag without one.
fn values(argument: &Arg) -> String {
    if !argument.get_action().takes_values() {
        return String::new();
    }
    let names = argument.get_value_names().unwrap_or_default();
    let names: Vec<String> = names.iter().map(|name| value(name)).collect();
    match argument.get_num_args() {
        // Such a value may be left out, and follows an equals sign.
        Some(count) if count.min_values() == 0 => format!("[={}]", names.join(" ")),
        _ => format!(" {}", names.join(" ")),
    }
}

/// A flag with the name of its value, by its letter if it has one and `short` asks for that.
fn flag(argument: &Arg, short: bool) -> String {
    let letter = argument.get_short().map(|letter| format!("\\fB\\-{letter}\\fR"));
    let long = argument.get_long().map(|long| format!("\\fB\\-\\-{}\\fR", escaped(long)));
    let name = match (letter, long) {
        (Some(letter), _) if short => letter,
        (Some(letter), Some(long)) => format!("{letter}, {long}"),
        (Some(only), None) | (None, Some(only)) => only,
        (None, None) => String::new(),
    };
    name + &values(argument)
}

fn shown(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|argument| !argument.is_hide_set())
}

fn is_for_help(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Help | ArgAction::HelpShort | ArgAction::HelpLong | ArgAction::Version)
}

fn repeats(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Append)
}

/// Every option with its value, then the arguments in their order.
fn synopsis(typed: &str, command: &Command) -> String {
    let mut text = format!(".SH SYNOPSIS\n.B {}\n", escaped(typed));
    for argument in shown(command).filter(|argument| !argument.is_positional() && !is_for_help(argument)) {
        let flag = flag(argument, true);
        let more = if repeats(argument) && argument.get_value_delimiter().is_none() { " ..." } else { "" };
        let flag = if argument.is_required_set() { flag } else { format!("[{flag}]") };
        let _ = writeln!(text, "{flag}{more}");
    }
    for argument in command.get_positionals().filter(|argument| !argument.is_hide_set()) {
        let name = values(argument).trim().to_owned();
        let more = if repeats(argument) { " ..." } else { "" };
        let dashes = if argument.is_last_set() { "\\fB\\-\\-\\fR " } else { "" };
        let _ = match argument.is_required_set() {
            true => writeln!(text, "{dashes}{name}{more}"),
            false => writeln!(text, "[{dashes}{name}{more}]"),
        };
    }
    text
}

fn description(command: &Command) -> String {
    let mut text = ".SH DESCRIPTION\n".to_owned();
    let long = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    // The first paragraph is the name's line again.
    let rest: Vec<&str> = long.split("\n\n").filter(|paragraph| *paragraph != about).collect();
    let rest = if rest.is_empty() { vec![about.as_str()] } else { rest };
    for (number, paragraph) in rest.iter().enumerate() {
        let end = if paragraph.ends_with(['.', '?', ':']) { "" } else { "." };
        let _ = writeln!(text, "{}{}{end}", if number > 0 { ".PP\n" } else { "" }, prose(paragraph));
    }
    text
}

/// The text on a flag or an argument: its help, its default and its values.
fn explained(argument: &Arg) -> String {
    if is_for_help(argument) {
        return if matches!(argument.get_action(), ArgAction::Version) { "Print the version." } else { "Print help." }
            .to_owned();
    }
    let short = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let long = argument.get_long_help().map(ToString::to_string).unwrap_or_default();
    // The first paragraph is the short text.
    let text = long.strip_prefix(&*short).map_or(long.as_str(), str::trim_start);
    let text = if text.is_empty() { &short } else { text };
    let (text, note) = match text.split_once(" [default: ") {
        Some((text, default)) => (text, Some(default.trim_end_matches(']').to_owned())),
        None => (text, None),
    };
    let end = if text.ends_with(['.', '?', ':']) { "" } else { "." };
    let mut shown = prose(text) + end;
    let defaults = argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
    let default = note.or_else(|| Some(defaults.collect::<Vec<_>>().join(",")).filter(|text| !text.is_empty()));
    let takes = argument.get_action().takes_values();
    if let Some(default) = default.filter(|_| takes) {
        shown += &format!(" The default: {}.", prose(&default));
    }
    let possible = argument.get_possible_values();
    let names: Vec<&str> = possible.iter().filter(|it| !it.is_hide_set()).map(|it| it.get_name()).collect();
    if takes && !names.is_empty() {
        let bold: Vec<String> = names.iter().map(|name| format!("\\fB{}\\fR", escaped(name))).collect();
        shown += &format!("\nOne of {}.", bold.join(", "));
        for value in possible.iter().filter(|it| !it.is_hide_set()) {
            if let Some(help) = value.get_help() {
                shown += &format!("\n.br\n\\fB{}\\fR: {}.", escaped(value.get_name()), prose(&help.to_string()));
            }
        }
    }
    shown
}

fn arguments(command: &Command) -> String {
    let shown: Vec<&Arg> = command.get_positionals().filter(|argument| !argument.is_hide_set()).collect();
    if shown.is_empty() {
        return String::new();
    }
    let items = shown.iter().map(|argument| item(values(argument).trim(), &explained(argument)));
    ".SH ARGUMENTS\n".to_owned() + &items.collect::<String>()
}

fn options(command: &Command) -> String {
    let mut text = ".SH OPTIONS\n".to_owned();
    for argument in shown(command).filter(|argument| !argument.is_positional()) {
        text += &item(&flag(argument, false), &explained(argument));
    }
    text
}

/// Whether something that these commands have to do with belongs on a page. The program's page has everything.
fn concerns(commands: &[&str], page: Option<&str>) -> bool {
    page.is_none_or(|page| commands.is_empty() || commands.contains(&page))
}

fn environment(page: Option<&str>) -> String {
    let mut text = ".SH ENVIRONMENT\n".to_owned();
    for variable in VARIABLES.iter().filter(|variable| concerns(variable.commands, page)) {
        text += &item(&format!("\\fB{}\\fR", escaped(variable.name)), &prose(variable.text));
    }
    text
}

fn files(page: Option<&str>) -> String {
    let items = FILES.iter().filter(|(_, commands, _)| concerns(commands, page));
    let items: String = items.map(|(name, _, text)| item(&value(name), &prose(text))).collect();
    if items.is_empty() { items } else { format!(".SH FILES\n{items}") }
}

fn see_also(pages: impl IntoIterator<Item = String>, page: Option<&str>) -> String {
    let others = OTHERS.iter().filter(|(_, commands)| page.is_some() && concerns(commands, page));
    let all: Vec<String> = pages.into_iter().chain(others.map(|(name, _)| (*name).to_owned())).collect();
    let names: Vec<String> = all
        .iter()
        .map(|page| match page.split_once('(') {
            Some((name, section)) => format!(".BR {} ({section}", escaped(name)),
            None => escaped(page),
        })
        .collect();
    format!(".SH SEE ALSO\n{}\n", names.join(" ,\n"))
}

/// The texts behind a command's help, as sections.
#[derive(Default)]
struct Texts {
    exit_status: String,
    examples: String,
    notes: String,
}

impl Texts {
    /// Sorts the paragraphs: those with a title of their own, `Examples:` or `Exit codes:`, and others.
    ///
    /// # Errors
    /// A title that has no section.
    fn read(command: &Command) -> Result<Texts, String> {
        let text = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string);
        let mut texts = Texts::default();
        for paragraph in text.unwrap_or_default().split("\n\n") {
            let mut lines = paragraph.lines();
            match lines.next().unwrap_or_default() {
                "" => {}
                "Examples:" => {
                    texts.examples = format!(".SH EXAMPLES\n{}", literal(lines.map(|line| line.trim_start())));
                }
                title if title.starts_with("Exit codes:") => {
                    texts.exit_status = exit_status(title.trim_start_matches("Exit codes:").trim(), lines);
                }
                title if title.ends_with(':') && lines.clone().all(|line| line.starts_with(' ')) => {
                    return Err(format!("`{title}` has no section of its own"));
                }
                _ => {
                    let start = if texts.notes.is_empty() { ".SH NOTES\n" } else { ".PP\n" };
                    texts.notes += &format!("{start}{}\n", prose(&paragraph.replace('\n', " ")));
                }
            }
        }
        Ok(texts)
    }
}

/// A list of codes: each on a line of its own, with its meaning, which may go on on further lines.
fn exit_status<'l>(first: &str, lines: impl Iterator<Item = &'l str>) -> String {
    let mut text = ".SH EXIT STATUS\n".to_owned();
    if !first.is_empty() {
        let mut letters = first.chars();
        let capital = letters.next().map(|letter| letter.to_uppercase().to_string()).unwrap_or_default();
        let _ = writeln!(text, "{}", prose(&(capital + letters.as_str())));
    }
    let mut in_list = false;
    for line in lines {
        let code = line.strip_prefix("  ").and_then(|line| line.split_once("  "));
        match code.filter(|(code, _)| code.bytes().all(|byte| byte.is_ascii_digit()) && !code.is_empty()) {
            Some((code, meaning)) => {
                text += &item(&format!("\\fB{code}\\fR"), &prose(meaning));
                in_list = true;
            }
            None if line.starts_with(' ') => {
                let _ = writeln!(text, "{}", prose(line.trim()));
            }
            None => {
                let _ = writeln!(text, "{}{}", if in_list { ".PP\n" } else { "" }, prose(line));
                in_list = false;
            }
        }
    }
    text
}
