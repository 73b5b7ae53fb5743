//! Reads a graft again, with code that shares nothing with the crates that make grafts: static checks of an archive and
//! of an executable.

mod allocator;
mod check;
mod differences;
mod digest;
mod donor;
mod donor_image;
mod edits;
mod emitted;
mod executable;
mod file;
mod filled_in;
mod image;
mod loader;
mod merged;
pub(crate) mod names;
pub(crate) mod needed;
mod probes;
mod section_headers;
mod stock;
mod strings;
mod verified;
mod whole;

pub(crate) use loader::is_loader;
pub(crate) use merged::has_merged_note;

pub use check::{Check, NotRun};
pub use differences::{Definition, Difference};
pub use donor_image::donor_image;
pub use edits::redirections;
pub use executable::executable;
pub use image::{first_difference, same_image};
pub use merged::{merged, merged_donor};
pub use needed::{needed, needed_library};
pub use verified::{Seal, Unsound, Verified};

use self::check::parse;
use crate::archive::Archive;
use crate::entry_points::EntryPoints;
use crate::error::InspectError;
use crate::library::Library;
use crate::note::Subject;

/// The way in which a donor was put into an executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GraftKind {
    /// Functions of libc in it are redirected.
    Redirected,
    /// It is dynamic, and the donor a part of it.
    Merged,
    /// It is dynamic, and loads the donor.
    Needed,
}

impl GraftKind {
    /// Returns the way in which an executable was grafted, by its notes; [`GraftKind::Redirected`] if no note names a
    /// different one.
    ///
    /// # Errors
    /// It is not an ELF file, or too damaged to be read.
    pub fn recognise(graft: &[u8]) -> Result<GraftKind, InspectError> {
        let elf = parse(graft)?;
        Ok(if needed::has_note(&elf) {
            GraftKind::Needed
        } else if has_merged_note(&elf) {
            GraftKind::Merged
        } else {
            GraftKind::Redirected
        })
    }
}

/// Whether an executable has no note that says how a donor was put into it: if it carries one, it was linked with it.
///
/// # Errors
/// It is not an ELF file, or too damaged to be read.
pub fn is_without_note(executable: &[u8]) -> Result<bool, InspectError> {
    let elf = parse(executable)?;
    Ok(!needed::has_note(&elf) && !has_merged_note(&elf) && EntryPoints::parse(&elf).is_none())
}

/// The result of [`explain`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison<'g> {
    /// The checks, in the order in which they were made.
    pub checks: Vec<Check>,
    /// Every symbol whose definition differs from stock's. Empty without stock.
    pub differences: Vec<Difference>,
    /// The members that carry a donor, to be compared with the donors themselves. Those whose note is not well formed
    /// are left out: a check says so.
    pub donors: Vec<DonorMember<'g>>,
}

/// A member of an archive that carries a donor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DonorMember<'g> {
    /// Its ordinal and name, for messages.
    pub label: String,
    /// Its content.
    pub bytes: &'g [u8],
}

/// Checks a grafted archive, and compares it with the stock archive that it was made from.
///
/// An archive without a graft fails the check `note`, without an error.
///
/// # Errors
/// One of the archives cannot be read.
pub fn compare(graft: &[u8], stock: Option<&[u8]>) -> Result<Vec<Check>, InspectError> {
    explain(graft, stock).map(|comparison| comparison.checks)
}

/// Checks like [`compare`], and also returns every difference with its reason.
///
/// # Errors
/// As for [`compare`].
pub fn explain<'g>(graft: &'g [u8], stock: Option<&[u8]>) -> Result<Comparison<'g>, InspectError> {
    let graft = Library::read(graft)?;
    let stock = stock.map(Library::read).transpose()?;
    Ok(compared(&graft, stock.as_ref()))
}

/// A stock archive that was read once, to check many grafts of it.
#[derive(Debug)]
pub struct StockArchive<'s> {
    library: Library<'s>,
    places: stock::Places,
}

impl<'s> StockArchive<'s> {
    /// Reads the archive.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(bytes: &'s [u8]) -> Result<StockArchive<'s>, InspectError> {
        let library = Library::read(bytes)?;
        Ok(StockArchive { places: stock::places(&library.archive.members), library })
    }

    /// Checks a grafted archive. The checks pass if and only if those of [`explain`] do. If a member is neither one of
    /// stock's nor carries a donor, that is the only check, and no donor is returned.
    ///
    /// # Errors
    /// The graft cannot be read.
    pub fn compare<'g>(&self, graft: &'g [u8]) -> Result<Comparison<'g>, InspectError> {
        let members = &self.library.archive.members;
        if let Some(failed) = stock::without_foreign(&Archive::parse(graft)?.members, members, &self.places) {
            return Ok(Comparison { checks: vec![failed], differences: Vec::new(), donors: Vec::new() });
        }
        Ok(compared(&Library::read(graft)?, Some(&self.library)))
    }
}

fn compared<'g>(graft: &Library<'g>, stock: Option<&Library<'_>>) -> Comparison<'g> {
    let mut checks = vec![whole::index(graft), whole::architecture(graft)];
    let (mut donors, mut differences) = (Vec::new(), Vec::new());
    // A graft may have string functions only.
    if donor::is_there(graft, Subject::Malloc) || !donor::is_there(graft, Subject::Strings) {
        let (note, donor) = donor::note("note", graft, Subject::Malloc);
        checks.push(note);
        let Some(donor) = donor else { return Comparison { checks, differences, donors: Vec::new() } };
        checks.push(donor::checksum("object-checksum", graft, &donor));
        checks.push(donor::options(graft, &donor));
        checks.push(donor::exports(graft, &donor));
        checks.push(donor::needs("donor-needs", graft, &donor));
        checks.push(allocator::one_provider(graft));
        checks.push(allocator::no_trace(graft, stock));
        checks.push(allocator::fork_hook(graft, &donor));
        donors.push(donor);
    }
    let (of_strings, strings) = strings::checks(graft, stock);
    checks.extend(of_strings);
    donors.extend(strings);
    if let Some(stock) = stock.filter(|_| !donors.is_empty()) {
        checks.extend(stock::checks(graft, &donors, stock));
        differences = differences::between(graft, &donors, stock);
        checks.push(differences::check(&differences));
    }
    let donors = donors.iter().map(|donor| {
        let part = donor.part(graft);
        DonorMember { label: graft.label(part), bytes: graft.member(part).data }
    });
    Comparison { checks, differences, donors: donors.collect() }
}
