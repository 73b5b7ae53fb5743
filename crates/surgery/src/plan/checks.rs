//! Checks of a planned graft: no symbol is lost, none is defined twice, and the donor's needs are met.

use format::family::FORK_HOOK;
use format::{DonorKind, Note};

use super::census::Census;
use super::donated::Donated;
use super::excision::{Excision, text};
use super::{Refusal, family};
use relocatable::Binding;

/// Whether libc's fork calls the allocator's hook.
pub(super) fn fork_hook(census: &Census<'_>, excision: &Excision<'_, '_>) -> bool {
    census.id(FORK_HOOK.as_bytes()).is_some_and(|id| {
        let mut definers = census.definers(id).iter();
        let mut referrers = census.referrers(id).iter();
        definers.any(|(definer, weak)| *weak && !excision.gone(*definer))
            || referrers.any(|referrer| !excision.gone(*referrer))
    })
}

/// Checks that every symbol of a removed member is still defined, or was only for the removed members.
pub(super) fn nothing_lost(
    census: &Census<'_>,
    excision: &Excision<'_, '_>,
    donated: &Donated<'_>,
) -> Result<(), Refusal> {
    let entries = census.entries.iter().enumerate().filter(|(position, _)| excision.gone(*position));
    for (position, entry) in entries {
        let expected = |name: &[u8]| donated.provides(name) || excision.is_of_cxx(name);
        for symbol in entry.defines.iter().filter(|symbol| !expected(symbol.name)) {
            let mut staying = census.definers(symbol.id).iter().filter(|(definer, _)| !excision.gone(*definer));
            if let Some((stays, weak)) = staying.next() {
                if *weak && !symbol.weak && !family::is_hook(symbol.name) && !excision.may_be_weak(symbol.name) {
                    let (ordinal, name) = excision.identity(*stays);
                    let (definer, definer_name) = excision.identity(position);
                    let symbol = text(symbol.name);
                    return Err(Refusal::UnknownHook {
                        kind: excision.kind,
                        ordinal,
                        name,
                        symbol,
                        definer,
                        definer_name,
                    });
                }
                continue;
            }
            // For an earlier graft's donor no references were followed: members may refer to a symbol that it defines
            // and this one does not.
            let outside = |referrer: &&usize| !excision.gone(**referrer);
            if let Some(referrer) = census.referrers(symbol.id).iter().find(outside) {
                return Err(excision.entangled(*referrer, position, symbol));
            }
            let inside = symbol.visibility.is_private()
                || excision.is_inside_name(symbol.name)
                || excision.may_be_lost(symbol.name);
            if !inside {
                let (ordinal, name) = excision.identity(position);
                return Err(Refusal::Lost { kind: excision.kind, ordinal, name, symbol: text(symbol.name) });
            }
        }
    }
    Ok(())
}

/// Checks that no member that stays defines one of the donor's symbols, except for allowed duplicates.
pub(super) fn nothing_doubled(
    census: &Census<'_>,
    excision: &Excision<'_, '_>,
    donated: &Donated<'_>,
) -> Result<(), Refusal> {
    for symbol in &donated.defines {
        let Some(id) = census.id(symbol.name) else { continue };
        let mut staying = census.definers(id).iter().filter(|(definer, _)| !excision.gone(*definer));
        if let Some((stays, _)) = staying.find(|(definer, weak)| !excision.is_bearable(*definer, symbol.name, *weak)) {
            let (ordinal, name) = excision.identity(*stays);
            return Err(Refusal::Collision { kind: excision.kind, ordinal, name, symbol: text(symbol.name) });
        }
    }
    Ok(())
}

/// Checks that the donor's undefined symbols are defined, and that it defines the hook that libc calls by itself.
pub(super) fn donor_complete(
    census: &Census<'_>,
    excision: &Excision<'_, '_>,
    donated: &Donated<'_>,
    note: &Note,
) -> Result<(), Refusal> {
    let donor = || note.donor.clone();
    for name in &donated.needed {
        let found = census.id(name).is_some_and(|id| {
            census.is_left_to_others(id) || census.definers(id).iter().any(|(definer, _)| !excision.gone(*definer))
        });
        if !found && !family::comes_from_elsewhere(name) {
            return Err(Refusal::DonorNeeds { donor: donor(), symbol: text(name) });
        }
    }
    if excision.kind == DonorKind::Strings {
        // Other libraries of the same link define some of these too: the archive leaves them to those (zig), or a
        // program brings its own. Only a weak definition gives way.
        let strong = donated.defines.iter().find(|symbol| symbol.binding != Binding::Weak);
        return strong.map_or(Ok(()), |symbol| Err(Refusal::Strong { donor: donor(), symbol: text(symbol.name) }));
    }
    let hook = FORK_HOOK;
    // libc's own stand-in hides that the hook is missing, until a child waits for a lock that nobody holds.
    if !donated.provides(hook.as_bytes()) && census.id(hook.as_bytes()).is_some() {
        return Err(Refusal::DonorLacks { donor: donor(), symbol: hook.to_owned() });
    }
    Ok(())
}
