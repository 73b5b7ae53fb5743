//! The plan of a graft: the members of an archive to remove and the donor to insert, or a refusal.
//!
//! Members are chosen by the symbols that they define and by the members that refer to them. Their names play no part:
//! they differ between releases and builds of musl.

mod checks;
mod donated;
mod family;
mod refusal;
mod removal_set;
mod restoration;
mod survey;
mod symbol_table;

pub use refusal::{Refusal, Remedy};
pub use restoration::{Restoration, foreign_allocator, musl_version, restore};
pub use survey::{Libc, Survey, carried, survey};

use std::collections::BTreeSet;

use crate::archive::{Archive, Insert};
use crate::donor::DonorObject;
use format::{Arch, DonorKind, Note, printable};
use relocatable::{Machine, ObjectError};

use donated::Donated;
use removal_set::RemovalSet;
use survey::Machines;
use symbol_table::SymbolTable;

/// The kind of change that a plan makes to an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanKind {
    /// Removes the archive's own allocator, or its string functions.
    Graft,
    /// Removes an earlier graft's donor.
    Replace {
        /// The note of the earlier graft's donor.
        previous: Note,
    },
    /// Changes nothing: the archive already carries this donor.
    Unchanged,
}

/// Why a member is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It defines a function of the malloc family.
    Allocator,
    /// It defines a string function that the donor brings.
    Strings,
    /// It defines only internals of the allocator, and refers to other internals.
    Inside,
    /// Only removed members refer to it.
    Orphan,
    /// It is an earlier graft's donor.
    Graft,
}

/// A member to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemovedMember {
    /// Its ordinal in the archive before the graft.
    pub ordinal: usize,
    /// Its name, for reading only.
    pub name: String,
    /// Its content, in bytes.
    pub size: usize,
    /// The symbols that it shares, in the order of its table.
    pub defines: Vec<String>,
    /// The reason to remove it.
    pub reason: Reason,
}

/// The edits of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The kind of functions that are replaced.
    pub donor_kind: DonorKind,
    /// The archive's architecture.
    pub arch: Arch,
    /// The kind of change.
    pub kind: PlanKind,
    /// The members to remove, in their order; empty if nothing is done.
    pub removed: Vec<RemovedMember>,
    /// The ordinal, before the graft, of the member before which the donor is inserted: the first removed member.
    pub insert_before: usize,
    /// The donor's note, options filled in.
    pub donor: Note,
    /// The symbols that the donor defines, in the order of its table.
    pub provides: Vec<String>,
    /// Whether libc's fork calls `__malloc_atfork`. musl does from 1.2.2 on.
    pub fork_hook: bool,
    /// The donor's object.
    pub donor_bytes: Vec<u8>,
    /// [`Plan::provides`] byte for byte, for the index.
    symbols: Vec<Vec<u8>>,
}

/// Plans the graft of `donor`, an object with its options filled in, into `archive`. An allocator replaces the
/// archive's own allocator; string functions replace the archive's own string functions. The two are independent: an
/// archive takes both, and either order gives the same bytes.
///
/// # Errors
/// The reason to refuse the graft.
pub fn plan(archive: &Archive<'_>, donor: &[u8]) -> Result<Plan, Refusal> {
    plan_for(archive, |_| Some(donor), false)
}

/// Like [`plan`], with the donor that `donor` returns for the archive's architecture. With `removes_foreign`, an
/// allocator that is not libc's own is replaced too. Its other symbols, beside the malloc family, have to be defined
/// without it: see [`restore`].
///
/// # Errors
/// The reason to refuse the graft.
pub fn plan_for<'d>(
    archive: &Archive<'_>,
    donor: impl FnOnce(Arch) -> Option<&'d [u8]>,
    removes_foreign: bool,
) -> Result<Plan, Refusal> {
    let (table, unreadable) = SymbolTable::take(archive);
    let (libc, evidence) = survey::whose(&table);
    match libc {
        Libc::Musl => {}
        Libc::Glibc => return Err(Refusal::Glibc { evidence: evidence.join(", ") }),
        Libc::Other => {
            let found = if evidence.is_empty() { "none".to_owned() } else { evidence.join(", ") };
            return Err(Refusal::NotMusl { found });
        }
    }
    if let Some(damage) = unreadable.into_iter().next() {
        return Err(Refusal::Member { member: archive.members()[damage.position].id(), source: damage.source });
    }
    checks::index(archive, &table)?;
    let arch = arch(archive, &table)?;
    let donor = donor(arch).ok_or(Refusal::NoDonor { arch })?;
    let object = DonorObject::parse(donor)?;
    if object.arch() != arch {
        return Err(Refusal::DonorArch { donor: object.arch(), archive: arch });
    }
    let donated = Donated::read(donor).map_err(|error: ObjectError| Refusal::Donor(error.into()))?;

    let replaces = object.kind();
    let carrier = survey::carrier(archive, replaces)?;
    let unchanged = carrier.as_ref().is_some_and(|(position, _)| archive.members()[*position].data == donor);
    let mut removal = RemovalSet::new(replaces, archive, &table, &donated);
    if removes_foreign && replaces == DonorKind::Malloc && carrier.is_none() {
        removal.remove_foreign();
    }
    let kind = match carrier {
        Some((position, previous)) => {
            removal.replace(position);
            if unchanged { PlanKind::Unchanged } else { PlanKind::Replace { previous } }
        }
        None => {
            match replaces {
                DonorKind::Malloc => removal.allocator()?,
                DonorKind::Strings => removal.strings()?,
            }
            PlanKind::Graft
        }
    };
    let note = object.note();
    let fork_hook = checks::fork_hook(&removal);
    checks::nothing_lost(&removal)?;
    checks::nothing_doubled(&removal)?;
    checks::donor_complete(&removal, &note)?;

    let mut removed = removed(archive, &removal);
    let insert_before = removed.first().map_or(archive.members().len() + 1, |member| member.ordinal);
    if kind == PlanKind::Unchanged {
        removed.clear();
    }
    Ok(Plan {
        donor_kind: replaces,
        arch,
        kind,
        removed,
        insert_before,
        donor: note,
        provides: donated.defines.iter().map(|symbol| printable(symbol.name)).collect(),
        fork_hook,
        donor_bytes: donor.to_vec(),
        symbols: donated.defines.iter().map(|symbol| symbol.name.to_vec()).collect(),
    })
}

fn arch(archive: &Archive<'_>, table: &SymbolTable<'_>) -> Result<Arch, Refusal> {
    let machines = Machines::new(&table.entries);
    match (machines.first, machines.other) {
        (None, _) => Err(Refusal::NoObjects { members: archive.members().len() }),
        (Some((first, expected)), Some((other, found))) => {
            let (expected, found) = (expected.to_string(), found.to_string());
            let member = archive.members()[other].id();
            Err(Refusal::MixedMachines { first: first + 1, expected, member, found })
        }
        (Some((_, machine)), None) => {
            let arch = Machine::arch(machine).ok_or_else(|| Refusal::Machine { found: machine.to_string() })?;
            match survey::unsupported(arch, archive) {
                Some(found) => Err(Refusal::Machine { found: found.to_owned() }),
                None => Ok(arch),
            }
        }
    }
}

fn removed(archive: &Archive<'_>, removal: &RemovalSet<'_, '_>) -> Vec<RemovedMember> {
    let members = archive.members().iter().zip(&removal.table.entries).zip(&removal.reasons);
    members
        .filter_map(|((member, entry), reason)| {
            Some(RemovedMember {
                ordinal: member.ordinal,
                name: member.display_name(),
                size: member.data.len(),
                defines: entry.defines.iter().map(|symbol| printable(symbol.name)).collect(),
                reason: (*reason)?,
            })
        })
        .collect()
}

impl Plan {
    /// The ordinal that a member of the grafted archive had before; `None` for the donor.
    pub fn origin(&self, ordinal: usize) -> Option<usize> {
        if self.kind == PlanKind::Unchanged || ordinal < self.insert_before {
            return Some(ordinal);
        }
        // First take the donor out. Then each removed member at or before the ordinal moves it on by one.
        let kept = ordinal.checked_sub(1).filter(|kept| *kept >= self.insert_before)?;
        Some(self.removed.iter().fold(kept, |origin, member| origin + usize::from(member.ordinal <= origin)))
    }

    /// Returns the grafted archive. `archive` has to be the one that the plan was made for.
    pub fn apply(&self, archive: &Archive<'_>) -> Vec<u8> {
        if self.kind == PlanKind::Unchanged {
            return archive.bytes().to_vec();
        }
        let removed: BTreeSet<usize> = self.removed.iter().map(|member| member.ordinal).collect();
        let symbols = self.symbols.iter().map(Vec::as_slice).collect();
        let insert = Insert::donor(self.donor_kind, self.insert_before, &self.donor_bytes, symbols);
        archive.edit(&removed, Some(&insert))
    }
}
