//! The command line.

use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::command;
use crate::command::misplaced::Misplaced;
use crate::failure::Failure;
use crate::global::Global;
use crate::help::on_a_screen;
use crate::output::{Output, acts, printable};
use crate::shell::shell_quoted;
use crate::similar::similar;

const AFTER_HELP: &str = "\
Exit codes: 0 done, 1 the check says no, 2 wrong usage or input, 3 refused,
  4 not all was taken back, 5 not all was checked. Only 0 and 4 change a file

Examples:
  allograft bench ./program ARGS                # does it pay? changes nothing
  allograft graft ./program                     # a linked program
  allograft graft /usr/lib/x86_64-linux-musl/libc.a
  allograft inspect ./server --expect snmalloc";

/// Exit codes and examples for the manual page.
const AT_LENGTH: &str = "\
Exit codes:
  0  done
  1  the check says no
  2  wrong usage, or input that cannot be read or is malformed
  3  refused, because it would not be safe
  4  not everything could be taken back, or a temporary file stays;
     the message says which files are changed
  5  `verify --strict`: no check failed, and some were not run

After 1, 2, 3 and 5, every file is exactly as it was before.

Examples:
  # graft in place, with a backup
  allograft graft /usr/lib/x86_64-linux-musl/libc.a
  # link and run programs against it
  allograft verify /usr/lib/x86_64-linux-musl/libc.a
  # restore stock, byte for byte
  allograft undo /usr/lib/x86_64-linux-musl/libc.a
  # check which allocator an executable carries
  allograft inspect ./server --expect snmalloc";

/// The text that a run without arguments prints.
const FIRST_STEPS: &str = "\
allograft puts a modern allocator into static musl toolchains and programs, and can take it out again.
  allograft inspect ./program         which allocator does it carry?
  allograft bench ./program ARGS      would another one make it faster? Measures each; changes nothing
  allograft graft ./program           put one in; or into a toolchain: libc.a, a folder, rust:TRIPLE, swift:ID
  allograft help                      all commands; in a Cargo project: `cargo allograft build --release`
";

/// Puts a modern allocator into musl's libc.a, or into linked programs
///
/// A static musl program allocates through musl's malloc, which is slow with several threads. allograft replaces it in
/// the toolchain's libc.a, so that every program that is linked with it afterwards has the new allocator; or in what is
/// linked already: a static or dynamic program, musl's loader, the programs of a container image. It can take
/// everything back, byte for byte.
#[derive(Debug, Parser)]
#[command(name = "allograft", version, after_help = AFTER_HELP, after_long_help = AT_LENGTH)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Graft(command::graft::Graft),
    Undo(command::undo::Undo),
    Inspect(command::inspect::Inspect),
    Verify(command::verify::Verify),
    Emit(command::emit::Emit),
    Cc(command::cc::Cc),
    Run(command::run::Run),
    Donors(command::donors::Donors),
    Bench(Box<command::bench::Bench>),
    Profile(command::profile::Profile),
    Heap(command::heap::Heap),
    Completions(command::completions::Completions),
    Man(command::man::Man),
}

/// The parser, with help that fits on a screen.
pub(crate) fn parser() -> clap::Command {
    on_a_screen(Arguments::command())
}

/// Parses the command line. The error is the exit code of a run that has already printed everything: help, version, or
/// wrong usage.
pub(crate) fn parse() -> Result<(Arguments, Output), ExitCode> {
    let words = command::cc::separated(std::env::args_os());
    let misplaced = Misplaced::find(&parser(), &words);
    let words = match command::bench::separated(&parser(), words) {
        Ok(words) => words,
        Err(case) => {
            let failure = Failure::usage(format!("`{case}` is a case of the suite, and a file in this folder"))
                .with_help(format!(
                    "`allograft bench ./{case}` measures the file, `allograft bench suite:{case}` the case"
                ));
            let global = Global { json: typed("--json"), quiet: false, verbose: false, color: early_color() };
            return Err(Output::new(&global).fail(&failure));
        }
    };
    let matches = parser().color(early_color()).try_get_matches_from(words);
    let error = match matches.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => {
            let output = Output::new(&arguments.global);
            if let Some(misplaced) = misplaced {
                output.note(misplaced.note());
            }
            return Ok((arguments, output));
        }
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayVersion if typed_verbose() => {
            let output = Output::new(&Global { json: false, quiet: false, verbose: true, color: early_color() });
            Err(match output.text(&command::version::details(&output)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => output.fail(&failure),
            })
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand if std::env::args_os().len() < 2 => {
            // An error cannot be reported if standard error is closed.
            let _ = std::io::stderr().write_all(FIRST_STEPS.as_bytes());
            Err(ExitCode::from(2))
        }
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed pipe is the reader's choice.
            let _ = error.print();
            Err(ExitCode::SUCCESS)
        }
        _ => {
            let program = typed_command();
            let text = tell(error, &program);
            if typed("--json") {
                let message = text.trim().trim_start_matches("error: ").lines().next().unwrap_or_default();
                let failure = Failure::usage(message).with_help(help(&program));
                Output::json_only().fail(&failure);
            }
            Err(ExitCode::from(2))
        }
    }
}

/// Prints the parser's message, which says what is wrong with the command line, and ends it as all messages end: with
/// a line of help, which names `program`, such as `allograft graft`. Typed text is escaped, since it may be the name of
/// a file that another user chose. A message that is the help itself, or the version, is printed unchanged. Returns the
/// text without colours.
pub(crate) fn tell(mut error: clap::Error, program: &str) -> String {
    let typed: Vec<(ContextKind, ContextValue)> = error
        .context()
        .filter_map(|(kind, value)| match value {
            ContextValue::String(text) => Some((kind, ContextValue::String(printable(text)))),
            ContextValue::Strings(texts) => Some((kind, ContextValue::Strings(texts.iter().map(printable).collect()))),
            // Suggestions repeat what was typed, between the parser's own colours.
            ContextValue::StyledStrs(texts) if texts.iter().any(|text| text.to_string().contains(acts)) => {
                let plain = texts.iter().map(|text| printable(text).into()).collect();
                Some((kind, ContextValue::StyledStrs(plain)))
            }
            _ => None,
        })
        .collect();
    for (kind, value) in typed {
        error.insert(kind, value);
    }
    let (is_fault, text) = (error.use_stderr(), error.render());
    if !is_fault {
        // A closed pipe is the reader's choice.
        let _ = error.print();
        return text.to_string();
    }
    let advice = advice(&error, program);
    let plain = with_help(&text.to_string(), &advice);
    let coloured = match early_color() {
        ColorChoice::Always => true,
        ColorChoice::Auto => std::io::stderr().is_terminal(),
        ColorChoice::Never => false,
    };
    let shown = if coloured { with_help(&text.ansi().to_string(), &advice) } else { plain.clone() };
    // An error cannot be reported if standard error is closed.
    let _ = std::io::stderr().write_all(shown.as_bytes());
    plain
}

/// Prints an error of a program without JSON. Returns its exit code: 0 for help and version.
pub(crate) fn tell_and_end(error: clap::Error, program: &str) -> ExitCode {
    let code = if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    tell(error, program);
    code
}

/// Returns the last line of help for a parser's error.
fn advice(error: &clap::Error, program: &str) -> String {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let more = match error.kind() {
        ErrorKind::UnknownArgument => text(ContextKind::InvalidArg).and_then(|word| of_unknown(word, program)),
        ErrorKind::InvalidSubcommand if text(ContextKind::InvalidSubcommand).is_some_and(is_statistics) => {
            Some(STATISTICS.to_owned())
        }
        ErrorKind::InvalidSubcommand if text(ContextKind::InvalidSubcommand).and_then(meant).is_some() => {
            text(ContextKind::InvalidSubcommand).and_then(meant).map(|command| format!("that is `allograft {command}`"))
        }
        ErrorKind::InvalidSubcommand if error.get(ContextKind::SuggestedSubcommand).is_none() => {
            let parser = parser();
            let names = parser.get_subcommands().map(clap::Command::get_name);
            let meant = text(ContextKind::InvalidSubcommand).and_then(|typed| similar(typed, names));
            meant.map(|name| format!("did you mean `{name}`?"))
        }
        _ => None,
    };
    more.map_or_else(|| help(program), |more| format!("{more}; {}", help(program)))
}

/// Returns what to do about an argument that the command does not take, if that can be told.
fn of_unknown(word: &str, program: &str) -> Option<String> {
    if let Some(flag) = word.strip_prefix('-') {
        let words: Vec<OsString> = std::env::args_os().skip(1).collect();
        let tries = program == "allograft graft" && words.iter().any(|word| word == "--try");
        return match flag.trim_start_matches('-') {
            _ if tries => for_the_program(&words, word),
            name if is_statistics(name) => Some(STATISTICS.to_owned()),
            "allocator" | "malloc" | "alloc" | "d" if takes_donor(program) => {
                Some("the allocator to put in is `--donor NAME`".to_owned())
            }
            "donor" | "donors" if program == "allograft profile" => {
                Some("it runs the program as it is; `allograft bench ./program` compares donors".to_owned())
            }
            _ => None,
        };
    }
    // The donor may be the word that was taken for the target.
    let words: Vec<String> = std::env::args().skip(2).collect();
    let donor = words.iter().enumerate().find(|(at, word)| {
        donors::find(word).is_some() && at.checked_sub(1).is_none_or(|before| words[before] != "--donor")
    });
    if let Some((_, donor)) = donor.filter(|_| takes_donor(program)) {
        return Some(format!("`{donor}` is a donor: `--donor {donor}`"));
    }
    // A word too many, where a flag would be a mistyped one.
    Some(match program {
        // As in `cp FROM TO`.
        "allograft graft" | "allograft emit" if !Path::new(word).exists() => {
            format!("to write to `{0}`: `-o {1}`", printable(word), shell_quoted(word))
        }
        "allograft verify" => format!("the stock file to compare with is `--stock {}`", shell_quoted(word)),
        _ => "one at a time: run the command for each".to_owned(),
    })
}

/// Returns the command line with `--` before `word`, from which on it is the tried program's. `None` if there is `--`.
fn for_the_program(words: &[OsString], word: &str) -> Option<String> {
    let at = words.iter().position(|typed| typed.to_str() == Some(word))?;
    let text = |word: &OsString| shell_quoted(&word.to_string_lossy());
    let (before, after) = words.split_at(at);
    let line: Vec<String> = before.iter().map(text).chain(["--".to_owned()]).chain(after.iter().map(text)).collect();
    (!words.iter().any(|word| word == "--"))
        .then(|| format!("what the program takes follows `--`: `allograft {}`", line.join(" ")))
}

/// Whether the command `program`, such as `allograft graft`, takes a donor.
fn takes_donor(program: &str) -> bool {
    parser()
        .find_subcommand(program.trim_start_matches("allograft "))
        .is_some_and(|command| command.get_arguments().any(|argument| argument.get_long() == Some("donor")))
}

/// Returns the command for a word by which other tools call what it does.
fn meant(word: &str) -> Option<&'static str> {
    Some(match word {
        "list" | "ls" | "allocators" => "donors",
        "version" => "--version",
        "apply" | "inject" | "install" | "patch" | "replace" => "graft",
        "remove" | "restore" | "revert" | "uninstall" | "ungraft" => "undo",
        "check" | "test" | "validate" => "verify",
        "detect" | "info" | "scan" | "show" => "inspect",
        "compare" | "measure" => "bench",
        "perf" | "record" | "trace" => "profile",
        _ => return None,
    })
}

/// How a graft's statistics are printed.
const STATISTICS: &str = "a grafted program counts by itself: `ALLOGRAFT_STATS=1 ./program` prints it at the end";

/// Whether the word is that of a command or an option for statistics, which does not exist.
fn is_statistics(word: &str) -> bool {
    matches!(word, "stats" | "stat" | "statistics")
}

/// Returns the parser's message with help in the manner of all our messages: its tips become help, and its last line is
/// `advice`. A tip to pass a mistyped flag as a value is left out: nothing here has such values.
fn with_help(message: &str, advice: &str) -> String {
    let mut text = String::new();
    for line in message.lines() {
        let line = match line.strip_prefix("  ") {
            Some(tip) if tip.contains("tip:") && tip.contains(" as a value, use ") => continue,
            Some(tip) if tip.contains("tip:") && !tip.starts_with(' ') => tip.replacen("tip:", "help:", 1),
            _ if line.starts_with("For more information, try ") => format!("help: {advice}"),
            _ => line.to_owned(),
        };
        text.push_str(&line);
        text.push('\n');
    }
    // Where a tip was left out, an empty line is enough.
    text.replace("\n\n\n", "\n\n")
}

/// Returns the help for a mistyped command.
fn help(program: &str) -> String {
    format!("`{program} --help` shows how it is used")
}

/// Returns allograft's name with that of the command that was typed, if there is one.
fn typed_command() -> String {
    let name = before_dashes().find(|word| !word.to_string_lossy().starts_with('-'));
    let parser = parser();
    match name.and_then(|name| parser.find_subcommand(name).map(|command| command.get_name().to_owned())) {
        Some(command) => format!("allograft {command}"),
        None => "allograft".to_owned(),
    }
}

/// Whether a flag was typed. For messages about a command line that cannot be parsed.
fn typed(flag: &str) -> bool {
    before_dashes().any(|argument| argument == flag)
}

/// Whether `--verbose` was typed, as a letter too: `-v`, `-Vv`.
fn typed_verbose() -> bool {
    let letters = |argument: &OsString| {
        let text = argument.to_string_lossy();
        text.starts_with('-') && !text.starts_with("--") && text.contains('v')
    };
    typed("--verbose") || before_dashes().any(|argument| letters(&argument))
}

/// The arguments before `--`.
fn before_dashes() -> impl Iterator<Item = OsString> {
    std::env::args_os().skip(1).take_while(|argument| argument != OsStr::new("--"))
}

/// The choice of colours for the parser's own messages, before `--color` has been parsed.
fn early_color() -> ColorChoice {
    if typed("--color=never") || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        ColorChoice::Never
    } else if typed("--color=always") {
        ColorChoice::Always
    } else {
        ColorChoice::Auto
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn separate(line: &str) -> String {
        let words = line.split(' ').map(OsString::from).collect();
        let words = command::bench::separated(&Arguments::command(), words).unwrap();
        words.iter().map(|word: &OsString| word.to_str().unwrap()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_program_begins_its_own_words() {
        for (typed, read) in [
            ("allograft bench ./p", "allograft bench -- ./p"),
            ("allograft bench p --json -v", "allograft bench -- p --json -v"),
            ("allograft -v --color never bench --rounds 3 ./p --rounds 4", ""),
            ("allograft bench --json --donors=a,b -q --html r.html ./p -- x", ""),
            ("allograft bench --build make input", "allograft bench --build make -- input"),
            ("allograft bench -v --color never ./p", ""),
        ] {
            let read = if read.is_empty() { typed.replacen(" ./p", " -- ./p", 1) } else { read.to_owned() };
            assert_eq!(separate(typed), read, "{typed}");
        }
    }

    #[test]
    fn what_stays_as_it_is_typed() {
        for typed in [
            "allograft",
            "allograft bench",
            "allograft bench --quick",
            "allograft bench -- ./p -x",
            "allograft bench --donors stock -- map",
            "allograft bench map larson --donors stock",
            "allograft bench --rounds 3 suite:map",
            "allograft graft bench ./p",
            "allograft inspect ./p",
            "allograft --color bench ./p",
        ] {
            assert_eq!(separate(typed), typed);
        }
    }

    #[test]
    fn the_parser_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn the_parsers_messages_end_with_help() {
        for (typed, expected) in [
            ("graft --bogus x", "\nhelp: `allograft graft --help` shows how it is used\n"),
            ("emit --target x86_64", "\nhelp: `allograft graft --help` shows how it is used\n"),
            ("graf", "\nhelp: a similar subcommand exists: 'graft'\n"),
        ] {
            let words = std::iter::once("allograft").chain(typed.split(' '));
            let error = Arguments::command().try_get_matches_from(words).unwrap_err();
            for text in [error.render().to_string(), error.render().ansi().to_string()] {
                let told = with_help(&text, &help("allograft graft"));
                let lines: Vec<&str> = told.lines().filter(|line| line.contains("help")).collect();
                assert!(!told.contains("For more information") && !told.contains("tip:"), "{told}");
                assert!(text.contains('\x1b') || told.contains(expected), "{told}");
                assert!(!lines.is_empty(), "{told}");
            }
        }
    }
}
