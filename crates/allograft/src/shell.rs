//! Words for a POSIX shell.

use crate::printable::acts;

/// Quotes the text as one word for any POSIX shell.
pub(crate) fn quoted(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+=:,@%".contains(&byte);
    match !text.is_empty() && text.bytes().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Quotes `text` as a word for a POSIX shell, to be printed. Characters that a terminal would act on have the form
/// `$'\033'` (POSIX.1-2024, XCU 2.2.4).
pub(crate) fn shell_quoted(text: &str) -> String {
    if !text.contains(acts) {
        quoted(text)
    } else {
        let escaped = |c: char| match c {
            '\n' => r"\n".to_owned(),
            '\'' | '\\' => format!("\\{c}"),
            _ if acts(c) => c.to_string().bytes().map(|byte| format!("\\{byte:03o}")).collect(),
            _ => c.to_string(),
        };
        format!("$'{}'", text.chars().map(escaped).collect::<String>())
    }
}
