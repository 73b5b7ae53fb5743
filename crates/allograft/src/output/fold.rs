//! Breaks lines that are wider than the terminal, between words.

use std::io;
use std::os::fd::AsFd;

use terminal_size::terminal_size_of;

/// The least width that lines are broken for.
const NARROWEST: usize = 20;

/// Returns the number of columns of the terminal behind a stream; `None` if the stream is not a terminal.
pub(super) fn width(stream: impl AsFd) -> Option<usize> {
    let (width, _) = terminal_size_of(stream)?;
    Some(usize::from(width.0)).filter(|width| *width >= NARROWEST)
}

/// Returns the width for tables: the terminal's or, elsewhere, what COLUMNS says.
pub(super) fn table_width() -> Option<usize> {
    let named = || std::env::var("COLUMNS").ok()?.parse().ok();
    width(io::stdout()).or_else(named).filter(|width| *width >= NARROWEST)
}

/// Returns the line in pieces of at most `width` columns. Later pieces are indented by as much as the line, and
/// `hanging` more. It is broken at blanks only, and not within backticks: what is between them is copied as a whole.
/// A word that is wider stays whole.
pub(super) fn folded(line: &str, width: usize, hanging: usize) -> String {
    let (words, indent) = (pieces(line), line.len() - line.trim_start_matches(' ').len());
    let indent = (indent + hanging).min(width / 2);
    let (mut text, mut column) = (String::new(), 0);
    for Piece { blanks, word } in words {
        let columns = columns(word);
        if column > 0 && column + blanks + columns > width {
            text.push('\n');
            text.push_str(&" ".repeat(indent));
            column = indent;
        } else {
            text.push_str(&" ".repeat(blanks));
            column += blanks;
        }
        text.push_str(word);
        column += columns;
    }
    text
}

/// A word, and the number of blanks before it.
struct Piece<'l> {
    blanks: usize,
    word: &'l str,
}

fn pieces(line: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let word = rest.trim_start_matches(' ');
        let blanks = rest.len() - word.len();
        let mut quoted = false;
        let end = word.char_indices().find(|(_, character)| {
            quoted ^= *character == '`';
            *character == ' ' && !quoted
        });
        // An odd backtick quotes nothing.
        let end = end.map(|(at, _)| at).or_else(|| word.find(' ').filter(|_| quoted)).unwrap_or(word.len());
        if end > 0 {
            pieces.push(Piece { blanks, word: &word[..end] });
        }
        rest = &word[end..];
    }
    pieces
}

/// The columns of a word, without the sequences that style it.
fn columns(word: &str) -> usize {
    let (mut count, mut in_sequence) = (0, false);
    for character in word.chars() {
        match character {
            '\x1b' => in_sequence = true,
            'm' if in_sequence => in_sequence = false,
            _ if in_sequence => {}
            _ => count += 1,
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(folded("one two three", 20, 2), "one two three");
        assert_eq!(folded("  one two three", 11, 2), "  one two\n    three");
        assert_eq!(folded("a `b c d e f g` h", 8, 0), "a\n`b c d e f g`\nh");
        assert_eq!(folded("it`s one two three", 9, 0), "it`s one\ntwo three");
        assert_eq!(folded("\x1b[1mone two\x1b[0m three", 7, 0), "\x1b[1mone two\x1b[0m\nthree");
        assert_eq!(folded("wider-than-that x", 5, 0), "wider-than-that\nx");
    }
}
