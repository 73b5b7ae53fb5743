//! Removes members from an archive and inserts one. All bytes except the symbol index stay the same.

use std::collections::{BTreeMap, BTreeSet};

use format::{DonorKind, printable};

use super::index::Width;
use super::{Archive, ArchiveError, MAGIC};

/// A member to insert into an archive.
#[derive(Debug, Clone)]
pub struct Insert<'a> {
    before: usize,
    name: String,
    data: &'a [u8],
    symbols: Vec<&'a [u8]>,
}

impl<'a> Insert<'a> {
    /// Inserts `data` as `name` before the member whose ordinal is `before` now, or at the end if no member has that
    /// ordinal. The index lists `symbols` for it, in this order.
    ///
    /// # Errors
    /// The name would need the name table, which stays unchanged; or the size takes more than ten digits.
    pub fn new(before: usize, name: &str, data: &'a [u8], symbols: Vec<&'a [u8]>) -> Result<Self, ArchiveError> {
        let unfit = |found: String| ArchiveError::Name { name: printable(name.as_bytes()), found };
        if name.is_empty() || name.len() > 15 {
            return Err(unfit(format!("{} bytes", name.len())));
        }
        if let Some(byte) = name.bytes().find(|byte| !byte.is_ascii_graphic() || *byte == b'/') {
            return Err(unfit(format!("\"{}\"", byte.escape_ascii())));
        }
        if data.len() as u64 > 9_999_999_999 {
            return Err(ArchiveError::Large { size: data.len() });
        }
        Ok(Insert { before, name: name.to_owned(), data, symbols })
    }

    /// Inserts the donor of a graft. Its name always fits.
    pub(crate) fn donor(kind: DonorKind, before: usize, data: &'a [u8], symbols: Vec<&'a [u8]>) -> Self {
        Insert { before, name: kind.member_name().to_owned(), data, symbols }
    }

    /// Writes the member. The header is what `ar D` writes: no time, owner 0, mode 0644.
    fn write(&self, out: &mut Vec<u8>) {
        let name = format!("{}/", self.name);
        out.extend_from_slice(
            format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, self.data.len()).as_bytes(),
        );
        out.extend_from_slice(self.data);
        if !self.data.len().is_multiple_of(2) {
            out.push(b'\n');
        }
    }
}

impl Archive<'_> {
    /// Returns the archive without the members in `removed`, and with `insert`. All other members keep header, content
    /// and order, byte for byte, and so does the name table. The index keeps its entries in their order, except those
    /// of removed members; the inserted member's entries are at the member's place. An archive without an index gets
    /// none. An index of 32-bit offsets that cannot reach all members becomes one of 64-bit offsets.
    pub fn edit(&self, removed: &BTreeSet<usize>, insert: Option<&Insert<'_>>) -> Vec<u8> {
        self.edit_reaching(u64::from(u32::MAX), removed, insert)
    }

    /// Like [`Archive::edit`]. `reach` is the greatest offset that 32 bits take.
    fn edit_reaching(&self, reach: u64, removed: &BTreeSet<usize>, insert: Option<&Insert<'_>>) -> Vec<u8> {
        // The members, which begin at an even offset, and the place of each header among them, by the member's old
        // ordinal, or `None` for the inserted member.
        let mut members = Vec::with_capacity(self.bytes.len());
        let mut starts = BTreeMap::new();
        let mut start = |members: &mut Vec<u8>, ordinal| {
            if !members.len().is_multiple_of(2) {
                members.push(b'\n');
            }
            starts.insert(ordinal, members.len() as u64);
        };
        let mut waiting = insert;
        for member in &self.members {
            if let Some(insert) = waiting.take_if(|insert| insert.before <= member.ordinal) {
                start(&mut members, None);
                insert.write(&mut members);
            }
            if !removed.contains(&member.ordinal) {
                start(&mut members, Some(member.ordinal));
                members.extend_from_slice(member.whole);
            }
        }
        if let Some(insert) = waiting {
            start(&mut members, None);
            insert.write(&mut members);
        }

        let symbols = self.symbols(removed, insert);
        let front = |width| {
            let symbols = symbols.iter().map(|(_, symbol)| *symbol);
            let index = self.index.as_ref().map_or(0, |index| index.written(width, symbols));
            let front = MAGIC.len() + index + self.name_table.len();
            if members.is_empty() { front as u64 } else { front.next_multiple_of(2) as u64 }
        };
        let mut width = self.index.as_ref().map_or(Width::Bits32, |index| index.width);
        if starts.values().max().is_some_and(|last| front(width) + last > reach) {
            width = Width::Bits64;
        }
        let front = front(width);
        let mut out = Vec::with_capacity(front as usize + members.len());
        out.extend_from_slice(MAGIC);
        if let Some(index) = &self.index {
            let entry = |(member, symbol): &(_, _)| (front + starts[member], *symbol);
            index.write(width, &symbols.iter().map(entry).collect::<Vec<_>>(), &mut out);
        }
        out.extend_from_slice(self.name_table);
        out.resize(front as usize, b'\n');
        out.extend(members);
        out
    }

    /// The entries of the edited index: the ordinal that the member had, or `None` for the inserted one, and the
    /// symbol.
    fn symbols<'p>(
        &'p self,
        removed: &BTreeSet<usize>,
        insert: Option<&'p Insert<'_>>,
    ) -> Vec<(Option<usize>, &'p [u8])> {
        let mut symbols: Vec<(Option<usize>, &[u8])> = self
            .indexed()
            .filter(|(ordinal, _)| !removed.contains(ordinal))
            .map(|(ordinal, symbol)| (Some(ordinal), symbol))
            .collect();
        if let Some(insert) = insert {
            let at = symbols
                .iter()
                .position(|(ordinal, _)| ordinal.is_some_and(|ordinal| ordinal >= insert.before))
                .unwrap_or(symbols.len());
            symbols.splice(at..at, insert.symbols.iter().map(|symbol| (None, *symbol)));
        }
        symbols
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(field: &str, data: &[u8]) -> Vec<u8> {
        record(field, &data.len().to_string(), data)
    }

    /// A header with this text for the size, and the bytes behind it.
    fn record(field: &str, size: &str, rest: &[u8]) -> Vec<u8> {
        let mut out = format!("{field:<16}{:<32}{size:<10}`\n", 0).into_bytes();
        out.extend_from_slice(rest);
        out
    }

    #[test]
    fn an_index_that_does_not_reach_becomes_a_wide_one() {
        let mut bytes = b"!<arch>\n".to_vec();
        bytes.extend(member("/", b"\0\0\0\x02\0\0\0\x58\0\0\0\x98one\0two\0"));
        bytes.extend(member("one.o/", b"1111"));
        bytes.extend(member("two.o/", b"22"));
        let archive = Archive::parse(&bytes).expect("an archive");
        assert_eq!(archive.edit_reaching(0x98, &BTreeSet::new(), None), bytes);
        let wide = archive.edit_reaching(0x97, &BTreeSet::new(), None);
        assert_eq!(&wide[8..24], b"/SYM64/         ");
        let wide = Archive::parse(&wide).expect("an archive");
        assert_eq!(wide.indexed().collect::<Vec<_>>(), [(1, &b"one"[..]), (2, &b"two"[..])]);
        assert_eq!(wide.members()[1].data, b"22");
    }

    #[test]
    fn an_index_in_another_writers_form_stays_as_it_is() {
        let index = |size: &str, rest: &[u8]| [&MAGIC[..], &record("/", size, rest)].concat();
        let one = b"\0\0\0\x01\0\0\0\x50one\0";
        let sizes = [("12", ""), ("12\t", ""), ("12\n", ""), ("0012", ""), ("11", "\0"), ("11", "\n"), ("11", "/")];
        for (size, pad) in sizes {
            let kept = if pad.is_empty() { &one[..] } else { &[b"\0\0\0\x01\0\0\0\x50on\0", pad.as_bytes()].concat() };
            let mut bytes = index(size, kept);
            bytes.extend(member("one.o/", b"1111"));
            let archive = Archive::parse(&bytes).expect("an archive");
            assert_eq!(archive.edit(&BTreeSet::new(), None), bytes, "{size:?} {pad:?}");
        }
        // Nothing follows, not even the byte that pads it.
        let bytes = index("5", b"\0\0\0\0/");
        assert_eq!(Archive::parse(&bytes).expect("an archive").edit(&BTreeSet::new(), None), bytes);
    }
}
