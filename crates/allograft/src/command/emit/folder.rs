//! The files for a build system, as a folder.

use std::path::PathBuf;

use hosts::{Locking, Watch};
use integrations::Integration;

use crate::choice::Choice;
use crate::failure::{Failure, commit_reported};
use crate::json::{self, Snippet};
use crate::output::{Output, Page, Style};
use crate::shell::shell_quoted;
use crate::triple::Triple;

/// Writes the files to `out`, and prints how they are used.
///
/// # Errors
/// Exit code 2 if an option is for files to link, if no folder is named, or if it cannot be written.
pub(super) fn write(
    integration: &'static Integration,
    out: Option<PathBuf>,
    target: Option<&Triple>,
    choice: &Choice,
    output: &Output,
) -> Result<(), Failure> {
    let name = integration.name;
    if target.is_some() || !choice.is_default() {
        return Err(Failure::usage(format!("`--as {name}` writes files for every target and donor")).with_help(
            "leave `--target`, `--donor`, `--strings`, `--profile` and `--set` out: the project names them",
        ));
    }
    let out = out.ok_or_else(|| {
        Failure::usage(format!("`--as {name}` writes a folder of files, and none is named"))
            .with_help(format!("name a new one: `allograft emit --as {name} -o DIR`"))
    })?;
    let files: Vec<(&str, &[u8])> = integration.files.iter().map(|file| (file.name, file.text.as_bytes())).collect();
    let locking = |locking: Locking<'_>| output.locking(locking);
    let written = hosts::write_folder(&out, &files, &Watch { locking: Some(&locking), ..Watch::default() })?;
    let out = std::path::absolute(&out).unwrap_or(out);
    let folder = out.display().to_string();
    // GNU make, 2.1: a backslash makes a blank part of a name.
    let in_make = folder.replace(' ', "\\ ").replace('$', "$$").replace('#', "\\#");
    let filled = |text: &str| {
        text.replace("{word}", &shell_quoted(&folder)).replace("{make}", &in_make).replace("{dir}", &folder)
    };
    let usage: Vec<Snippet> =
        integration.usage.iter().map(|(place, text)| Snippet { name: place, text: filled(text) }).collect();
    commit_reported(written, |()| match output.json {
        true => output.document(json::EmittedFolder {
            path: folder.clone(),
            form: name,
            files: integration.files.iter().map(|file| file.name).collect(),
            snippets: &usage,
        }),
        false => output.text(&summary(&folder, integration, &usage, output)),
    })?;
    Ok(())
}

fn summary(folder: &str, integration: &Integration, usage: &[Snippet], output: &Output) -> Page {
    let mut text = output.page();
    let names: Vec<&str> = integration.files.iter().map(|file| file.name).collect();
    let word = output.paint(Style::Good, "emitted");
    // Writing to a page does not fail.
    let _ = writeln!(text, "{word}  {}  {}", shell_quoted(folder), names.join(" "));
    super::print(&mut text, usage, output);
    text
}
