//! The donors of a request, with options filled in, for each architecture among the hosts.

use std::collections::BTreeMap;

use format::Arch;

use crate::VERSION;
use crate::error::Error;
use crate::host::stock::Stock;
use crate::request::donor::tuned;
use crate::request::{Candidate, Request};
use crate::watch::Watch;

/// Plans grafts of the same donors with one set of options.
pub(crate) struct Planner<'a> {
    pub(crate) request: &'a Request,
    pub(crate) watch: &'a Watch<'a>,
    pub(crate) stock: Stock,
    /// The donors' objects with options filled in, by donor and architecture.
    tuned: BTreeMap<(&'static str, &'static str), Vec<u8>>,
}

impl<'a> Planner<'a> {
    /// Checks the request, and reads the stock archives that it names.
    pub(crate) fn new(request: &'a Request, watch: &'a Watch<'a>) -> Result<Self, Error> {
        request.check()?;
        Ok(Planner { request, watch, stock: Stock::read(&request.stock)?, tuned: BTreeMap::new() })
    }

    /// The donor's object for an architecture, with options filled in; `None` if it has none.
    ///
    /// # Errors
    /// The donor does not have these options.
    pub(crate) fn object(&mut self, one: &Candidate, arch: Arch) -> Result<Option<&[u8]>, Error> {
        let key = (one.donor.name, arch.name());
        if let (false, Some(object)) = (self.tuned.contains_key(&key), one.donor.object(arch)) {
            self.tuned.insert(key, tuned(one.donor, object, &one.settings, VERSION)?);
        }
        Ok(self.tuned.get(&key).map(Vec::as_slice))
    }
}
