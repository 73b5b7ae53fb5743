//! Recognises an archive: its C library, its machine, and the grafts that it carries.

use format::{Arch, DonorKind, Note};

use super::Refusal;
use super::symbol_table::{Entry, SymbolTable};
use crate::archive::Archive;
use crate::donor;
use relocatable::{Machine, Object, arm};

/// The C library that an archive is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Libc {
    /// musl's, or one made from it.
    Musl,
    /// GNU's.
    Glibc,
    /// A different C library, or none.
    Other,
}

/// A description of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survey {
    /// The C library.
    pub libc: Libc,
    /// The architecture of its objects; `None` if no graft can be made for it, or if the objects differ.
    pub arch: Option<Arch>,
}

/// Functions that musl shares among its own files and that no other C library has. Some may be missing: zig replaces
/// some of them.
const MUSL: [&str; 8] = [
    "__init_libc",
    "__init_tp",
    "__copy_tls",
    "__libc",
    "__syscall_ret",
    "__ofl_lock",
    "__unmapself",
    "__pthread_tsd_run_dtors",
];
/// An archive is musl's if it defines this many of these functions.
const MUSL_ENOUGH: usize = 4;
const GLIBC: [&str; 3] = ["_IO_2_1_stdin_", "__libc_early_init", "gnu_get_libc_version"];

/// Describes an archive. Objects in it that cannot be read are passed over.
pub fn survey(archive: &Archive<'_>) -> Survey {
    let (table, _) = SymbolTable::take(archive);
    let machine = Machines::new(&table.entries).only();
    let arch = machine.and_then(Machine::arch).filter(|arch| unsupported(*arch, archive).is_none());
    Survey { libc: whose(&table).0, arch }
}

/// The notes of the allocator and of the string functions that grafts have put in.
///
/// # Errors
/// A graft's note is malformed, or two notes are of one kind.
pub fn carried(archive: &Archive<'_>) -> Result<[Option<Note>; 2], Refusal> {
    let note = |kind| carrier(archive, kind).map(|carrier| carrier.map(|(_, note)| note));
    Ok([note(DonorKind::Malloc)?, note(DonorKind::Strings)?])
}

/// The C library, and the symbols that show it.
pub(super) fn whose(table: &SymbolTable<'_>) -> (Libc, Vec<String>) {
    let found = |names: &[&str]| -> Vec<String> {
        names.iter().filter(|name| table.defines(name.as_bytes())).map(|name| (*name).to_owned()).collect()
    };
    let (musl, glibc) = (found(&MUSL), found(&GLIBC));
    match (musl.len() >= MUSL_ENOUGH, glibc.is_empty()) {
        (true, true) => (Libc::Musl, musl),
        (false, false) => (Libc::Glibc, glibc),
        (true, false) => (Libc::Other, musl.into_iter().chain(glibc).collect()),
        (false, true) => (Libc::Other, musl),
    }
}

/// The machines that an archive's objects are for.
pub(super) struct Machines {
    /// The first object's, with its position.
    pub(super) first: Option<(usize, Machine)>,
    /// The first object that is for another machine.
    pub(super) other: Option<(usize, Machine)>,
}

impl Machines {
    pub(super) fn new(entries: &[Entry<'_>]) -> Machines {
        let mut all = entries.iter().enumerate().filter_map(|(position, entry)| Some((position, entry.machine?)));
        let first = all.next();
        let other = all.find(|(_, machine)| first.is_some_and(|(_, first)| first != *machine));
        Machines { first, other }
    }

    fn only(&self) -> Option<Machine> {
        self.first.filter(|_| self.other.is_none()).map(|(_, machine)| machine)
    }
}

/// Why an archive of objects for `arch` cannot be grafted, if the machine in their headers does not decide.
pub(super) fn unsupported(arch: Arch, archive: &Archive<'_>) -> Option<&'static str> {
    let objects = archive.members().iter().filter_map(|member| Object::recognise(member.data));
    if arch == Arch::Arm { arm::unsupported(objects) } else { None }
}

/// The position of the member that a graft has put in with a donor of this kind, and its note.
pub(super) fn carrier(archive: &Archive<'_>, kind: DonorKind) -> Result<Option<(usize, Note)>, Refusal> {
    let mut carrier: Option<(usize, Note)> = None;
    for (position, member) in archive.members().iter().enumerate() {
        let Some(object) = Object::recognise(member.data) else { continue };
        let damaged = |source| Refusal::DamagedNote { member: member.id(), source };
        let Some(note) = donor::carried(&object, kind).map_err(damaged)? else { continue };
        if let Some((first, _)) = &carrier {
            return Err(Refusal::SeveralGrafts { first: first + 1, second: position + 1 });
        }
        carrier = Some((position, note));
    }
    Ok(carrier)
}
