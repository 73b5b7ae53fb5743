//! Makes text from a file, a path or another program safe to print.

use std::fmt::Display;

/// Whether a terminal would act on this character rather than show it: control characters (C0, DEL, C1), line and
/// paragraph separators, and characters that change the direction of text (Unicode's property `Bidi_Control`).
pub(crate) fn acts(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns `text` on one line, so that a terminal shows it without acting on any of it. Characters that a terminal
/// would act on become escapes such as `\n`, `\t` or `\u{1b}`.
pub(crate) fn printable(text: impl Display) -> String {
    let text = text.to_string();
    if !text.contains(acts) {
        return text;
    }
    text.chars().fold(String::with_capacity(text.len() + 16), |mut shown, character| {
        match acts(character) {
            true => shown.extend(character.escape_default()),
            false => shown.push(character),
        }
        shown
    })
}

/// Returns the same JSON with such characters in the form `\u009b`. JSON allows them only in strings, where serde has
/// already escaped those below U+0020. Line ends between values stay.
pub(crate) fn json(document: &str) -> String {
    let mut shown = String::with_capacity(document.len());
    for character in document.chars() {
        match character {
            // Each of them has at most four hexadecimal digits.
            _ if character >= '\u{7f}' && acts(character) => shown.push_str(&format!("\\u{:04x}", character as u32)),
            _ => shown.push(character),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_act_on_is_escaped_and_nothing_else() {
        assert_eq!(printable("a\x1b[31mb\n\t\r\x07\x7f"), r"a\u{1b}[31mb\n\t\r\u{7}\u{7f}");
        assert_eq!(printable("\u{9b}31m \u{202e}x\u{2066}\u{2029}"), r"\u{9b}31m \u{202e}x\u{2066}\u{2029}");
        assert_eq!(printable("größer als ✓ 日本 \\n"), "größer als ✓ 日本 \\n");
    }

    #[test]
    fn json_says_the_same() {
        let value = serde_json::json!({ "path": "a\x1b\u{9b}\u{7f}\n\u{202e}ü" });
        let shown = json(&format!("{value:#}\n"));
        assert!(!shown.replace('\n', "").contains(acts), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }
}
