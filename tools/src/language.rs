//! Test: ways to begin a comment, or to speak of people in it, that readers stumble over do not come back.

use std::fs;

use crate::workspace::{root, shown, sources};

/// A pattern of comments: what to write in its place, and how many there are still.
struct Pattern {
    instead: &'static str,
    is_it: fn(&str) -> bool,
    most: usize,
}

/// May become fewer, never more.
const PATTERNS: [Pattern; 5] = [
    Pattern { instead: "\"For programs: ...\", not \"Of a program: ...\"", is_it: begins_with_a_genitive, most: 0 },
    Pattern { instead: "the noun, not a clause that begins with \"What\"", is_it: is_a_clause, most: MOST_CLAUSES },
    Pattern { instead: "the caller, the user, another process, or the passive", is_it: names_nobody, most: 1 },
    Pattern { instead: "is reported, is named in messages, is available", is_it: tells, most: 0 },
    Pattern {
        instead: "the verb again, not \"The same\": rustdoc shows each item alone",
        is_it: same,
        most: MOST_SAME,
    },
];

const MOST_CLAUSES: usize = 294;
const MOST_SAME: usize = 0;

fn begins_with_a_genitive(text: &str) -> bool {
    let rest = ["Of a ", "Of an ", "Of the "].iter().find_map(|start| text.strip_prefix(start));
    rest.is_some_and(|rest| rest.split(' ').take(4).any(|word| word.ends_with(':')))
}

fn is_a_clause(text: &str) -> bool {
    text.starts_with("What ") && text.ends_with('.') && text.matches('.').count() == 1
}

fn names_nobody(text: &str) -> bool {
    let mut words = text.split(|letter: char| !letter.is_alphanumeric());
    let is_name = text.contains("user nobody") || text.contains("What nobody does");
    !is_name && words.any(|word| ["nobody", "whoever", "somebody"].contains(&word.to_lowercase().as_str()))
}

fn tells(text: &str) -> bool {
    ["is told", "are told", "spoken of as", "to be had"].iter().any(|way| text.contains(way))
}

fn same(text: &str) -> bool {
    text.starts_with("The same ") || text == "The same."
}

#[test]
fn patterns_do_not_come_back() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let mut found: Vec<Vec<String>> = PATTERNS.iter().map(|_| Vec::new()).collect();
    for path in files.into_iter().filter(|path| shown(path) != file!()) {
        for (index, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let Some(text) = line.trim_start().strip_prefix("//") else { continue };
            let text = text.trim_start_matches(['/', '!']).trim();
            for (pattern, found) in PATTERNS.iter().zip(&mut found) {
                if (pattern.is_it)(text) {
                    found.push(format!("{}:{}: {text}", shown(&path), index + 1));
                }
            }
        }
    }
    for (Pattern { instead, most, .. }, found) in PATTERNS.iter().zip(found) {
        let count = found.len();
        assert!(count <= *most, "write {instead}: {count} comments, at most {most}:\n{}", found.join("\n"));
        assert!(count == *most, "{count} are left of {most}: enter the smaller number, and write {instead}");
    }
}
