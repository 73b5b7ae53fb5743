//! Checks of the whole archive: its index and its architecture.

use foldhash::{HashMap, HashSet};

use super::check::Check;
use crate::bytes::printable;
use crate::library::Library;
use crate::report::Arch;

/// Checks that the index names exactly what the members define.
pub(super) fn index(graft: &Library<'_>) -> Check {
    const NAME: &str = "index";
    if !graft.archive.has_index {
        return Check::new(NAME, false, "the archive has no index: linkers would find nothing in it");
    }
    let mut complaints = Vec::new();
    let exports: HashMap<usize, HashSet<&[u8]>> =
        graft.parts.iter().map(|part| (part.place, part.exports().map(|symbol| symbol.name).collect())).collect();
    let mut indexed: HashSet<(usize, &[u8])> = HashSet::default();
    for entry in &graft.archive.index {
        let symbol = printable(entry.symbol);
        let Some(place) = entry.member else {
            complaints.push(format!("the entry of `{symbol}` points at no member"));
            continue;
        };
        indexed.insert((place, entry.symbol));
        // Members in other formats (bitcode) are not read.
        if exports.get(&place).is_some_and(|exports| !exports.contains(entry.symbol)) {
            let member = graft.archive.members[place].label();
            complaints.push(format!("member {member} does not define `{symbol}`, for which the index names it"));
        }
    }
    for part in &graft.parts {
        for symbol in part.exports().filter(|symbol| !indexed.contains(&(part.place, symbol.name))) {
            complaints.push(format!(
                "`{}` of member {} is not in the index",
                printable(symbol.name),
                graft.label(part)
            ));
        }
    }
    Check::unless(NAME, complaints, || {
        format!("{} entries for {} members", graft.archive.index.len(), graft.archive.members.len())
    })
}

/// Checks that all members are for one architecture.
pub(super) fn architecture(graft: &Library<'_>) -> Check {
    const NAME: &str = "architecture";
    let Some(first) = graft.parts.first() else {
        return Check::new(NAME, false, "no member is an ELF file");
    };
    let arch = first.elf.arch;
    if graft.arch() != Arch::Mixed {
        return Check::new(NAME, true, format!("{} members for {arch}", graft.parts.len()));
    }
    let others = graft.parts.iter().filter(|part| part.elf.arch != arch);
    let complaints = others.map(|part| format!("member {} is for {}, not {arch}", graft.label(part), part.elf.arch));
    Check::unless(NAME, complaints.collect(), String::new)
}
