//! The notes `.note.allograft` and `.note.allograft.strings`: lines of `key=value` in an ELF note, filled up with NUL
//! bytes to 512.

use std::ops::Range;

use super::error::layout;
use super::{DonorError, DonorKind};
use crate::archive::printable;

/// Owner of the note, with its NUL byte.
const OWNER: &[u8] = b"allograft\0";
/// Bytes before the description: three numbers and the owner, padded to 4.
const DESCRIPTION: usize = 24;
/// Bytes of the description.
const ROOM: usize = 512;

/// What a donor says about itself, and what a graft wrote down.
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
    /// Version of the allograft that grafted; that built the donor before a graft.
    pub allograft: String,
}

impl Note {
    /// Reads a note's description. Keys that are not known are skipped.
    ///
    /// # Errors
    /// Text that is not UTF-8, lines without an equals sign, and a note without donor or version.
    pub fn parse(description: &[u8]) -> Result<Note, DonorError> {
        let filled = description.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let mut note = Note::default();
        for line in description[..filled].split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let text = std::str::from_utf8(line).ok().and_then(|line| line.split_once('='));
            let (key, value) = text
                .filter(|(_, value)| !value.contains('\0'))
                .ok_or_else(|| DonorError::NoteLine { line: printable(line) })?;
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
            (true, _) => Err(DonorError::NoteKey { key: "donor" }),
            (_, true) => Err(DonorError::NoteKey { key: "version" }),
            _ => Ok(note),
        }
    }

    /// The description: 512 bytes.
    ///
    /// # Errors
    /// Values with line breaks, and a note that is too long.
    pub fn encode(&self) -> Result<Vec<u8>, DonorError> {
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
                return Err(DonorError::NoteValue { key, value: printable(value.as_bytes()) });
            }
            text.push_str(&format!("{key}={value}\n"));
        }
        if text.len() > ROOM {
            return Err(DonorError::NoteRoom { needed: text.len(), room: ROOM });
        }
        let mut description = text.into_bytes();
        description.resize(ROOM, 0);
        Ok(description)
    }
}

/// Where the description lies in the section's content: one note of this layout, and nothing after it.
pub(super) fn description(kind: DonorKind, content: &[u8]) -> Result<Range<usize>, DonorError> {
    if content.len() != DESCRIPTION + ROOM {
        return Err(layout(kind, "a size of", content.len(), DESCRIPTION + ROOM));
    }
    let number = |at: usize| u32::from_le_bytes([content[at], content[at + 1], content[at + 2], content[at + 3]]);
    for (what, at, expected) in [
        ("a name size of", 0, OWNER.len()),
        ("a description size of", 4, ROOM),
        ("the type", 8, kind.note_type() as usize),
    ] {
        if number(at) as usize != expected {
            return Err(layout(kind, what, number(at), expected));
        }
    }
    if &content[12..12 + OWNER.len()] != OWNER {
        return Err(layout(kind, "the owner", content[12..DESCRIPTION].escape_ascii(), OWNER.escape_ascii()));
    }
    Ok(DESCRIPTION..DESCRIPTION + ROOM)
}
