//! The symbol index of an archive: which member defines which symbol. Numbers are big-endian (System V ABI, chapter 7).

use format::printable;

use super::error::Fault;
use super::parse::decimal;
use super::{HEADER, Member};

/// The size of a number in the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Width {
    /// Named `/`.
    Bits32,
    /// Named `/SYM64/`: archives over 4 GB.
    Bits64,
}

impl Width {
    pub(super) fn bytes(self) -> usize {
        match self {
            Width::Bits32 => 4,
            Width::Bits64 => 8,
        }
    }

    fn read(self, field: &[u8]) -> u64 {
        field.iter().take(self.bytes()).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    pub(super) fn write(self, number: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&number.to_be_bytes()[8 - self.bytes()..]);
    }
}

/// How a writer pads the index. GNU ar and llvm-ar count the padding as content, and they disagree on its size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Padding<'a> {
    /// NUL bytes up to a multiple of this, counted as content.
    Inside(usize),
    /// Something else, or nothing: kept unchanged.
    Kept(&'a [u8]),
}

impl<'a> Padding<'a> {
    /// Recognises the padding of an index with `used` bytes and this tail.
    fn recognise(width: Width, used: usize, tail: &'a [u8]) -> Self {
        let (total, zero) = (used + tail.len(), tail.iter().all(|byte| *byte == 0));
        let fits = |alignment: &usize| zero && total.is_multiple_of(*alignment) && tail.len() < *alignment;
        let alignments: &[usize] = match width {
            Width::Bits32 => &[2, 4, 8],
            Width::Bits64 => &[8, 2, 4],
        };
        match alignments.iter().find(|alignment| fits(alignment)) {
            Some(alignment) => Padding::Inside(*alignment),
            None => Padding::Kept(tail),
        }
    }

    fn fill(&self, used: usize) -> Vec<u8> {
        match self {
            Padding::Inside(alignment) => vec![0; used.next_multiple_of(*alignment) - used],
            Padding::Kept(tail) => tail.to_vec(),
        }
    }
}

/// A symbol index with its offsets resolved to ordinals.
#[derive(Debug, Clone)]
pub(super) struct Index<'a> {
    /// The header, kept for its metadata.
    pub(super) header: &'a [u8],
    pub(super) width: Width,
    /// Ordinal and symbol, in the order of the index.
    pub(super) entries: Vec<(usize, &'a [u8])>,
    padding: Padding<'a>,
    /// The byte behind content of odd size; `None` if the archive ends without it.
    pad: Option<u8>,
}

impl<'a> Index<'a> {
    /// Reads the index from its header, content and padding byte.
    pub(super) fn parse(whole: &'a [u8], data: &'a [u8], width: Width, members: &[Member<'_>]) -> Result<Self, Fault> {
        let cut = |count: u64, expected| Fault::IndexCut { found: data.len(), expected, count };
        let (count, rest) = data.split_at_checked(width.bytes()).ok_or(cut(0, width.bytes() as u64))?;
        let count = width.read(count);
        let expected = count.saturating_add(1).saturating_mul(width.bytes() as u64);
        let (offsets, names) = usize::try_from(count)
            .ok()
            .and_then(|count| count.checked_mul(width.bytes()))
            .and_then(|size| rest.split_at_checked(size))
            .ok_or(cut(count, expected))?;
        let mut entries = Vec::with_capacity(offsets.len() / width.bytes());
        let mut left = names;
        for field in offsets.chunks_exact(width.bytes()) {
            let end =
                left.iter().position(|byte| *byte == 0).ok_or(Fault::IndexNames { found: entries.len(), count })?;
            let (symbol, after) = left.split_at(end);
            left = &after[1..];
            let target = width.read(field);
            let ordinal = usize::try_from(target)
                .ok()
                .and_then(|offset| members.binary_search_by_key(&offset, |member| member.offset).ok())
                .ok_or_else(|| Fault::IndexTarget { symbol: printable(symbol), target })?;
            entries.push((ordinal + 1, symbol));
        }
        let padding = Padding::recognise(width, data.len() - left.len(), left);
        let (header, after) = whole.split_at(HEADER);
        let pad = if data.len().is_multiple_of(2) { Some(b'\n') } else { after.get(data.len()).copied() };
        Ok(Index { header, width, entries, padding, pad })
    }

    /// Writes header, content and padding of an index of `entries`: the offset of a member's header, and the symbol.
    pub(super) fn write(&self, width: Width, entries: &[(u64, &[u8])], out: &mut Vec<u8>) {
        let start = out.len();
        let used = used(width, entries.iter().map(|(_, symbol)| *symbol));
        let tail = self.padding.fill(used);
        match (self.width, width) {
            (Width::Bits32, Width::Bits64) => out.extend_from_slice(b"/SYM64/         "),
            _ => out.extend_from_slice(&self.header[..16]),
        }
        out.extend_from_slice(&self.header[16..48]);
        let (size, field) = (used + tail.len(), &self.header[48..58]);
        match decimal(field) {
            // A writer's different spelling of this number.
            Some(was) if was == size as u64 => out.extend_from_slice(field),
            _ => out.extend_from_slice(format!("{size:<10}").as_bytes()),
        }
        out.extend_from_slice(&self.header[58..]);
        width.write(entries.len() as u64, out);
        for (offset, _) in entries {
            width.write(*offset, out);
        }
        for (_, symbol) in entries {
            out.extend_from_slice(symbol);
            out.push(0);
        }
        out.extend_from_slice(&tail);
        if !(out.len() - start).is_multiple_of(2) {
            out.extend(self.pad);
        }
    }

    /// The number of bytes that [`Index::write`] writes for these symbols.
    pub(super) fn written<'s>(&self, width: Width, symbols: impl Iterator<Item = &'s [u8]>) -> usize {
        let used = used(width, symbols);
        let size = HEADER + used + self.padding.fill(used).len();
        if size.is_multiple_of(2) { size } else { size + usize::from(self.pad.is_some()) }
    }
}

/// The size of count, offsets and names in bytes.
fn used<'s>(width: Width, symbols: impl Iterator<Item = &'s [u8]>) -> usize {
    width.bytes() + symbols.map(|symbol| width.bytes() + symbol.len() + 1).sum::<usize>()
}
