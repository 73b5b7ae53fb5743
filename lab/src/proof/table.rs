//! The table of the proof, made from the saved results.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::builds::{self, Mode, Set};
use super::{Outcome, Results};
use xtask::page::Table;

const TABLE: Table = Table {
    page: "docs/executables-proof.md",
    begin: "<!-- made by `cargo xtask proof --write` -->",
    end: "<!-- end of what was made -->",
};

/// Prints the tables. With `write`, puts them into the docs, with the names of missing builds, if one allograft made
/// all results.
///
/// # Errors
/// There are no results, or several allografts made them.
pub(super) fn show(folder: &Path, write: bool) -> Result<()> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let results: Results =
            serde_json::from_slice(&fs::read(&path)?).with_context(|| format!("`{}` is no result", path.display()))?;
        all.push(results);
    }
    let text = tables(&all);
    print!("{text}");
    if !write {
        return Ok(());
    }
    if all.iter().any(|results| results.allograft != all[0].allograft) {
        bail!("the results are of several allografts\nhelp: `cargo xtask proof` runs what is not of this one");
    }
    TABLE.write(&(text + &missing(&all)?))
}

/// Returns a paragraph on the builds for which not every program has been run.
fn missing(all: &[Results]) -> Result<String> {
    let programs = builds::programs()?;
    let mut titles = Vec::new();
    for build in builds::all() {
        let is_whole = |mode: Mode| {
            let of = |results: &&Results| {
                (results.name.as_str(), results.mode.as_str()) == (build.name.as_str(), mode.name())
                    && results.flags == build.flags.join(" ")
            };
            let kept: Vec<&Results> = all.iter().filter(of).collect();
            kept.len() == 2 && kept.iter().all(|results| results.programs.len() == programs.len())
        };
        if !Mode::ALL.into_iter().all(is_whole) {
            titles.push(format!("{} `{}`", build.name, build.flags.join(" ")));
        }
    }
    Ok(match titles.as_slice() {
        [] => String::new(),
        titles => format!("Not run, or not to the end: {}.\n", titles.join(", ")),
    })
}

/// Returns one table for each set. An entry has the number of programs that passed; then of those refused, with the
/// numbers of the reasons below; then of those that failed, in bold.
fn tables(all: &[Results]) -> String {
    let mut text = String::new();
    for (set, title) in [(Set::Proof, "Proof: held out"), (Set::Tuning, "Tuning: at hand when the rules were made")] {
        let of_set: Vec<&Results> = all.iter().filter(|results| results.set == set).collect();
        if of_set.is_empty() {
            continue;
        }
        let count = |wanted: fn(&Outcome) -> bool| {
            of_set.iter().flat_map(|results| results.programs.values()).filter(|outcome| wanted(outcome)).count()
        };
        let _ = writeln!(
            text,
            "### {title}\n\n{} grafted and passed, {} refused, **{} failed**; {} could not be judged, as \
             stock does not link or fails.\n",
            count(|outcome| *outcome == Outcome::Passed),
            count(|outcome| matches!(outcome, Outcome::Refused(_))),
            count(|outcome| matches!(outcome, Outcome::Failed(_))),
            count(|outcome| matches!(outcome, Outcome::Stock(_))),
        );
        text += "| compiler and musl | flags | static | static, stripped | static-pie | static-pie, stripped |\n\
                 | --- | --- | --- | --- | --- | --- |\n";
        let mut rows: Vec<(&str, &str)> =
            of_set.iter().map(|results| (results.name.as_str(), results.flags.as_str())).collect();
        rows.sort_unstable();
        rows.dedup();
        let mut remarks = Vec::new();
        for (name, flags) in rows {
            let _ = write!(text, "| {name} | `{flags}` |");
            for (mode, stripped) in [("static", false), ("static", true), ("static-pie", false), ("static-pie", true)] {
                let of = |results: &&&Results| {
                    (results.name.as_str(), results.flags.as_str(), results.mode.as_str(), results.stripped)
                        == (name, flags, mode, stripped)
                };
                let _ =
                    write!(text, " {} |", of_set.iter().find(of).map_or(String::new(), |it| entry(it, &mut remarks)));
            }
            text.push('\n');
        }
        text.push('\n');
        for (number, remark) in (1..).zip(&remarks) {
            let _ = writeln!(text, "{number}. {remark}");
        }
        text.push('\n');
    }
    text
}

fn entry(results: &Results, remarks: &mut Vec<String>) -> String {
    let (mut passed, mut refused, mut failed, mut stock) = (0, 0, 0, 0);
    let mut numbers = Vec::new();
    let mut remark = |text: String| {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text: String = text.chars().take(400).collect();
        let at = remarks.iter().position(|known| *known == text).unwrap_or_else(|| {
            remarks.push(text);
            remarks.len() - 1
        });
        numbers.push(at + 1);
    };
    for (program, outcome) in &results.programs {
        match outcome {
            Outcome::Passed => passed += 1,
            Outcome::Refused(reason) => {
                refused += 1;
                remark(format!("refused: {reason}"));
            }
            Outcome::Failed(failure) => {
                failed += 1;
                remark(format!("**failed**, `{program}`: {failure}"));
            }
            Outcome::Stock(said) => {
                stock += 1;
                // The linker's message contains paths of the machine.
                let said = said.split_once(": `").map_or(said.as_str(), |(what, _)| what);
                remark(format!("stock, `{program}`: {said}"));
            }
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    let mut text = passed.to_string();
    for (count, what) in [(refused, "refused"), (stock, "not judged")] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    if failed > 0 {
        let _ = write!(text, ", **{failed} failed**");
    }
    let numbers: Vec<String> = numbers.iter().map(|number| format!("({number})")).collect();
    format!("{text} {}", numbers.join(" ")).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_kept_apart_and_every_outcome_is_counted() {
        let results = |set, name: &str, stripped, outcomes: Vec<Outcome>| Results {
            schema_version: 1,
            set,
            name: name.into(),
            flags: "-O2".into(),
            mode: "static".into(),
            stripped,
            allograft: "a".into(),
            grafts: std::collections::BTreeMap::new(),
            programs: ["one", "other", "third"].map(String::from).into_iter().zip(outcomes).collect(),
        };
        let refused = || Outcome::Refused("no symbols".into());
        let text = tables(&[
            results(Set::Tuning, "ours", false, vec![Outcome::Passed]),
            results(Set::Proof, "other", false, vec![Outcome::Passed, refused(), Outcome::Failed("it hung".into())]),
            results(Set::Proof, "other", true, vec![refused(), refused(), Outcome::Passed]),
        ]);
        assert!(text.contains("2 grafted and passed, 3 refused, **1 failed**; 0 could"), "{text}");
        assert!(
            text.contains("| other | `-O2` | 1, 1 refused, **1 failed** (1) (2) | 1, 2 refused (1) |  |  |"),
            "{text}"
        );
        assert!(text.contains("1. refused: no symbols\n2. **failed**, `third`: it hung\n"), "{text}");
        assert!(text.contains("| ours | `-O2` | 1 |"), "{text}");
        assert!(text.find("other").unwrap() < text.find("ours").unwrap());
    }
}
