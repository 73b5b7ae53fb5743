//! The tables of a dynamic program as its loader reads them: by the dynamic section alone (gABI, "Dynamic Section").
//! Section headers describe the same tables, but no loader reads them, so they prove nothing about a run.

use crate::bytes::c_string;
use crate::elf::Elf;

const PLTRELSZ: u64 = 2;
const HASH: u64 = 4;
const STRTAB: u64 = 5;
const SYMTAB: u64 = 6;
const RELA: u64 = 7;
const RELASZ: u64 = 8;
const JMPREL: u64 = 23;
const RELRSZ: u64 = 35;
const RELR: u64 = 36;
const GNU_HASH: u64 = 0x6fff_fef5;
const VERSYM: u64 = 0x6fff_fff0;
const SHT_DYNSYM: u32 = 11;
/// The size of a symbol, and of a relocation.
const ENTRY: u64 = 24;
/// The prefix of the symbol for a donor's function whose public name already denotes a stub in the program.
pub(crate) const ALIAS: &[u8] = b"allograft.";
/// The most entries of a chain that are followed.
const MOST: u32 = 1 << 24;

/// A dynamic symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Symbol<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) info: u8,
    pub(crate) section: u16,
    pub(crate) value: u64,
    pub(crate) size: u64,
    /// Its version's index; 1 where there are no versions.
    pub(crate) version: u16,
}

/// A relocation, by its symbol's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Relocation<'a> {
    pub(crate) place: u64,
    pub(crate) kind: u32,
    pub(crate) symbol: &'a [u8],
    pub(crate) version: u16,
    pub(crate) addend: i64,
}

/// The tables.
pub(crate) struct Tables<'e, 'a> {
    pub(crate) elf: &'e Elf<'a>,
    pub(crate) entries: Vec<(u64, u64)>,
}

impl<'e, 'a> Tables<'e, 'a> {
    pub(crate) fn new(elf: &'e Elf<'a>) -> Self {
        Tables { elf, entries: elf.dynamic_entries().collect() }
    }

    pub(crate) fn value(&self, tag: u64) -> Option<u64> {
        self.entries.iter().find(|(is, _)| *is == tag).map(|(_, value)| *value)
    }

    /// The loaded bytes at an address.
    pub(crate) fn bytes_at(&self, address: u64, size: usize) -> Option<&'a [u8]> {
        self.elf.at_address(address)?.get(..size)
    }

    pub(crate) fn u64_at(&self, address: u64) -> Option<u64> {
        self.bytes_at(address, 8)?.first_chunk().map(|word| u64::from_le_bytes(*word))
    }

    fn u32_at(&self, address: u64) -> Option<u32> {
        self.bytes_at(address, 4)?.first_chunk().map(|word| u32::from_le_bytes(*word))
    }

    pub(crate) fn symbol(&self, index: u32) -> Option<Symbol<'a>> {
        let at = self.value(SYMTAB)?.checked_add(ENTRY * u64::from(index))?;
        let words = self.elf.bytes.over(self.bytes_at(at, ENTRY as usize)?);
        let strings = self.elf.at_address(self.value(STRTAB)?)?;
        let version = match self.value(VERSYM) {
            Some(versions) => {
                let half = self.bytes_at(versions.checked_add(2 * u64::from(index))?, 2)?;
                u16::from_le_bytes([half[0], half[1]])
            }
            None => 1,
        };
        Some(Symbol {
            name: c_string(strings, words.u32(0)? as usize)?,
            info: words.u8(4)?,
            section: words.u16(6)?,
            value: words.u64(8)?,
            size: words.u64(16)?,
            version,
        })
    }

    /// All relocations; `None` if a table or a symbol is not in the file.
    pub(crate) fn relocations(&self) -> Option<Vec<Relocation<'a>>> {
        let relocation = |entry| {
            let words = self.elf.bytes.over(entry);
            let number = words.u32(12)?;
            let symbol = if number == 0 { None } else { Some(self.symbol(number)?) };
            Some(Relocation {
                place: words.u64(0)?,
                kind: words.u32(8)?,
                symbol: symbol.map_or(&[], |symbol| symbol.name),
                version: symbol.map_or(0, |symbol| symbol.version),
                addend: words.u64(16)?.cast_signed(),
            })
        };
        self.raw_relocations()?.into_iter().map(relocation).collect()
    }

    /// The entries of both tables of relocations, as raw bytes; `None` if a table is not in it.
    fn raw_relocations(&self) -> Option<Vec<&'a [u8]>> {
        let mut found = Vec::new();
        for (at, size) in [(RELA, RELASZ), (JMPREL, PLTRELSZ)] {
            if let Some((at, size)) = self.value(at).zip(self.value(size)).filter(|(_, size)| *size != 0) {
                found.extend(self.bytes_at(at, usize::try_from(size).ok()?)?.chunks_exact(ENTRY as usize));
            }
        }
        Some(found)
    }

    /// The range of DT_JMPREL.
    pub(crate) fn slots(&self) -> std::ops::Range<u64> {
        let start = self.value(JMPREL).unwrap_or(0);
        start..start.saturating_add(self.value(PLTRELSZ).unwrap_or(0))
    }

    /// The places of DT_RELR (gABI, SHT_RELR).
    pub(crate) fn packed(&self) -> Vec<u64> {
        let table = self.value(RELR).zip(self.value(RELRSZ)).and_then(|(at, size)| self.bytes_at(at, size as usize));
        let (mut places, mut next) = (Vec::new(), 0_u64);
        for word in table.unwrap_or_default().chunks_exact(8).filter_map(|word| word.first_chunk()) {
            let word = u64::from_le_bytes(*word);
            if word & 1 == 0 {
                places.push(word);
                next = word.wrapping_add(8);
                continue;
            }
            places.extend((0..63).filter(|bit| word >> (bit + 1) & 1 == 1).map(|bit| next.wrapping_add(8 * bit)));
            next = next.wrapping_add(8 * 63);
        }
        places
    }

    /// The first symbol of that name, as every existing hash table finds it; an error if they disagree.
    pub(crate) fn found(&self, name: &[u8]) -> Result<Option<Symbol<'a>>, ()> {
        let gnu = self.value(GNU_HASH).map(|at| self.gnu_found(at, name));
        let sysv = self.value(HASH).map(|at| self.sysv_found(at, name));
        match (gnu, sysv) {
            (Some(one), Some(other)) if one != other && one.is_some_and(|it| it.section != 0) => Err(()),
            (Some(one), _) => Ok(one),
            (None, other) => Ok(other.flatten()),
        }
    }

    fn gnu_found(&self, table: u64, name: &[u8]) -> Option<Symbol<'a>> {
        let hash = name.iter().fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)));
        let table = Some(table).filter(|table| *table < 1 << 47)?;
        let head = |index: u64| self.u32_at(table + 4 * index);
        let (count, first, bloom, shift) = (head(0)?, head(1)?, head(2)?, head(3)?);
        let words = table + 16;
        let word = self.u64_at(words + 8 * u64::from((hash / 64) & bloom.checked_sub(1)?))?;
        if word >> (hash % 64) & 1 == 0 || word >> (hash.checked_shr(shift)? % 64) & 1 == 0 {
            return None;
        }
        let buckets = words + 8 * u64::from(bloom);
        let mut index = self.u32_at(buckets + 4 * u64::from(hash.checked_rem(count)?))?;
        let chains = buckets + 4 * u64::from(count);
        let start = index;
        while index - start < MOST {
            let other = self.u32_at(chains + 4 * u64::from(index.checked_sub(first)?))?;
            if other | 1 == hash | 1 {
                let symbol = self.symbol(index)?;
                if symbol.name == name {
                    return Some(symbol);
                }
            }
            if other & 1 == 1 {
                return None;
            }
            index += 1;
        }
        None
    }

    fn sysv_found(&self, table: u64, name: &[u8]) -> Option<Symbol<'a>> {
        let hash = name.iter().fold(0_u32, |hash, byte| {
            let hash = (hash << 4).wrapping_add(u32::from(*byte));
            (hash ^ ((hash & 0xf000_0000) >> 24)) & 0x0fff_ffff
        });
        let table = Some(table).filter(|table| *table < 1 << 47)?;
        let count = self.u32_at(table)?;
        let mut index = self.u32_at(table + 8 + 4 * u64::from(hash.checked_rem(count)?))?;
        for _ in 0..MOST {
            if index == 0 {
                return None;
            }
            let symbol = self.symbol(index)?;
            if symbol.name == name {
                return Some(symbol);
            }
            index = self.u32_at(table + 8 + 4 * (u64::from(count) + u64::from(index)))?;
        }
        None
    }

    /// The symbols that some hash table covers.
    pub(crate) fn hashed(&self) -> Vec<Symbol<'a>> {
        let numbers: Vec<u32> = match (self.value(GNU_HASH), self.value(HASH)) {
            (Some(table), _) => self.gnu_numbers(table),
            (None, Some(table)) => (1..self.u32_at(table.saturating_add(4)).unwrap_or(0).min(MOST)).collect(),
            (None, None) => Vec::new(),
        };
        numbers.into_iter().map_while(|number| self.symbol(number)).collect()
    }

    /// The symbols that DT_GNU_HASH does not cover. DT_HASH covers all.
    pub(crate) fn unhashed(&self) -> Vec<Symbol<'a>> {
        let first = self.value(GNU_HASH).and_then(|table| self.u32_at(table.checked_add(4)?)).unwrap_or(0);
        (1..first.min(MOST)).map_while(|number| self.symbol(number)).collect()
    }

    /// All symbols but the first, which is empty: as many as a hash table or a relocation needs, or the section has.
    pub(crate) fn all(&self) -> Vec<Symbol<'a>> {
        let hashed = self.value(GNU_HASH).and_then(|table| self.gnu_numbers(table).last().copied()).unwrap_or(0);
        let chains = self.value(HASH).and_then(|table| self.u32_at(table.checked_add(4)?)).unwrap_or(0);
        let relocations = self.raw_relocations().unwrap_or_default();
        let relocated =
            relocations.into_iter().filter_map(|entry| self.elf.bytes.over(entry).u32(12)).max().unwrap_or(0);
        let table = self.value(SYMTAB).and_then(|at| self.elf.at_address(at)).map(<[u8]>::as_ptr);
        let sections = self.elf.sections.iter().filter(|section| section.kind == SHT_DYNSYM);
        let section = sections.filter_map(|section| section.data).find(|data| Some(data.as_ptr()) == table);
        let in_section = section.map_or(0, |data| (data.len() / ENTRY as usize) as u32);
        let count = in_section.max(hashed.saturating_add(1)).max(chains).max(relocated.saturating_add(1));
        (1..count.min(MOST)).map_while(|number| self.symbol(number)).collect()
    }

    fn gnu_numbers(&self, table: u64) -> Vec<u32> {
        if table >= 1 << 47 {
            return Vec::new();
        }
        let head = |index: u64| self.u32_at(table + 4 * index).unwrap_or(0);
        let (count, first, bloom) = (head(0), head(1), head(2));
        let buckets = table + 16 + 8 * u64::from(bloom);
        let words = self.bytes_at(buckets, (count as usize).saturating_mul(4)).unwrap_or_default();
        let last = words.chunks_exact(4).filter_map(|word| word.first_chunk()).map(|word| u32::from_le_bytes(*word));
        let Some(mut last) = last.max().filter(|last| *last >= first) else { return Vec::new() };
        let chains = buckets + 4 * u64::from(count);
        while self.u32_at(chains + 4 * u64::from(last - first)).is_some_and(|word| word & 1 == 0) {
            last += 1;
        }
        (first..=last).collect()
    }
}
