//! A donor that is ready to go into executables.

use std::path::Path;

use donors::Donor;
use format::options::PURGE_PERIOD;
use format::{Arch, Note, OptionsError};
use surgery::donor::DonorObject;
use transplant::Blob;

use crate::digest::{self, sha256};
use crate::error::Error;
use crate::executable::ExecutablePlan;
use crate::planner::tuned;

/// What a donor goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// A static executable.
    Program,
    /// The same, with string functions.
    ProgramWithStrings,
    /// musl's libc.so, the dynamic loader.
    Loader,
    /// The same, with string functions.
    LoaderWithStrings,
    /// A dynamic program.
    Dynamic,
}

impl Place {
    /// Names it in a message, with an article.
    fn described(self) -> &'static str {
        match self {
            Place::Program | Place::ProgramWithStrings => "a linked executable",
            Place::Loader | Place::LoaderWithStrings => "a dynamic loader",
            Place::Dynamic => "a dynamic program",
        }
    }

    fn is_loader(self) -> bool {
        matches!(self, Place::Loader | Place::LoaderWithStrings)
    }

    /// Whether a donor goes there on any architecture.
    fn is_able(self) -> fn(&Donor) -> bool {
        match self {
            Place::Program | Place::ProgramWithStrings => Donor::has_blobs,
            Place::Loader | Place::LoaderWithStrings => Donor::has_loaders,
            Place::Dynamic => Donor::has_libraries,
        }
    }

    /// Whether the donor goes there on that architecture.
    pub(crate) fn takes(self, donor: &Donor, arch: Arch) -> bool {
        match self {
            Place::Program | Place::ProgramWithStrings => donor.has_blob(arch),
            Place::Loader | Place::LoaderWithStrings => donor.has_loader(arch),
            Place::Dynamic => donor.has_library(arch),
        }
    }
}

/// The donor with options and notes.
#[derive(Debug, Clone)]
enum Form {
    Blob(Box<Blob>),
    /// A shared object, to be merged.
    Library(Vec<u8>),
    /// A shared object, to be loaded by this name.
    Needed(Vec<u8>, Vec<u8>),
}

/// A donor, linked, with options and notes filled in.
#[derive(Debug, Clone)]
pub(crate) struct LinkedDonor {
    /// The allocator's note.
    pub(crate) malloc: Note,
    /// That of the string functions, if it brings some.
    pub(crate) strings: Option<Note>,
    form: Form,
    /// The donor as it was linked, before options and notes were filled in.
    pub(crate) linked: &'static [u8],
}

impl LinkedDonor {
    /// Fills options and notes into the donor for `arch`. In a loader, the donor's options for that are set unless
    /// `settings` has others. `path` is for messages, `allograft` the version of this program for the notes.
    ///
    /// # Errors
    /// A donor that does not go there on that architecture, or has no such options.
    pub(crate) fn new(
        path: &Path,
        arch: Arch,
        donor: &'static Donor,
        settings: &[(String, i64)],
        place: Place,
        allograft: &str,
    ) -> Result<LinkedDonor, Error> {
        let wrong = |source| Error::Donor { donor: donor.name.to_owned(), source };
        let unfit = |source| Error::Blob { donor: donor.name.to_owned(), source };
        let (into, is_able) = (place.described(), place.is_able());
        let no_form = || Error::NoForm { path: path.to_owned(), donor: donor.name, into, is_able };
        if place.takes(donor, arch) && !donor.is_built_for(arch) {
            return Err(Error::NotBuilt { path: path.to_owned(), donor: donor.name, arch });
        }
        let object = donor.object(arch).ok_or_else(no_form)?;
        let alone = || donor.blob(arch).ok_or_else(no_form);
        let no_strings = || Error::NoStrings { path: path.to_owned(), arch };
        if place == Place::Dynamic {
            let linked = donor.library(arch).ok_or_else(no_form)?;
            let tuned = DonorObject::parse_library(linked).and_then(|library| library.tuned(settings, allograft));
            let tuned = tuned.map_err(wrong)?;
            let malloc = DonorObject::parse_library(&tuned).map_err(wrong)?.note();
            return Ok(LinkedDonor { malloc, strings: None, form: Form::Library(tuned), linked });
        }
        if settings.iter().any(|(name, value)| name == PURGE_PERIOD && *value != 0) {
            let (name, place) = (PURGE_PERIOD.to_owned(), place.described());
            return Err(wrong(OptionsError::NeedsThread { name, place }.into()));
        }
        let mut settings = settings.to_vec();
        let linked = match place {
            Place::Program => alone()?,
            Place::ProgramWithStrings => {
                alone()?;
                donor.blob_with_strings(arch).ok_or_else(no_strings)?
            }
            Place::Dynamic => return Err(no_form()),
            Place::Loader | Place::LoaderWithStrings => {
                let own = donor.loader_options().iter().map(|(name, value)| ((*name).to_owned(), *value));
                let own: Vec<(String, i64)> =
                    own.filter(|(name, _)| settings.iter().all(|(is, _)| is != name)).collect();
                settings.extend(own);
                let alone = donor.loader(arch).ok_or_else(no_form)?;
                match place {
                    Place::LoaderWithStrings => donor.loader_with_strings(arch).ok_or_else(no_strings)?,
                    _ => alone,
                }
            }
        };
        let tuned = tuned(donor, object, &settings, allograft)?;
        let tuned = DonorObject::parse(&tuned).map_err(wrong)?;
        let mut malloc = tuned.note();
        if place.is_loader() {
            // It is compiled in another way than the object.
            malloc.object = format!("sha256:{}", sha256(linked));
        }
        let mut blob = Blob::parse(linked, &malloc, &tuned.options()).map_err(unfit)?;
        let with_strings = matches!(place, Place::ProgramWithStrings | Place::LoaderWithStrings);
        let strings = with_strings.then(|| strings_note(arch, allograft)).transpose()?;
        if let Some(note) = &strings {
            blob = blob.with_strings(note).map_err(unfit)?;
        }
        Ok(LinkedDonor { malloc, strings, form: Form::Blob(Box::new(blob)), linked })
    }

    /// The same donor, to be loaded by this name rather than merged.
    pub(crate) fn needed(self, name: Vec<u8>) -> LinkedDonor {
        let form = match self.form {
            Form::Library(library) | Form::Needed(library, _) => Form::Needed(library, name),
            blob @ Form::Blob(_) => blob,
        };
        LinkedDonor { form, ..self }
    }

    /// The shared object that a program loads; `None` if it goes into the program.
    pub(crate) fn library(&self) -> Option<&[u8]> {
        match &self.form {
            Form::Needed(library, _) => Some(library),
            Form::Library(_) | Form::Blob(_) => None,
        }
    }

    /// Makes the graft of the bytes `stock` with this donor. `path` is for messages.
    ///
    /// # Errors
    /// The executable cannot be grafted.
    pub(crate) fn graft(&self, path: &Path, stock: &[u8]) -> Result<(ExecutablePlan, Vec<u8>), Error> {
        let unfit = |source| Error::Blob { donor: self.malloc.donor.clone(), source };
        let made = match &self.form {
            Form::Blob(blob) => transplant::graft(stock, blob, false)
                .map_err(unfit)?
                .map(|graft| (ExecutablePlan::Graft(graft.plan), graft.bytes)),
            Form::Needed(library, name) => {
                let donor = self.malloc.encode().ok().and_then(|note| note.try_into().ok());
                let donor = donor.unwrap_or([0; format::note::DESCRIPTION]);
                let note = format::needed::Needed { sha256: digest::raw(library), donor };
                transplant::need(stock, name, &note).map(|need| (ExecutablePlan::Need(need.plan), need.bytes))
            }
            Form::Library(library) => transplant::merge(stock, library)
                .map_err(unfit)?
                .map(|merge| (ExecutablePlan::Merge(merge.plan), merge.bytes)),
        };
        made.map_err(|refusal| Error::Executable { path: path.to_owned(), refusal })
    }
}

/// The note of the string functions for `arch`.
fn strings_note(arch: Arch, allograft: &str) -> Result<Note, Error> {
    let donor = donors::strings();
    let wrong = |source| Error::Donor { donor: donor.name.to_owned(), source };
    let tuned = tuned(donor, donor.object(arch).unwrap_or_default(), &[], allograft)?;
    Ok(DonorObject::parse(&tuned).map_err(wrong)?.note())
}
