//! Options of allograft that follow a program, and are therefore given to it.

use std::ffi::OsString;

use clap::{Arg, Command};

use super::bench::{case, first_value};
use crate::shell::shell_quoted;

/// The commands with a user's program and its own words at the end.
const COMMANDS: [&str; 2] = ["bench", "profile"];

/// Options that follow a program.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Misplaced {
    /// The options without their values.
    options: Vec<String>,
    /// The command line with these options in front of the program.
    corrected: String,
}

impl Misplaced {
    /// Returns the options behind the program of `bench` or `profile` that are exactly allograft's own. `None` without
    /// any, or if the program follows `--`: that says whose words they are. `parser` is the one for all commands,
    /// `words` the command line with allograft's name, as typed.
    pub(crate) fn find(parser: &Command, words: &[OsString]) -> Option<Misplaced> {
        let command = 1 + first_value(parser, words.get(1..)?)?;
        let subcommand = parser.find_subcommand(&words[command]).filter(|it| COMMANDS.contains(&it.get_name()))?;
        // The parser reads the options of all commands here too.
        let global = parser.get_arguments().filter(|argument| argument.is_global_set()).cloned();
        let subcommand = subcommand.clone().args(global);
        let program = command + 1 + first_value(&subcommand, &words[command + 1..])?;
        if subcommand.get_name() == "bench" && case(&words[program]).is_some() {
            return None;
        }
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let (mut options, mut moved, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        let mut own = words[program + 1..].iter().map(text).peekable();
        while let Some(word) = own.next() {
            if word == "--" {
                kept.push(word);
                break;
            }
            let (name, value) = word.split_once('=').map_or((word.as_str(), None), |(name, value)| (name, Some(value)));
            let Some(option) = option(&subcommand, name, value.is_some()) else {
                kept.push(word);
                continue;
            };
            options.push(name.to_owned());
            moved.push(word.clone());
            if option.get_action().takes_values() && value.is_none() {
                let placeholder = option.get_value_names().and_then(|names| names.first()).map(|name| name.to_string());
                // A missing value is shown as in help.
                moved.extend(own.next().or(placeholder));
            }
        }
        kept.extend(own);
        let before = words[1..program].iter().map(text);
        let line = before.chain(moved).chain([text(&words[program])]).chain(kept).map(|word| shell_quoted(&word));
        let corrected = std::iter::once("allograft".to_owned()).chain(line).collect::<Vec<_>>().join(" ");
        (!options.is_empty()).then_some(Misplaced { options, corrected })
    }

    /// Returns the note for the user.
    pub(crate) fn note(&self) -> String {
        let Misplaced { options, corrected } = self;
        let named = options.iter().map(|option| format!("`{option}`")).collect::<Vec<_>>().join(", ");
        let went =
            if options.len() == 1 { "stands behind the program and goes" } else { "stand behind the program and go" };
        format!(
            "{named} {went} to it; for allograft: `{corrected}`. With `--` before the program, this note is not printed"
        )
    }
}

/// Returns the option of that name, `--budget` or `-o`. A short one takes no equals sign. `--help` is not found: every
/// program has it.
fn option<'c>(command: &'c Command, name: &str, with_value: bool) -> Option<&'c Arg> {
    command.get_arguments().find(|argument| match name.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long) && (!with_value || argument.get_action().takes_values()),
        None => {
            let short = argument.get_short().map(|short| format!("-{short}"));
            !with_value && short.is_some_and(|short| short == name)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::parser;

    fn note(line: &str) -> Option<String> {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Misplaced::find(&parser(), &words).map(|misplaced| misplaced.note())
    }

    #[test]
    fn options_behind_the_program() {
        for (typed, options, corrected) in [
            ("bench ./p --budget 30s", "`--budget` stands", "bench --budget 30s ./p"),
            ("bench ./p --budget=30s x", "`--budget` stands", "bench --budget=30s ./p x"),
            ("bench p --json", "`--json` stands", "bench --json p"),
            ("bench --rounds 3 ./p a --rounds 4 b", "`--rounds` stands", "bench --rounds 3 --rounds 4 ./p a b"),
            (
                "-v bench ./p --html r.html -q -- --json",
                "`--html`, `-q` stand",
                "-v bench --html r.html -q ./p -- --json",
            ),
            ("bench ./p --budget", "`--budget` stands", "bench --budget TIME ./p"),
            ("profile ./p -o out --rate=100 in", "`-o`, `--rate` stand", "profile -o out --rate=100 ./p in"),
            ("profile --duration 2 ./p --format pprof", "`--format` stands", "profile --duration 2 --format pprof ./p"),
        ] {
            let note = note(&format!("allograft {typed}")).unwrap_or_else(|| panic!("{typed}"));
            assert!(note.starts_with(options) && note.contains(&format!("`allograft {corrected}`")), "{typed}: {note}");
        }
    }

    #[test]
    fn words_that_are_the_programs() {
        for typed in [
            "bench ./p",
            "bench ./p --input data.txt",
            "bench ./p --budgets 3 --bud --json=yes -ov -o=x --html5",
            "bench ./p --help --version -h",
            "bench -- ./p --budget 30s",
            "bench ./p -- --budget 30s",
            "bench map --budget 30s",
            "bench --build make --budget 30s",
            "profile -- ./p -o out",
            "profile --pid 7 --duration 3",
            "run make --donor mimalloc",
            "inspect ./p --json",
            "profile",
        ] {
            assert_eq!(note(&format!("allograft {typed}")), None, "{typed}");
        }
    }
}
