//! The matrix of environments, donors and kinds of host, from the cells that the tests of the room `compatibility`
//! saved; and the answers of calls with arguments at the edge (`edges`).

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, bail};

use crate::edges;

/// The tests that save the cells.
const HELP: &str = "help: `cargo xtask test-slow casebook compatibility` makes them";

/// `cargo xtask compatibility`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [] => {}
        [only] if only == "--write" => return edges::write(),
        _ => bail!("`compatibility` takes --write only"),
    }
    let folder = fixtures::compatibility_results();
    let entries = fs::read_dir(&folder).with_context(|| format!("there are no results\n{HELP}"))?;
    let mut texts = Vec::new();
    for entry in entries {
        texts.push(fs::read_to_string(entry?.path())?);
    }
    print!("{}\n{}", table(&texts).context("a file of results is damaged")?, edges::current()?);
    Ok(())
}

/// Returns the table: a line for each row and kind of host, with the donors of each outcome.
fn table(texts: &[String]) -> Option<String> {
    let mut rows: Vec<&str> = Vec::new();
    let mut cells: BTreeMap<(&str, &str), BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for line in texts.iter().flat_map(|text| text.lines()) {
        let [form, donor, row, cell] = line.split('\t').collect::<Vec<_>>().try_into().ok()?;
        if !rows.contains(&row) {
            rows.push(row);
        }
        cells.entry((row, form)).or_default().entry(cell).or_default().push(donor);
    }
    let mut text = String::new();
    for row in rows {
        text.push_str(&format!("{row}\n"));
        for ((_, form), cells) in cells.iter().filter(|((of, _), _)| *of == row) {
            let cells: Vec<String> =
                cells.iter().map(|(cell, donors)| format!("{cell}: {}", donors.join(" "))).collect();
            text.push_str(&format!("    {form:<10} {}\n", cells.join("; ")));
        }
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn donors_are_grouped_by_outcome() {
        let texts =
            ["archive\ta\tplain\tsame\n".to_owned(), "archive\tb\tplain\tdiffers\nmerged\tb\tplain\tsame\n".into()];
        let wanted = "plain\n    archive    differs: b; same: a\n    merged     same: b\n";
        assert_eq!(table(&texts).as_deref(), Some(wanted));
        assert_eq!(table(&["three\tfields\tonly".to_owned()]), None);
    }
}
