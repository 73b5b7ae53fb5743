//! The dynamic section of a program or a shared object, and the tables that it points to. Nothing is taken from section
//! headers except the length of the symbol table, which nothing else states exactly.

use crate::image::{Image, PT_DYNAMIC, SHT_DYNSYM, STT_TLS, SYMBOL, u32_at, u64_at};
use crate::refusal::Refusal;
use crate::relocations::unpack;

// Tags (gABI, "Dynamic Section"; the numbers from 0x6000_0000 on are GNU's, glibc elf/elf.h).
pub(super) const NEEDED: u64 = 1;
pub(super) const PLTRELSZ: u64 = 2;
pub(super) const HASH: u64 = 4;
pub(super) const STRTAB: u64 = 5;
pub(super) const SYMTAB: u64 = 6;
pub(super) const RELA: u64 = 7;
pub(super) const RELASZ: u64 = 8;
pub(super) const RELAENT: u64 = 9;
pub(super) const STRSZ: u64 = 10;
pub(super) const INIT: u64 = 12;
pub(super) const FINI: u64 = 13;
pub(super) const PLTREL: u64 = 20;
pub(super) const JMPREL: u64 = 23;
pub(super) const INIT_ARRAY: u64 = 25;
pub(super) const FINI_ARRAY: u64 = 26;
pub(super) const INIT_ARRAYSZ: u64 = 27;
pub(super) const FINI_ARRAYSZ: u64 = 28;
pub(super) const PREINIT_ARRAY: u64 = 32;
pub(super) const PREINIT_ARRAYSZ: u64 = 33;
pub(super) const RELRSZ: u64 = 35;
pub(super) const RELR: u64 = 36;
pub(super) const GNU_HASH: u64 = 0x6fff_fef5;
pub(super) const VERSYM: u64 = 0x6fff_fff0;
pub(super) const RELACOUNT: u64 = 0x6fff_fff9;

/// The size of an `Elf64_Rela`.
pub(super) const RELOCATION: usize = 24;

const STB_WEAK: u8 = 2;

/// `Elf64_Sym`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbol {
    /// The offset of its name in the strings.
    pub(super) name: u32,
    pub(super) info: u8,
    pub(super) other: u8,
    pub(super) section: u16,
    pub(super) value: u64,
    pub(super) size: u64,
}

impl Symbol {
    fn read(table: &[u8], index: usize) -> Option<Symbol> {
        let entry = table.get(index * SYMBOL..(index + 1) * SYMBOL)?;
        Some(Symbol {
            name: u32_at(entry, 0)?,
            info: entry[4],
            other: entry[5],
            section: u16::from_le_bytes([entry[6], entry[7]]),
            value: u64_at(entry, 8)?,
            size: u64_at(entry, 16)?,
        })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.name.to_le_bytes().to_vec();
        bytes.extend([self.info, self.other]);
        bytes.extend(self.section.to_le_bytes());
        bytes.extend(self.value.to_le_bytes());
        bytes.extend(self.size.to_le_bytes());
        bytes
    }

    pub(super) fn is_defined(&self) -> bool {
        self.section != 0
    }

    pub(super) fn is_local(&self) -> bool {
        self.info >> 4 == 0
    }

    /// Whether it is undefined and may stay so: a weak reference.
    pub(super) fn is_wish(&self) -> bool {
        !self.is_defined() && self.info >> 4 == STB_WEAK
    }

    pub(super) fn is_thread_local(&self) -> bool {
        self.info & 15 == STT_TLS
    }
}

/// `Elf64_Rela`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Relocation {
    pub(super) place: u64,
    pub(super) kind: u32,
    /// The symbol's index.
    pub(super) symbol: u32,
    pub(super) addend: i64,
}

impl Relocation {
    fn read(entry: &[u8]) -> Option<Relocation> {
        let (place, addend) = (u64_at(entry, 0)?, u64_at(entry, 16)?.cast_signed());
        Some(Relocation { place, kind: u32_at(entry, 8)?, symbol: u32_at(entry, 12)?, addend })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.place.to_le_bytes().to_vec();
        bytes.extend(self.kind.to_le_bytes());
        bytes.extend(self.symbol.to_le_bytes());
        bytes.extend(self.addend.to_le_bytes());
        bytes
    }
}

/// The entries of a dynamic section, and its tables.
#[derive(Debug)]
pub(super) struct Dynamic<'a> {
    image: &'a Image<'a>,
    /// Tags and values in their order, without the one that ends them.
    pub(super) entries: Vec<(u64, u64)>,
    pub(super) strings: &'a [u8],
    pub(super) symbols: Vec<Symbol>,
    /// The version index of each symbol; empty if there are no versions.
    pub(super) versions: Vec<u16>,
    /// The first symbol that DT_GNU_HASH covers; all those behind it are covered. The number of symbols, if it covers
    /// none or there is no such table.
    pub(super) first_hashed: usize,
    pub(super) relocations: Vec<Relocation>,
    /// The relocations of DT_JMPREL.
    pub(super) slots: Vec<Relocation>,
    /// The places that DT_RELR relocates, with the words in them.
    pub(super) packed: Vec<(u64, u64)>,
}

impl<'a> Dynamic<'a> {
    pub(super) fn parse(image: &'a Image<'a>) -> Result<Dynamic<'a>, Refusal> {
        let segment = image.segment(PT_DYNAMIC).ok_or_else(|| malformed("it has no dynamic section"))?;
        let table = usize::try_from(segment.file_size).ok().and_then(|size| image.read(segment.address, size));
        let table = table.ok_or_else(|| outside("dynamic section"))?;
        let pair = |entry: &[u8]| Some((u64_at(entry, 0)?, u64_at(entry, 8)?));
        let entries: Vec<(u64, u64)> =
            table.chunks_exact(16).filter_map(pair).take_while(|(tag, _)| *tag != 0).collect();
        let mut dynamic = Dynamic {
            image,
            entries,
            strings: &[],
            symbols: Vec::new(),
            versions: Vec::new(),
            first_hashed: 0,
            relocations: Vec::new(),
            slots: Vec::new(),
            packed: Vec::new(),
        };
        dynamic.check_tags()?;
        dynamic.strings = dynamic.table(STRTAB, STRSZ, "strings")?;
        dynamic.relocations = dynamic.relocations_of(RELA, RELASZ)?;
        dynamic.slots = dynamic.relocations_of(JMPREL, PLTRELSZ)?;
        let packed = dynamic.table(RELR, RELRSZ, "packed relocations")?;
        unpack(image, packed, |place, word| dynamic.packed.push((place, word)))?;
        dynamic.read_symbols()?;
        Ok(dynamic)
    }

    /// The value of a tag; the last, if it occurs several times.
    pub(super) fn value(&self, tag: u64) -> Option<u64> {
        self.entries.iter().rfind(|(is, _)| *is == tag).map(|(_, value)| *value)
    }

    /// The texts of a tag that may occur several times, such as the names of needed libraries.
    pub(super) fn texts(&self, tag: u64) -> Vec<&'a [u8]> {
        let values = self.entries.iter().filter(|(is, _)| *is == tag).map(|(_, value)| *value);
        values.filter_map(|at| self.text(usize::try_from(at).ok()?)).collect()
    }

    /// The name of a symbol.
    pub(super) fn name(&self, symbol: &Symbol) -> &'a [u8] {
        self.text(symbol.name as usize).unwrap_or_default()
    }

    /// Whether the program can load libraries into a namespace of their own (glibc's dlmopen).
    pub(super) fn loads_namespaces(&self) -> bool {
        self.symbols.iter().any(|symbol| !symbol.is_defined() && self.name(symbol) == b"dlmopen")
    }

    fn text(&self, at: usize) -> Option<&'a [u8]> {
        let text = self.strings.get(at..)?;
        Some(&text[..memchr::memchr(0, text)?])
    }

    /// Refuses what would be lost on a table that is written anew.
    fn check_tags(&self) -> Result<(), Refusal> {
        for (index, (tag, _)) in self.entries.iter().enumerate() {
            let repeated = self.entries[..index].iter().any(|(other, _)| other == tag);
            if repeated && *tag != NEEDED {
                return Err(malformed(format!("its dynamic section has the tag {tag:#x} twice")));
            }
        }
        for (tag, expected) in [(RELAENT, RELOCATION as u64), (PLTREL, RELA), (11, SYMBOL as u64), (37, 8)] {
            if let Some(found) = self.value(tag).filter(|found| *found != expected) {
                return Err(malformed(format!("the dynamic tag {tag:#x} is {found}, expected {expected}")));
            }
        }
        Ok(())
    }

    /// The bytes of a table, by the tags of its address and of its size; none without such tags.
    fn table(&self, at: u64, size: u64, what: &str) -> Result<&'a [u8], Refusal> {
        let Some((address, size)) = self.value(at).zip(self.value(size)).filter(|(_, size)| *size != 0) else {
            return Ok(&[]);
        };
        let size = usize::try_from(size).map_err(|_| outside(what))?;
        self.image.read(address, size).ok_or_else(|| outside(what))
    }

    fn relocations_of(&self, at: u64, size: u64) -> Result<Vec<Relocation>, Refusal> {
        let table = self.table(at, size, "relocations")?;
        Ok(table.chunks_exact(RELOCATION).filter_map(Relocation::read).collect())
    }

    /// Reads the symbols, as many as a hash table, a relocation or the section header names.
    fn read_symbols(&mut self) -> Result<(), Refusal> {
        let missing = || malformed("it has no table of dynamic symbols");
        let address = self.value(SYMTAB).ok_or_else(missing)?;
        let hashed = self.hashed()?;
        let by_hash = hashed.as_ref().map_or(0, |range| range.end);
        let chains = match self.value(HASH) {
            Some(at) => self.image.read(at, 8).and_then(|head| u32_at(head, 4)).ok_or_else(|| outside("hash table"))?,
            None => 0,
        };
        let all = self.relocations.iter().chain(&self.slots);
        let by_relocations = all.map(|relocation| relocation.symbol as usize + 1).max().unwrap_or(1);
        let header = self.image.sections.iter().find(|section| section.kind == SHT_DYNSYM);
        let by_header = header.filter(|section| section.address == address).map_or(0, |section| section.size);
        let count = by_hash.max(chains as usize).max(by_relocations).max(by_header as usize / SYMBOL);
        let size = count.checked_mul(SYMBOL).ok_or_else(|| outside("table of dynamic symbols"))?;
        let table = self.image.read(address, size).ok_or_else(|| outside("table of dynamic symbols"))?;
        self.symbols = (0..count).filter_map(|index| Symbol::read(table, index)).collect();
        if let Some(symbol) = self.symbols.iter().find(|symbol| self.text(symbol.name as usize).is_none()) {
            return Err(malformed(format!("a symbol's name is at {:#x}, outside its strings", symbol.name)));
        }
        self.first_hashed = hashed.map_or(count, |range| range.start);
        if let Some(at) = self.value(VERSYM) {
            let table = self.image.read(at, 2 * count).ok_or_else(|| outside("table of versions"))?;
            self.versions = table.chunks_exact(2).map(|half| u16::from_le_bytes([half[0], half[1]])).collect();
        }
        Ok(())
    }

    /// The symbols that DT_GNU_HASH covers; `None` if none are, or there is no such table (glibc elf/dl-lookup.c).
    fn hashed(&self) -> Result<Option<std::ops::Range<usize>>, Refusal> {
        let Some(address) = self.value(GNU_HASH) else { return Ok(None) };
        let damaged = || outside("GNU hash table");
        let table = self.image.bytes_from(address);
        let head = |index: usize| u32_at(table, 4 * index).map(|word| word as usize).ok_or_else(damaged);
        let (buckets, first, bloom) = (head(0)?, head(1)?, head(2)?);
        let start = bloom.checked_mul(8).map(|size| size + 16).ok_or_else(damaged)?;
        let words = table.get(start..).and_then(|rest| rest.get(..buckets.checked_mul(4)?)).ok_or_else(damaged)?;
        let last = words.chunks_exact(4).filter_map(|word| u32_at(word, 0)).max().unwrap_or(0) as usize;
        if last == 0 {
            return Ok(None);
        }
        let chains = start + 4 * buckets;
        let mut index = last;
        loop {
            let at = index.checked_sub(first).map(|index| chains + 4 * index).ok_or_else(damaged)?;
            if u32_at(table, at).ok_or_else(damaged)? & 1 == 1 {
                return Ok(Some(first..index + 1));
            }
            index += 1;
        }
    }
}

/// The offset in the file of the value of a tag of the dynamic section; `None` if it has no such tag.
pub(super) fn value_at(image: &Image<'_>, tag: u64) -> Option<usize> {
    let table = image.segment(PT_DYNAMIC)?;
    let entries = image.read(table.address, usize::try_from(table.file_size).ok()?)?;
    let index = entries.chunks_exact(16).position(|entry| u64_at(entry, 0) == Some(tag))?;
    image.offset(table.address + 16 * index as u64 + 8)
}

fn malformed(what: impl Into<String>) -> Refusal {
    Refusal::Malformed(what.into())
}

fn outside(what: &str) -> Refusal {
    Refusal::Malformed(format!("its {what} is outside the file"))
}
