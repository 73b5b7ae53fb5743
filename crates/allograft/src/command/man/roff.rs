//! Text as roff reads it: man(7), groff_char(7).

/// Escapes a text: nothing in it is a request, and dashes, quotes and backticks stay ASCII, so that they can be copied.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => safe.push_str("\\e"),
            '-' => safe.push_str("\\-"),
            '\'' => safe.push_str("\\(aq"),
            '`' => safe.push_str("\\(ga"),
            '^' => safe.push_str("\\(ha"),
            '~' => safe.push_str("\\(ti"),
            other => safe.push(other),
        }
    }
    // A dot begins a request only at the start of a line.
    if safe.starts_with('.') { format!("\\&{safe}") } else { safe }
}

/// Returns a paragraph, in which what is between backticks is bold.
pub(super) fn prose(text: &str) -> String {
    let mut parts = text.split('`');
    let mut line = escaped(parts.next().unwrap_or_default());
    let mut bold = true;
    for part in parts {
        line += if bold { "\\fB" } else { "\\fR" };
        line += &escaped(part);
        bold = !bold;
    }
    if !bold {
        line += "\\fR";
    }
    line
}

/// Returns lines that keep their breaks and blanks.
pub(super) fn literal<'l>(lines: impl IntoIterator<Item = &'l str>) -> String {
    let mut text = String::from(".PP\n.nf\n");
    for line in lines {
        text += &escaped(line);
        text.push('\n');
    }
    text + ".fi\n"
}

/// Returns a term and its explanation, which is roff already.
pub(super) fn item(term: &str, explanation: &str) -> String {
    format!(".TP\n{term}\n{explanation}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_a_request() {
        assert_eq!(escaped(".so /etc/passwd"), "\\&.so /etc/passwd");
        assert_eq!(escaped("'x\\fB-y"), "\\(aqx\\efB\\-y");
        assert_eq!(prose("`--set A=1` is one"), "\\fB\\-\\-set A=1\\fR is one");
        assert_eq!(literal(["  a", ".b"]), ".PP\n.nf\n  a\n\\&.b\n.fi\n");
    }
}
