//! The notes on a donor's probes (sourceware.org/systemtap/wiki/UserSpaceProbeImplementation). Nothing loads them, and
//! `llvm-strip -s` takes them away.

use crate::elf::Elf;

/// Their section.
pub(super) const SECTION: &[u8] = b".note.stapsdt";

/// Compares the notes of a graft that has the donor at `base` with those of the donor's own file: the same, but for two
/// addresses in each, behind the program's own. A graft may have lost them. Returns what is wrong.
pub(super) fn compare(elf: &Elf<'_>, donor: &Elf<'_>, base: u64) -> Option<String> {
    let notes = |elf: &'_ Elf<'_>| {
        let named = elf.sections.iter().filter(|section| section.name == SECTION);
        named.map(|section| section.data.unwrap_or_default().to_vec()).collect::<Vec<_>>()
    };
    let (found, mut wanted) = (notes(elf), notes(donor).concat());
    let mut at = 0;
    while at < wanted.len() {
        let words = donor.bytes.over(&wanted);
        let (name, description) = (words.u32(at)? as usize, words.u32(at + 4)? as usize);
        let start = at + 12 + name.next_multiple_of(4);
        let fields = [start, start + 16].map(|field| Some((field, words.u64(field)?.wrapping_add(base))));
        for (field, address) in fields.into_iter().flatten() {
            wanted[field..field + 8].copy_from_slice(&address.to_le_bytes());
        }
        at = start + description.next_multiple_of(4);
    }
    let is_right = found.is_empty() || found.iter().any(|notes| notes.ends_with(&wanted));
    (!is_right).then(|| "the notes on the donor's probes are not the donor's".to_owned())
}
