//! The donors of a request, options filled in, for each architecture that comes up.

use std::collections::BTreeMap;
use std::path::Path;

use donors::Donor;
use format::Arch;
use surgery::donor::DonorObject;

use crate::VERSION;
use crate::error::Error;
use crate::lock::FolderLocks;
use crate::request::{Candidate, Request};
use crate::stock::Stock;
use crate::watch::Watch;

/// Plans grafts of the same donors with one set of options.
pub(crate) struct Planner<'a> {
    pub(crate) request: &'a Request,
    pub(crate) watch: &'a Watch<'a>,
    pub(crate) stock: Stock,
    /// The donors' objects for each kind and architecture that has come up, options filled in.
    tuned: BTreeMap<(&'static str, &'static str), Vec<u8>>,
}

/// The architectures that a donor is for.
pub(crate) fn offered(donor: &Donor) -> String {
    donor.arches().map(Arch::name).collect::<Vec<_>>().join(", ")
}

/// The donor's object with options and note filled in. `allograft` is the version of this program for the note.
pub(crate) fn tuned(
    donor: &Donor,
    object: &[u8],
    settings: &[(String, i64)],
    allograft: &str,
) -> Result<Vec<u8>, Error> {
    let tuned = DonorObject::parse(object).and_then(|object| object.tuned(settings, allograft));
    tuned.map_err(|source| Error::Donor { donor: donor.name.to_owned(), source })
}

impl<'a> Planner<'a> {
    /// Checks the request, and reads the stock archives that it names.
    pub(crate) fn new(request: &'a Request, watch: &'a Watch<'a>) -> Result<Self, Error> {
        request.check()?;
        Ok(Planner { request, watch, stock: Stock::read(&request.stock)?, tuned: BTreeMap::new() })
    }

    /// Locks the folders of `files`; nothing for a dry run, which changes nothing.
    pub(crate) fn lock<'f>(&self, files: impl IntoIterator<Item = &'f Path>) -> Result<Option<FolderLocks>, Error> {
        (!self.request.dry_run).then(|| FolderLocks::take(files, self.watch)).transpose()
    }

    /// The donor's object for an architecture, options filled in; `None` if there is none.
    ///
    /// # Errors
    /// When the donor does not have these options.
    pub(crate) fn object(&mut self, one: &Candidate, arch: Arch) -> Result<Option<&[u8]>, Error> {
        let key = (one.donor.name, arch.name());
        if let (false, Some(object)) = (self.tuned.contains_key(&key), one.donor.object(arch)) {
            self.tuned.insert(key, tuned(one.donor, object, &one.settings, VERSION)?);
        }
        Ok(self.tuned.get(&key).map(Vec::as_slice))
    }
}
