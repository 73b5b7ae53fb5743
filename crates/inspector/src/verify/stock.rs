//! Compares a graft with the stock archive that it was made from.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::ops::Range;

use foldhash::{HashMap, HashSet};

use super::check::Check;
use super::donor::{self, Donor};
use super::names::{BESIDE_MUSL, HOOKS, INTERNAL, PUBLIC};
use crate::archive::{Frame, Member};
use crate::bytes::printable;
use crate::elf::STV_HIDDEN;
use crate::library::{Library, Part};

/// The correspondence between the members of the graft and of stock.
struct Alignment {
    /// Places in stock of the members that the graft lacks.
    removed: BTreeSet<usize>,
    /// Places in the graft of members that stock lacks at that point of its order, without donors.
    foreign: Vec<usize>,
}

pub(super) fn checks(graft: &Library<'_>, donors: &[Donor], stock: &Library<'_>) -> Vec<Check> {
    let headers = donors.iter().filter_map(|donor| wrong_header(graft, donor)).collect();
    let parts: Vec<&Part<'_>> = donors.iter().map(|donor| donor.part(graft)).collect();
    let places: BTreeSet<usize> = parts.iter().map(|donor| donor.place).collect();
    let alignment = align(&graft.archive.members, &places, &stock.archive.members);
    vec![
        members_kept(graft, &parts, stock, &alignment, headers),
        removed_members(stock, &parts, &alignment),
        symbols_kept(graft, stock, &alignment),
    ]
}

/// The places of an archive's members, by their fingerprints.
pub(super) type Places = HashMap<u64, Vec<usize>>;

/// A number by which equal members are found. They are compared afterwards.
fn fingerprint(member: &Member<'_>) -> u64 {
    foldhash::fast::FixedState::default().hash_one((member.header, member.data))
}

/// Returns the places of the members.
pub(super) fn places(members: &[Member<'_>]) -> Places {
    let mut places = Places::default();
    for (place, member) in members.iter().enumerate() {
        places.entry(fingerprint(member)).or_default().push(place);
    }
    places
}

/// Whether a member of a graft is this member of stock, unchanged.
fn is_kept(kept: &Member<'_>, member: &Member<'_>) -> bool {
    kept.header == member.header && kept.data == member.data && is_kept_pad(kept.pad, member.pad)
}

/// Checks, without a look into other members, that each member has a note or is found in stock. Returns the check if it
/// fails; [`checks`] then fails too, or the note is missing. `places` are those of `stock`.
pub(super) fn without_foreign(graft: &[Member<'_>], stock: &[Member<'_>], places: &Places) -> Option<Check> {
    let is_stocks = |member: &Member<'_>| {
        let alike = places.get(&fingerprint(member)).map_or(&[][..], Vec::as_slice);
        alike.iter().any(|&place| is_kept(&stock[place], member))
    };
    let foreign = graft.iter().find(|member| !is_stocks(member) && !donor::is_noted(member))?;
    Some(Check::new(MEMBERS_KEPT, false, not_stocks(foreign)))
}

const MEMBERS_KEPT: &str = "members-kept";

fn not_stocks(member: &Member<'_>) -> String {
    format!("member {} is not stock's next member, byte for byte", member.label())
}

/// Matches each member of the graft with the next one of stock that has the same bytes.
fn align(graft: &[Member<'_>], donors: &BTreeSet<usize>, stock: &[Member<'_>]) -> Alignment {
    let places = places(stock);
    let mut removed: BTreeSet<usize> = (0..stock.len()).collect();
    let mut foreign = Vec::new();
    let mut next = 0;
    for (place, member) in graft.iter().enumerate().filter(|(place, _)| !donors.contains(place)) {
        let alike = places.get(&fingerprint(member)).map_or(&[][..], Vec::as_slice);
        let first = alike.partition_point(|&found| found < next);
        match alike.get(first).filter(|&&found| is_kept(&stock[found], member)) {
            Some(&found) => {
                removed.remove(&found);
                next = found + 1;
            }
            None => foreign.push(place),
        }
    }
    Alignment { removed, foreign }
}

/// Checks that every member that was not removed is there, byte for byte and in order, and that each donor is at the
/// place of the first member that it replaces. `complaints` are those about the donors' headers.
fn members_kept(
    graft: &Library<'_>,
    donors: &[&Part<'_>],
    stock: &Library<'_>,
    alignment: &Alignment,
    mut complaints: Vec<String>,
) -> Check {
    complaints.extend(alignment.foreign.iter().map(|&place| not_stocks(&graft.archive.members[place])));
    if graft.archive.long_names != stock.archive.long_names || !is_names_frame(graft, stock) {
        complaints.push("the table of long names is not stock's".to_owned());
    }
    if let (Some(frame), Some(kept)) = (&graft.archive.index_frame, &stock.archive.index_frame)
        && !is_index_frame(frame, kept)
    {
        complaints.push("what surrounds the entries of the index is not as in stock".to_owned());
    }
    if complaints.is_empty() {
        complaints.extend(misplaced(graft, donors, stock, alignment));
    }
    Check::unless(MEMBERS_KEPT, complaints, || {
        let kept = stock.archive.members.len() - alignment.removed.len();
        format!("{kept} members of stock's {} are there, byte for byte and in order", stock.archive.members.len())
    })
}

/// Whether a padding byte is stock's. A graft adds one where stock ends without it and something follows now.
fn is_kept_pad(stock: &[u8], graft: &[u8]) -> bool {
    graft == stock || (stock.is_empty() && graft == b"\n")
}

fn is_names_frame(graft: &Library<'_>, stock: &Library<'_>) -> bool {
    match (&graft.archive.names_frame, &stock.archive.names_frame) {
        (Some(frame), Some(kept)) => frame.header == kept.header && is_kept_pad(kept.pad, frame.pad),
        (frame, kept) => frame == kept,
    }
}

/// Whether the index has stock's header, but for the size and, if the archive has outgrown 32 bits, the name; and what
/// stock has behind the entries, or other zeros up to its alignment.
fn is_index_frame(frame: &Frame<'_>, kept: &Frame<'_>) -> bool {
    const NAME: Range<usize> = 0..16;
    const METADATA: Range<usize> = 16..48;
    const SIZE: Range<usize> = 48..58;
    let zeros = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0);
    let is_plain = |size: &[u8]| {
        let (digits, blanks) = size.split_at(size.iter().take_while(|byte| byte.is_ascii_digit()).count());
        blanks.iter().all(|&byte| byte == b' ') && (digits.len() == 1 || digits.first() != Some(&b'0'))
    };
    (frame.header[NAME] == kept.header[NAME] || frame.header[NAME] == *b"/SYM64/         ")
        && frame.header[METADATA] == kept.header[METADATA]
        && (frame.header[SIZE] == kept.header[SIZE] || is_plain(&frame.header[SIZE]))
        && (frame.tail == kept.tail || (zeros(frame.tail) && zeros(kept.tail)))
        && (frame.pad.is_empty() || is_kept_pad(kept.pad, frame.pad))
}

/// Complains about a donor whose header differs from the one that a graft has: the name of the member, no time, owner
/// 0, mode 0644, as `ar D` writes it, and the size.
fn wrong_header(graft: &Library<'_>, donor: &Donor) -> Option<String> {
    let member = &graft.archive.members[donor.part(graft).place];
    let (name, size) = (donor.subject.member(), member.data.len());
    let expected = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644);
    let is_padded = member.pad == if size % 2 == 1 { &b"\n"[..] } else { b"" };
    if member.header == expected.as_bytes() && !is_padded {
        return Some(format!("the padding behind member {} is not a line feed", member.label()));
    }
    (member.header != expected.as_bytes()).then(|| {
        let found = String::from_utf8_lossy(member.header).trim_end().to_owned();
        format!("the header of member {} is `{found}`, expected `{}`", member.label(), expected.trim_end())
    })
}

/// Returns donors that are not at the place of the first removed member of stock that defines one of their symbols.
fn misplaced(graft: &Library<'_>, donors: &[&Part<'_>], stock: &Library<'_>, alignment: &Alignment) -> Vec<String> {
    let removed = |part: &&Part<'_>| alignment.removed.contains(&part.place);
    let mut firsts = Vec::new();
    for donor in donors {
        let shares = |part: &&Part<'_>| part.exports().any(|symbol| donor.exported(symbol.name).is_some());
        firsts.extend(stock.parts.iter().filter(removed).find(shares).map(|first| (first.place, donor.place)));
    }
    firsts.sort_unstable();
    let mut complaints = Vec::new();
    for (before, (first, donor)) in firsts.iter().enumerate() {
        // Removed members before it move it towards the front; added donors before it move it towards the back.
        if first - alignment.removed.range(..first).count() + before != *donor {
            complaints.push(format!(
                "the donor is member {}, and the first one that it replaces was {}",
                graft.archive.members[*donor].ordinal, stock.archive.members[*first].ordinal
            ));
        }
    }
    complaints
}

/// Whether a name is a function or a hook of an allocator in musl.
fn is_family(name: &[u8]) -> bool {
    let hooks = HOOKS.iter().chain(&["__malloc_allzerop"]);
    PUBLIC.iter().chain(&BESIDE_MUSL).chain(&INTERNAL).chain(hooks).any(|known| known.as_bytes() == name)
}

/// Returns the hidden names of removed members that only removed members need.
fn internals<'a>(stock: &Library<'a>, removed: &BTreeSet<usize>) -> HashSet<&'a [u8]> {
    let mut names: HashSet<&[u8]> = HashSet::default();
    for part in stock.parts.iter().filter(|part| removed.contains(&part.place)) {
        names.extend(part.exports().filter(|symbol| symbol.visibility == STV_HIDDEN).map(|symbol| symbol.name));
    }
    for part in stock.parts.iter().filter(|part| !removed.contains(&part.place)) {
        for symbol in &part.elf.symbols {
            names.remove(symbol.name);
        }
    }
    names
}

/// Checks that no removed member defines a symbol that other members need.
fn removed_members(stock: &Library<'_>, donors: &[&Part<'_>], alignment: &Alignment) -> Check {
    let internals = internals(stock, &alignment.removed);
    let (gone, kept): (Vec<&Part<'_>>, Vec<&Part<'_>>) =
        stock.parts.iter().partition(|part| alignment.removed.contains(&part.place));
    // A name that another member of stock defines too (fork's weak defaults) is not lost.
    let kept: HashSet<&[u8]> = kept.iter().flat_map(|part| part.exports()).map(|symbol| symbol.name).collect();
    let mut complaints = Vec::new();
    for &place in alignment.removed.iter().filter(|&&place| !stock.archive.members[place].is_elf()) {
        let label = stock.archive.members[place].label();
        complaints.push(format!("stock's member {label} is missing, and is not an ELF file"));
    }
    for part in &gone {
        let brought = |name: &[u8]| donors.iter().any(|donor| donor.exported(name).is_some());
        let lost =
            |name: &[u8]| !is_family(name) && !brought(name) && !internals.contains(name) && !kept.contains(name);
        for symbol in part.exports().filter(|symbol| lost(symbol.name)) {
            let name = printable(symbol.name);
            complaints.push(format!("stock's member {} is gone, and `{name}` with it", stock.label(part)));
        }
    }
    Check::unless("removed-members", complaints, || {
        let names: Vec<String> = gone.iter().map(|part| printable(stock.member(part).name)).collect();
        format!("{} members removed, which define nothing but what the graft brings: {}", names.len(), names.join(" "))
    })
}

/// Checks that every name that stock defines is defined, except the allocator's internals.
fn symbols_kept(graft: &Library<'_>, stock: &Library<'_>, alignment: &Alignment) -> Check {
    let after = graft.definitions();
    let before = stock.definitions();
    let internals = internals(stock, &alignment.removed);
    let lost: BTreeSet<&[u8]> = before.keys().copied().filter(|name| !after.contains_key(name)).collect();
    let (expected, complaints): (Vec<&[u8]>, Vec<&[u8]>) = lost.into_iter().partition(|name| {
        // A program cannot name a symbol only if all definitions of it are hidden.
        internals.contains(name)
    });
    let complaints = complaints.iter().map(|name| printable(name));
    let complaints = complaints.map(|name| format!("stock defined `{name}`, which is no longer defined"));
    Check::unless("symbols-kept", complaints.collect(), || {
        let gone: Vec<String> = expected.iter().map(|name| printable(name)).collect();
        format!(
            "{} of stock's names are defined; the old allocator's internals are not: {}",
            before.len() - gone.len(),
            gone.join(" ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header of an index: name, date, owner, group, mode, size, end.
    fn header(name: &str, date: &str, size: &str) -> Vec<u8> {
        format!("{name:<16}{date:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0).into_bytes()
    }

    #[test]
    fn around_an_index_only_the_size_and_the_alignment_change() {
        let stock = header("/", "0", "102");
        let kept = Frame { header: &stock, tail: b"\0\0", pad: b"" };
        let is_kept = |header: &[u8], tail: &[u8], pad: &[u8]| is_index_frame(&Frame { header, tail, pad }, &kept);
        for (size, tail, pad) in [("102", "\0\0", ""), ("97", "", "\n"), ("1000", "\0\0\0", "")] {
            assert!(is_kept(&header("/", "0", size), tail.as_bytes(), pad.as_bytes()), "{size}");
        }
        assert!(is_kept(&header("/SYM64/", "0", "200"), b"", b""));
        for wrong in
            [header("/", "1", "102"), header("/", "0", "097"), header("/", "0", "97\t"), header("//", "0", "9")]
        {
            assert!(!is_kept(&wrong, b"", b""), "{}", String::from_utf8_lossy(&wrong));
        }
        assert!(!is_kept(&stock, b"\0\x01", b"") && !is_kept(&header("/", "0", "97"), b"", b"\0"));
        for at in 0..48 {
            let mut changed = stock.clone();
            changed[at] ^= 1;
            assert!(!is_kept(&changed, b"\0\0", b""), "{at}");
        }
    }

    #[test]
    fn a_padding_byte_is_stocks_or_new() {
        assert!(is_kept_pad(b"\0", b"\0") && is_kept_pad(b"", b"") && is_kept_pad(b"", b"\n"));
        assert!(!is_kept_pad(b"\n", b"\0") && !is_kept_pad(b"", b"\0") && !is_kept_pad(b"\n", b""));
    }
}
