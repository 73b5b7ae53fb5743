//! A linked executable: the allocator goes into the file itself, and string functions only on request. musl's libc.so
//! is one, too: it is the dynamic loader, which the kernel starts.

use std::path::Path;
use std::sync::Arc;

use format::{Linked, Note};
use inspector::verify::Verified;
use surgery::donor::note_text;
use transplant::{Edits, Executable, Refusal};

use crate::VERSION;
use crate::error::Error;
use crate::error::needed::NeededError;
use crate::host::planner::Planner;
use crate::host::tuned_donor::{Recipient, TunedDonor};
use crate::host::{Carried, Edited, Host, Operation, dynamic, live, needed};
use crate::request::Candidate;
use crate::system::privileges::{SETUID_OR_SETGID, is_privileged};

/// Parses an executable. Messages name it `host`.
///
/// # Errors
/// It cannot be read.
pub(crate) fn parsed<'b>(host: &Path, bytes: &'b [u8]) -> Result<Executable<'b>, Error> {
    Executable::read(bytes).map_err(|refusal| Error::Executable { path: host.to_owned(), refusal })
}

/// The edits of an executable.
#[derive(Debug, Clone)]
pub struct ExecutableOperation {
    /// The functions found and redirected; in a dynamic program, the merge.
    pub edits: Edits,
    /// The allocator's note.
    pub malloc: Note,
    /// The note of the string functions, if they were requested.
    pub strings: Option<Note>,
    tuned_donor: TunedDonor,
}

/// The place of an executable.
#[derive(Debug, Clone, Copy)]
enum Home {
    /// A file of its own.
    File,
    /// A file in a container image, with this mode.
    Image { mode: u32 },
}

/// An executable's bytes, parsed.
pub(crate) struct ExecutableHost<'b> {
    path: &'b Path,
    bytes: &'b [u8],
    carried: Carried,
    home: Home,
    /// The parsed file, or the reason why it cannot be parsed.
    executable: Result<Executable<'b>, Refusal>,
}

impl<'b> ExecutableHost<'b> {
    /// Parses the executable `bytes`. `path` is for messages.
    pub(crate) fn read(path: &'b Path, bytes: &'b [u8]) -> Self {
        let [malloc, strings] = transplant::notes(bytes).map(|text| Note::parse(&text?).ok());
        let carried = Carried { malloc, strings };
        ExecutableHost { path, bytes, carried, home: Home::File, executable: Executable::read(bytes) }
    }

    /// Treats it as a file of a container image, with this mode.
    pub(crate) fn in_image(self, mode: u32) -> Self {
        ExecutableHost { home: Home::Image { mode }, ..self }
    }

    fn refused(&self, refusal: Refusal) -> Error {
        Error::Executable { path: self.path.to_owned(), refusal }
    }

    fn executable(&self) -> Result<&Executable<'b>, Error> {
        self.executable.as_ref().map_err(|refusal| self.refused(refusal.clone()))
    }

    fn planned(&self, tuned_donor: &TunedDonor) -> Result<(Edits, Edited), Error> {
        let (edits, bytes) = tuned_donor.graft(self.path, self.executable()?)?;
        Ok((edits, Edited::new(bytes)))
    }

    fn is_privileged(&self) -> bool {
        match self.home {
            Home::File => is_privileged(self.path),
            Home::Image { mode } => mode & SETUID_OR_SETGID != 0,
        }
    }

    fn tuned_donor<'i>(&self, operation: &'i Operation) -> Result<&'i TunedDonor, Error> {
        match operation {
            Operation::Executable(operation) => Ok(&operation.tuned_donor),
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
        let executable = self.executable()?;
        let (kind, arch) = (executable.kind(), executable.arch());
        let refused = |refusal| self.refused(refusal);
        match (kind, request.strings) {
            (Linked::Library, _) => executable.check().map_err(refused)?,
            (Linked::Dynamic, Some(true)) => {
                return Err(refused(Refusal::Strings("it is dynamic, and has none of its own".to_owned())));
            }
            _ => {}
        }
        if request.needed.is_some() && kind != Linked::Dynamic {
            return Err(NeededError::NotDynamic { path: self.path.to_owned() }.into());
        }
        match (kind, self.home) {
            (Linked::Loader, _) if !donors::all().iter().any(|donor| donor.goes_into(kind, arch)) => {
                return Err(refused(Refusal::Loader(format!("those of {arch} are not grafted"))));
            }
            (Linked::Loader, Home::File) if request.out.is_none() && !request.live && !request.dry_run => {
                if let Some(by) = live::use_of(self.path, arch)? {
                    let why = format!(
                        "is this system's dynamic loader: {by}, and every program that starts later would have the graft"
                    );
                    return Err(Error::Live { path: self.path.to_owned(), why });
                }
            }
            // An image holds hundreds of them, and the user named none.
            (Linked::Dynamic, Home::Image { .. }) => return Err(refused(Refusal::Dynamic)),
            _ => {}
        }
        if !request.live && self.is_privileged() {
            let why = "is setuid or setgid, or has capabilities: the donor would serve a program that has other rights \
                       than its callers";
            return Err(Error::Live { path: self.path.to_owned(), why: why.to_owned() });
        }
        let mut libraries = Ok(());
        if kind == Linked::Dynamic {
            libraries = match dynamic::check_libraries(self.path, executable, request) {
                Err(refusal @ Refusal::BringsAllocator { .. }) => return Err(refused(refusal)),
                other => other,
            };
        }
        let one = Candidate::choose(&request.candidates, |donor| donor.goes_into(kind, arch));
        let one = one.ok_or_else(|| Error::DonorNeeded { path: self.path.to_owned(), arch, kind })?;
        let recipient = Recipient { path: self.path, kind, arch, strings: request.strings == Some(true) };
        let tuned_donor = TunedDonor::new(recipient, one.donor, &one.settings, VERSION)?;
        let tuned_donor = match &request.needed {
            Some(name) => tuned_donor.needed(needed::Destination::new(self.path, request).name(name.as_deref())?),
            None => tuned_donor,
        };
        let (edits, edited) = self.planned(&tuned_donor)?;
        // Last, since errors about the program itself say more.
        libraries.map_err(refused)?;
        if let (Edits::Need(plan), Some((library, _))) = (&edits, tuned_donor.library()) {
            needed::check(self.path, request, edited.bytes(), plan, (library, &tuned_donor.malloc))?;
        }
        let (malloc, strings) = (tuned_donor.malloc.clone(), tuned_donor.strings.clone());
        Ok((Operation::Executable(Arc::new(ExecutableOperation { edits, malloc, strings, tuned_donor })), edited))
    }

    fn edit(&self, operation: &Operation) -> Result<Edited, Error> {
        self.planned(self.tuned_donor(operation)?).map(|(_, edited)| edited)
    }

    fn verify(&self, operation: &Operation, edited: Edited) -> Result<Verified, Error> {
        let tuned_donor = self.tuned_donor(operation)?;
        let (graft, linked) = (edited.into_bytes(), tuned_donor.linked);
        let text = |note: &Note| {
            let donor = note.donor.clone();
            note_text(note).map_err(|source| Error::Donor { donor, source: source.into() })
        };
        let malloc = text(&tuned_donor.malloc)?;
        let strings = tuned_donor.strings.as_ref().map(text).transpose()?;
        let notes = [Some(malloc.as_str()), strings.as_deref()];
        let verified = match (self.executable()?.kind(), tuned_donor.library()) {
            // `plan` has found this same file.
            (Linked::Dynamic, Some((library, name))) => Verified::needed(graft, self.bytes, name, library),
            (Linked::Dynamic, None) => Verified::merged(graft, self.bytes, linked, notes),
            (Linked::Program | Linked::Loader | Linked::Library, _) => {
                Verified::executable(graft, self.bytes, linked, notes)
            }
        };
        verified.map_err(|unsound| Error::Unsound { path: self.path.to_owned(), unsound })
    }

    fn remarks(&self, operation: &Operation) -> Result<Vec<String>, Error> {
        let privileged = self.is_privileged().then(|| {
            "is setuid or setgid, or has capabilities: the donor takes no variables of the environment in it".to_owned()
        });
        let (namespaces, later_kernel) = match operation {
            Operation::Executable(operation) => match &operation.edits {
                Edits::Need(plan) => (plan.loads_namespaces, plan.needs_later_kernel),
                Edits::Merge(plan) => (plan.loads_namespaces, plan.needs_later_kernel),
                Edits::Redirect(_) => (false, false),
            },
            Operation::Archive(_) => (false, false),
        };
        let namespaces = namespaces.then(|| dynamic::LOADS_NAMESPACES.to_owned());
        let later_kernel = later_kernel.then(|| dynamic::NEEDS_LATER_KERNEL.to_owned());
        Ok(privileged.into_iter().chain(namespaces).chain(later_kernel).collect())
    }
}
