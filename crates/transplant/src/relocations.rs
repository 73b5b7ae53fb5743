//! The relocations that a static-pie program applies to itself when it starts (musl ldso/dlstart.c): it adds its base
//! to words.

use crate::image::{Image, PT_DYNAMIC, u64_at};
use crate::refusal::Refusal;

const DT_NEEDED: u64 = 1;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_RELRSZ: u64 = 35;
const DT_RELR: u64 = 36;
const R_NONE: u32 = 0;

/// The words that become base + value.
#[derive(Debug, Default)]
pub(crate) struct Relocations {
    /// Sorted by place.
    relative: Vec<(u64, u64)>,
    /// Places of other kinds of relocation. musl's static-pie programs have none.
    pub(crate) other: Vec<u64>,
}

impl Relocations {
    /// Reads the relocations of a program that needs no libraries.
    pub(crate) fn read_static(image: &Image<'_>) -> Result<Relocations, Refusal> {
        Relocations::parse(image, false)
    }

    /// Reads the relocations of a program that may need libraries.
    pub(crate) fn read_dynamic(image: &Image<'_>) -> Result<Relocations, Refusal> {
        Relocations::parse(image, true)
    }

    fn parse(image: &Image<'_>, may_need: bool) -> Result<Relocations, Refusal> {
        let mut relocations = Relocations::default();
        let Some(dynamic) = image.segment(PT_DYNAMIC) else { return Ok(relocations) };
        let relative = image.relative_kind();
        let entries = image.read(dynamic.address, usize::try_from(dynamic.file_size).unwrap_or(0));
        let entries = entries.ok_or_else(|| outside("dynamic section"))?;
        let mut tables = [None; 37];
        for entry in entries.chunks_exact(16) {
            let (tag, value) = (u64_at(entry, 0).unwrap_or(0), u64_at(entry, 8).unwrap_or(0));
            match tag {
                0 => break,
                DT_NEEDED if !may_need => return Err(Refusal::Dynamic),
                _ => {
                    if let Some(slot) = usize::try_from(tag).ok().and_then(|tag| tables.get_mut(tag)) {
                        *slot = Some(value);
                    }
                }
            }
        }
        let table = |at: u64, size: u64, what| {
            let address = tables[at as usize]?;
            let size = usize::try_from(tables[size as usize].unwrap_or(0)).unwrap_or(usize::MAX);
            Some(image.read(address, size).ok_or_else(|| outside(what)))
        };
        if let Some(table) = table(DT_RELA, DT_RELASZ, "relocations").transpose()? {
            for entry in table.chunks_exact(24) {
                let word = |at| u64_at(entry, at).unwrap_or(0);
                match word(8) as u32 {
                    R_NONE => {}
                    kind if kind == relative => relocations.relative.push((word(0), word(16))),
                    _ => relocations.other.push(word(0)),
                }
            }
        }
        if let Some(table) = table(DT_RELR, DT_RELRSZ, "packed relocations").transpose()? {
            unpack(image, table, |place, value| relocations.relative.push((place, value)))?;
        }
        relocations.relative.sort_unstable();
        Ok(relocations)
    }

    /// The words whose place is in the range.
    pub(crate) fn within(&self, range: std::ops::Range<u64>) -> impl Iterator<Item = (u64, u64)> + '_ {
        let from = self.relative.partition_point(|(place, _)| *place < range.start);
        self.relative[from..].iter().copied().take_while(move |(place, _)| *place < range.end)
    }

    /// The value of the word at a place after relocation, without the base.
    pub(crate) fn value_at(&self, place: u64) -> Option<u64> {
        self.within(place..place.checked_add(1)?).next().map(|(_, value)| value)
    }

    /// The places of words that become an address in the range.
    pub(crate) fn places_of(&self, range: std::ops::Range<u64>) -> impl Iterator<Item = u64> + '_ {
        self.relative.iter().filter(move |(_, value)| range.contains(value)).map(|(place, _)| *place)
    }

    /// Whether a word becomes that address.
    pub(crate) fn lead_to(&self, address: u64) -> bool {
        self.relative.iter().any(|(_, value)| *value == address)
    }
}

/// Reads SHT_RELR (gABI): an even word is a place; an odd one is a bitmap of the 63 words that follow the last place.
/// Hands out each place with the word in it.
pub(crate) fn unpack(image: &Image<'_>, table: &[u8], mut found: impl FnMut(u64, u64)) -> Result<(), Refusal> {
    let mut next = 0u64;
    let mut add = |place: u64| {
        let value = image.read(place, 8).and_then(|word| u64_at(word, 0)).ok_or_else(|| outside("relocated word"))?;
        found(place, value);
        Ok(())
    };
    for entry in table.chunks_exact(8) {
        let word = u64_at(entry, 0).unwrap_or(0);
        if word & 1 == 0 {
            add(word)?;
            next = word.wrapping_add(8);
            continue;
        }
        for bit in (0..63).filter(|bit| word >> (bit + 1) & 1 == 1) {
            add(next.wrapping_add(8 * bit))?;
        }
        next = next.wrapping_add(63 * 8);
    }
    Ok(())
}

fn outside(what: &str) -> Refusal {
    Refusal::Malformed(format!("its {what} is outside the file"))
}
