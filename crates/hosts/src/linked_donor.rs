//! A donor that is ready to go into executables.

use std::path::Path;

use donors::Donor;
use format::{Arch, Note};
use surgery::donor::DonorObject;
use transplant::{Blob, Graft};

use crate::error::Error;
use crate::planner::tuned;

/// A donor, linked, with options and notes filled in.
#[derive(Debug, Clone)]
pub(crate) struct LinkedDonor {
    /// The allocator's note.
    pub(crate) malloc: Note,
    /// That of the string functions, if it brings some.
    pub(crate) strings: Option<Note>,
    blob: Blob,
    /// The donor as it was linked, before options and notes were filled in.
    pub(crate) linked: &'static [u8],
}

impl LinkedDonor {
    /// Fills options and notes into the donor for `arch`; with `strings`, the one that brings string functions. `path`
    /// is for messages, `allograft` the version of this program for the notes.
    ///
    /// # Errors
    /// A donor that does not go into executables of that architecture, or has no such options.
    pub(crate) fn new(
        path: &Path,
        arch: Arch,
        donor: &'static Donor,
        settings: &[(String, i64)],
        strings: bool,
        allograft: &str,
    ) -> Result<LinkedDonor, Error> {
        let wrong = |source| Error::Donor { donor: donor.name.to_owned(), source };
        let unfit = |source| Error::Blob { donor: donor.name.to_owned(), source };
        let object = donor.object(arch).zip(donor.blob(arch));
        let (object, alone) = object.ok_or_else(|| Error::NoBlob { path: path.to_owned(), donor: donor.name })?;
        let linked = match strings {
            true => donor.blob_with_strings(arch).ok_or_else(|| Error::NoStrings { path: path.to_owned(), arch })?,
            false => alone,
        };
        let tuned = tuned(donor, object, settings, allograft)?;
        let tuned = DonorObject::parse(&tuned).map_err(wrong)?;
        let mut blob = Blob::parse(linked, &tuned.note(), &tuned.options()).map_err(unfit)?;
        let strings = strings.then(|| strings_note(arch, allograft)).transpose()?;
        if let Some(note) = &strings {
            blob = blob.with_strings(note).map_err(unfit)?;
        }
        Ok(LinkedDonor { malloc: tuned.note(), strings, blob, linked })
    }

    /// Makes the graft of the bytes `stock` with this donor. `path` is for messages.
    ///
    /// # Errors
    /// The executable cannot be grafted.
    pub(crate) fn graft(&self, path: &Path, stock: &[u8]) -> Result<Graft, Error> {
        let unfit = |source| Error::Blob { donor: self.malloc.donor.clone(), source };
        transplant::graft(stock, &self.blob, false)
            .map_err(unfit)?
            .map_err(|refusal| Error::Executable { path: path.to_owned(), refusal })
    }
}

/// The note of the string functions for `arch`.
fn strings_note(arch: Arch, allograft: &str) -> Result<Note, Error> {
    let donor = donors::strings();
    let wrong = |source| Error::Donor { donor: donor.name.to_owned(), source };
    let tuned = tuned(donor, donor.object(arch).unwrap_or_default(), &[], allograft)?;
    Ok(DonorObject::parse(&tuned).map_err(wrong)?.note())
}
