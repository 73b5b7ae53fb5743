//! A linked executable: an allocator goes into the file itself; string functions only where they are asked for. musl's
//! libc.so is one, too: it is the dynamic loader, which the kernel starts.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

use donors::Donor;
use format::{Arch, Note};
use inspector::verify::Verified;
use transplant::{MergePlan, NeedPlan, Plan};

use crate::VERSION;
use crate::dynamic;
use crate::error::Error;
use crate::host::{Carried, Edited, Host, Operation};
use crate::linked_donor::{LinkedDonor, Place};
use crate::needed::{self, NeededError};
use crate::planner::Planner;
use crate::request::Candidate;

/// The bits of a file's mode that give rights of its owner or group.
const SETUID_OR_SETGID: u32 = 0o6000;

/// Whether the program at `path` has other rights than its callers: a set-id bit, or capabilities. False if there is no
/// such file.
pub fn is_privileged(path: &Path) -> bool {
    let is_set_id = fs::metadata(path).is_ok_and(|file| file.mode() & SETUID_OR_SETGID != 0);
    is_set_id || rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]).is_ok()
}

/// The edits of an executable.
#[derive(Debug, Clone)]
pub struct ExecutableOperation {
    /// The functions that were found and those that are redirected; or, in a dynamic program, the merge.
    pub plan: ExecutablePlan,
    /// The allocator that goes in.
    pub malloc: Note,
    /// The string functions that go in, if they were asked for.
    pub strings: Option<Note>,
    linked_donor: LinkedDonor,
}

/// How the donor goes into an executable.
#[derive(Debug, Clone)]
pub enum ExecutablePlan {
    /// Functions of the program's own libc are redirected.
    Graft(Plan),
    /// The donor becomes a part of a dynamic program.
    Merge(MergePlan),
    /// A dynamic program loads the donor.
    Need(NeedPlan),
}

impl ExecutablePlan {
    /// The architecture.
    pub fn arch(&self) -> Arch {
        match self {
            ExecutablePlan::Graft(plan) => plan.arch,
            ExecutablePlan::Merge(plan) => plan.arch,
            ExecutablePlan::Need(plan) => plan.arch,
        }
    }

    /// The plan of a graft; `None` for a dynamic program.
    pub fn graft(&self) -> Option<&Plan> {
        match self {
            ExecutablePlan::Graft(plan) => Some(plan),
            ExecutablePlan::Merge(_) | ExecutablePlan::Need(_) => None,
        }
    }
}

/// An executable's bytes.
pub(crate) struct ExecutableHost<'b> {
    path: &'b Path,
    bytes: &'b [u8],
    carried: Carried,
    /// Whether it is musl's dynamic loader.
    is_loader: bool,
    /// Whether it is a dynamic program, which a donor is merged into.
    is_dynamic: bool,
    /// Its mode, if that is not the one of a file at `path`.
    mode: Option<u32>,
}

impl<'b> ExecutableHost<'b> {
    /// The executable at `path`, which has these bytes.
    pub(crate) fn read(path: &'b Path, bytes: &'b [u8]) -> Self {
        let [malloc, strings] = transplant::notes(bytes).map(|text| Note::parse(&text?).ok());
        let is_loader = transplant::is_loader(bytes);
        let is_dynamic = transplant::is_dynamic(bytes);
        ExecutableHost { path, bytes, carried: Carried { malloc, strings }, is_loader, is_dynamic, mode: None }
    }

    /// The same of an executable that is not a file at its path.
    pub(crate) fn with_mode(self, mode: u32) -> Self {
        ExecutableHost { mode: Some(mode), ..self }
    }

    fn planned(&self, linked_donor: &LinkedDonor) -> Result<(ExecutablePlan, Edited), Error> {
        let (plan, bytes) = linked_donor.graft(self.path, self.bytes)?;
        Ok((plan, Edited::new(bytes)))
    }

    fn is_privileged(&self) -> bool {
        self.mode.map_or_else(|| is_privileged(self.path), |mode| mode & SETUID_OR_SETGID != 0)
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
        if self.is_dynamic && request.strings == Some(true) {
            let refusal = transplant::Refusal::Strings("it is dynamic, and has none of its own".to_owned());
            return Err(Error::Executable { path: self.path.to_owned(), refusal });
        }
        if request.needed.is_some() && !self.is_dynamic {
            return Err(NeededError::NotDynamic { path: self.path.to_owned() }.into());
        }
        let place = match (self.is_loader, request.strings) {
            _ if self.is_dynamic => Place::Dynamic,
            (true, Some(true)) => Place::LoaderWithStrings,
            (true, _) => Place::Loader,
            (false, Some(true)) => Place::ProgramWithStrings,
            (false, _) => Place::Program,
        };
        if self.is_loader && !donors::all().iter().any(|donor| donor.has_loader(arch)) {
            let refusal = transplant::Refusal::Loader(format!("those of {arch} are not grafted"));
            return Err(Error::Executable { path: self.path.to_owned(), refusal });
        }
        if self.is_dynamic && self.mode.is_some() {
            // In an image there are hundreds, and its user names none.
            return Err(Error::Executable { path: self.path.to_owned(), refusal: transplant::Refusal::Dynamic });
        }
        if !request.live && self.is_privileged() {
            let why = "is setuid or setgid, or has capabilities: the donor would serve a program that has other rights \
                       than its callers";
            return Err(Error::Live { path: self.path.to_owned(), why: why.to_owned() });
        }
        let refused = |refusal| Error::Executable { path: self.path.to_owned(), refusal };
        let mut libraries = Ok(());
        if self.is_dynamic {
            libraries = match dynamic::check_libraries(self.path, self.bytes, arch, request) {
                Err(refusal @ transplant::Refusal::BringsAllocator { .. }) => return Err(refused(refusal)),
                other => other,
            };
        }
        let has = |donor: &Donor| place.takes(donor, arch);
        let one = Candidate::choose(&request.candidates, has).ok_or(Error::NothingToGraft)?;
        let linked_donor = LinkedDonor::new(self.path, arch, one.donor, &one.settings, place, VERSION)?;
        let linked_donor = match &request.needed {
            Some(name) => linked_donor.needed(needed::Destination::of(self.path, request).name(name.as_deref())?),
            None => linked_donor,
        };
        let (plan, edited) = self.planned(&linked_donor)?;
        // The program itself may have said more.
        libraries.map_err(refused)?;
        if let (ExecutablePlan::Need(plan), Some(library)) = (&plan, linked_donor.library()) {
            needed::check(self.path, request, edited.bytes(), plan, (library, &linked_donor.malloc))?;
        }
        let (malloc, strings) = (linked_donor.malloc.clone(), linked_donor.strings.clone());
        Ok((Operation::Executable(Arc::new(ExecutableOperation { plan, malloc, strings, linked_donor })), edited))
    }

    fn edit(&self, operation: &Operation) -> Result<Edited, Error> {
        self.planned(self.linked_donor(operation)?).map(|(_, edited)| edited)
    }

    fn verify(&self, operation: &Operation, edited: Edited) -> Result<Verified, Error> {
        let linked_donor = self.linked_donor(operation)?;
        let (graft, linked) = (edited.into_bytes(), linked_donor.linked);
        let verified = match (self.is_dynamic, linked_donor.library()) {
            // `plan` has found this very file.
            (true, Some(library)) => Verified::needed(graft, self.bytes, "the shared object", library),
            (true, None) => Verified::merged(graft, self.bytes, linked),
            (false, _) => Verified::executable(graft, self.bytes, linked),
        };
        verified.map_err(|unsound| Error::Unsound { path: self.path.to_owned(), unsound })
    }

    fn remarks(&self, operation: &Operation) -> Result<Vec<String>, Error> {
        let privileged = self.is_privileged().then(|| {
            "is setuid or setgid, or has capabilities: the donor takes no variables of the environment in it".to_owned()
        });
        let (namespaces, later_kernel) = match operation {
            Operation::Executable(operation) => match &operation.plan {
                ExecutablePlan::Need(plan) => (plan.loads_namespaces, plan.needs_later_kernel),
                ExecutablePlan::Merge(plan) => (plan.loads_namespaces, plan.needs_later_kernel),
                ExecutablePlan::Graft(_) => (false, false),
            },
            Operation::Archive(_) => (false, false),
        };
        let namespaces = namespaces.then(|| dynamic::LOADS_NAMESPACES.to_owned());
        let later_kernel = later_kernel.then(|| dynamic::NEEDS_LATER_KERNEL.to_owned());
        Ok(privileged.into_iter().chain(namespaces).chain(later_kernel).collect())
    }
}
