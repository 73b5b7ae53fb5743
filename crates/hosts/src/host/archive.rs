//! A static archive, musl's libc.a. An allocator, string functions, or both are put in, each in a step of its own: so
//! if the string functions are refused, the allocator can still be grafted.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use format::{Arch, DonorKind};
use inspector::verify::Verified;
use surgery::archive::Archive;
use surgery::plan::{Libc, Plan, Refusal, RemovedMember, Restoration};

use crate::error::Error;
use crate::error::foreign::{ForeignWays, Replacement};
use crate::host::planner::Planner;
use crate::host::stock::parse;
use crate::host::{Carried, Edited, Host, Operation};
use crate::request::Candidate;
use crate::request::donor::offered;

/// The fate of a host's string functions.
#[derive(Debug, Clone)]
pub enum Strings {
    /// Exchanging them was not requested.
    Off,
    /// They are replaced by allograft's.
    Grafted(Box<Plan>),
    /// They cannot be replaced, for this reason. The allocator is still replaced.
    Refused(Box<Refusal>),
    /// allograft has none for the host's architecture. The allocator is still replaced.
    Missing(Arch),
}

impl Strings {
    /// The plan, if they are exchanged.
    pub fn plan(&self) -> Option<&Plan> {
        match self {
            Strings::Grafted(plan) => Some(plan),
            Strings::Off | Strings::Refused(_) | Strings::Missing(_) => None,
        }
    }

    /// The reason why they are not exchanged although that was requested.
    pub fn reason(&self) -> Option<String> {
        match self {
            Strings::Off | Strings::Grafted(_) => None,
            Strings::Refused(refusal) => Some(refusal.to_string()),
            Strings::Missing(arch) => {
                Some(format!("there are none of ours for {arch}, only for {}", offered(donors::strings())))
            }
        }
    }
}

/// A foreign allocator in a host: neither stock's nor a donor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignAllocator {
    /// Its name.
    pub allocator: &'static str,
    /// The functions that the host lost because of it, and those that are restored.
    pub restoration: Restoration,
}

/// The edits of an archive: a plan for the allocator, for the string functions, or for both.
#[derive(Debug, Clone)]
pub struct ArchiveOperation {
    /// The host's architecture.
    pub arch: Arch,
    /// The foreign allocator that is replaced, and the stock members that are restored with the donor.
    pub foreign: Option<ForeignAllocator>,
    /// The allocator's step; `None` if the host keeps its own.
    pub malloc: Option<Plan>,
    /// The step of the string functions.
    pub strings: Strings,
    /// Whether libc's fork calls the allocator's hook. musl does from 1.2.2 on.
    pub fork_hook: bool,
}

impl ArchiveOperation {
    /// The members that a step removes, with their ordinals in the archive that the graft is made of. (The plan of the
    /// second step counts in the result of the first.)
    pub fn removed(&self, kind: DonorKind) -> Vec<RemovedMember> {
        let (first, second) = (self.malloc.as_ref(), self.strings.plan());
        match kind {
            DonorKind::Malloc => first.map(|plan| plan.removed.clone()).unwrap_or_default(),
            DonorKind::Strings => {
                let mut removed = second.map(|plan| plan.removed.clone()).unwrap_or_default();
                for member in &mut removed {
                    let origin = first.and_then(|plan| plan.origin(member.ordinal));
                    member.ordinal = origin.unwrap_or(member.ordinal);
                }
                removed
            }
        }
    }
}

/// A libc.a, parsed.
pub(crate) struct ArchiveHost<'b> {
    path: &'b Path,
    bytes: &'b [u8],
    archive: Archive<'b>,
    carried: Carried,
}

impl<'b> ArchiveHost<'b> {
    /// Parses the archive `bytes`. `path` is for messages.
    pub(crate) fn read(path: &'b Path, bytes: &'b [u8]) -> Result<Self, Error> {
        let archive = parse(path, bytes)?;
        let [malloc, strings] = surgery::plan::carried(&archive).map_err(|refusal| refused(path, refusal))?;
        Ok(ArchiveHost { path, bytes, archive, carried: Carried { malloc, strings } })
    }

    /// The plan of one step, with the first candidate that exists for the architecture. `candidates` is not empty.
    fn step(&self, archive: &Archive<'_>, candidates: &[Candidate], planner: &mut Planner<'_>) -> Result<Plan, Error> {
        let force = planner.request.force;
        let error = match self.forced_step(archive, candidates, planner, force) {
            Err(Error::Refused { refusal, .. }) => refusal,
            other => return other,
        };
        let Refusal::ForeignAllocator { lost, .. } = &*error else { return Err(refused(self.path, *error)) };
        let ways = self.ways(archive, candidates, planner, lost.clone());
        Err(Error::Foreign { path: self.path.to_owned(), refusal: error, ways: Box::new(ways) })
    }

    /// Tries the plans for an archive with a foreign allocator. `lost`: the functions that the archive has lost.
    fn ways(
        &self,
        archive: &Archive<'_>,
        candidates: &[Candidate],
        planner: &mut Planner<'_>,
        lost: Vec<&'static str>,
    ) -> ForeignWays {
        let replacement = match self.forced_step(archive, candidates, planner, true) {
            Ok(_) => Replacement::Possible,
            Err(Error::Refused { refusal, .. }) => match *refusal {
                Refusal::LostWithForeign { symbols, .. } => Replacement::NeedsStock(symbols),
                refusal => Replacement::Impossible(refusal.to_string()),
            },
            Err(error) => Replacement::Impossible(error.to_string()),
        };
        let strings = self.forced_step(archive, &[Candidate::new(donors::strings())], planner, false).is_ok();
        let found = inspector::inspect(self.bytes).ok().map(|report| report.malloc);
        let contents = found.filter(|found| found.name != "unknown").map(|found| {
            let version = found.version.map(|version| format!(" {version}")).unwrap_or_default();
            let evidence = found.evidence.first().map(|first| format!(" ({})", first.detail)).unwrap_or_default();
            format!("{}{version}{evidence}", found.name)
        });
        ForeignWays { contents, strings, replacement, lost, musl: surgery::plan::musl_version(archive) }
    }

    /// The plan of one step. With `force`, a foreign allocator is replaced.
    fn forced_step(
        &self,
        archive: &Archive<'_>,
        candidates: &[Candidate],
        planner: &mut Planner<'_>,
        force: bool,
    ) -> Result<Plan, Error> {
        let (mut chosen, mut unfit) = (&candidates[0], None);
        let plan = surgery::plan::plan_for(
            archive,
            |arch| {
                chosen = Candidate::choose(candidates, |donor| donor.supports(arch))?;
                planner.object(chosen, arch).unwrap_or_else(|error| {
                    unfit = Some(error);
                    None
                })
            },
            force,
        );
        plan.map_err(|refusal| unfit.unwrap_or_else(|| self.refused(chosen.donor, refusal)))
    }

    /// The error for a donor that cannot be grafted.
    fn refused(&self, donor: &donors::Donor, refusal: Refusal) -> Error {
        match refusal {
            Refusal::NoDonor { arch } if donor.supports(arch) => {
                Error::NotBuilt { path: self.path.to_owned(), donor: donor.name, arch }
            }
            Refusal::NoDonor { arch } => Error::NoDonorFor {
                path: self.path.to_owned(),
                donor: donor.name.to_owned(),
                arch,
                offered: offered(donor),
            },
            refusal => refused(self.path, refusal),
        }
    }

    /// The foreign allocator, if it may be replaced and will be.
    fn foreign(&self, planner: &Planner<'_>) -> Result<Option<ForeignAllocator>, Error> {
        if !planner.request.force || planner.request.candidates.is_empty() {
            return Ok(None);
        }
        let Some(allocator) = surgery::plan::foreign_allocator(&self.archive) else { return Ok(None) };
        Ok(Some(ForeignAllocator { allocator, restoration: planner.stock.restore(&self.archive)? }))
    }

    /// Refuses a request that needs stock's members, which an earlier graft has removed.
    fn nothing_to_take_out(&self, donor: bool, strings: bool) -> Result<(), Error> {
        let surplus = match &self.carried {
            Carried { malloc: Some(_), .. } if !donor => DonorKind::Malloc,
            Carried { strings: Some(_), .. } if !strings => DonorKind::Strings,
            _ => return Ok(()),
        };
        Err(Error::StockNeeded { path: self.path.to_owned(), surplus })
    }

    /// The archive with the restored members, before any member is removed.
    fn whole(&self, foreign: Option<&ForeignAllocator>) -> Result<Cow<'b, [u8]>, Error> {
        match foreign {
            Some(foreign) if !foreign.restoration.is_empty() => {
                let whole = foreign.restoration.apply(self.bytes);
                whole.map(Cow::Owned).map_err(|source| Error::Malformed { path: self.path.to_owned(), source })
            }
            _ => Ok(Cow::Borrowed(self.bytes)),
        }
    }
}

fn refused(path: &Path, refusal: Refusal) -> Error {
    Error::Refused { path: path.to_owned(), refusal: Box::new(refusal) }
}

impl Host for ArchiveHost<'_> {
    fn carried(&self) -> &Carried {
        &self.carried
    }

    fn skip_reason(&self) -> Option<&'static str> {
        let survey = surgery::plan::survey(&self.archive);
        match (survey.libc, survey.arch) {
            (Libc::Musl, Some(_)) => None,
            (Libc::Musl, None) => Some("musl's, for an architecture that no donor supports"),
            (Libc::Glibc, _) => Some("glibc's"),
            (Libc::Other, _) => Some("not musl's"),
        }
    }

    fn needs_stock(&self) -> bool {
        false
    }

    fn is_stock(&self) -> bool {
        surgery::plan::foreign_allocator(&self.archive).is_none()
    }

    fn plan(&self, planner: &mut Planner<'_>) -> Result<(Operation, Edited), Error> {
        let wants_strings = planner.request.strings.unwrap_or(true);
        let request = planner.request;
        self.nothing_to_take_out(!request.candidates.is_empty(), wants_strings)?;
        let foreign = self.foreign(planner)?;
        let whole = self.whole(foreign.as_ref())?;
        let restored;
        let archive = match &whole {
            Cow::Borrowed(_) => &self.archive,
            Cow::Owned(bytes) => {
                restored = parse(self.path, bytes)?;
                &restored
            }
        };
        let malloc = match request.candidates.as_slice() {
            [] => None,
            candidates => Some(self.step(archive, candidates, planner)?),
        };
        let mut graft = match &malloc {
            Some(plan) => plan.apply(archive),
            None => whole.to_vec(),
        };
        let strings = match (wants_strings, &malloc) {
            (false, _) => Strings::Off,
            (true, _) => {
                let first = parse(self.path, &graft)?;
                match self.step(&first, &[Candidate::new(donors::strings())], planner) {
                    Ok(plan) => {
                        graft = plan.apply(&first);
                        Strings::Grafted(Box::new(plan))
                    }
                    Err(Error::NoDonorFor { arch, .. }) if malloc.is_some() => Strings::Missing(arch),
                    Err(Error::Refused { refusal, .. }) if malloc.is_some() => Strings::Refused(refusal),
                    Err(error) => return Err(error),
                }
            }
        };
        let any = malloc.as_ref().or_else(|| strings.plan()).ok_or(Error::NothingToGraft)?;
        let (arch, fork_hook) = (any.arch, any.fork_hook);
        let operation = ArchiveOperation { arch, foreign, malloc, strings, fork_hook };
        Ok((Operation::Archive(Arc::new(operation)), Edited::new(graft)))
    }

    fn edit(&self, operation: &Operation) -> Result<Edited, Error> {
        let Operation::Archive(operation) = operation else {
            return Err(Error::ChangedMeanwhile { path: self.path.to_owned() });
        };
        let whole = self.whole(operation.foreign.as_ref())?;
        let first = match &operation.malloc {
            Some(plan) => plan.apply(&parse(self.path, &whole)?),
            None => whole.into_owned(),
        };
        Ok(Edited::new(match operation.strings.plan() {
            Some(plan) => plan.apply(&parse(self.path, &first)?),
            None => first,
        }))
    }

    fn verify(&self, operation: &Operation, edited: Edited) -> Result<Verified, Error> {
        let foreign = matches!(operation, Operation::Archive(archive) if archive.foreign.is_some());
        // A graft, or a file with a foreign allocator, is not stock, so the result is not compared with it.
        let stock = (!foreign && !self.carried.anything()).then_some(self.bytes);
        Verified::archive(edited.into_bytes(), stock)
            .map_err(|unsound| Error::Unsound { path: self.path.to_owned(), unsound })
    }

    fn remarks(&self, operation: &Operation) -> Result<Vec<String>, Error> {
        let Operation::Archive(operation) = operation else { return Ok(Vec::new()) };
        let reason = operation.strings.reason();
        Ok(reason.into_iter().map(|reason| format!("keeps its own string functions: {reason}")).collect())
    }
}
