//! Test: ways to begin a comment, or to build its sentences, that readers stumble over do not come back.
//!
//! Each pattern is counted in the paragraphs of all comments, since a line may break anywhere in a sentence.

use std::fs;

use crate::workspace::{root, shown, sources};

/// A pattern of comments: the better form, and how many paragraphs still have it.
struct Pattern {
    instead: &'static str,
    is_it: fn(&str) -> bool,
    most: usize,
}

/// Counts may become smaller, never larger.
const PATTERNS: [Pattern; 10] = [
    Pattern { instead: "\"For programs: ...\", not \"Of a program: ...\"", is_it: begins_with_a_genitive, most: 0 },
    Pattern { instead: "the noun, not a clause that begins with \"What\"", is_it: is_a_clause, most: 0 },
    Pattern { instead: "the caller, the user, another process, or the passive", is_it: names_nobody, most: 0 },
    Pattern { instead: "is reported, is named in messages, is available", is_it: tells, most: 0 },
    Pattern { instead: "the verb again, not \"The same\": rustdoc shows each item alone", is_it: same, most: 0 },
    Pattern { instead: "points to, resolves to, is in, precedes, means", is_it: leads_or_lies, most: 0 },
    Pattern { instead: "\"the program's own ...\", not \"of the program's\"", is_it: has_a_double_genitive, most: 0 },
    Pattern { instead: "\"is not a ...\", or \"`None` if it has no ...\"", is_it: is_none, most: 0 },
    Pattern { instead: "\"differently\", \"a different one\", \"other than\"", is_it: another_way, most: 0 },
    Pattern { instead: "\"unchanged\", \"in X's spelling\", \"as written\"", is_it: as_it_is, most: 0 },
];

fn begins_with_a_genitive(text: &str) -> bool {
    let rest = ["Of a ", "Of an ", "Of the "].iter().find_map(|start| text.strip_prefix(start));
    rest.is_some_and(|rest| rest.split(' ').take(4).any(|word| word.ends_with(':')))
}

fn is_a_clause(text: &str) -> bool {
    text.starts_with("What ") && text.ends_with('.') && text.matches(". ").count() == 0
}

fn names_nobody(text: &str) -> bool {
    let is_name = text.contains("user nobody");
    !is_name && words(text).iter().any(|word| ["nobody", "whoever", "somebody"].contains(&word.as_str()))
}

fn tells(text: &str) -> bool {
    ["is told", "are told", "spoken of as", "to be had"].iter().any(|way| text.contains(way))
}

fn same(text: &str) -> bool {
    text.starts_with("The same ") || text == "The same."
}

fn leads_or_lies(text: &str) -> bool {
    const PLACES: [&str; 14] = [
        "in", "inside", "outside", "at", "on", "before", "behind", "between", "within", "beyond", "after", "where",
        "there", "below",
    ];
    words(text).windows(2).any(|pair| match pair[0].as_str() {
        "lead" | "leads" | "led" | "leading" => pair[1] == "to" || pair[1] == "into",
        "lie" | "lies" | "lay" | "lying" => PLACES.contains(&pair[1].as_str()),
        "stand" | "stands" | "stood" => pair[1] == "for" || PLACES.contains(&pair[1].as_str()),
        _ => false,
    })
}

/// "of the program's" with no noun behind: the sentence ends there, or goes on with a word that is not a noun.
fn has_a_double_genitive(text: &str) -> bool {
    const NOT_NOUNS: [&str; 30] = [
        "and", "are", "as", "at", "but", "by", "can", "for", "from", "had", "has", "have", "if", "in", "is", "it",
        "may", "of", "on", "or", "so", "than", "that", "to", "was", "were", "when", "where", "which", "with",
    ];
    let parts: Vec<&str> = text.split_whitespace().collect();
    let ends = |at: usize| {
        let word = parts[at].trim_end_matches([')', '"']);
        let bare = word.trim_end_matches([',', '.', ';', ':']);
        bare.ends_with("'s") && (bare != word || parts.get(at + 1).is_none_or(|next| NOT_NOUNS.contains(next)))
    };
    (0..parts.len()).any(|of| parts[of] == "of" && (of + 1..(of + 4).min(parts.len())).any(ends))
}

/// "None" is a value of Rust: only the word in lower case counts.
fn is_none(text: &str) -> bool {
    let words: Vec<&str> = parts(text).collect();
    (0..words.len()).any(|at| {
        let is = ["is", "are", "was", "were", "be", "as"].contains(&words[at]);
        let impersonal = at > 0 && ["there", "There", "where"].contains(&words[at - 1]);
        match words.get(at + 1).copied() {
            Some("none") => is,
            Some("no") => is && !impersonal && words.get(at + 2).is_none_or(|next| *next != "longer"),
            _ => false,
        }
    })
}

fn another_way(text: &str) -> bool {
    ["nother one", "nother way", "nother's", "other way", "nother than", "nother.", "nother,"]
        .iter()
        .any(|way| text.contains(way))
}

fn as_it_is(text: &str) -> bool {
    words(text).windows(3).any(|three| {
        let verbs = ["is", "are", "was", "were", "stands", "stand"];
        three[0] == "as"
            && (["it", "they", "there"].contains(&three[1].as_str()) && verbs.contains(&three[2].as_str())
                || three[2] == "has" && three[1] != "it")
    })
}

/// The words in lower case, without punctuation.
fn words(text: &str) -> Vec<String> {
    parts(text).map(str::to_lowercase).collect()
}

fn parts(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '\'' || letter == '_';
    text.split(move |letter| !is_part(letter)).filter(|word| !word.is_empty())
}

/// The paragraphs of a file's comments, with the numbers of their first lines. A row of a table is one of its own.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim());
        let Some(comment) = comment.filter(|comment| !comment.is_empty()) else {
            open = false;
            continue;
        };
        let begins = ["|", "- ", "#", "```"].iter().any(|start| comment.starts_with(start));
        match found.last_mut() {
            Some((_, paragraph)) if open && !begins => {
                paragraph.push(' ');
                paragraph.push_str(comment);
            }
            _ => found.push((index + 1, comment.to_owned())),
        }
        open = true;
    }
    found
}

#[test]
fn patterns_do_not_come_back() {
    let mut files = Vec::new();
    sources(&root(), &mut files);
    let mut found: Vec<Vec<String>> = PATTERNS.iter().map(|_| Vec::new()).collect();
    for path in files.into_iter().filter(|path| shown(path) != file!()) {
        for (line, paragraph) in paragraphs(&fs::read_to_string(&path).unwrap()) {
            for (pattern, found) in PATTERNS.iter().zip(&mut found) {
                if (pattern.is_it)(&paragraph) {
                    found.push(format!("{}:{line}: {paragraph}", shown(&path)));
                }
            }
        }
    }
    let mut complaints = Vec::new();
    for (Pattern { instead, most, .. }, found) in PATTERNS.iter().zip(found) {
        match found.len() {
            count if count > *most => {
                complaints.push(format!("write {instead}: {count} comments, at most {most}:\n{}", found.join("\n")));
            }
            count if count < *most => {
                complaints.push(format!("{count} are left of {most}: enter the smaller number, and write {instead}"));
            }
            _ => {}
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n\n"));
}
