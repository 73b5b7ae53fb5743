//! What a `libc.a` with somebody else's allocator has lost, brought back from stock archives.

use std::collections::{BTreeMap, BTreeSet};

use format::printable;

use super::census::{Census, Entry};
use super::family::{self, USUAL_LOSSES};
use super::survey::{self, Libc};
use crate::archive::{Archive, Insert};
use relocatable::Machine;

/// A member of a stock archive that comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Returning {
    name: String,
    data: Vec<u8>,
    symbols: Vec<Vec<u8>>,
}

/// What comes back into an archive, and what does not.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Restoration {
    /// The functions that come back, sorted.
    pub restored: Vec<String>,
    /// Functions that stock has, that the archive lacks, and that no stock archive at hand brings; sorted.
    pub missing: Vec<String>,
    members: Vec<Returning>,
}

/// The allocator that somebody has put into an archive in place of libc's own, by name; `None` for libc's own and for a
/// graft of ours.
pub fn another_allocator(archive: &Archive<'_>) -> Option<&'static str> {
    if survey::carried(archive).ok()?[0].is_some() {
        return None;
    }
    let (census, _) = Census::take(archive);
    another(&census).map(|(_, allocator)| allocator)
}

/// The position of the member that is somebody else's allocator.
fn another(census: &Census<'_>) -> Option<(usize, &'static str)> {
    let seeds = census.entries.iter().enumerate().filter(|(_, entry)| is_of_allocator(entry));
    let mut others = seeds.filter_map(|(position, entry)| {
        let known = entry.defines.iter().find_map(|symbol| family::foreign_allocator(symbol.name));
        let beside = || entry.defines.iter().any(|symbol| family::is_beside_malloc(symbol.name));
        known.or_else(|| beside().then_some("one that is not known here")).map(|allocator| (position, allocator))
    });
    others.next()
}

fn is_of_allocator(entry: &Entry<'_>) -> bool {
    entry.defines.iter().any(|symbol| family::makes_a_seed(symbol.name, symbol.weak))
}

/// Finds in `stock` what `archive` lacks or will lack without somebody else's allocator. Archives for other machines,
/// and a musl of another version, count for nothing.
pub fn restore(archive: &Archive<'_>, stock: &[Archive<'_>]) -> Restoration {
    let (census, _) = Census::take(archive);
    let Some((position, _)) = another(&census) else { return Restoration::default() };
    let mut needed: BTreeSet<&[u8]> = USUAL_LOSSES.iter().map(|name| name.as_bytes()).collect();
    let brought = &census.entries[position].defines;
    needed.extend(brought.iter().map(|symbol| symbol.name).filter(|name| family::is_beside_malloc(name)));
    let machine = machine(&census);
    let mut sources = Vec::new();
    for stock in stock {
        let (theirs, unreadable) = Census::take(stock);
        let is_libc = survey::whose(&theirs).0 == Libc::Musl;
        let fits = unreadable.is_empty() && self::machine(&theirs) == machine;
        if fits && (!is_libc || version(archive, &census) == version(stock, &theirs)) {
            sources.push((stock, theirs, is_libc));
        }
    }
    for (_, theirs, _) in sources.iter().filter(|(_, _, is_libc)| *is_libc) {
        let names = theirs.entries.iter().filter(|entry| !is_of_allocator(entry)).flat_map(|entry| &entry.defines);
        needed.extend(names.filter(|symbol| !symbol.visibility.is_private()).map(|symbol| symbol.name));
    }
    let stays = |name: &[u8]| {
        census.id(name).is_some_and(|id| census.definers(id).iter().any(|(definer, _)| *definer != position))
    };
    needed.retain(|name| !stays(name) && !family::is_family(name));
    let mut restoration = Restoration::default();
    let mut back = BTreeMap::new();
    for (stock, theirs, _) in &sources {
        for (member, entry) in stock.members().iter().zip(&theirs.entries) {
            let shared: Vec<&[u8]> = entry.defines.iter().map(|symbol| symbol.name).collect();
            let wanted = shared.iter().any(|name| needed.contains(name) && !back.contains_key(*name));
            // A member that is there in part is of another libc.
            let strong = entry.defines.iter().filter(|symbol| !symbol.weak);
            let collides = strong.clone().any(|symbol| stays(symbol.name) || back.contains_key(symbol.name));
            if !wanted || collides || is_of_allocator(entry) {
                continue;
            }
            back.extend(shared.iter().map(|name| (name.to_vec(), ())));
            restoration.members.push(Returning {
                name: short(member.name),
                data: member.data.to_vec(),
                symbols: shared.iter().map(|name| name.to_vec()).collect(),
            });
        }
    }
    for name in needed {
        let list = if back.contains_key(name) { &mut restoration.restored } else { &mut restoration.missing };
        list.push(printable(name));
    }
    restoration
}

/// A name that a member's header holds. It is for reading only.
fn short(name: &[u8]) -> String {
    let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let kept: String =
        file.iter().take(15).filter(|byte| byte.is_ascii_graphic()).map(|byte| char::from(*byte)).collect();
    if kept.is_empty() { "restored.o".to_owned() } else { kept }
}

fn machine(census: &Census<'_>) -> Option<Machine> {
    census.entries.iter().find_map(|entry| entry.machine)
}

/// musl's version, which `src/internal/version.c` defines as a string.
fn version(archive: &Archive<'_>, census: &Census<'_>) -> Option<Vec<u8>> {
    let (position, _) = *census.definers(census.id(b"__libc_version")?).first()?;
    let data = archive.members()[position].data;
    let parts = data.split(|byte| !(byte.is_ascii_digit() || *byte == b'.'));
    parts.filter(|part| part.starts_with(b"1.") && part.len() >= 5).map(<[u8]>::to_vec).next()
}

impl Restoration {
    /// Whether anything comes back.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The archive with what comes back at its end, so that every member keeps its ordinal.
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
