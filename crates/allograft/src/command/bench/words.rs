//! The command line of `bench`: where the user's program begins, and what is a case of the suite.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::Command;

use super::cases::is_case;

/// The prefix that tells a case of the suite from a file of the same name.
const SUITE: &str = "suite:";

/// Returns the place of the first word that is neither an option nor an option's value, before a `--`.
pub(crate) fn first_value(parser: &Command, words: &[OsString]) -> Option<usize> {
    let takes_value = |text: &str| {
        let found = parser.get_arguments().find(|argument| match text.strip_prefix("--") {
            Some(long) => argument.get_long() == Some(long),
            // The last letter of several is the one that may have a value.
            None => argument.get_short().is_some_and(|short| text.ends_with(short)),
        });
        found.is_some_and(|argument| argument.get_action().takes_values())
    };
    let mut at = 0;
    while let Some(word) = words.get(at) {
        let text = word.to_string_lossy();
        if text == "--" {
            return None;
        }
        if !text.starts_with('-') || text == "-" {
            return Some(at);
        }
        at += if takes_value(&text) { 2 } else { 1 };
    }
    None
}

/// Returns the words of a command line with `--` before the user's program, if the command is `bench` and its first
/// value is not a case of the suite: everything after the program is the program's. `parser` is that of all commands.
///
/// # Errors
/// The name of a case that is also a file in the current folder.
pub(crate) fn separated(parser: &Command, mut words: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let Some(command) = words.get(1..).and_then(|rest| first_value(parser, rest)).map(|at| at + 1) else {
        return Ok(words);
    };
    let Some(bench) = parser.find_subcommand("bench").filter(|bench| words[command] == *bench.get_name()) else {
        return Ok(words);
    };
    let rest = &words[command + 1..];
    // The parser reads the options of all commands here too.
    let bench = bench.clone().args(parser.get_arguments().filter(|argument| argument.is_global_set()).cloned());
    let Some(at) = first_value(&bench, rest).map(|at| at + command + 1) else { return Ok(words) };
    match case(&words[at]) {
        Some(name) if words[at] == *name && Path::new(name).is_file() => Err(name.to_owned()),
        Some(_) => Ok(words),
        None => {
            words.insert(at, "--".into());
            Ok(words)
        }
    }
}

/// Returns the name of the case that a word names.
pub(crate) fn case(word: &OsStr) -> Option<&str> {
    let name = word.to_str()?;
    let name = name.strip_prefix(SUITE).unwrap_or(name);
    is_case(name).then_some(name)
}

/// Returns the command line that measures a program, in its shortest form. `words` are the program and its arguments,
/// as `program` and its rest are typed in a shell.
pub(crate) fn measuring(program: &str, words: &str) -> String {
    match program.starts_with('-') || case(OsStr::new(program)).is_some() {
        true => format!("allograft bench -- {words}"),
        false => format!("allograft bench {words}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_form() {
        assert_eq!(measuring("./p", "./p -x"), "allograft bench ./p -x");
        assert_eq!(measuring("map", "map"), "allograft bench -- map");
        assert_eq!(measuring("-p", "-p"), "allograft bench -- -p");
    }
}
