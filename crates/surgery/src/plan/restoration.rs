//! Restores, from stock archives, the functions that a `libc.a` with a foreign allocator has lost.

use std::collections::BTreeSet;

use format::printable;

use super::family::{self, USUAL_LOSSES};
use super::removal_set::foreign_symbol;
use super::survey::{self, Libc};
use super::symbol_table::{Entry, SymbolTable};
use crate::archive::{Archive, Insert};
use relocatable::Machine;

/// A member of a stock archive that is restored.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Returning {
    name: String,
    data: Vec<u8>,
    symbols: Vec<Vec<u8>>,
}

/// The functions to restore in an archive, and those that cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restoration {
    /// The restored functions, sorted.
    pub restored: Vec<String>,
    /// Functions that stock has and the archive lacks, and that no given stock archive defines; sorted.
    pub missing: Vec<String>,
    members: Vec<Returning>,
}

/// The name of the allocator that was put into an archive in place of libc's own; `None` for libc's own and for
/// allograft's grafts.
pub fn foreign_allocator(archive: &Archive<'_>) -> Option<&'static str> {
    if survey::carried(archive).ok()?[0].is_some() {
        return None;
    }
    let (table, _) = SymbolTable::take(archive);
    foreign_member(&table).map(|(_, allocator)| allocator)
}

/// musl's release, by its own string; `None` if the archive has none.
pub fn musl_version(archive: &Archive<'_>) -> Option<String> {
    let (table, _) = SymbolTable::take(archive);
    version(archive, &table).map(|version| printable(&version))
}

/// The position and the name of the foreign allocator's member.
fn foreign_member(table: &SymbolTable<'_>) -> Option<(usize, &'static str)> {
    let mut seeds = table.entries.iter().enumerate().filter(|(_, entry)| is_of_allocator(entry));
    seeds.find_map(|(position, entry)| Some((position, foreign_symbol(&entry.defines)?.1)))
}

fn is_of_allocator(entry: &Entry<'_>) -> bool {
    entry.defines.iter().any(|symbol| family::makes_a_seed(symbol.name, symbol.weak))
}

/// Finds in `stock` the functions that `archive` lacks, or will lack without its foreign allocator. Archives for other
/// machines or of other versions of musl are ignored.
pub fn restore(archive: &Archive<'_>, stock: &[Archive<'_>]) -> Restoration {
    let (table, _) = SymbolTable::take(archive);
    let Some((position, _)) = foreign_member(&table) else { return Restoration::default() };
    let mut needed: BTreeSet<&[u8]> = USUAL_LOSSES.iter().map(|name| name.as_bytes()).collect();
    let brought = &table.entries[position].defines;
    needed.extend(brought.iter().map(|symbol| symbol.name).filter(|name| family::is_beside_malloc(name)));
    let machine = machine(&table);
    let mut sources = Vec::new();
    for stock in stock {
        let (theirs, unreadable) = SymbolTable::take(stock);
        let is_libc = survey::whose(&theirs).0 == Libc::Musl;
        let fits = unreadable.is_empty() && self::machine(&theirs) == machine;
        if fits && (!is_libc || version(archive, &table) == version(stock, &theirs)) {
            sources.push((stock, theirs, is_libc));
        }
    }
    for (_, theirs, _) in sources.iter().filter(|(_, _, is_libc)| *is_libc) {
        let names = theirs.entries.iter().filter(|entry| !is_of_allocator(entry)).flat_map(|entry| &entry.defines);
        needed.extend(names.filter(|symbol| !symbol.visibility.is_private()).map(|symbol| symbol.name));
    }
    let stays = |name: &[u8]| {
        table.id(name).is_some_and(|id| table.definers(id).iter().any(|(definer, _)| *definer != position))
    };
    needed.retain(|name| !stays(name) && !family::is_family(name));
    let mut restoration = Restoration::default();
    let mut back = BTreeSet::new();
    for (stock, theirs, _) in &sources {
        for (member, entry) in stock.members().iter().zip(&theirs.entries) {
            let shared: Vec<&[u8]> = entry.defines.iter().map(|symbol| symbol.name).collect();
            let wanted = shared.iter().any(|name| needed.contains(name) && !back.contains(*name));
            // The archive defines part of this member already: the member is another libc's.
            let mut strong = entry.defines.iter().filter(|symbol| !symbol.weak);
            let collides = strong.any(|symbol| stays(symbol.name) || back.contains(symbol.name));
            if !wanted || collides || is_of_allocator(entry) {
                continue;
            }
            back.extend(shared.iter().map(|name| name.to_vec()));
            restoration.members.push(Returning {
                name: short(member.name),
                data: member.data.to_vec(),
                symbols: shared.iter().map(|name| name.to_vec()).collect(),
            });
        }
    }
    for name in needed {
        let list = if back.contains(name) { &mut restoration.restored } else { &mut restoration.missing };
        list.push(printable(name));
    }
    restoration
}

/// A name that fits into a member's header. It is for reading only.
fn short(name: &[u8]) -> String {
    let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let kept: String =
        file.iter().take(15).filter(|byte| byte.is_ascii_graphic()).map(|byte| char::from(*byte)).collect();
    if kept.is_empty() { "restored.o".to_owned() } else { kept }
}

fn machine(table: &SymbolTable<'_>) -> Option<Machine> {
    table.entries.iter().find_map(|entry| entry.machine)
}

/// musl's version, which `src/internal/version.c` defines as a string.
fn version(archive: &Archive<'_>, table: &SymbolTable<'_>) -> Option<Vec<u8>> {
    let (position, _) = *table.definers(table.id(b"__libc_version")?).first()?;
    let data = archive.members()[position].data;
    let parts = data.split(|byte| !(byte.is_ascii_digit() || *byte == b'.'));
    parts.filter(|part| part.starts_with(b"1.") && part.len() >= 5).map(<[u8]>::to_vec).next()
}

impl Restoration {
    /// Whether anything is restored.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Appends the restored members to the archive, so that every other member keeps its ordinal.
    pub fn apply(&self, bytes: &[u8]) -> Result<Vec<u8>, crate::archive::ArchiveError> {
        let mut bytes = bytes.to_vec();
        for member in &self.members {
            let archive = Archive::parse(&bytes)?;
            let symbols = member.symbols.iter().map(Vec::as_slice).collect();
            let insert = Insert::new(archive.members().len() + 1, &member.name, &member.data, symbols)?;
            bytes = archive.edit(&BTreeSet::new(), Some(&insert));
        }
        Ok(bytes)
    }
}
