//! The removal set: the members that define replaced functions, and the members that only they need.

use foldhash::HashSet;
use format::{DonorKind, printable};

use super::donated::Donated;
use super::symbol_table::{Definition, Id, SymbolTable};
use super::{Reason, Refusal, family};
use crate::archive::{Archive, MemberId};

/// The removal set, while it grows.
pub(super) struct RemovalSet<'c, 'a> {
    pub(super) kind: DonorKind,
    archive: &'c Archive<'a>,
    pub(super) table: &'c SymbolTable<'a>,
    pub(super) donated: &'c Donated<'c>,
    /// By position: why the member is removed; `None` for one that stays.
    pub(super) reasons: Vec<Option<Reason>>,
    /// Whether an allocator that is not libc's own may be removed as well.
    removes_foreign: bool,
    /// Members that are in the set and whose symbols have not been followed yet.
    pending: Vec<usize>,
}

impl<'c, 'a> RemovalSet<'c, 'a> {
    pub(super) fn new(
        kind: DonorKind,
        archive: &'c Archive<'a>,
        table: &'c SymbolTable<'a>,
        donated: &'c Donated<'c>,
    ) -> Self {
        let reasons = vec![None; table.entries.len()];
        RemovalSet { kind, archive, table, donated, reasons, removes_foreign: false, pending: Vec::new() }
    }

    /// Allows removing an allocator that is not libc's own.
    pub(super) fn remove_foreign(&mut self) {
        self.removes_foreign = true;
    }

    /// Whether the symbol may be lost with a foreign allocator: only programs that call that allocator by its own names
    /// use it.
    pub(super) fn may_be_lost(&self, symbol: &[u8]) -> bool {
        self.removes_foreign && !family::is_beside_malloc(symbol)
    }

    /// Removes this member only: an earlier graft's donor.
    pub(super) fn replace(&mut self, position: usize) {
        self.reasons[position] = Some(Reason::Graft);
    }

    /// Adds every member of the archive's own allocator to the set.
    pub(super) fn allocator(&mut self) -> Result<(), Refusal> {
        self.opaque()?;
        for (position, entry) in self.table.entries.iter().enumerate() {
            if entry.defines.iter().any(|symbol| family::makes_a_seed(symbol.name, symbol.weak)) {
                self.check_foreign(position, &entry.defines)?;
                self.remove(position, Reason::Allocator);
            }
        }
        match ["malloc", "free"].into_iter().find(|symbol| !self.table.defines(symbol.as_bytes())) {
            Some(symbol) => Err(Refusal::NoAllocator { symbol }),
            None => self.follow_all(),
        }
    }

    /// Adds every member that defines one of the donor's string functions. The donor's definitions are weak, so a
    /// duplicate definition elsewhere is allowed: see [`RemovalSet::may_double`].
    pub(super) fn strings(&mut self) -> Result<(), Refusal> {
        self.opaque()?;
        for (position, entry) in self.table.entries.iter().enumerate() {
            let seed = entry.defines.iter().any(|symbol| self.donated.provides(symbol.name));
            if seed && !self.is_of_runtime(position) {
                self.remove(position, Reason::Strings);
            }
        }
        if self.pending.is_empty() { Err(Refusal::NoStrings) } else { self.follow_all() }
    }

    /// Whether a member may stay although it defines this symbol, weakly or not, and so does the donor. Allowed are
    /// weak defaults of an allocator's hook, and the string functions of a compiler's runtime library.
    pub(super) fn may_double(&self, position: usize, symbol: &[u8], weak: bool) -> bool {
        match self.kind {
            DonorKind::Malloc => weak && family::is_hook(symbol),
            DonorKind::Strings => self.is_of_runtime(position),
        }
    }

    /// Whether a member is part of a compiler's runtime library in the archive. Its memcpy is weak, and for programs
    /// without libc.
    fn is_of_runtime(&self, position: usize) -> bool {
        let defines = &self.table.entries[position].defines;
        let mut doubled = defines.iter().filter(|symbol| self.donated.provides(symbol.name));
        defines.iter().any(|symbol| family::is_of_runtime(symbol.name)) && doubled.all(|symbol| symbol.weak)
    }

    /// Whether the symbol is in the namespace `std`, and a foreign allocator brought its own definition of it. The C++
    /// library defines it for every program that refers to it; the operators refer to `std::get_new_handler`. (Itanium
    /// C++ ABI, 5.1.4.)
    pub(super) fn is_of_cxx(&self, symbol: &[u8]) -> bool {
        self.removes_foreign && symbol.starts_with(b"_ZSt")
    }

    /// Whether a symbol that a foreign allocator defined strongly may be weak after the graft. C++'s operators may,
    /// since programs replace them.
    pub(super) fn may_become_weak(&self, symbol: &[u8]) -> bool {
        self.removes_foreign && family::is_beside_malloc(symbol)
    }

    fn remove(&mut self, position: usize, reason: Reason) {
        self.reasons[position] = Some(reason);
        self.pending.push(position);
    }

    pub(super) fn removes(&self, position: usize) -> bool {
        self.reasons[position].is_some()
    }

    /// Whether a member that defines this symbol is to be replaced.
    fn makes_a_seed(&self, name: &[u8]) -> bool {
        match self.kind {
            DonorKind::Malloc => family::makes_a_seed(name, true),
            DonorKind::Strings => self.donated.provides(name),
        }
    }

    /// Whether the symbol belongs to the replaced functions, regardless of the member that defines it.
    fn is_family(&self, name: &[u8]) -> bool {
        match self.kind {
            DonorKind::Malloc => family::is_family(name),
            DonorKind::Strings => self.donated.provides(name),
        }
    }

    /// Whether only removed members can need the symbol.
    pub(super) fn is_inside_name(&self, name: &[u8]) -> bool {
        self.kind == DonorKind::Malloc && family::is_inside(name)
    }

    /// Refuses an archive whose index names a symbol to be replaced in a member that is not an object with that symbol.
    fn opaque(&self) -> Result<(), Refusal> {
        let objects = self.table.entries.iter().enumerate().filter(|(_, entry)| entry.machine.is_some());
        let seen: HashSet<(usize, &[u8])> = objects
            .flat_map(|(position, entry)| entry.defines.iter().map(move |symbol| (position + 1, symbol.name)))
            .filter(|(_, name)| self.makes_a_seed(name))
            .collect();
        let mut family = self.archive.indexed().filter(|(_, symbol)| self.makes_a_seed(symbol));
        let Some((ordinal, symbol)) = family.find(|entry| !seen.contains(entry)) else { return Ok(()) };
        Err(Refusal::Opaque { member: self.member(ordinal - 1), symbol: printable(symbol) })
    }

    /// Refuses an allocator that is not libc's own, unless it may be removed.
    fn check_foreign(&self, position: usize, defines: &[Definition<'_>]) -> Result<(), Refusal> {
        let Some((symbol, allocator)) = foreign_symbol(defines) else { return Ok(()) };
        if self.removes_foreign {
            return self.all_kept(position, defines);
        }
        let lost = family::USUAL_LOSSES.into_iter().filter(|name| !self.table.defines(name.as_bytes())).collect();
        let (member, symbol) = (self.member(position), printable(symbol.name));
        Err(Refusal::ForeignAllocator { member, symbol, allocator, lost })
    }

    /// Refuses to remove a foreign allocator if that loses symbols that its callers may need.
    fn all_kept(&self, position: usize, defines: &[Definition<'_>]) -> Result<(), Refusal> {
        let elsewhere =
            |symbol: &Definition<'_>| self.table.definers(symbol.id).iter().any(|(definer, _)| *definer != position);
        let lost = |symbol: &&Definition<'_>| family::is_beside_malloc(symbol.name) && !elsewhere(symbol);
        let symbols: Vec<String> = defines.iter().filter(lost).map(|symbol| printable(symbol.name)).collect();
        if symbols.is_empty() {
            return Ok(());
        }
        Err(Refusal::LostWithForeign { member: self.member(position), symbols })
    }

    fn follow_all(&mut self) -> Result<(), Refusal> {
        while let Some(position) = self.pending.pop() {
            self.follow(position)?;
        }
        Ok(())
    }

    /// Adds the members that follow from a removed one: those that need its symbols, and those that only removed
    /// members needed.
    fn follow(&mut self, position: usize) -> Result<(), Refusal> {
        let table = self.table;
        for symbol in &table.entries[position].defines {
            let stays_defined = self.staying_definers(symbol.id).next().is_some();
            if self.donated.provides(symbol.name) || stays_defined || self.is_of_cxx(symbol.name) {
                continue;
            }
            for referrer in table.referrers(symbol.id) {
                if self.removes(*referrer) {
                    continue;
                }
                if !self.is_inside(*referrer) {
                    return Err(self.entangled(*referrer, position, symbol));
                }
                self.remove(*referrer, Reason::Inside);
            }
        }
        for id in &table.entries[position].refers {
            for (definer, _) in table.definers(*id) {
                if !self.removes(*definer) && self.is_orphan(*definer) {
                    self.remove(*definer, Reason::Orphan);
                }
            }
        }
        Ok(())
    }

    /// The members that stay and define the symbol, and whether weakly.
    pub(super) fn staying_definers(&self, id: Id) -> impl Iterator<Item = (usize, bool)> {
        self.table.definers(id).iter().copied().filter(|(definer, _)| !self.removes(*definer))
    }

    /// The members that stay and refer to the symbol.
    pub(super) fn staying_referrers(&self, id: Id) -> impl Iterator<Item = usize> {
        self.table.referrers(id).iter().copied().filter(|referrer| !self.removes(*referrer))
    }

    /// Whether only removed members, and `position` itself, refer to the symbol.
    fn unwanted(&self, symbol: &Definition<'_>, position: usize) -> bool {
        !self.donated.needs(symbol.name) && self.staying_referrers(symbol.id).all(|referrer| referrer == position)
    }

    /// Whether every symbol of a member belongs to the replaced functions.
    fn is_inside(&self, position: usize) -> bool {
        let defines = &self.table.entries[position].defines;
        !defines.is_empty()
            && defines.iter().all(|symbol| {
                !family::is_replaced(symbol.name)
                    && (self.is_family(symbol.name)
                        || (symbol.visibility.is_private() && self.unwanted(symbol, position)))
            })
    }

    /// Whether only removed members need a member. A member is not an orphan if it defines a symbol of which a
    /// different member has a weak default: then it may be needed without a reference.
    fn is_orphan(&self, position: usize) -> bool {
        let defines = &self.table.entries[position].defines;
        !defines.is_empty()
            && defines.iter().all(|symbol| {
                symbol.visibility.is_private()
                    && !family::is_replaced(symbol.name)
                    && self.unwanted(symbol, position)
                    && self.table.referrers(symbol.id).iter().any(|referrer| self.removes(*referrer))
                    && self.staying_definers(symbol.id).all(|(definer, _)| definer == position)
            })
    }

    /// The member at this position, for messages.
    pub(super) fn member(&self, position: usize) -> MemberId {
        self.archive.members()[position].id()
    }

    pub(super) fn entangled(&self, referrer: usize, definer: usize, symbol: &Definition<'_>) -> Refusal {
        let (member, definer) = (self.member(referrer), self.member(definer));
        Refusal::Entangled { kind: self.kind, member, symbol: printable(symbol.name), definer }
    }
}

/// The allocator that a member with these symbols belongs to if it is not libc's own, and the symbol that shows it.
pub(super) fn foreign_symbol<'s, 'a>(defines: &'s [Definition<'a>]) -> Option<(&'s Definition<'a>, &'static str)> {
    let known = defines.iter().find_map(|symbol| Some((symbol, known::foreign(symbol.name)?)));
    let beside = || defines.iter().find(|symbol| family::is_beside_malloc(symbol.name));
    known.or_else(|| Some((beside()?, "one that is not known here")))
}
