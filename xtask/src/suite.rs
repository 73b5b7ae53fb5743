//! `cargo xtask bench suite` and `tables`: the suite by `allograft bench` on the musl of this checkout, and its tables in the docs.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::linking::Musl;
use crate::{command, setup, workspace};

/// Where figures that the docs show are kept.
const KEPT: &str = "docs/figures/suite.json";
/// Documents that have a table of them, between the marks.
const DOCUMENTS: [&str; 2] = ["README.md", "docs/bench.md"];
const BEGIN: &str = "<!-- suite: made by `cargo xtask bench tables` -->\n";
const END: &str = "<!-- /suite -->\n";

/// Hands everything that follows to `allograft bench`, optimised, with the host filled in.
///
/// # Errors
/// When it does not build, or says that something is wrong.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    setup::prepare(setup::Extent::Demo)?;
    let allograft = command::build_allograft()?;
    let home = workspace::build().join("bench");
    fs::create_dir_all(&home)?;
    let _lock = setup::lock(&home.join(".suite-lock"))?;
    let musl = Musl::find()?;
    let Some(include) = musl.include() else {
        bail!("the suite takes musl's headers, and {} has none here", musl.name)
    };
    let mut bench = Command::new(allograft);
    bench.arg("bench").arg("--host").arg(musl.libdir()).arg("--include").arg(include).args(arguments);
    if !arguments.iter().any(|argument| argument == "--save") {
        bench.arg("--save").arg(home.join("suite.json"));
    }
    command::run(&mut bench)
}

/// Puts the table of the kept figures into the docs.
///
/// # Errors
/// When there are no figures, or a document cannot be written.
pub(crate) fn tables() -> Result<()> {
    let kept = workspace::root().join(KEPT);
    if !kept.is_file() {
        bail!("there is no `{KEPT}`: `cargo xtask bench suite --save {KEPT}` on a quiet machine makes it");
    }
    let allograft = command::build_allograft()?;
    let made = workspace::build().join("bench").join("suite.md");
    fs::create_dir_all(made.parent().context("a path without a folder")?)?;
    command::run(Command::new(allograft).args(["-q", "bench", "--from"]).arg(&kept).arg("--markdown").arg(&made))?;
    let text = fs::read_to_string(&made).with_context(|| format!("cannot read `{}`", made.display()))?;
    let table = overview(&text).with_context(|| format!("`{}` has no table of several cases", made.display()))?;
    for document in DOCUMENTS {
        let path = workspace::root().join(document);
        let before = fs::read_to_string(&path).with_context(|| format!("cannot read `{document}`"))?;
        match inserted(&before, &table) {
            Some(after) if after != before => {
                fs::write(&path, after).with_context(|| format!("cannot write `{document}`"))?;
                println!("{document}: new table");
            }
            Some(_) => println!("{document}: unchanged"),
            None => println!("{document}: no table wanted (no line `{}`)", BEGIN.trim()),
        }
    }
    Ok(())
}

/// The first table, and the line on how it was measured.
fn overview(markdown: &str) -> Option<String> {
    let rows: Vec<&str> = markdown.lines().skip_while(|line| !line.starts_with("| time")).collect();
    let rows: Vec<&str> = rows.into_iter().take_while(|line| line.starts_with('|')).collect();
    let how = markdown.lines().rfind(|line| !line.is_empty())?;
    (!rows.is_empty()).then(|| format!("{}\n\n{how}\n", rows.join("\n")))
}

/// The document with the table between the marks; nothing if it has none.
fn inserted(document: &str, table: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_goes_between_the_marks() {
        let markdown = "**stock**: because\n\n| time, memory to stock | a |\n| --- | --- |\n| stock | 1 |\n\na, 10 rounds:\n\n| | x |\n\nhow\n";
        let table = overview(markdown).unwrap();
        assert_eq!(table, "| time, memory to stock | a |\n| --- | --- |\n| stock | 1 |\n\nhow\n");
        let document = format!("head\n{BEGIN}old\n{END}tail\n");
        let new = inserted(&document, &table).unwrap();
        assert_eq!(new, format!("head\n{BEGIN}{table}{END}tail\n"));
        assert_eq!(inserted(&new, &table).unwrap(), new);
        assert_eq!(inserted("no marks", &table), None);
        assert_eq!(overview("no table\n"), None);
    }
}
