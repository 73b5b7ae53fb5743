//! Figures in the sentences of README.md and the FAQ. A comment before the figure names its source: `<!--
//! =suite.snmalloc.time -->0.23`. `cargo xtask bench tables` writes the figures, and a test compares them.
//!
//! | name | figure |
//! | --- | --- |
//! | `SET.cases` | the number of cases of `docs/figures/SET.json` |
//! | `SET.ARM.time`, `SET.ARM.memory` | the arm's ratio to stock: the geometric mean of the cases |
//! | `SET.ARM.memory.least`, `.most` | the least and the greatest ratio of the cases |
//! | `SET.ARM.memory.most-from-10-mb` | the greatest ratio of those cases in which stock takes 10 MB and more |
//! | `in PAGE`, `in PAGE: WORDS` | any figure in a table of that page, in a row with these words |

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail, ensure};
use measure::results::{CaseArm, Results};
use tools::workspace;

use crate::experiment;

/// The pages with such figures.
const PAGES: [&str; 2] = ["README.md", "docs/faq.md"];
/// The sets of kept figures.
const SETS: [&str; 3] = ["suite", "real", "rust"];
/// The beginning and the end of a comment that names a figure.
const OPEN: &str = "<!-- =";
const CLOSE: &str = " -->";
/// The least peak memory of stock, in bytes, with which a case counts for `most-from-10-mb`.
const LARGE: u64 = 10_000_000;

/// Writes the figures into the pages.
///
/// # Errors
/// A comment names no figure, or a page cannot be read or written.
pub(crate) fn write() -> Result<()> {
    let sets = sets()?;
    for page in PAGES {
        let path = workspace::root().join(page);
        let before = fs::read_to_string(&path).with_context(|| format!("cannot read `{page}`"))?;
        let after = restated(&before, &sets).with_context(|| format!("`{page}`"))?;
        fs::write(&path, &after).with_context(|| format!("cannot write `{page}`"))?;
        println!("{page}: {}", if after == before { "unchanged" } else { "written" });
    }
    Ok(())
}

fn sets() -> Result<BTreeMap<&'static str, Results>> {
    SETS.into_iter().map(|set| Ok((set, experiment::present(set)?))).collect()
}

/// Returns the text with every named figure updated.
fn restated(text: &str, sets: &BTreeMap<&str, Results>) -> Result<String> {
    let mut parts = text.split(OPEN);
    let mut new = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once(CLOSE).with_context(|| format!("`{OPEN}` without `{CLOSE}`"))?;
        let (stated, behind) = rest.split_at(figure_length(rest));
        let figure = match name.strip_prefix("in ") {
            Some(place) => {
                let (page, words) = place.split_once(": ").unwrap_or((place, ""));
                ensure!(table_has(page, words, stated)?, "no such row of a table of `{page}` has the figure {stated}");
                stated.to_owned()
            }
            None => figure(name, sets)?,
        };
        new.push_str(&format!("{OPEN}{name}{CLOSE}{figure}{behind}"));
    }
    Ok(new)
}

/// Returns the length of the figure at the beginning of a text: digits, with a point only between digits.
fn figure_length(text: &str) -> usize {
    let end = text.find(|it: char| !it.is_ascii_digit() && it != '.').unwrap_or(text.len());
    text[..end].trim_end_matches('.').len()
}

/// Whether a row of a table on `page` has the figure, and these words.
fn table_has(page: &str, words: &str, figure: &str) -> Result<bool> {
    let text = fs::read_to_string(workspace::root().join(page)).with_context(|| format!("cannot read `{page}`"))?;
    let has = |row: &str, wanted: &str| {
        row.split_whitespace().any(|word| word.trim_matches(|it: char| !it.is_alphanumeric()) == wanted)
    };
    let mut rows = text.lines().filter(|line| line.starts_with('|'));
    Ok(rows.any(|row| has(row, figure) && words.split_whitespace().all(|word| has(row, word))))
}

/// Returns a figure by its name.
fn figure(name: &str, sets: &BTreeMap<&str, Results>) -> Result<String> {
    let mut words = name.split('.');
    let mut next = || words.next().with_context(|| format!("`{name}` names no figure"));
    let set = next()?;
    let results = sets.get(set).with_context(|| format!("`{name}`: there are no figures `{set}`"))?;
    let arm = next()?;
    if arm == "cases" {
        return Ok(results.cases.len().to_string());
    }
    let found = results.arms.iter().find(|it| it.origin.name == arm);
    let found = found.with_context(|| format!("`{name}`: `{set}` has no arm `{arm}`"))?;
    let figure = match (next()?, words.next()) {
        ("time", None) => found.ratio_to_stock.map(|ratio| ratio.value),
        ("memory", None) => found.memory_ratio_to_stock,
        ("memory", Some("least")) => memory(results, arm, 0)?.into_iter().reduce(f64::min),
        ("memory", Some("most")) => memory(results, arm, 0)?.into_iter().reduce(f64::max),
        ("memory", Some("most-from-10-mb")) => memory(results, arm, LARGE)?.into_iter().reduce(f64::max),
        _ => bail!("`{name}` names no figure"),
    };
    let figure = figure.with_context(|| format!("`{name}` was not measured"))?;
    Ok(if name.matches('.').count() == 2 { format!("{figure:.2}") } else { format!("{figure:.1}") })
}

/// Returns the ratio of an arm's peak memory to stock's in each case in which stock takes `least` bytes or more.
fn memory(results: &Results, arm: &str, least: u64) -> Result<Vec<f64>> {
    let mut ratios = Vec::new();
    for case in &results.cases {
        let peak = |name: &str| {
            let found: Option<&CaseArm> = case.arms.iter().find(|it| it.name == name);
            found.and_then(|arm| arm.peak_memory_bytes)
        };
        let both = peak("stock").zip(peak(arm));
        let (stock, peak) = both.with_context(|| format!("`{}` lacks the memory of `{arm}`", case.name))?;
        if stock >= least {
            ratios.push(peak as f64 / stock as f64);
        }
    }
    Ok(ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Words before a number with a point that is a version.
    const VERSIONED: [&str; 5] = ["Rust", "zig", "musl", "SDK", "Docker"];

    fn text(page: &str) -> String {
        fs::read_to_string(workspace::root().join(page)).unwrap()
    }

    #[test]
    fn the_figures_in_sentences_are_the_kept_ones() {
        let sets = sets().unwrap();
        for page in PAGES {
            let text = text(page);
            let new = restated(&text, &sets).unwrap_or_else(|error| panic!("{page}: {error:#}"));
            // A comment at a line's beginning would end the paragraph.
            assert!(!text.lines().any(|line| line.trim_start().starts_with(OPEN)), "{page}: a comment begins a line");
            assert!(new == text, "`{page}` states other figures than the kept ones: `cargo xtask bench tables`");
        }
    }

    /// Returns the numbers with a point, such as ratios, that no comment names and that are not versions.
    fn unnamed(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        // Commands in comments are for the tests.
        let shown = |(at, part): (usize, &'_ str)| match at {
            0 => part.to_owned(),
            _ => part.split_once("\n-->").map_or("", |(_, rest)| rest).to_owned(),
        };
        let text: String = text.split("\n<!-- run\n").enumerate().map(shown).collect();
        let prose = text.split("\n```").step_by(2).flat_map(str::lines).filter(|line| !line.contains("alt="));
        let prose: Vec<&str> = prose.collect();
        let prose = prose.join(" ").split('`').step_by(2).collect::<Vec<_>>().join("code");
        let mut before = "";
        for word in prose.split_whitespace() {
            let stated = word.trim_start_matches(|it: char| !it.is_ascii_digit());
            let figure = &stated[..figure_length(stated)];
            let is_ratio = figure.matches('.').count() == 1 && !word.contains("://") && !word.contains("](");
            if is_ratio && !word.starts_with("-->") && !VERSIONED.contains(&before.trim_start_matches('(')) {
                found.push(format!("{before} {word}"));
            }
            before = word;
        }
        found
    }

    #[test]
    fn every_figure_in_a_sentence_says_where_it_is_from() {
        for page in PAGES {
            assert!(unnamed(&text(page)).is_empty(), "{page}: {:?}", unnamed(&text(page)));
        }
        assert_eq!(unnamed("takes 0.24 of (0.5), zig 0.16, <!-- =a -->0.1, `1.2`"), ["takes 0.24", "of (0.5),"]);
    }

    #[test]
    fn wrong_names_of_figures_are_refused() {
        let sets = sets().unwrap();
        for name in ["suite", "tests.snmalloc.time", "suite.nothing.time", "suite.snmalloc.speed", "in docs/none.md"] {
            restated(&format!("{OPEN}{name}{CLOSE}0.5"), &sets).unwrap_err();
        }
        restated(&format!("{OPEN}in docs/profiles.md{CLOSE}77.77"), &sets).unwrap_err();
        let restated = restated(&format!("a {OPEN}suite.cases{CLOSE}22. b"), &sets).unwrap();
        assert_eq!(restated, format!("a {OPEN}suite.cases{CLOSE}{}. b", sets["suite"].cases.len()));
    }
}
