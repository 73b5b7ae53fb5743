//! Reads a graft again: static checks of an archive and of an executable.

mod allocator;
mod differences;
mod donor;
mod donor_image;
mod edits;
mod executable;
mod file;
mod image;
mod loader;
mod merged;
pub(crate) mod needed;
mod stock;
mod strings;
mod verified;
mod whole;

pub(crate) use loader::is_loader;
pub(crate) use merged::has_merged_note;

use serde::Serialize;

pub use differences::{Definition, Difference};
pub use donor_image::donor_image;
pub use edits::redirections;
pub use executable::executable;
pub use image::same_image;
pub use merged::{merged, merged_donor};
pub use needed::{needed, needed_library};
pub use verified::{Seal, Unsound, Verified};

use crate::elf::Elf;
use crate::error::InspectError;
use crate::library::Library;
use crate::note::Subject;

/// How a donor got into an executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Functions of libc in it are redirected.
    Redirected,
    /// It is dynamic, and the donor a part of it.
    Merged,
    /// It is dynamic, and loads the donor.
    Needed,
}

impl Way {
    /// That of an executable, by the notes in it; redirected, where there is no other.
    ///
    /// # Errors
    /// It is no ELF file, or too damaged to be read.
    pub fn of(graft: &[u8]) -> Result<Way, InspectError> {
        let elf = parse(graft)?;
        Ok(if needed::has_note(&elf) {
            Way::Needed
        } else if has_merged_note(&elf) {
            Way::Merged
        } else {
            Way::Redirected
        })
    }
}

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

/// The symbols that a graft must define for programs: weak, of default visibility.
pub(crate) const PUBLIC: [&str; 11] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "aligned_alloc",
    "memalign",
    "posix_memalign",
    "valloc",
    "pvalloc",
    "reallocarray",
    "malloc_usable_size",
];

/// The symbols that a graft may define for programs written for glibc: weak, of default visibility. Stock has none.
pub(crate) const BESIDE_MUSL: [&str; 2] = ["malloc_trim", "mallopt"];

/// glibc's functions that report on its heap: donors that are merged into dynamic programs define them.
pub(crate) const REPORTS_OF_GLIBC: [&str; 4] = ["mallinfo", "mallinfo2", "malloc_info", "malloc_stats"];

/// The symbols that a graft must define for libc's own blocks: strong, hidden.
pub(crate) const INTERNAL: [&str; 4] = ["__libc_malloc", "__libc_calloc", "__libc_realloc", "__libc_free"];

/// The symbols that a graft must define for the rest of libc: strong, hidden.
pub(crate) const HOOKS: [&str; 2] = ["__malloc_donate", "__malloc_atfork"];

/// The string functions of a graft: weak, of default visibility. Not all exist on every architecture.
/// Their order gives their numbers in an executable's note (docs/note.md), where `memmem` and `strstr` have none.
pub(crate) const STRINGS: [&str; 22] = [
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "bcmp",
    "memchr",
    "memrchr",
    "memmem",
    "strlen",
    "strnlen",
    "strchr",
    "strchrnul",
    "strrchr",
    "strstr",
    "strcmp",
    "strncmp",
    "stpcpy",
    "strcpy",
    "stpncpy",
    "strncpy",
    "strcat",
    "strncat",
];

/// The string functions that stay musl's own on aarch64, where musl has good assembly for them.
pub(crate) const STRINGS_OF_MUSL: [&str; 2] = ["memcpy", "memset"];

/// musl's internal names of string functions: weak, hidden.
pub(crate) const STRINGS_INTERNAL: [&str; 4] = ["__memrchr", "__strchrnul", "__stpcpy", "__stpncpy"];

/// The result of [`explain`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// The checks, in the order in which they were made.
    pub checks: Vec<Check>,
    /// Every symbol whose definition differs from stock's. Empty without stock.
    pub differences: Vec<Difference>,
}

/// Checks a grafted archive, and compares it with the stock archive that it was made of.
///
/// An archive that is no graft fails the check `note`; that is no error.
///
/// # Errors
/// One of the archives cannot be read.
pub fn compare(graft: &[u8], stock: Option<&[u8]>) -> Result<Vec<Check>, InspectError> {
    explain(graft, stock).map(|comparison| comparison.checks)
}

/// Checks as [`compare`] does, and also returns every difference with its reason.
///
/// # Errors
/// As for [`compare`].
pub fn explain(graft: &[u8], stock: Option<&[u8]>) -> Result<Comparison, InspectError> {
    let graft = Library::read(graft)?;
    let stock = stock.map(Library::read).transpose()?;
    let mut checks = vec![whole::index(&graft), whole::architecture(&graft)];
    let (mut donors, mut differences) = (Vec::new(), Vec::new());
    // A graft may have string functions only.
    if donor::is_there(&graft, Subject::Malloc) || !donor::is_there(&graft, Subject::Strings) {
        let (note, donor) = donor::note("note", &graft, Subject::Malloc);
        checks.push(note);
        let Some(donor) = donor else { return Ok(Comparison { checks, differences: Vec::new() }) };
        checks.push(donor::checksum("object-checksum", &graft, &donor));
        checks.push(donor::options(&graft, &donor));
        checks.push(donor::exports(&graft, &donor));
        checks.push(donor::needs("donor-needs", &graft, &donor));
        checks.push(allocator::one_provider(&graft));
        checks.push(allocator::no_trace(&graft, stock.as_ref()));
        checks.push(allocator::fork_hook(&graft, &donor));
        donors.push(donor);
    }
    let (of_strings, strings) = strings::checks(&graft, stock.as_ref());
    checks.extend(of_strings);
    donors.extend(strings);
    if let Some(stock) = stock.as_ref().filter(|_| !donors.is_empty()) {
        checks.extend(stock::checks(&graft, &donors, stock));
        differences = differences::between(&graft, &donors, stock);
        checks.push(differences::check(&differences));
    }
    Ok(Comparison { checks, differences })
}

fn parse(bytes: &[u8]) -> Result<Elf<'_>, InspectError> {
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
