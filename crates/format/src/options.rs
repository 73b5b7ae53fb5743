//! The section `.rodata.allograft.options` (docs/options-block.md): a table of options in the donor's object, which the
//! donor reads at run time. The C side is `crates/donors/glue/settings.h`.
//!
//! Little-endian: u32 magic, format, count, size of an entry; then entries of `char name[32]`, i64 value, min and max,
//! u32 flags (bit 0: set by a graft), u32 reserved.

use std::collections::HashSet;

use crate::printable;

/// The section that holds the options.
pub const OPTIONS_SECTION: &str = ".rodata.allograft.options";

/// The section's name in a donor that is a shared object: linkers merge all sections that begin with `.rodata` into
/// one.
pub const LIBRARY_OPTIONS_SECTION: &str = ".allograft.options";

/// The option of donors that start a thread, with libc's `pthread_create` (`crates/donors/glue/purge.h`).
pub const PURGE_PERIOD: &str = "purge_period";

const MAGIC: &[u8; 4] = b"ARGO";
const FORMAT: u32 = 1;
const HEADER: usize = 16;
const ENTRY: usize = 64;
const NAME: usize = 32;
const SET: u32 = 1;

/// Why options cannot be read or set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// The options have a different layout.
    #[error("the section `.rodata.allograft.options` has {what} {found}, expected {expected}")]
    Layout {
        /// The field.
        what: String,
        /// Its value.
        found: String,
        /// The value that it should have.
        expected: String,
    },
    /// The donor does not have the option.
    #[error("unknown option `{name}`; known: {known}")]
    Unknown {
        /// The requested option.
        name: String,
        /// All known options, separated by commas.
        known: String,
    },
    /// The option needs a thread, which the donor cannot start from there.
    #[error("option `{name}` needs a thread, and the donor cannot start one in {place}")]
    NeedsThread {
        /// The option.
        name: String,
        /// The host of the donor, with an article.
        place: &'static str,
    },
    /// The value is out of range.
    #[error("option `{name}` cannot be {value}: it takes {min} to {max}")]
    OutOfRange {
        /// The option.
        name: String,
        /// The requested value.
        value: i64,
        /// Its least value.
        min: i64,
        /// Its greatest value.
        max: i64,
    },
}

/// An option that can be set when a donor is grafted.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DonorOption {
    /// Its name on the command line.
    pub name: String,
    /// Its current value.
    pub value: i64,
    /// Its least value.
    pub min: i64,
    /// Its greatest value.
    pub max: i64,
    /// Whether a graft has set it; otherwise the value is the donor's default.
    pub set: bool,
}

/// Sets one option.
///
/// # Errors
/// There is no option of that name, or the value is out of range.
pub fn set(options: &mut [DonorOption], name: &str, value: i64) -> Result<(), OptionsError> {
    let known = options.iter().map(|option| option.name.as_str()).collect::<Vec<_>>().join(", ");
    let option = options.iter_mut().find(|option| option.name == name).ok_or_else(|| OptionsError::Unknown {
        name: printable(name.as_bytes()),
        known: if known.is_empty() { "none".to_owned() } else { known },
    })?;
    if !(option.min..=option.max).contains(&value) {
        return Err(OptionsError::OutOfRange { name: name.to_owned(), value, min: option.min, max: option.max });
    }
    (option.value, option.set) = (value, true);
    Ok(())
}

/// Reads the section's content.
///
/// # Errors
/// The content has a different layout, a name is invalid or occurs twice, or a value is out of its range.
pub fn parse(content: &[u8]) -> Result<Vec<DonorOption>, OptionsError> {
    let (header, table) =
        content.split_at_checked(HEADER).ok_or_else(|| layout("a size of", content.len(), "at least 16"))?;
    if header[..4] != *MAGIC {
        return Err(layout("the magic", header[..4].escape_ascii(), MAGIC.escape_ascii()));
    }
    let (format, count, size) = (word(header, 4), word(header, 8), word(header, 12));
    if format != FORMAT {
        return Err(layout("the format", format, FORMAT));
    }
    if size as usize != ENTRY {
        return Err(layout("entries of", size, ENTRY));
    }
    // Sections of constants may be padded behind the last entry.
    if (count as usize).checked_mul(ENTRY).is_none_or(|needed| table.len() < needed) {
        return Err(layout("a size of", content.len(), format!("room for {count} entries")));
    }
    let mut options: Vec<DonorOption> = Vec::new();
    let mut names = HashSet::new();
    for (position, entry) in table.chunks_exact(ENTRY).take(count as usize).enumerate() {
        let option = option(position, entry)?;
        if !names.insert(option.name.clone()) {
            return Err(layout(format!("in entry {position} the name"), option.name, "one that occurs once"));
        }
        options.push(option);
    }
    Ok(options)
}

fn option(position: usize, entry: &[u8]) -> Result<DonorOption, OptionsError> {
    let field = |what: &str| format!("in entry {position} {what}");
    let end = entry[..NAME].iter().position(|byte| *byte == 0).unwrap_or(NAME);
    let (name, rest) = entry[..NAME].split_at(end);
    let sound = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'_' | b'-' | b'.');
    if name.is_empty() || !name.iter().all(sound) || rest.iter().any(|byte| *byte != 0) {
        return Err(layout(field("the name"), entry[..NAME].escape_ascii(), "small letters, digits, `_`, `-` and `.`"));
    }
    let (value, min, max) = (long(entry, 32), long(entry, 40), long(entry, 48));
    if !(min..=max).contains(&value) {
        return Err(layout(field("the value"), value, format!("{min} to {max}")));
    }
    let set = word(entry, 56) & SET != 0;
    Ok(DonorOption { name: printable(name), value, min, max, set })
}

/// Writes values and flags back into the section's content, in the order in which [`parse`] returned them. Everything
/// else stays.
pub fn write(options: &[DonorOption], content: &mut [u8]) {
    for (entry, option) in content[HEADER..].chunks_exact_mut(ENTRY).zip(options) {
        entry[32..40].copy_from_slice(&option.value.to_le_bytes());
        let flags = word(entry, 56) & !SET | if option.set { SET } else { 0 };
        entry[56..60].copy_from_slice(&flags.to_le_bytes());
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].iter().take(4).rev().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn long(bytes: &[u8], at: usize) -> i64 {
    bytes[at..].iter().take(8).rev().fold(0, |number, byte| number << 8 | i64::from(*byte))
}

fn layout(what: impl Into<String>, found: impl ToString, expected: impl ToString) -> OptionsError {
    OptionsError::Layout { what: what.into(), found: found.to_string(), expected: expected.to_string() }
}
