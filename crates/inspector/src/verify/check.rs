//! The result of one check, and the parsing that every check begins with.

use serde::Serialize;

use crate::elf::Elf;
use crate::error::InspectError;

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// A short, stable name.
    pub name: String,
    /// Whether it passed.
    pub ok: bool,
    /// The finding, and the expectation if that differs.
    pub detail: String,
}

impl Check {
    /// The result of the check `name`.
    pub fn new(name: impl Into<String>, ok: bool, detail: impl Into<String>) -> Self {
        Check { name: name.into(), ok, detail: detail.into() }
    }

    /// Passes if there are no complaints.
    pub(crate) fn unless(name: &str, complaints: Vec<String>, good: impl FnOnce() -> String) -> Self {
        if complaints.is_empty() {
            Check::new(name, true, good())
        } else {
            Check::new(name, false, listed(&complaints))
        }
    }
}

/// A check that was not made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotRun {
    /// The name of the check.
    pub name: String,
    /// The reason.
    pub reason: String,
}

/// Reads a file that is to be checked.
///
/// # Errors
/// It is not an ELF file, or too damaged to be read.
pub(crate) fn parse(bytes: &[u8]) -> Result<Elf<'_>, InspectError> {
    Elf::parse(bytes).map_err(InspectError::Elf)
}

/// Returns up to eight complaints in one line.
pub(crate) fn listed(complaints: &[String]) -> String {
    let shown = complaints.len().min(8);
    let mut text = complaints[..shown].join("; ");
    if complaints.len() > shown {
        text.push_str(&format!("; and {} more", complaints.len() - shown));
    }
    text
}
