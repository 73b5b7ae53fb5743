//! A donor, linked, with options and notes filled in: ready to go into executables.

use std::path::Path;

use donors::Donor;
use format::needed::Needed;
use format::options::PURGE_PERIOD;
use format::{Arch, Linked, Note, OptionsError};
use surgery::donor::DonorObject;
use transplant::{Blob, Donation, Edits, Executable};

use crate::digest::{self, sha256};
use crate::error::Error;
use crate::request::donor::tuned;

/// A donor, linked, with options and notes filled in.
#[derive(Debug, Clone)]
pub(crate) struct TunedDonor {
    /// The allocator's note.
    pub(crate) malloc: Note,
    /// The note of the string functions, if it brings them.
    pub(crate) strings: Option<Note>,
    donation: Donation,
    /// The linked donor, before options and notes were filled in.
    pub(crate) linked: &'static [u8],
}

/// The executables that a donor is made ready for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipient<'p> {
    /// The executable's path, for messages.
    pub(crate) path: &'p Path,
    pub(crate) kind: Linked,
    pub(crate) arch: Arch,
    /// Whether the executables get string functions, too.
    pub(crate) strings: bool,
}

impl TunedDonor {
    /// Fills options and notes into the donor for a kind of executable. For a loader, the donor's own defaults for
    /// loaders apply where `settings` has no other value. `allograft` is this program's version, for the notes.
    ///
    /// # Errors
    /// The donor has no form for this kind on that architecture, or no such options.
    pub(crate) fn new(
        recipient: Recipient<'_>,
        donor: &'static Donor,
        settings: &[(String, i64)],
        allograft: &str,
    ) -> Result<TunedDonor, Error> {
        let Recipient { path, kind, arch, strings } = recipient;
        if donor.goes_into(kind, arch) && !donor.is_built_for(arch) {
            return Err(Error::NotBuilt { path: path.to_owned(), donor: donor.name, arch });
        }
        let no_form = || Error::NoForm { path: path.to_owned(), donor: donor.name, kind };
        let object = donor.object(arch).ok_or_else(no_form)?;
        let (alone, with_strings, own) = match kind {
            Linked::Program => (donor.blob(arch), donor.blob_with_strings(arch), &[][..]),
            Linked::Loader => (donor.loader(arch), donor.loader_with_strings(arch), donor.loader_options()),
            Linked::Dynamic => return merging(donor, donor.library(arch).ok_or_else(no_form)?, settings, allograft),
            Linked::Library => return Err(no_form()),
        };
        let wrong = |source| Error::Donor { donor: donor.name.to_owned(), source };
        if settings.iter().any(|(name, value)| name == PURGE_PERIOD && *value != 0) {
            let (name, place) = (PURGE_PERIOD.to_owned(), kind.described());
            return Err(wrong(OptionsError::NeedsThread { name, place }.into()));
        }
        let alone = alone.ok_or_else(no_form)?;
        let linked = match strings {
            true => with_strings.ok_or_else(|| Error::NoStrings { path: path.to_owned(), arch })?,
            false => alone,
        };
        let is_set = |name: &str| settings.iter().any(|(set, _)| set == name);
        let own = own.iter().filter(|(name, _)| !is_set(name)).map(|(name, value)| ((*name).to_owned(), *value));
        let settings: Vec<(String, i64)> = settings.iter().cloned().chain(own).collect();
        let tuned = tuned(donor, object, &settings, allograft)?;
        let tuned = DonorObject::parse(&tuned).map_err(wrong)?;
        let mut malloc = tuned.note();
        if kind == Linked::Loader {
            // It was compiled differently from the object, so it has a checksum of its own.
            malloc.object = format!("sha256:{}", sha256(linked));
        }
        let unfit = |source| Error::Blob { donor: donor.name.to_owned(), source };
        let mut blob = Blob::parse(linked, &malloc, &tuned.options()).map_err(unfit)?;
        let strings = strings.then(|| strings_note(arch, allograft)).transpose()?;
        if let Some(note) = &strings {
            blob = blob.with_strings(note).map_err(unfit)?;
        }
        Ok(TunedDonor { malloc, strings, donation: Donation::Redirect(Box::new(blob)), linked })
    }

    /// Turns it into a donor that the program loads by this name, instead of one that is merged.
    pub(crate) fn needed(self, name: Vec<u8>) -> TunedDonor {
        let donation = match self.donation {
            Donation::Merge(library) | Donation::Need { library, .. } => {
                let donor = self.malloc.encode().ok().and_then(|note| note.try_into().ok());
                let donor = donor.unwrap_or([0; format::note::DESCRIPTION]);
                let note = Box::new(Needed { sha256: digest::raw(&library), donor });
                Donation::Need { library, name, note }
            }
            redirect @ Donation::Redirect(_) => redirect,
        };
        TunedDonor { donation, ..self }
    }

    /// The shared object that a program loads, and its name in the program; `None` for a donor that goes into the
    /// program.
    pub(crate) fn library(&self) -> Option<(&[u8], &[u8])> {
        match &self.donation {
            Donation::Need { library, name, .. } => Some((library, name)),
            Donation::Redirect(_) | Donation::Merge(_) => None,
        }
    }

    /// Makes the graft of a stock file with this donor. `path` is for messages.
    ///
    /// # Errors
    /// The executable cannot be grafted.
    pub(crate) fn graft(&self, path: &Path, stock: &Executable<'_>) -> Result<(Edits, Vec<u8>), Error> {
        let unfit = |source| Error::Blob { donor: self.malloc.donor.clone(), source };
        let refused = |refusal| Error::Executable { path: path.to_owned(), refusal };
        stock.graft(&self.donation).map_err(unfit)?.map_err(refused)
    }
}

/// The shared object of a donor, to be merged.
fn merging(
    donor: &Donor,
    linked: &'static [u8],
    settings: &[(String, i64)],
    allograft: &str,
) -> Result<TunedDonor, Error> {
    let wrong = |source| Error::Donor { donor: donor.name.to_owned(), source };
    let tuned = DonorObject::parse_library(linked).and_then(|library| library.tuned(settings, allograft));
    let tuned = tuned.map_err(wrong)?;
    let malloc = DonorObject::parse_library(&tuned).map_err(wrong)?.note();
    Ok(TunedDonor { malloc, strings: None, donation: Donation::Merge(tuned), linked })
}

/// The note of the string functions for `arch`.
fn strings_note(arch: Arch, allograft: &str) -> Result<Note, Error> {
    let donor = donors::strings();
    let wrong = |source| Error::Donor { donor: donor.name.to_owned(), source };
    let tuned = tuned(donor, donor.object(arch).unwrap_or_default(), &[], allograft)?;
    Ok(DonorObject::parse(&tuned).map_err(wrong)?.note())
}
