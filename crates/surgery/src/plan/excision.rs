//! Which members go: those that define what the donor replaces, and what nothing but them needs.

use std::collections::HashSet;

use format::DonorKind;

use super::census::{Census, Definition, identity};
use super::donated::Donated;
use super::{Reason, Refusal, family};
use crate::archive::Archive;

/// The set of members that go, while it grows.
pub(super) struct Excision<'c, 'a> {
    pub(super) kind: DonorKind,
    archive: &'c Archive<'a>,
    census: &'c Census<'a>,
    donated: &'c Donated<'c>,
    /// By position: why the member goes; `None` for one that stays.
    pub(super) reasons: Vec<Option<Reason>>,
    /// Whether somebody else's allocator may go as well.
    another_goes: bool,
    /// Members that have gone and whose symbols have not been followed.
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

    /// Lets somebody else's allocator go as libc's own would.
    pub(super) fn let_another_go(&mut self) {
        self.another_goes = true;
    }

    /// Whether a symbol may be lost with somebody else's allocator: what is for those who call that one by name.
    pub(super) fn may_be_lost(&self, symbol: &[u8]) -> bool {
        self.another_goes && !family::is_beside_malloc(symbol)
    }

    /// Only this member goes: the donor of an earlier graft.
    pub(super) fn replace(&mut self, position: usize) {
        self.reasons[position] = Some(Reason::Graft);
    }

    /// Everything that makes up the archive's own allocator goes.
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

    /// Everything that defines one of the donor's string functions goes. That the donor's are weak is what makes others
    /// of their name bearable: see [`Excision::is_bearable`].
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

    /// Whether a member may stay although it defines this symbol as the donor does, weakly or not. An allocator's hook
    /// has a weak stand-in; string functions, those of a compiler's runtime library.
    pub(super) fn is_bearable(&self, position: usize, symbol: &[u8], weak: bool) -> bool {
        match self.kind {
            DonorKind::Malloc => weak && family::is_hook(symbol),
            DonorKind::Strings => self.is_of_runtime(position),
        }
    }

    /// Whether a member is a compiler's runtime library that lies in the archive. Its memcpy is for programs without
    /// libc, and weak.
    fn is_of_runtime(&self, position: usize) -> bool {
        let defines = &self.census.entries[position].defines;
        let mut doubled = defines.iter().filter(|symbol| self.donated.provides(symbol.name));
        defines.iter().any(|symbol| family::is_of_runtime(symbol.name)) && doubled.all(|symbol| symbol.weak)
    }

    /// Whether somebody else's allocator stood in for a symbol of the namespace `std`, which the C++ library of the
    /// same link brings to whoever refers to it: the operators do to `std::get_new_handler`. (Itanium C++ ABI, 5.1.4.)
    pub(super) fn is_of_cxx(&self, symbol: &[u8]) -> bool {
        self.another_goes && symbol.starts_with(b"_ZSt")
    }

    /// Whether what somebody else's allocator defined strongly may come back weak: C++'s operators, which programs
    /// replace.
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

    /// Whether a member that defines this symbol is what the donor replaces.
    fn makes_a_seed(&self, name: &[u8]) -> bool {
        match self.kind {
            DonorKind::Malloc => family::makes_a_seed(name, true),
            DonorKind::Strings => self.donated.provides(name),
        }
    }

    /// Whether the symbol belongs to what the donor replaces, whoever defines it.
    fn is_family(&self, name: &[u8]) -> bool {
        match self.kind {
            DonorKind::Malloc => family::is_family(name),
            DonorKind::Strings => self.donated.provides(name),
        }
    }

    /// Whether nothing but what goes can want the symbol.
    pub(super) fn is_inside_name(&self, name: &[u8]) -> bool {
        self.kind == DonorKind::Malloc && family::is_inside(name)
    }

    /// Refuses what the index says is to be replaced and cannot be looked into.
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

    /// Refuses an allocator that is not libc's own.
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

    /// Refuses to let somebody else's allocator go with what others may call that know nothing of it.
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

    /// What a member's going takes with it: those that need what it defines, and what only it and its like needed.
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

    /// Whether some member that stays defines the symbol too.
    pub(super) fn stays_defined(&self, symbol: &Definition<'_>) -> bool {
        self.census.definers(symbol.id).iter().any(|(definer, _)| !self.gone(*definer))
    }

    /// Whether nobody but members that go, and `position` itself, refers to the symbol.
    pub(super) fn unwanted(&self, symbol: &Definition<'_>, position: usize) -> bool {
        let outside = |referrer: &usize| *referrer != position && !self.gone(*referrer);
        !self.donated.needs(symbol.name) && !self.census.referrers(symbol.id).iter().any(outside)
    }

    /// Whether all that a member defines is of what goes.
    fn is_inside(&self, position: usize) -> bool {
        let defines = &self.census.entries[position].defines;
        !defines.is_empty()
            && defines.iter().all(|symbol| {
                !family::is_replaced(symbol.name)
                    && (self.is_family(symbol.name)
                        || (symbol.visibility.is_private() && self.unwanted(symbol, position)))
            })
    }

    /// Whether a member is there for members that go and for nothing else. One that defines what another member has a
    /// weak stand-in for is not: it may be wanted without being referred to.
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
