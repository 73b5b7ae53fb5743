//! A linked executable: an allocator goes into the file itself; string functions only where they are asked for. musl's
//! libc.so is one, too: it is the dynamic loader, which the kernel starts.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use donors::Donor;
use format::Note;
use inspector::verify::Verified;
use transplant::Plan;

use crate::VERSION;
use crate::error::{Error, IoContext};
use crate::host::{Carried, Edited, Host, Operation};
use crate::linked_donor::{LinkedDonor, Place};
use crate::planner::Planner;
use crate::request::Candidate;

/// The edits of an executable.
#[derive(Debug, Clone)]
pub struct ExecutableOperation {
    /// The functions that were found and those that are redirected.
    pub plan: Plan,
    /// The allocator that goes in.
    pub malloc: Note,
    /// The string functions that go in, if they were asked for.
    pub strings: Option<Note>,
    linked_donor: LinkedDonor,
}

/// An executable's bytes.
pub(crate) struct ExecutableHost<'b> {
    path: &'b Path,
    bytes: &'b [u8],
    carried: Carried,
    /// Whether it is musl's dynamic loader.
    is_loader: bool,
    /// Its mode, if that is not the one of a file at `path`.
    mode: Option<u32>,
}

impl<'b> ExecutableHost<'b> {
    /// The executable at `path`, which has these bytes.
    pub(crate) fn read(path: &'b Path, bytes: &'b [u8]) -> Self {
        let [malloc, strings] = transplant::notes(bytes).map(|text| Note::parse(text?).ok());
        let is_loader = transplant::is_loader(bytes);
        ExecutableHost { path, bytes, carried: Carried { malloc, strings }, is_loader, mode: None }
    }

    /// The same of an executable that is not a file at its path.
    pub(crate) fn with_mode(self, mode: u32) -> Self {
        ExecutableHost { mode: Some(mode), ..self }
    }

    fn planned(&self, linked_donor: &LinkedDonor) -> Result<(Plan, Edited), Error> {
        let graft = linked_donor.graft(self.path, self.bytes)?;
        Ok((graft.plan, Edited::new(graft.bytes)))
    }

    fn linked_donor<'i>(&self, operation: &'i Operation) -> Result<&'i LinkedDonor, Error> {
        match operation {
            Operation::Executable(operation) => Ok(&operation.linked_donor),
            Operation::Archive(_) => Err(Error::ChangedMeanwhile { path: self.path.to_owned() }),
        }
    }
}

impl Host for ExecutableHost<'_> {
    fn carried(&self) -> &Carried {
        &self.carried
    }

    fn skip_reason(&self) -> Option<&'static str> {
        Some("an executable")
    }

    fn needs_stock(&self) -> bool {
        true
    }

    fn is_stock(&self) -> bool {
        !self.carried.anything()
    }

    fn plan(&self, planner: &mut Planner<'_>) -> Result<(Operation, Edited), Error> {
        let request = planner.request;
        let arch = transplant::supported_arch(self.bytes)
            .map_err(|refusal| Error::Executable { path: self.path.to_owned(), refusal })?;
        let place = match (self.is_loader, request.strings) {
            (true, Some(true)) => Place::LoaderWithStrings,
            (true, _) => Place::Loader,
            (false, Some(true)) => Place::ProgramWithStrings,
            (false, _) => Place::Program,
        };
        if self.is_loader && !donors::all().iter().any(|donor| donor.has_loader(arch)) {
            let refusal = transplant::Refusal::Loader(format!("those of {arch} are not grafted"));
            return Err(Error::Executable { path: self.path.to_owned(), refusal });
        }
        let has = |donor: &Donor| if self.is_loader { donor.has_loader(arch) } else { donor.has_blob(arch) };
        let one = Candidate::choose(&request.candidates, has).ok_or(Error::NothingToGraft)?;
        let linked_donor = LinkedDonor::new(self.path, arch, one.donor, &one.settings, place, VERSION)?;
        let (plan, edited) = self.planned(&linked_donor)?;
        let (malloc, strings) = (linked_donor.malloc.clone(), linked_donor.strings.clone());
        Ok((Operation::Executable(Arc::new(ExecutableOperation { plan, malloc, strings, linked_donor })), edited))
    }

    fn edit(&self, operation: &Operation) -> Result<Edited, Error> {
        self.planned(self.linked_donor(operation)?).map(|(_, edited)| edited)
    }

    fn verify(&self, operation: &Operation, edited: Edited) -> Result<Verified, Error> {
        let linked = self.linked_donor(operation)?.linked;
        Verified::executable(edited.into_bytes(), self.bytes, linked)
            .map_err(|unsound| Error::Unsound { path: self.path.to_owned(), unsound })
    }

    fn remarks(&self, _operation: &Operation) -> Result<Vec<String>, Error> {
        const SETUID_OR_SETGID: u32 = 0o6000;
        let mode = match self.mode {
            Some(mode) => mode,
            None => fs::metadata(self.path).context(self.path, "read")?.mode(),
        };
        let set_id = (mode & SETUID_OR_SETGID != 0)
            .then(|| "is setuid or setgid: the donor takes no variables of the environment in it".to_owned());
        Ok(set_id.into_iter().collect())
    }
}
