//! The removal set: the members that define what the donor replaces, and those that only they need.

use std::collections::HashSet;

use format::DonorKind;

use super::census::{Census, Definition, identity};
use super::donated::Donated;
use super::{Reason, Refusal, family};
use crate::archive::Archive;

/// The removal set, while it grows.
pub(super) struct Excision<'c, 'a> {
    pub(super) kind: DonorKind,
    archive: &'c Archive<'a>,
    census: &'c Census<'a>,
    donated: &'c Donated<'c>,
    /// By position: why the member is removed; `None` for one that stays.
    pub(super) reasons: Vec<Option<Reason>>,
    /// Whether an allocator that is not libc's own may be removed as well.
    another_goes: bool,
    /// Members that are in the set and whose symbols have not been followed yet.
    pending: Vec<usize>,
}

impl<'c, 'a> Excision<'c, 'a> {
    pub(super) fn new(
        kind: DonorKind,
        archive: &'c Archive<'a>,
        census: &'c Census<'a>,
        donated: &'c Donated<'c>,
    ) -> Self {
        let reasons = vec![None; census.entries.len()];
        Excision { kind, archive, census, donated, reasons, another_goes: false, pending: Vec::new() }
    }

    /// Allows removing an allocator that is not libc's own.
    pub(super) fn let_another_go(&mut self) {
        self.another_goes = true;
    }

    /// Whether the symbol may be lost with another allocator: it is only for programs that call that allocator by its
    /// own names.
    pub(super) fn may_be_lost(&self, symbol: &[u8]) -> bool {
        self.another_goes && !family::is_beside_malloc(symbol)
    }

    /// Removes this member only: an earlier graft's donor.
    pub(super) fn replace(&mut self, position: usize) {
        self.reasons[position] = Some(Reason::Graft);
    }

    /// Adds every member of the archive's own allocator to the set.
    pub(super) fn allocator(&mut self) -> Result<(), Refusal> {
        self.opaque()?;
        for (position, entry) in self.census.entries.iter().enumerate() {
            if entry.defines.iter().any(|symbol| family::makes_a_seed(symbol.name, symbol.weak)) {
                self.another(position, &entry.defines)?;
                self.goes(position, Reason::Allocator);
            }
        }
        for symbol in ["malloc", "free"] {
            let found = self.census.defines(symbol.as_bytes());
            if !found {
                return Err(Refusal::NoAllocator { symbol });
            }
        }
        while let Some(position) = self.pending.pop() {
            self.follow(position)?;
        }
        Ok(())
    }

    /// Adds every member that defines one of the donor's string functions. The donor's definitions are weak, so a
    /// duplicate definition elsewhere is allowed: see [`Excision::is_bearable`].
    pub(super) fn strings(&mut self) -> Result<(), Refusal> {
        self.opaque()?;
        for (position, entry) in self.census.entries.iter().enumerate() {
            let seed = entry.defines.iter().any(|symbol| self.donated.provides(symbol.name));
            if seed && !self.is_of_runtime(position) {
                self.goes(position, Reason::Strings);
            }
        }
        if self.pending.is_empty() {
            return Err(Refusal::NoStrings);
        }
        while let Some(position) = self.pending.pop() {
            self.follow(position)?;
        }
        Ok(())
    }

    /// Whether a member may stay although it defines this symbol, weakly or not, and so does the donor. Allowed are
    /// weak stand-ins for an allocator's hook, and the string functions of a compiler's runtime library.
    pub(super) fn is_bearable(&self, position: usize, symbol: &[u8], weak: bool) -> bool {
        match self.kind {
            DonorKind::Malloc => weak && family::is_hook(symbol),
            DonorKind::Strings => self.is_of_runtime(position),
        }
    }

    /// Whether a member is part of a compiler's runtime library that lies in the archive. Its memcpy is weak, and for
    /// programs without libc.
    fn is_of_runtime(&self, position: usize) -> bool {
        let defines = &self.census.entries[position].defines;
        let mut doubled = defines.iter().filter(|symbol| self.donated.provides(symbol.name));
        defines.iter().any(|symbol| family::is_of_runtime(symbol.name)) && doubled.all(|symbol| symbol.weak)
    }

    /// Whether the symbol is in the namespace `std`, and another allocator brought its own definition of it. The C++
    /// library of the same link defines it for every program that refers to it, as the operators do to
    /// `std::get_new_handler`. (Itanium C++ ABI, 5.1.4.)
    pub(super) fn is_of_cxx(&self, symbol: &[u8]) -> bool {
        self.another_goes && symbol.starts_with(b"_ZSt")
    }

    /// Whether a symbol that another allocator defined strongly may be weak after the graft. C++'s operators may, since
    /// programs replace them.
    pub(super) fn may_be_weak(&self, symbol: &[u8]) -> bool {
        self.another_goes && family::is_beside_malloc(symbol)
    }

    fn goes(&mut self, position: usize, reason: Reason) {
        self.reasons[position] = Some(reason);
        self.pending.push(position);
    }

    pub(super) fn gone(&self, position: usize) -> bool {
        self.reasons[position].is_some()
    }

    /// Whether a member that defines this symbol is part of what the donor replaces.
    fn makes_a_seed(&self, name: &[u8]) -> bool {
        match self.kind {
            DonorKind::Malloc => family::makes_a_seed(name, true),
            DonorKind::Strings => self.donated.provides(name),
        }
    }

    /// Whether the symbol belongs to what the donor replaces, whichever member defines it.
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
        let objects = self.census.entries.iter().enumerate().filter(|(_, entry)| entry.machine.is_some());
        let seen: HashSet<(usize, &[u8])> = objects
            .flat_map(|(position, entry)| entry.defines.iter().map(move |symbol| (position + 1, symbol.name)))
            .filter(|(_, name)| self.makes_a_seed(name))
            .collect();
        let mut family = self.archive.indexed().filter(|(_, symbol)| self.makes_a_seed(symbol));
        let Some((ordinal, symbol)) = family.find(|entry| !seen.contains(entry)) else { return Ok(()) };
        let (ordinal, name) = self.identity(ordinal - 1);
        Err(Refusal::Opaque { ordinal, name, symbol: text(symbol) })
    }

    /// Refuses an allocator that is not libc's own, unless it may be removed.
    fn another(&self, position: usize, defines: &[Definition<'_>]) -> Result<(), Refusal> {
        let known = defines.iter().find_map(|symbol| Some((symbol, family::foreign_allocator(symbol.name)?)));
        let beside = || defines.iter().find(|symbol| family::is_beside_malloc(symbol.name));
        let Some((symbol, allocator)) = known.or_else(|| Some((beside()?, "one that is not known here"))) else {
            return Ok(());
        };
        if self.another_goes {
            return self.all_kept(position, defines);
        }
        let (ordinal, name) = self.identity(position);
        let lost = family::USUAL_LOSSES.into_iter().filter(|name| !self.census.defines(name.as_bytes())).collect();
        Err(Refusal::AnotherAllocator { ordinal, name, symbol: text(symbol.name), allocator, lost })
    }

    /// Refuses to remove another allocator if that loses symbols that callers outside of it may need.
    fn all_kept(&self, position: usize, defines: &[Definition<'_>]) -> Result<(), Refusal> {
        let elsewhere =
            |symbol: &Definition<'_>| self.census.definers(symbol.id).iter().any(|(definer, _)| *definer != position);
        let lost = |symbol: &&Definition<'_>| family::is_beside_malloc(symbol.name) && !elsewhere(symbol);
        let symbols: Vec<String> = defines.iter().filter(lost).map(|symbol| text(symbol.name)).collect();
        if symbols.is_empty() {
            return Ok(());
        }
        let (ordinal, name) = self.identity(position);
        Err(Refusal::LostWithAnother { ordinal, name, symbols })
    }

    /// Adds the members that follow from a removed one: those that need its symbols, and those that only removed
    /// members needed.
    fn follow(&mut self, position: usize) -> Result<(), Refusal> {
        let census = self.census;
        for symbol in &census.entries[position].defines {
            if self.donated.provides(symbol.name) || self.stays_defined(symbol) || self.is_of_cxx(symbol.name) {
                continue;
            }
            for referrer in census.referrers(symbol.id) {
                if self.gone(*referrer) {
                    continue;
                }
                if !self.is_inside(*referrer) {
                    return Err(self.entangled(*referrer, position, symbol));
                }
                self.goes(*referrer, Reason::Inside);
            }
        }
        for id in &census.entries[position].refers {
            for (definer, _) in census.definers(*id) {
                if !self.gone(*definer) && self.is_orphan(*definer) {
                    self.goes(*definer, Reason::Orphan);
                }
            }
        }
        Ok(())
    }

    /// Whether a member that stays defines the symbol too.
    pub(super) fn stays_defined(&self, symbol: &Definition<'_>) -> bool {
        self.census.definers(symbol.id).iter().any(|(definer, _)| !self.gone(*definer))
    }

    /// Whether only removed members, and `position` itself, refer to the symbol.
    pub(super) fn unwanted(&self, symbol: &Definition<'_>, position: usize) -> bool {
        let outside = |referrer: &usize| *referrer != position && !self.gone(*referrer);
        !self.donated.needs(symbol.name) && !self.census.referrers(symbol.id).iter().any(outside)
    }

    /// Whether every symbol of a member belongs to what is replaced.
    fn is_inside(&self, position: usize) -> bool {
        let defines = &self.census.entries[position].defines;
        !defines.is_empty()
            && defines.iter().all(|symbol| {
                !family::is_replaced(symbol.name)
                    && (self.is_family(symbol.name)
                        || (symbol.visibility.is_private() && self.unwanted(symbol, position)))
            })
    }

    /// Whether only removed members need a member. A member is not an orphan if it defines a symbol that another member
    /// has a weak stand-in for: it may be needed without a reference to it.
    fn is_orphan(&self, position: usize) -> bool {
        let defines = &self.census.entries[position].defines;
        !defines.is_empty()
            && defines.iter().all(|symbol| {
                let wanted_by_the_gone =
                    || self.census.referrers(symbol.id).iter().any(|referrer| self.gone(*referrer));
                let defined_elsewhere = || {
                    let mut definers = self.census.definers(symbol.id).iter();
                    definers.any(|(definer, _)| *definer != position && !self.gone(*definer))
                };
                symbol.visibility.is_private()
                    && !family::is_replaced(symbol.name)
                    && self.unwanted(symbol, position)
                    && wanted_by_the_gone()
                    && !defined_elsewhere()
            })
    }

    pub(super) fn identity(&self, position: usize) -> (usize, String) {
        identity(&self.archive.members()[position])
    }

    pub(super) fn entangled(&self, referrer: usize, definer: usize, symbol: &Definition<'_>) -> Refusal {
        let (ordinal, name) = self.identity(referrer);
        let (definer, definer_name) = self.identity(definer);
        Refusal::Entangled { kind: self.kind, ordinal, name, symbol: text(symbol.name), definer, definer_name }
    }
}

pub(super) fn text(symbol: &[u8]) -> String {
    format::printable(symbol)
}
