//! Reads ELF files of both classes and both byte orders into plain structures that borrow the file.
//!
//! The editors have their own readers: with a common one, an edit and its check would make the same mistake. A table
//! outside the file is left out, so that a program with a damaged table of symbols or sections still has a report; only
//! an object, or a file without segments, is refused for it.

use crate::bytes::{Bytes, c_string};
use crate::report::Arch;

pub(crate) const ET_REL: u16 = 1;
pub(crate) const ET_EXEC: u16 = 2;
pub(crate) const ET_DYN: u16 = 3;
pub(crate) const PT_LOAD: u32 = 1;
pub(crate) const PT_DYNAMIC: u32 = 2;
pub(crate) const PT_INTERP: u32 = 3;
pub(crate) const PT_NOTE: u32 = 4;
pub(crate) const PT_TLS: u32 = 7;
pub(crate) const PT_GNU_STACK: u32 = 0x6474_e551;
pub(crate) const PT_GNU_RELRO: u32 = 0x6474_e552;
/// The flag of a segment that may be executed.
pub(crate) const PF_X: u32 = 1;
pub(crate) const SHT_SYMTAB: u32 = 2;
pub(crate) const SHT_RELA: u32 = 4;
pub(crate) const SHT_NOTE: u32 = 7;
pub(crate) const SHT_NOBITS: u32 = 8;
pub(crate) const SHT_REL: u32 = 9;
pub(crate) const SHT_DYNSYM: u32 = 11;
pub(crate) const SHF_ALLOC: u64 = 2;
pub(crate) const STB_LOCAL: u8 = 0;
pub(crate) const STB_GLOBAL: u8 = 1;
pub(crate) const STB_WEAK: u8 = 2;
pub(crate) const STT_FUNC: u8 = 2;
pub(crate) const STT_SECTION: u8 = 3;
pub(crate) const STT_FILE: u8 = 4;
pub(crate) const STV_HIDDEN: u8 = 2;
const SHN_XINDEX: u16 = 0xffff;
const SHN_ABS: u16 = 0xfff1;
const SHN_COMMON: u16 = 0xfff2;

/// A parsed ELF file. Tables outside the file are left out; [`Elf::damage`] has the first.
#[derive(Debug)]
pub(crate) struct Elf<'a> {
    pub(crate) bytes: Bytes<'a>,
    pub(crate) file_type: u16,
    pub(crate) arch: Arch,
    pub(crate) segments: Vec<Segment<'a>>,
    pub(crate) sections: Vec<Section<'a>>,
    /// The symbols of `.symtab`.
    pub(crate) symbols: Vec<Symbol<'a>>,
    /// The symbols of `.dynsym`.
    pub(crate) dynamic_symbols: Vec<Symbol<'a>>,
    pub(crate) dynamic: Dynamic<'a>,
    /// The first fault of the tables: a table outside the file, an entry that is too small.
    pub(crate) damage: Option<String>,
}

#[derive(Debug)]
pub(crate) struct Segment<'a> {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    /// The size in memory, in bytes.
    pub(crate) memory: u64,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) align: u64,
    /// The contents in the file. `None` if the file ends before their end.
    pub(crate) data: Option<&'a [u8]>,
}

#[derive(Debug)]
pub(crate) struct Section<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) offset: u64,
    pub(crate) link: u32,
    pub(crate) align: u64,
    /// The contents. Empty for a section without contents, `None` if the file ends before their end.
    pub(crate) data: Option<&'a [u8]>,
}

/// The place of a symbol's definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Definition {
    Undefined,
    Absolute,
    Common,
    Section(u32),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Symbol<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: u64,
    pub(crate) size: u64,
    pub(crate) place: Definition,
    pub(crate) binding: u8,
    pub(crate) kind: u8,
    pub(crate) visibility: u8,
}

impl Symbol<'_> {
    pub(crate) fn is_defined(&self) -> bool {
        self.place != Definition::Undefined && self.kind != STT_FILE && self.kind != STT_SECTION
    }

    /// Whether the symbol is defined, and visible to other object files.
    pub(crate) fn is_exported(&self) -> bool {
        self.is_defined() && self.binding != STB_LOCAL
    }

    pub(crate) fn is_needed(&self) -> bool {
        self.place == Definition::Undefined && self.binding != STB_LOCAL && !self.name.is_empty()
    }
}

/// The dynamic section's entries for the loader.
#[derive(Debug, Default)]
pub(crate) struct Dynamic<'a> {
    pub(crate) needed: Vec<&'a [u8]>,
    pub(crate) soname: Option<&'a [u8]>,
    /// The flag DF_1_PIE of DT_FLAGS_1.
    pub(crate) pie: bool,
    /// Whether all symbols are bound before the program starts.
    pub(crate) bind_now: bool,
    /// The table of names.
    pub(crate) strings: &'a [u8],
}

impl<'a> Elf<'a> {
    /// Reads the header and every table inside the file. The error describes a fault of the header.
    pub(crate) fn parse(data: &'a [u8]) -> Result<Self, String> {
        let ident = data.get(..16).ok_or("the file ends within the header")?;
        if !ident.starts_with(b"\x7fELF") {
            return Err("there is no ELF magic".to_owned());
        }
        let wide = match ident[4] {
            1 => false,
            2 => true,
            other => return Err(format!("class {other} is neither 32 nor 64 bits")),
        };
        let little = match ident[5] {
            1 => true,
            2 => false,
            other => return Err(format!("byte order {other} is neither little nor big")),
        };
        let bytes = Bytes { data, little, wide };
        let header = Header::read(&bytes).ok_or("the file ends within the header")?;
        let mut elf = Elf {
            bytes,
            file_type: header.file_type,
            arch: Arch::new(header.machine, wide),
            segments: Vec::new(),
            sections: Vec::new(),
            symbols: Vec::new(),
            dynamic_symbols: Vec::new(),
            dynamic: Dynamic::default(),
            damage: None,
        };
        elf.read_segments(&header);
        elf.read_sections(&header);
        elf.symbols = elf.read_symbols(SHT_SYMTAB);
        elf.dynamic_symbols = elf.read_symbols(SHT_DYNSYM);
        elf.read_dynamic();
        if !elf.sections.iter().any(|section| section.kind == SHT_DYNSYM) {
            elf.dynamic_symbols = elf.symbols_of_loader();
        }
        Ok(elf)
    }

    fn damaged(&mut self, what: impl Into<String>) {
        self.damage.get_or_insert(what.into());
    }

    fn read_segments(&mut self, header: &Header) {
        let bytes = self.bytes;
        if header.segment_table == 0 || header.segment_count == 0 {
            return;
        }
        // PN_XNUM: the count is in the first section header.
        let count = match header.segment_count {
            0xffff => {
                header.first_section(&bytes).and_then(|first| bytes.u32(first + if bytes.wide { 44 } else { 28 }))
            }
            count => Some(u32::from(count)),
        };
        let Some(count) = count else { return self.damaged("the number of segments is outside of the file") };
        // Overlapping headers would let a small file ask for much memory.
        if header.segment_size < if bytes.wide { 56 } else { 32 } {
            return self.damaged(format!("a program header of {} bytes is too small", header.segment_size));
        }
        for index in 0..u64::from(count) {
            let at = table_entry(header.segment_table, index, header.segment_size);
            let Some(segment) = at.and_then(|at| read_segment(&bytes, at)) else {
                return self.damaged("the program headers go beyond the end of the file");
            };
            if segment.data.is_none() {
                self.damaged(format!("segment {index} goes beyond the end of the file"));
            }
            self.segments.push(segment);
        }
    }

    fn read_sections(&mut self, header: &Header) {
        let bytes = self.bytes;
        if header.section_table == 0 {
            return;
        }
        let Some(first) = header.first_section(&bytes) else {
            return self.damaged("the section headers are outside of the file");
        };
        if header.section_size < if bytes.wide { 64 } else { 40 } {
            return self.damaged(format!("a section header of {} bytes is too small", header.section_size));
        }
        // Counts that do not fit the header are in the first section header (gABI, "Extended section numbering").
        let (size_at, link_at) = if bytes.wide { (32, 40) } else { (20, 24) };
        let count = match header.section_count {
            0 => bytes.word(first + size_at),
            count => Some(u64::from(count)),
        };
        let names_index = match header.names_index {
            SHN_XINDEX => bytes.u32(first + link_at),
            index => Some(u32::from(index)),
        };
        let (Some(count), Some(names_index)) = (count, names_index) else {
            return self.damaged("the first section header is outside of the file");
        };
        let mut sections = Vec::new();
        let mut name_offsets = Vec::new();
        for index in 0..count {
            let at = table_entry(header.section_table, index, header.section_size);
            let Some((name, section)) = at.and_then(|at| read_section(&bytes, at)) else {
                return self.damaged("the section headers go beyond the end of the file");
            };
            if section.data.is_none() {
                self.damaged(format!("section {index} goes beyond the end of the file"));
            }
            name_offsets.push(name);
            sections.push(section);
        }
        let names = sections.get(names_index as usize).and_then(|section| section.data).unwrap_or_default();
        for (section, name) in sections.iter_mut().zip(name_offsets) {
            section.name = c_string(names, name as usize).unwrap_or_default();
        }
        self.sections = sections;
    }

    /// Reads the first symbol table of a kind.
    fn read_symbols(&self, kind: u32) -> Vec<Symbol<'a>> {
        let Some(table) = self.sections.iter().find(|section| section.kind == kind) else { return Vec::new() };
        let strings = self.sections.get(table.link as usize).and_then(|section| section.data).unwrap_or_default();
        let table = self.bytes.over(table.data.unwrap_or_default());
        let entry = if table.wide { 24 } else { 16 };
        (0..table.data.len() / entry).filter_map(|index| read_symbol(&table, index * entry, strings)).collect()
    }

    /// Reads the symbols that a loader reads, which a file without section headers has, too. Their number is that of
    /// the hash table (gABI, "Hash Table"; glibc elf/dl-lookup.c for `DT_GNU_HASH`).
    fn symbols_of_loader(&self) -> Vec<Symbol<'a>> {
        let part = |wanted: u64| {
            let (_, address) = self.dynamic_entries().find(|(tag, _)| *tag == wanted)?;
            self.at_address(address).map(|data| self.bytes.over(data))
        };
        let (Some(table), Some(strings)) = (part(6), part(5)) else { return Vec::new() };
        let counted = part(4).and_then(|hash| hash.u32(4));
        let count = counted.or_else(|| count_by_gnu_hash(&part(0x6fff_fef5)?)).unwrap_or(0) as usize;
        let entry = if table.wide { 24 } else { 16 };
        let count = count.min(table.data.len() / entry);
        (0..count).filter_map(|index| read_symbol(&table, index * entry, strings.data)).collect()
    }

    fn read_dynamic(&mut self) {
        if !self.segments.iter().any(|segment| segment.kind == PT_DYNAMIC) {
            return;
        }
        let mut dynamic = Dynamic::default();
        let (mut needed, mut soname, mut strings, mut size) = (Vec::new(), None, None, u64::MAX);
        for (tag, value) in self.dynamic_entries() {
            match tag {
                1 => needed.push(value),
                5 => strings = Some(value),
                10 => size = value,
                14 => soname = Some(value),
                24 => dynamic.bind_now = true,
                30 => dynamic.bind_now |= value & 8 != 0,
                0x6fff_fffb => {
                    dynamic.pie = value & 0x0800_0000 != 0;
                    dynamic.bind_now |= value & 1 != 0;
                }
                _ => {}
            }
        }
        let strings = strings.and_then(|address| self.at_address(address)).unwrap_or_default();
        let text = |offset: u64| usize::try_from(offset).ok().and_then(|offset| c_string(strings, offset));
        dynamic.needed = needed.into_iter().filter_map(text).collect();
        dynamic.soname = soname.and_then(text);
        dynamic.strings = &strings[..usize::try_from(size).map_or(strings.len(), |size| size.min(strings.len()))];
        self.dynamic = dynamic;
    }

    /// Returns the entries of the dynamic section, tag and value, up to the one that ends it.
    pub(crate) fn dynamic_entries(&self) -> impl Iterator<Item = (u64, u64)> {
        let table = self.segments.iter().find(|segment| segment.kind == PT_DYNAMIC).and_then(|table| table.data);
        let entries = self.bytes.over(table.unwrap_or_default());
        let width = if entries.wide { 8 } else { 4 };
        (0..)
            .map_while(move |index: usize| {
                let at = index.checked_mul(2 * width)?;
                Some((entries.word(at)?, entries.word(at + width)?))
            })
            .take_while(|(tag, _)| *tag != 0)
    }

    /// Returns the loaded bytes at `address`, to the end of its segment's file contents.
    pub(crate) fn at_address(&self, address: u64) -> Option<&'a [u8]> {
        self.segments.iter().filter(|segment| segment.kind == PT_LOAD).find_map(|segment| {
            let inside = usize::try_from(address.checked_sub(segment.address)?).ok()?;
            segment.data?.get(inside..).filter(|rest| !rest.is_empty())
        })
    }

    /// Returns the path of the program interpreter, without its NUL.
    pub(crate) fn interpreter(&self) -> Option<&'a [u8]> {
        let segment = self.segments.iter().find(|segment| segment.kind == PT_INTERP)?;
        let data = segment.data?;
        Some(data.split(|&byte| byte == 0).next().unwrap_or(data))
    }

    /// Returns the parts of the file that are in memory at run time, each byte at most once. For an object: the parts
    /// that will be.
    pub(crate) fn loaded(&self) -> Vec<&'a [u8]> {
        let mut ranges: Vec<(u64, u64)> = if self.file_type == ET_REL {
            let loaded = self.sections.iter().filter(|section| section.flags & SHF_ALLOC != 0);
            loaded.filter_map(|section| Some((section.offset, section.data?.len() as u64))).collect()
        } else {
            let loaded = self.segments.iter().filter(|segment| segment.kind == PT_LOAD);
            loaded.filter_map(|segment| Some((segment.offset, segment.data?.len() as u64))).collect()
        };
        // A hostile file may load the same bytes thousands of times.
        ranges.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for (offset, length) in ranges {
            let end = offset.saturating_add(length);
            match merged.last_mut() {
                Some((_, last)) if offset <= *last => *last = end.max(*last),
                _ => merged.push((offset, end)),
            }
        }
        merged.into_iter().filter_map(|(start, end)| self.bytes.slice(start, end - start)).collect()
    }

    /// Returns the executable segments with their addresses; each byte of the file at most once.
    pub(crate) fn executable(&self) -> Vec<(u64, &'a [u8])> {
        let mut parts: Vec<&Segment<'a>> = self
            .segments
            .iter()
            .filter(|segment| segment.kind == PT_LOAD && segment.flags & PF_X != 0)
            .filter(|segment| segment.data.is_some_and(|data| !data.is_empty()))
            .collect();
        parts.sort_by_key(|segment| segment.offset);
        let mut end = 0;
        parts.retain(|segment| {
            let fresh = segment.offset >= end;
            end = end.max(segment.offset.saturating_add(segment.data.map_or(0, <[u8]>::len) as u64));
            fresh
        });
        parts.into_iter().filter_map(|segment| Some((segment.address, segment.data?))).collect()
    }

    /// Returns at most `most` bytes of the code or data of a symbol of a relocatable object.
    pub(crate) fn contents_of(&self, symbol: &Symbol<'_>, most: usize) -> &'a [u8] {
        let Definition::Section(index) = symbol.place else { return &[] };
        let data = self.sections.get(index as usize).and_then(|section| section.data).unwrap_or_default();
        // On ARM an odd value marks a function in Thumb code.
        let thumb = u64::from(self.arch == Arch::Arm && symbol.kind == STT_FUNC);
        let start = usize::try_from(symbol.value & !thumb).unwrap_or(usize::MAX);
        let length = usize::try_from(symbol.size).unwrap_or(usize::MAX).min(most);
        data.get(start..start.saturating_add(length)).unwrap_or_default()
    }
}

/// The fields of the file header that are used here.
struct Header {
    file_type: u16,
    machine: u16,
    segment_table: u64,
    segment_size: u16,
    segment_count: u16,
    section_table: u64,
    section_size: u16,
    section_count: u16,
    names_index: u16,
}

impl Header {
    fn read(bytes: &Bytes<'_>) -> Option<Self> {
        let (tables, sizes) = if bytes.wide { (32, 54) } else { (28, 42) };
        let word = if bytes.wide { 8 } else { 4 };
        Some(Header {
            file_type: bytes.u16(16)?,
            machine: bytes.u16(18)?,
            segment_table: bytes.word(tables)?,
            section_table: bytes.word(tables + word)?,
            segment_size: bytes.u16(sizes)?,
            segment_count: bytes.u16(sizes + 2)?,
            section_size: bytes.u16(sizes + 4)?,
            section_count: bytes.u16(sizes + 6)?,
            names_index: bytes.u16(sizes + 8)?,
        })
    }

    /// Returns the offset of the first section header, if all of it is in the file.
    fn first_section(&self, bytes: &Bytes<'_>) -> Option<usize> {
        bytes.slice(self.section_table, if bytes.wide { 64 } else { 40 })?;
        usize::try_from(self.section_table).ok()
    }
}

fn table_entry(table: u64, index: u64, size: u16) -> Option<usize> {
    usize::try_from(table.checked_add(index.checked_mul(u64::from(size))?)?).ok()
}

fn read_segment<'a>(bytes: &Bytes<'a>, at: usize) -> Option<Segment<'a>> {
    let header = Bytes { data: bytes.data.get(at..at.checked_add(if bytes.wide { 56 } else { 32 })?)?, ..*bytes };
    let (offset, address, size, align) = if bytes.wide { (8, 16, 32, 48) } else { (4, 8, 16, 28) };
    let (flags, memory) = if bytes.wide { (4, 40) } else { (24, 20) };
    let (offset, size) = (header.word(offset)?, header.word(size)?);
    Some(Segment {
        kind: header.u32(0)?,
        flags: header.u32(flags)?,
        memory: header.word(memory)?,
        offset,
        address: header.word(address)?,
        align: header.word(align)?,
        data: bytes.slice(offset, size),
    })
}

/// Reads a section header. Returns the offset of its name, and the section.
fn read_section<'a>(bytes: &Bytes<'a>, at: usize) -> Option<(u32, Section<'a>)> {
    let header = Bytes { data: bytes.data.get(at..at.checked_add(if bytes.wide { 64 } else { 40 })?)?, ..*bytes };
    let word = if bytes.wide { 8 } else { 4 };
    let (kind, offset, size) = (header.u32(4)?, header.word(8 + 2 * word)?, header.word(8 + 3 * word)?);
    let section = Section {
        name: &[],
        kind,
        flags: header.word(8)?,
        offset,
        link: header.u32(8 + 4 * word)?,
        align: header.word(16 + 4 * word)?,
        // SHT_NULL may carry counts in its size.
        data: if kind == SHT_NOBITS || kind == 0 { Some(&[]) } else { bytes.slice(offset, size) },
    };
    Some((header.u32(0)?, section))
}

/// Returns the number of symbols by a table of `DT_GNU_HASH`: one more than the last symbol of the last chain.
fn count_by_gnu_hash(table: &Bytes<'_>) -> Option<u32> {
    let [buckets, first, words] = [table.u32(0)?, table.u32(4)?, table.u32(8)?];
    let bloom = usize::try_from(words).ok()?.checked_mul(if table.wide { 8 } else { 4 })?;
    let start = bloom.checked_add(16)?;
    let chains = start.checked_add(usize::try_from(buckets).ok()?.checked_mul(4)?)?;
    let bucket = |index: u32| table.u32(start + 4 * index as usize);
    let mut last = (0..buckets).map_while(bucket).max().filter(|last| *last >= first)?;
    // An odd number ends a chain.
    while table.u32(chains.checked_add(4 * (last - first) as usize)?)? & 1 == 0 {
        last = last.checked_add(1)?;
    }
    last.checked_add(1)
}

fn read_symbol<'a>(table: &Bytes<'a>, at: usize, strings: &'a [u8]) -> Option<Symbol<'a>> {
    let (info, other, section, value, size) = if table.wide { (4, 5, 6, 8, 16) } else { (12, 13, 14, 4, 8) };
    let info = table.u8(at + info)?;
    let place = match table.u16(at + section)? {
        0 => Definition::Undefined,
        SHN_ABS => Definition::Absolute,
        SHN_COMMON => Definition::Common,
        index => Definition::Section(u32::from(index)),
    };
    Some(Symbol {
        name: c_string(strings, table.u32(at)? as usize).unwrap_or_default(),
        value: table.word(at + value)?,
        size: table.word(at + size)?,
        place,
        binding: info >> 4,
        kind: info & 15,
        visibility: table.u8(at + other)? & 3,
    })
}
