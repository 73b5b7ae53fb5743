//! An archive with the symbols of its members, and the members that define each symbol.

use foldhash::HashMap;

use crate::archive::{Archive, Member};
use crate::bytes::printable;
use crate::elf::{Elf, Symbol};
use crate::error::InspectError;
use crate::report::Arch;

/// An archive whose ELF members have all been read.
#[derive(Debug)]
pub(crate) struct Library<'a> {
    pub(crate) archive: Archive<'a>,
    /// The ELF members, in order.
    pub(crate) parts: Vec<Part<'a>>,
}

/// An ELF member.
#[derive(Debug)]
pub(crate) struct Part<'a> {
    /// The member's place in [`Archive::members`].
    pub(crate) place: usize,
    pub(crate) elf: Elf<'a>,
}

impl<'a> Part<'a> {
    pub(crate) fn exports(&self) -> impl Iterator<Item = &Symbol<'a>> {
        self.elf.symbols.iter().filter(|symbol| symbol.is_exported())
    }

    pub(crate) fn exported(&self, name: &[u8]) -> Option<&Symbol<'a>> {
        self.exports().find(|symbol| symbol.name == name)
    }

    /// Whether the symbol table has the name, defined or undefined.
    pub(crate) fn mentions(&self, name: &[u8]) -> bool {
        self.elf.symbols.iter().any(|symbol| symbol.name == name)
    }
}

impl<'a> Library<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, InspectError> {
        let archive = Archive::parse(bytes)?;
        let mut parts = Vec::new();
        for (place, member) in archive.members.iter().enumerate().filter(|(_, member)| member.is_elf()) {
            let broken =
                |problem| InspectError::Member { ordinal: member.ordinal, name: printable(member.name), problem };
            let elf = Elf::parse(member.data).map_err(broken)?;
            if let Some(damage) = &elf.damage {
                return Err(broken(damage.clone()));
            }
            parts.push(Part { place, elf });
        }
        Ok(Library { archive, parts })
    }

    pub(crate) fn member(&self, part: &Part<'a>) -> &Member<'a> {
        &self.archive.members[part.place]
    }

    /// Returns the member's ordinal and name, for messages.
    pub(crate) fn label(&self, part: &Part<'a>) -> String {
        self.member(part).label()
    }

    pub(crate) fn arch(&self) -> Arch {
        let arch = self.parts.first().map_or(Arch::None, |part| part.elf.arch);
        if self.parts.iter().all(|part| part.elf.arch == arch) { arch } else { Arch::Mixed }
    }

    /// Returns the members that define `symbol`. The first is the one that a linker takes: the index's first, or
    /// without an index the archive's first.
    pub(crate) fn providers(&self, symbol: &[u8]) -> Vec<&Part<'a>> {
        let mut found: Vec<&Part<'a>> = self.parts.iter().filter(|part| part.exported(symbol).is_some()).collect();
        let indexed = self.archive.index.iter().find(|entry| entry.symbol == symbol).and_then(|entry| entry.member);
        if let Some(first) = indexed {
            found.sort_by_key(|part| part.place != first);
        }
        found
    }

    /// Returns every name that a member exports, with the places of those members in [`Library::parts`].
    pub(crate) fn definitions(&self) -> HashMap<&'a [u8], Vec<usize>> {
        let mut definitions: HashMap<&'a [u8], Vec<usize>> = HashMap::default();
        for (number, part) in self.parts.iter().enumerate() {
            for symbol in part.exports() {
                definitions.entry(symbol.name).or_default().push(number);
            }
        }
        definitions
    }
}
