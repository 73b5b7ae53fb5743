//! Checks of a planned graft: no symbol is lost, none is defined twice, and the donor's needs are met.

use foldhash::{HashSet, HashSetExt};
use format::family::FORK_HOOK;
use format::{DonorKind, Note, printable};

use super::removal_set::RemovalSet;
use super::symbol_table::SymbolTable;
use super::{Refusal, family};
use crate::archive::Archive;
use relocatable::Binding;

/// Checks that the archive's index names what its members define, and all of it. A graft's index is made from it.
pub(super) fn index(archive: &Archive<'_>, table: &SymbolTable<'_>) -> Result<(), Refusal> {
    let member = |position: usize| archive.members()[position].id();
    let indexed: HashSet<(usize, &[u8])> = archive.indexed().collect();
    let mut defined: HashSet<(usize, &[u8])> = HashSet::new();
    for (position, entry) in table.entries.iter().enumerate().filter(|(_, entry)| entry.machine.is_some()) {
        for symbol in &entry.defines {
            defined.insert((position + 1, symbol.name));
            if !indexed.contains(&(position + 1, symbol.name)) {
                let problem = format!("lacks `{}`, which {} defines", printable(symbol.name), member(position));
                return Err(Refusal::Index { problem });
            }
        }
    }
    let is_object = |ordinal: usize| table.entries[ordinal - 1].machine.is_some();
    let wrong = |entry: &(usize, &[u8])| is_object(entry.0) && !defined.contains(entry);
    match archive.indexed().find(wrong) {
        Some((ordinal, symbol)) => {
            let problem = format!("names `{}`, which {} does not define", printable(symbol), member(ordinal - 1));
            Err(Refusal::Index { problem })
        }
        None => Ok(()),
    }
}

/// Whether libc's fork calls the allocator's hook.
pub(super) fn fork_hook(removal: &RemovalSet<'_, '_>) -> bool {
    removal.table.id(FORK_HOOK.as_bytes()).is_some_and(|id| {
        removal.staying_definers(id).any(|(_, weak)| weak) || removal.staying_referrers(id).next().is_some()
    })
}

/// Checks that every symbol of a removed member is still defined, or was only for the removed members.
pub(super) fn nothing_lost(removal: &RemovalSet<'_, '_>) -> Result<(), Refusal> {
    let kind = removal.kind;
    let entries = removal.table.entries.iter().enumerate().filter(|(position, _)| removal.removes(*position));
    for (position, entry) in entries {
        let expected = |name: &[u8]| removal.donated.provides(name) || removal.is_of_cxx(name);
        for symbol in entry.defines.iter().filter(|symbol| !expected(symbol.name)) {
            if let Some((stays, weak)) = removal.staying_definers(symbol.id).next() {
                if weak && !symbol.weak && !family::is_hook(symbol.name) && !removal.may_become_weak(symbol.name) {
                    let (member, definer) = (removal.member(stays), removal.member(position));
                    return Err(Refusal::UnknownHook { kind, member, symbol: printable(symbol.name), definer });
                }
                continue;
            }
            // For an earlier graft's donor no references were followed: members may refer to a symbol that it defines
            // and this one does not.
            if let Some(referrer) = removal.staying_referrers(symbol.id).next() {
                return Err(removal.entangled(referrer, position, symbol));
            }
            let inside = symbol.visibility.is_private()
                || removal.is_inside_name(symbol.name)
                || removal.may_be_lost(symbol.name);
            if !inside {
                let (member, symbol) = (removal.member(position), printable(symbol.name));
                return Err(Refusal::Lost { kind, member, symbol });
            }
        }
    }
    Ok(())
}

/// Checks that no member that stays defines one of the donor's symbols, except for allowed duplicates.
pub(super) fn nothing_doubled(removal: &RemovalSet<'_, '_>) -> Result<(), Refusal> {
    for symbol in &removal.donated.defines {
        let Some(id) = removal.table.id(symbol.name) else { continue };
        let mut staying = removal.staying_definers(id);
        if let Some((stays, _)) = staying.find(|(definer, weak)| !removal.may_double(*definer, symbol.name, *weak)) {
            let (kind, member) = (removal.kind, removal.member(stays));
            return Err(Refusal::Collision { kind, member, symbol: printable(symbol.name) });
        }
    }
    Ok(())
}

/// Checks that the donor's undefined symbols are defined, and that it defines the hook that libc calls by itself.
pub(super) fn donor_complete(removal: &RemovalSet<'_, '_>, note: &Note) -> Result<(), Refusal> {
    let (table, donated, donor) = (removal.table, removal.donated, || note.donor.clone());
    let is_object = |position: usize| table.entries[position].machine.is_some();
    for name in donated.needed.iter().filter(|name| !family::comes_from_elsewhere(name)) {
        let id = table.id(name);
        if id.is_some_and(|id| {
            table.is_left_to_others(id) || removal.staying_definers(id).any(|(definer, _)| is_object(definer))
        }) {
            continue;
        }
        // Only the archive's index says that such a member has the symbol.
        if let Some((definer, _)) = id.and_then(|id| removal.staying_definers(id).next()) {
            let (symbol, member) = (printable(name), removal.member(definer));
            let problem = format!("names `{symbol}`, which the donor needs, in {member}, which is not an ELF object");
            return Err(Refusal::Index { problem });
        }
        return Err(Refusal::DonorNeeds { donor: donor(), symbol: printable(name) });
    }
    if removal.kind == DonorKind::Strings {
        // Other libraries of the same link define some of these too: the archive leaves them to those (zig), or a
        // program brings its own. Only a weak definition gives way.
        let strong = donated.defines.iter().find(|symbol| symbol.binding != Binding::Weak);
        return strong.map_or(Ok(()), |symbol| Err(Refusal::Strong { donor: donor(), symbol: printable(symbol.name) }));
    }
    let hook = FORK_HOOK;
    // libc's own default would hide the missing hook, until a child waits for a lock that no thread holds.
    if !donated.provides(hook.as_bytes()) && table.id(hook.as_bytes()).is_some() {
        return Err(Refusal::DonorLacks { donor: donor(), symbol: hook.to_owned() });
    }
    Ok(())
}
