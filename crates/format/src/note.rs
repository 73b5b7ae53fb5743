//! The notes `.note.allograft` and `.note.allograft.strings` (docs/note.md): lines of `key=value` in an ELF note,
//! padded with NUL bytes to 512. The C side is `crates/donors/glue/note.h`.

use std::ops::Range;

use crate::{DonorKind, printable};

/// The owner of the note, with its NUL byte.
const OWNER: &[u8] = b"allograft\0";
/// The size of a note's head, before the description: three numbers and the owner, padded to 4.
pub const HEAD: usize = 24;
/// The size of the description in bytes.
pub const DESCRIPTION: usize = 512;

/// Why a note cannot be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    /// The note has a different layout.
    #[error("the note `{section}` has {what} {found}, expected {expected}")]
    Layout {
        /// The note's section.
        section: &'static str,
        /// The field.
        what: &'static str,
        /// Its value.
        found: String,
        /// The value that it should have.
        expected: String,
    },
    /// A line of the note has no equals sign, or is not text.
    #[error("the note has the line {line}, expected `key=value`")]
    Line {
        /// The line, quoted.
        line: String,
    },
    /// The note lacks a required key.
    #[error("the note lacks the key `{key}`")]
    Key {
        /// The key.
        key: &'static str,
    },
    /// The note is too long for its 512 bytes.
    #[error("the note takes {needed} bytes with these options, expected at most {room}")]
    Room {
        /// The size that it needs in bytes.
        needed: usize,
        /// The size that is available in bytes.
        room: usize,
    },
    /// A value would break the note's lines.
    #[error("the note's `{key}` would be {value}, which has a line break or a NUL byte")]
    Value {
        /// The key.
        key: &'static str,
        /// The value, quoted.
        value: String,
    },
}

/// The description of a donor, with what a graft has added to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Note {
    /// The donor's name.
    pub donor: String,
    /// The donor's version.
    pub version: String,
    /// Options that were set, as `key=value` with spaces between; may be empty.
    pub options: String,
    /// The donor object's checksum, as `sha256:` and 64 hexadecimal digits; empty before a graft.
    pub object: String,
    /// The version of the allograft that made the graft; before a graft, the version that built the donor.
    pub allograft: String,
}

impl Note {
    /// Reads a note's description. Unknown keys are skipped.
    ///
    /// # Errors
    /// The text is not UTF-8, a line has no equals sign, or donor or version is missing.
    pub fn parse(description: &[u8]) -> Result<Note, NoteError> {
        let filled = description.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let mut note = Note::default();
        for line in description[..filled].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let text = std::str::from_utf8(line).ok().and_then(|line| line.split_once('='));
            let (key, value) = text
                .filter(|(_, value)| !value.contains('\0'))
                .ok_or_else(|| NoteError::Line { line: printable(line) })?;
            let field = match key {
                "donor" => &mut note.donor,
                "version" => &mut note.version,
                "options" => &mut note.options,
                "object" => &mut note.object,
                "allograft" => &mut note.allograft,
                _ => continue,
            };
            value.clone_into(field);
        }
        match (note.donor.is_empty(), note.version.is_empty()) {
            (true, _) => Err(NoteError::Key { key: "donor" }),
            (_, true) => Err(NoteError::Key { key: "version" }),
            _ => Ok(note),
        }
    }

    /// Encodes the description: 512 bytes.
    ///
    /// # Errors
    /// A value has a line break, or the note is too long.
    pub fn encode(&self) -> Result<Vec<u8>, NoteError> {
        let mut text = String::new();
        let lines = [
            ("donor", &self.donor),
            ("version", &self.version),
            ("options", &self.options),
            ("object", &self.object),
            ("allograft", &self.allograft),
        ];
        for (key, value) in lines {
            if value.contains(['\n', '\0']) {
                return Err(NoteError::Value { key, value: printable(value.as_bytes()) });
            }
            text.push_str(&format!("{key}={value}\n"));
        }
        if text.len() > DESCRIPTION {
            return Err(NoteError::Room { needed: text.len(), room: DESCRIPTION });
        }
        let mut description = text.into_bytes();
        description.resize(DESCRIPTION, 0);
        Ok(description)
    }
}

/// The head of a note of this kind: sizes of name and description, type, and the owner, padded with NUL bytes.
pub fn head(kind: DonorKind) -> [u8; HEAD] {
    head_of(kind.note_type(), DESCRIPTION)
}

/// The head of one of our notes, of any type, with a description of this size in bytes.
pub(crate) fn head_of(note_type: u32, description: usize) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let numbers = [OWNER.len() as u32, description as u32, note_type];
    for (at, number) in numbers.into_iter().enumerate() {
        head[4 * at..4 * at + 4].copy_from_slice(&number.to_le_bytes());
    }
    head[12..12 + OWNER.len()].copy_from_slice(OWNER);
    head
}

/// The range of the description in the section's content, which has to be one note of this layout and nothing else.
///
/// # Errors
/// The content has a different size, or the head a different number or owner.
pub fn description(kind: DonorKind, content: &[u8]) -> Result<Range<usize>, NoteError> {
    let layout = |what, found: String, expected: String| NoteError::Layout {
        section: kind.note_section(),
        what,
        found,
        expected,
    };
    let size = HEAD + DESCRIPTION;
    if content.len() != size {
        return Err(layout("a size of", content.len().to_string(), size.to_string()));
    }
    let expected = head(kind);
    let number = |head: &[u8], at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    for (what, at) in [("a name size of", 0), ("a description size of", 4), ("the type", 8)] {
        let (found, expected) = (number(content, at), number(&expected, at));
        if found != expected {
            return Err(layout(what, found.to_string(), expected.to_string()));
        }
    }
    if !content[12..].starts_with(OWNER) {
        return Err(layout(
            "the owner",
            content[12..HEAD].escape_ascii().to_string(),
            OWNER.escape_ascii().to_string(),
        ));
    }
    Ok(HEAD..size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_skips_keys_that_it_does_not_know() {
        let note = Note::parse(b"donor=a\nfuture=thing=other\nversion=1\n\0\0\0").expect("a note");
        assert_eq!((note.donor.as_str(), note.version.as_str()), ("a", "1"));
        assert_eq!(note.encode().expect("a description").len(), 512);
        for (text, message) in [
            (&b"donor=a\n"[..], "lacks the key `version`"),
            (b"", "lacks the key `donor`"),
            (b"donor=a\nversion\n", "has the line version, expected `key=value`"),
            (b"donor=\xff\n", "expected `key=value`"),
            (b"donor=a\0b\n", "expected `key=value`"),
        ] {
            let error = Note::parse(text).expect_err("an error").to_string();
            assert!(error.contains(message), "{error}");
        }
        let broken = Note { donor: "a\nb".to_owned(), ..note };
        assert!(matches!(broken.encode(), Err(NoteError::Value { key: "donor", .. })));
    }
}
