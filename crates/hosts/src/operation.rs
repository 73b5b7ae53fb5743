//! What is done to one host: an allocator, string functions, or both, one step after the other.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use format::{Arch, DonorKind, Note};
use surgery::archive::Archive;
use surgery::donor::DonorObject;
use surgery::plan::{Plan, Refusal, RemovedMember, Restoration};

use crate::companion;
use crate::conditions::Conditions;
use crate::digest::sha256;
use crate::error::Error;
use crate::graft::{ALLOGRAFT, Request, parse};
use crate::record::backup_path;
use crate::stock::Stock;
use crate::undo;

/// The notes that a host carries.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Carried {
    /// Of an allocator.
    pub malloc: Option<Note>,
    /// Of string functions.
    pub strings: Option<Note>,
}

impl Carried {
    /// Of an archive.
    pub(crate) fn by(path: &Path, archive: &Archive<'_>) -> Result<Carried, Error> {
        let [malloc, strings] = surgery::plan::carried(archive).map_err(|refusal| refused(path, refusal))?;
        Ok(Carried { malloc, strings })
    }

    /// Whether the host is a graft.
    pub fn anything(&self) -> bool {
        self.malloc.is_some() || self.strings.is_some()
    }
}

/// What becomes of a host's string functions.
#[derive(Debug, Clone)]
pub enum Strings {
    /// Nobody asked for others.
    Off,
    /// Ours come in.
    Grafted(Box<Plan>),
    /// They cannot be exchanged, for this reason; the allocator is all the same.
    Refused(Box<Refusal>),
    /// There are none for the host's architecture; the allocator is exchanged all the same.
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

    /// Why they are not exchanged though that was asked for.
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

/// Somebody else's allocator in a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Another {
    /// Which one.
    pub allocator: &'static str,
    /// What the host had lost because of it, and what of that comes back.
    pub restoration: Restoration,
}

/// What is done to a host. There is a plan in it at least.
#[derive(Debug, Clone)]
pub struct Operation {
    /// What the host is for.
    pub arch: Arch,
    /// What it carried before.
    pub before: Carried,
    /// Somebody else's allocator that goes, and what comes back in its place beside ours.
    pub another: Option<Another>,
    /// Whether it stays as it is: it carries exactly these donors already.
    pub unchanged: bool,
    /// The allocator's step; `None`: the host's own stays.
    pub malloc: Option<Plan>,
    /// The step of the string functions.
    pub strings: Strings,
    /// Whether libc's fork calls the allocator's hook. musl does from 1.2.2 on.
    pub fork_hook: bool,
}

impl Operation {
    /// The members that a step takes out. Their ordinals are those of the archive that the graft is made of: the plan of the
    /// second step counts in what the first one leaves.
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

    /// The graft of these bytes, which have to be those that were planned for.
    pub(crate) fn apply(&self, path: &Path, bytes: &[u8]) -> Result<Vec<u8>, Error> {
        let whole = match &self.another {
            Some(another) => restored(path, &another.restoration, bytes)?,
            None => Cow::Borrowed(bytes),
        };
        let first = match &self.malloc {
            Some(plan) => plan.apply(&parse(path, &whole)?),
            None => whole.into_owned(),
        };
        match self.strings.plan() {
            Some(plan) => Ok(plan.apply(&parse(path, &first)?)),
            None => Ok(first),
        }
    }
}

/// The bytes with what comes back.
fn restored<'b>(path: &Path, restoration: &Restoration, bytes: &'b [u8]) -> Result<Cow<'b, [u8]>, Error> {
    if restoration.is_empty() {
        return Ok(Cow::Borrowed(bytes));
    }
    let whole = restoration.apply(bytes);
    whole.map(Cow::Owned).map_err(|source| Error::Malformed { path: path.to_owned(), source })
}

/// Which bytes a graft is made of.
#[derive(Debug, Clone)]
pub(crate) enum Base {
    /// The host's own: stock, or a graft whose stock file is not to be had.
    Host,
    /// The backup beside a graft, with its SHA-256.
    Stock { backup: PathBuf, sha256: String },
}

impl Base {
    /// The bytes, where `host` are the host's.
    pub(crate) fn bytes(&self, host: &[u8]) -> Result<Vec<u8>, Error> {
        let Base::Stock { backup, sha256: expected } = self else { return Ok(host.to_vec()) };
        match companion::read(backup) {
            Ok(Some(bytes)) if sha256(&bytes) == *expected => Ok(bytes),
            _ => Err(Error::ChangedMeanwhile { path: backup.clone() }),
        }
    }
}

/// A planned host.
pub(crate) struct Planned {
    pub(crate) operation: Operation,
    pub(crate) base: Base,
    pub(crate) before_sha256: String,
    pub(crate) graft_sha256: String,
    pub(crate) graft: Vec<u8>,
}

/// The architectures that a donor is for.
fn offered(donor: &donors::Donor) -> String {
    donor.arches().map(Arch::name).collect::<Vec<_>>().join(", ")
}

/// Plans grafts of the same donors with one set of options.
pub(crate) struct Surgeon<'a> {
    pub(crate) request: &'a Request,
    pub(crate) conditions: Conditions<'a>,
    stock: Stock,
    /// The donors' objects for each kind and architecture that has come up, options filled in.
    tuned: BTreeMap<(&'static str, &'static str), Vec<u8>>,
}

fn refused(path: &Path, refusal: Refusal) -> Error {
    Error::Refused { path: path.to_owned(), refusal: Box::new(refusal) }
}

impl<'a> Surgeon<'a> {
    /// Options have to fit before anything is read; what is wrong with them is independent of the host.
    pub(crate) fn new(request: &'a Request, conditions: Conditions<'a>) -> Result<Self, Error> {
        let stock = Stock::read(conditions.stock)?;
        let surgeon = Surgeon { request, conditions, stock, tuned: BTreeMap::new() };
        match request.donor {
            Some(donor) => {
                for (_, object) in donor.objects {
                    surgeon.tune(donor, object)?;
                }
            }
            None if !request.strings => return Err(Error::NothingToGraft),
            None => {
                if let Some((name, _)) = request.settings.first() {
                    return Err(Error::OptionWithoutDonor { name: name.clone() });
                }
            }
        }
        Ok(surgeon)
    }

    fn tune(&self, donor: &donors::Donor, object: &[u8]) -> Result<Vec<u8>, Error> {
        let settings = match donor.kind {
            DonorKind::Malloc => self.request.settings.as_slice(),
            DonorKind::Strings => &[],
        };
        DonorObject::parse(object)
            .and_then(|object| object.tuned(settings, ALLOGRAFT))
            .map_err(|source| Error::Donor { donor: donor.name.to_owned(), source })
    }

    /// The plan of one step, or why it must not be done.
    fn step(
        &mut self,
        path: &Path,
        archive: &Archive<'_>,
        donor: &'static donors::Donor,
    ) -> Result<Result<Plan, Refusal>, Error> {
        // By the first object in it; whether the others agree, and whether it is a libc at all, the plan finds out.
        let machine = archive.members().iter().find_map(|member| relocatable::machine(member.data));
        let arch = machine.and_then(|machine| machine.arch()).unwrap_or(Arch::X86_64);
        let object = donor.object(arch).ok_or_else(|| Error::NoDonorFor {
            path: path.to_owned(),
            donor: donor.name.to_owned(),
            arch: arch.name().to_owned(),
            offered: offered(donor),
        })?;
        let key = (donor.name, arch.name());
        if !self.tuned.contains_key(&key) {
            self.tuned.insert(key, self.tune(donor, object)?);
        }
        let plan = if self.conditions.force { surgery::plan::plan_by_force } else { surgery::plan::plan };
        Ok(plan(archive, &self.tuned[&key]))
    }

    /// Plans the graft of the archive at `path`, which has these bytes. A graft is planned from its stock file, where that
    /// is to be had: nothing of an earlier donor, or of an earlier release of this program, is left then.
    pub(crate) fn plan(&mut self, path: &Path, bytes: &[u8]) -> Result<Planned, Error> {
        let before_sha256 = sha256(bytes);
        let before = Carried::by(path, &parse(path, bytes)?)?;
        let base = base(path, &before, &before_sha256);
        let stock;
        let from = match &base {
            Base::Host => {
                self.nothing_to_take_out(path, &before)?;
                bytes
            }
            Base::Stock { .. } => {
                stock = base.bytes(bytes)?;
                &stock
            }
        };
        let another = self.another(&parse(path, from)?)?;
        let whole = match &another {
            Some(another) => restored(path, &another.restoration, from)?,
            None => Cow::Borrowed(from),
        };
        let from: &[u8] = &whole;
        let malloc = match self.request.donor {
            None => None,
            Some(donor) => {
                let plan = self.step(path, &parse(path, from)?, donor)?;
                Some(plan.map_err(|refusal| refused(path, refusal))?)
            }
        };
        let first = match &malloc {
            Some(plan) => plan.apply(&parse(path, from)?),
            None => from.to_vec(),
        };
        let strings = match (self.request.strings, &malloc) {
            (false, _) => Strings::Off,
            (true, Some(plan)) if donors::strings().object(plan.arch).is_none() => Strings::Missing(plan.arch),
            (true, _) => match self.step(path, &parse(path, &first)?, donors::strings())? {
                Ok(plan) => Strings::Grafted(Box::new(plan)),
                Err(refusal) if malloc.is_none() => return Err(refused(path, refusal)),
                Err(refusal) => Strings::Refused(Box::new(refusal)),
            },
        };
        let graft = match strings.plan() {
            Some(plan) => plan.apply(&parse(path, &first)?),
            None => first,
        };
        let graft_sha256 = sha256(&graft);
        let any = malloc.as_ref().or_else(|| strings.plan()).ok_or(Error::NothingToGraft)?;
        let operation = Operation {
            arch: any.arch,
            fork_hook: any.fork_hook,
            unchanged: graft_sha256 == before_sha256,
            before,
            another,
            malloc,
            strings,
        };
        Ok(Planned { operation, base, before_sha256, graft_sha256, graft })
    }

    /// Somebody else's allocator, if that may be replaced and will be.
    fn another(&self, archive: &Archive<'_>) -> Result<Option<Another>, Error> {
        if !self.conditions.force || self.request.donor.is_none() {
            return Ok(None);
        }
        let Some(allocator) = surgery::plan::another_allocator(archive) else { return Ok(None) };
        Ok(Some(Another { allocator, restoration: self.stock.restore(archive)? }))
    }

    /// Refuses what takes more than a graft: members of stock that an earlier graft has taken out.
    fn nothing_to_take_out(&self, path: &Path, before: &Carried) -> Result<(), Error> {
        let surplus = match (self.request.donor, &before.malloc, &before.strings) {
            (None, Some(_), _) => DonorKind::Malloc,
            (_, _, Some(_)) if !self.request.strings => DonorKind::Strings,
            _ => return Ok(()),
        };
        Err(Error::StockNeeded { path: path.to_owned(), surplus })
    }

    /// SHA-256 of what these donors make of the stock archive `bytes`; `None` if that cannot be grafted, or is a graft itself.
    pub(crate) fn graft_of(&mut self, path: &Path, bytes: &[u8]) -> Option<String> {
        let planned = self.plan(path, bytes).ok()?;
        (!planned.operation.before.anything()).then_some(planned.graft_sha256)
    }
}

/// The backup, if the host is a graft with a record that fits and the backup is what the record says. One with somebody else's
/// allocator in it is no stock file: what it had lost is in the graft.
fn base(path: &Path, before: &Carried, before_sha256: &str) -> Base {
    if !before.anything() {
        return Base::Host;
    }
    let backup = backup_path(path);
    let Some(record) = undo::record_of(path, before_sha256) else { return Base::Host };
    let Ok(Some(bytes)) = companion::read(&backup) else { return Base::Host };
    let another = || Archive::parse(&bytes).is_ok_and(|stock| surgery::plan::another_allocator(&stock).is_some());
    if sha256(&bytes) != record.stock_sha256 || another() {
        return Base::Host;
    }
    Base::Stock { backup, sha256: record.stock_sha256 }
}
