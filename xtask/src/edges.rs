//! The answers of malloc's family to arguments at the edge, with musl, glibc and each donor: `edges.tsv` keeps the
//! answers from the room `compatibility` of the casebook, and `docs/compatibility.md` has the table.
//!
//! A line is a kind of host (`archive` is musl's, `merged` glibc's), `stock` or a donor, the call, and its answer.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};
use tools::workspace;

use xtask::page::Table;

/// The file of the kept answers, from the workspace's root.
const KEPT: &str = "tests/compatibility/edges.tsv";

const PAGE: Table = Table {
    page: "docs/compatibility.md",
    begin: "<!-- edges: made by `cargo xtask compatibility --write` -->",
    end: "<!-- end of the edges -->",
};

const STOCK: &str = "stock";

/// The kinds of host, with the titles of the columns for stock and for grafts.
const FORMS: [(&str, &str, &str); 2] =
    [("archive", "musl", "donors, for musl"), ("merged", "glibc", "donors, for glibc")];

/// Answers of one kind of host and one allocator, in the order of the calls.
type Arms = BTreeMap<(String, String), Vec<(String, String)>>;

fn arms(text: &str) -> Result<Arms> {
    let mut arms = Arms::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let [form, arm, call, answer] = fields.try_into().ok().with_context(|| format!("not four fields: `{line}`"))?;
        arms.entry((form.to_owned(), arm.to_owned())).or_default().push((call.to_owned(), answer.to_owned()));
    }
    Ok(arms)
}

fn kept() -> Result<Arms> {
    arms(&fs::read_to_string(workspace::root().join(KEPT)).with_context(|| format!("cannot read `{KEPT}`"))?)
}

/// Returns the table of the kept answers.
///
/// # Errors
/// When they cannot be read.
pub(crate) fn current() -> Result<String> {
    Ok(table(&kept()?))
}

/// Replaces kept answers by those of the last tests, allocator by allocator, and writes the table into the page.
///
/// # Errors
/// When a file cannot be read or written.
pub(crate) fn write() -> Result<()> {
    let mut all = kept()?;
    let folder = fixtures::edge_results();
    let entries = fs::read_dir(&folder)
        .context("nothing was asked\nhelp: `cargo xtask test-slow casebook compatibility/edges` asks")?;
    for entry in entries {
        all.extend(arms(&fs::read_to_string(entry?.path())?)?);
    }
    let lines = all.iter().flat_map(|((form, arm), answers)| {
        answers.iter().map(move |(call, answer)| format!("{form}\t{arm}\t{call}\t{answer}\n"))
    });
    fs::write(workspace::root().join(KEPT), lines.collect::<String>())
        .with_context(|| format!("cannot write `{KEPT}`"))?;
    PAGE.write(&table(&all))
}

/// Returns the calls in the order of the program that asks. Each allocator leaves out the calls that its host lacks.
fn calls(arms: &Arms) -> Vec<&str> {
    let mut calls: Vec<&str> = Vec::new();
    for answers in arms.values() {
        let mut at = 0;
        for (call, _) in answers {
            match calls.iter().position(|known| known == call) {
                Some(known) => at = known + 1,
                None => {
                    calls.insert(at, call);
                    at += 1;
                }
            }
        }
    }
    calls
}

fn table(arms: &Arms) -> String {
    let mut text = "| call |".to_owned();
    for (_, stock, grafts) in FORMS {
        let _ = write!(text, " {stock} | {grafts} |");
    }
    text.push_str("\n| --- | --- | --- | --- | --- |\n");
    for call in calls(arms) {
        let _ = write!(text, "| {call} |");
        for (form, ..) in FORMS {
            let answer = |arm: &str| {
                let answers = arms.get(&(form.to_owned(), arm.to_owned()))?;
                answers.iter().find(|(known, _)| known == call).map(|(_, answer)| answer.as_str())
            };
            let donors: Vec<&str> =
                arms.keys().filter(|(known, arm)| known == form && arm != STOCK).map(|(_, arm)| arm.as_str()).collect();
            let stock = answer(STOCK);
            let _ = write!(text, " {} | {} |", stock.unwrap_or_default(), cell(stock, &donors, &answer));
        }
        text.push('\n');
    }
    text
}

/// Returns the donors' cell: the common answer, or each answer with its donors.
fn cell<'a>(stock: Option<&str>, donors: &[&'a str], answer: &dyn Fn(&str) -> Option<&'a str>) -> String {
    let shown = |found: Option<&str>| match found {
        found if found == stock => "same".to_owned(),
        found => found.unwrap_or("no such function").to_owned(),
    };
    let mut answers: Vec<Option<&str>> = donors.iter().map(|donor| answer(donor)).collect();
    answers.sort_unstable();
    answers.dedup();
    match answers[..] {
        [None] => return String::new(),
        [only] => return shown(only),
        _ => {}
    }
    let parts = answers.into_iter().map(|found| {
        let those: Vec<&str> = donors.iter().copied().filter(|donor| answer(donor) == found).collect();
        format!("{}: {}", shown(found), those.join(", "))
    });
    parts.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_table_of_what_is_kept() {
        PAGE.check(&current().expect("answers")).expect("`cargo xtask compatibility --write` makes it");
    }

    #[test]
    fn every_donor_is_asked() {
        let kept = kept().expect("answers");
        for (form, ..) in FORMS {
            assert!(kept.contains_key(&(form.to_owned(), STOCK.to_owned())), "{form}");
        }
        let folders = fs::read_dir(workspace::root().join("crates/donors")).expect("donors").flatten();
        let recipes = folders.filter(|folder| folder.path().join("recipe.toml").is_file());
        for donor in recipes.map(|folder| folder.file_name().to_string_lossy().into_owned()) {
            let asked = kept.keys().any(|(_, arm)| *arm == donor);
            assert!(asked || donor == "strings", "{donor}");
        }
    }

    #[test]
    fn donors_are_grouped_by_answer() {
        let arms = arms(
            "archive\tstock\tf\t1\narchive\ta\tf\t1\narchive\tb\tf\t2\nmerged\tstock\tf\t3\nmerged\tstock\tg\t4\n\
             merged\ta\tf\t3\nmerged\ta\tg\t5\n",
        )
        .expect("four fields");
        let wanted = "| f | 1 | same: a; 2: b | 3 | same |\n| g |  |  | 4 | 5 |\n";
        assert_eq!(table(&arms).split_once("--- |\n").map(|(_, rows)| rows), Some(wanted));
        assert!(super::arms("two\tfields").is_err());
    }
}
