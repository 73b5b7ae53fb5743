//! Runs a section as a reader would, and compares the output.

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::page::{self, Section, Step};
use crate::workspace::Workspace;
use crate::{tools, workspace};

/// Seconds after which a step is killed.
const LIMIT: &str = "1500";

/// The name of the section's folder in expected output.
const FOLDER: &str = "/src";

/// Runs every step of a section in a new folder.
pub(crate) fn run(section: &Section) -> Result<(), String> {
    let made = tempfile::Builder::new().prefix("allograft-page-").tempdir().map_err(|error| error.to_string())?;
    // The folder's name has a blank, so that every path that is passed on has one. The folder of tools has none, for
    // the sake of gcc's specs files.
    let (mut folder, bin) = (made.path().join("the source"), made.path().join("bin"));
    for made in [&folder, &bin] {
        fs::create_dir(made).map_err(|error| error.to_string())?;
    }
    let mut environment = tools::install(&bin, &section.needs)?;
    let workspace = section.needs.iter().any(|need| need == workspace::NEED).then(Workspace::take).transpose()?;
    if let Some(workspace) = &workspace {
        folder = workspace.folder();
        environment.extend(workspace.environment());
    }
    for step in &section.steps {
        match step {
            Step::File { name, content } => {
                let path = folder.join(name);
                let made = path.parent().map_or(Ok(()), fs::create_dir_all);
                made.and_then(|()| fs::write(&path, content)).map_err(|error| format!("{name}: {error}"))?;
            }
            Step::Script(text) => {
                let (code, printed) = bash(&format!("set -eu\n{text}"), &folder, &environment)?;
                if code != 0 {
                    return Err(format!("exit code {code}:\n{text}\n{printed}"));
                }
            }
            Step::Console(commands) => console(commands, &folder, &environment)?,
        }
    }
    Ok(())
}

fn console(commands: &[page::Command], folder: &Path, environment: &[(String, String)]) -> Result<(), String> {
    // The whole block runs in one shell, so that `cd` and variables persist. A byte that no command prints ends each
    // output.
    let mut script = String::new();
    for command in commands {
        let _ = writeln!(script, "{}\nprintf '\\036%d\\036' $?", command.text);
    }
    let (_, printed) = bash(&script, folder, environment)?;
    let mut parts = printed.split('\u{1e}');
    for command in commands {
        let (said, code) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let said = said.replace(&folder.display().to_string(), FOLDER);
        if code != command.exit_code.to_string() {
            let expected = command.exit_code;
            return Err(format!("$ {}\nexit code {code}, expected {expected}; it printed:\n{said}", command.text));
        }
        let lines: Vec<&str> = said.trim_end().lines().collect();
        if !command.printed.is_empty() && !matches_lines(&command.printed, &lines) {
            let expected = command.printed.join("\n");
            return Err(format!("$ {}\nexpected:\n{expected}\nfound:\n{}", command.text, lines.join("\n")));
        }
    }
    Ok(())
}

/// Runs a script. Returns its exit code and its output on both streams, in order.
fn bash(script: &str, folder: &Path, environment: &[(String, String)]) -> Result<(i32, String), String> {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", LIMIT, "bash", "-c"]).arg(format!("exec 2>&1\n{script}"));
    command.current_dir(folder).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        // Cargo sets these variables for the test. They must not reach the cargo that the page runs.
        let of_cargo = name.starts_with("CARGO") && name != "CARGO_HOME";
        if of_cargo || name.starts_with("ALLOGRAFT_") || name.starts_with("RUST") && !name.starts_with("RUSTUP") {
            command.env_remove(&*name);
        }
    }
    command.envs(environment.iter().map(|(name, value)| (name, value)));
    let output = command.output().map_err(|error| format!("bash: {error}"))?;
    Ok((output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn matches_lines(expected: &[String], found: &[&str]) -> bool {
    let Some((first, rest)) = expected.split_first() else { return found.is_empty() };
    if first == "..." {
        return (0..=found.len()).any(|skipped| matches_lines(rest, &found[skipped..]));
    }
    found.split_first().is_some_and(|(line, others)| matches(first, line) && matches_lines(rest, others))
}

fn matches(expected: &str, line: &str) -> bool {
    match expected.split_once("...") {
        None => expected.trim_end() == line.trim_end(),
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|line| {
            (0..=line.len()).filter(|at| line.is_char_boundary(*at)).any(|at| matches(rest, &line[at..]))
        }),
    }
}

/// Checks that output is compared as described.
pub(crate) fn self_check() -> Result<(), String> {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let agree = |expected: &str, found: &str| matches_lines(&lines(expected), &found.lines().collect::<Vec<_>>());
    let right =
        [("a\nb", "a\nb"), ("a ...", "a 12 ms"), ("...\nb", "x\ny\nb"), ("a\n...", "a"), ("... of ...", "1 of 2")];
    let wrong = [("a", "a\nb"), ("a\nb", "a"), ("a ... c", "a b"), ("...\nb", "b\nc")];
    let command = |text: &str, exit_code, printed: &str| page::Command {
        text: text.to_owned(),
        exit_code,
        printed: lines(printed),
    };
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let run = |command: page::Command| console(&[command], folder.path(), &[]);
    let consoles = run(command("pwd; echo err >&2", 0, "/src\nerr")).is_ok()
        && run(command("false", 0, "")).is_err()
        && run(command("(exit 3)", 3, "")).is_ok()
        && run(command("echo one", 0, "two")).is_err();
    let sound =
        right.iter().all(|(one, other)| agree(one, other)) && !wrong.iter().any(|(one, other)| agree(one, other));
    if sound && consoles { Ok(()) } else { Err("comparison".to_owned()) }
}
