//! Reads a 64-bit little-endian ELF file, as far as a graft needs it, and checks everything that it reads.
//! A wrong table is a refusal: an edit relies on every table that it reads.

use std::ops::Range;

use format::Arch;

use crate::refusal::Refusal;

pub(crate) const PT_LOAD: u32 = 1;
pub(crate) const PT_DYNAMIC: u32 = 2;
pub(crate) const PT_INTERP: u32 = 3;
pub(crate) const PT_NOTE: u32 = 4;
pub(crate) const PT_PHDR: u32 = 6;
pub(crate) const PT_TLS: u32 = 7;
pub(crate) const PT_GNU_RELRO: u32 = 0x6474_e552;
pub(crate) const PT_GNU_PROPERTY: u32 = 0x6474_e553;
pub(crate) const PF_X: u32 = 1;
pub(crate) const PF_W: u32 = 2;
pub(crate) const PF_R: u32 = 4;
/// The first section, and those that are unused.
const SHT_NULL: u32 = 0;
pub(crate) const SHT_PROGBITS: u32 = 1;
pub(crate) const SHT_SYMTAB: u32 = 2;
pub(crate) const SHT_RELA: u32 = 4;
pub(crate) const SHT_NOTE: u32 = 7;
pub(crate) const SHT_NOBITS: u32 = 8;
pub(crate) const SHT_SHLIB: u32 = 10;
pub(crate) const SHT_DYNSYM: u32 = 11;
pub(crate) const SHF_WRITE: u64 = 1;
pub(crate) const SHF_ALLOC: u64 = 2;
pub(crate) const SHF_EXECINSTR: u64 = 4;
pub(crate) const SHF_TLS: u64 = 0x400;
pub(crate) const STB_LOCAL: u8 = 0;
pub(crate) const STT_NOTYPE: u8 = 0;
pub(crate) const STT_FUNC: u8 = 2;
pub(crate) const STT_TLS: u8 = 6;

pub(crate) const FILE_HEADER: usize = 64;
pub(crate) const PROGRAM_HEADER: usize = 56;
pub(crate) const SECTION_HEADER: usize = 64;
pub(crate) const SYMBOL: usize = 24;

/// `Elf64_Phdr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Segment {
    pub(crate) kind: u32,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) physical: u64,
    pub(crate) file_size: u64,
    pub(crate) memory_size: u64,
    pub(crate) align: u64,
}

impl Segment {
    fn read(bytes: &[u8], at: usize) -> Option<Segment> {
        let [kind, flags, offset, address, physical, file_size, memory_size, align] =
            fields(bytes, at, [4, 4, 8, 8, 8, 8, 8, 8])?;
        let (kind, flags) = (kind as u32, flags as u32);
        Some(Segment { kind, flags, offset, address, physical, file_size, memory_size, align })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let words = [self.offset, self.address, self.physical, self.file_size, self.memory_size, self.align];
        [self.kind, self.flags].iter().flat_map(|half| half.to_le_bytes()).chain(encoded(&words)).collect()
    }

    pub(crate) fn memory(&self) -> Range<u64> {
        self.address..self.address + self.memory_size
    }
}

/// `Elf64_Shdr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Section {
    pub(crate) name: u32,
    pub(crate) kind: u32,
    pub(crate) flags: u64,
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) link: u32,
    pub(crate) info: u32,
    pub(crate) align: u64,
    pub(crate) entry_size: u64,
}

impl Section {
    fn read(bytes: &[u8], at: usize) -> Option<Section> {
        let [name, kind, flags, address, offset, size, link, info, align, entry_size] =
            fields(bytes, at, [4, 4, 8, 8, 8, 8, 4, 4, 8, 8])?;
        let [name, kind, link, info] = [name, kind, link, info].map(|field| field as u32);
        Some(Section { name, kind, flags, address, offset, size, link, info, align, entry_size })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = [self.name.to_le_bytes(), self.kind.to_le_bytes()].concat();
        bytes.extend(encoded(&[self.flags, self.address, self.offset, self.size]));
        bytes.extend([self.link.to_le_bytes(), self.info.to_le_bytes()].concat());
        bytes.extend(encoded(&[self.align, self.entry_size]));
        bytes
    }

    /// The range of its content in the file; `None` for a section without content there.
    pub(crate) fn content(&self) -> Option<Range<usize>> {
        if self.kind == SHT_NOBITS || self.kind == 0 {
            return None;
        }
        let start = usize::try_from(self.offset).ok()?;
        Some(start..start.checked_add(usize::try_from(self.size).ok()?)?)
    }
}

/// A defined symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Symbol<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) kind: u8,
    /// Whether other objects can see it.
    pub(crate) global: bool,
    pub(crate) section: u16,
    pub(crate) value: u64,
    pub(crate) size: u64,
}

/// An executable.
#[derive(Debug)]
pub(crate) struct Image<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) arch: Arch,
    pub(crate) position_independent: bool,
    pub(crate) entry: u64,
    pub(crate) segments: Vec<Segment>,
    /// Empty if there are no section headers.
    pub(crate) sections: Vec<Section>,
    pub(crate) names_index: u16,
    pub(crate) section_headers: u64,
    pub(crate) segment_headers: u64,
    /// Addresses of what may be code, in order.
    code: Vec<Range<u64>>,
}

/// Little-endian numbers that lie side by side, each of 4 or 8 bytes.
fn fields<const N: usize>(bytes: &[u8], at: usize, sizes: [usize; N]) -> Option<[u64; N]> {
    let mut rest = bytes.get(at..)?;
    let mut numbers = [0; N];
    for (number, size) in numbers.iter_mut().zip(sizes) {
        *number = if size == 4 { u32_at(rest, 0)?.into() } else { u64_at(rest, 0)? };
        rest = &rest[size..];
    }
    Some(numbers)
}

fn encoded(words: &[u64]) -> impl Iterator<Item = u8> + '_ {
    words.iter().flat_map(|word| word.to_le_bytes())
}

/// The entries of a table; `None` if it reaches beyond the file.
fn table<T>(bytes: &[u8], start: u64, count: u16, size: usize, read: fn(&[u8], usize) -> Option<T>) -> Option<Vec<T>> {
    let start = usize::try_from(start).ok()?;
    (0..usize::from(count)).map(|index| read(bytes, start.checked_add(index * size)?)).collect()
}

fn malformed(what: impl Into<String>) -> Refusal {
    Refusal::Malformed(what.into())
}

impl<'a> Image<'a> {
    /// Reads and checks the structure: everything that a header points to is inside the file.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Image<'a>, Refusal> {
        #[cfg(feature = "counted")]
        crate::count::PARSED.with(|parsed| parsed.borrow_mut().push(bytes.len()));
        if !bytes.starts_with(b"\x7fELF") {
            return Err(malformed("it does not begin as an ELF file"));
        }
        let header = bytes.get(..FILE_HEADER).ok_or_else(|| malformed("it ends within the ELF header"))?;
        if header[4] != 2 || header[5] != 1 {
            return Err(Refusal::Architecture("an ELF file of 32 bits or of the other byte order".to_owned()));
        }
        let half = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
        let word = |at: usize| u64_at(header, at).unwrap_or_default();
        let (kind, machine) = (half(16), half(18));
        let arch = arch_of(machine).ok_or_else(|| Refusal::Architecture(format!("e_machine {machine}")))?;
        let position_independent = match kind {
            2 => false,
            3 => true,
            other => return Err(malformed(format!("e_type is {other}, expected 2 or 3"))),
        };
        let (entry, segment_headers, section_headers) = (word(24), word(32), word(40));
        let (segment_size, segment_count) = (half(54), half(56));
        let (section_size, section_count, names_index) = (half(58), half(60), half(62));
        if usize::from(segment_size) != PROGRAM_HEADER || segment_count == 0 || segment_count == 0xffff {
            return Err(malformed(format!("it has {segment_count} program headers of {segment_size} bytes")));
        }
        let segments = table(bytes, segment_headers, segment_count, PROGRAM_HEADER, Segment::read);
        let segments = segments.ok_or_else(|| malformed("its program headers are outside the file"))?;
        let mut sections = Vec::new();
        if section_headers != 0 {
            if section_count == 0 || usize::from(section_size) != SECTION_HEADER || names_index >= section_count {
                return Err(malformed(format!("it has {section_count} section headers of {section_size} bytes")));
            }
            let read = table(bytes, section_headers, section_count, SECTION_HEADER, Section::read);
            sections = read.ok_or_else(|| malformed("its section headers are outside the file"))?;
        }
        let mut image = Image {
            bytes,
            arch,
            position_independent,
            entry,
            segments,
            sections,
            names_index,
            section_headers,
            segment_headers,
            code: Vec::new(),
        };
        image.check()?;
        image.code = image.code_ranges();
        Ok(image)
    }

    /// The ranges that are mapped as executable, without the sections of data in them. Linkers that do not separate
    /// code put constants and unwind tables into the same segment, where each word would read as some instruction.
    /// Bytes outside all sections may be code. If the sections contradict the entry point, everything may be code.
    fn code_ranges(&self) -> Vec<Range<u64>> {
        let loads = self.loads().filter(|load| load.flags & PF_X != 0);
        let mapped: Vec<Range<u64>> = loads.map(|load| load.address..load.address + load.file_size).collect();
        let is_data = |section: &&Section| section.flags & (SHF_ALLOC | SHF_EXECINSTR) == SHF_ALLOC;
        let mut data: Vec<Range<u64>> = Vec::new();
        for section in self.sections.iter().filter(is_data).filter(|section| section.content().is_some()) {
            let Some(end) = section.address.checked_add(section.size) else { return mapped };
            // Only if the file has its bytes for that address.
            if self.offset(section.address).map(|at| at as u64) == Some(section.offset) {
                data.push(section.address..end);
            }
        }
        data.sort_unstable_by_key(|range| range.start);
        let mut ranges = Vec::new();
        for load in &mapped {
            let mut start = load.start;
            for range in data.iter().filter(|range| range.start < load.end && range.end > load.start) {
                if range.start > start {
                    ranges.push(start..range.start);
                }
                start = start.max(range.end);
            }
            if start < load.end {
                ranges.push(start..load.end);
            }
        }
        if ranges.iter().any(|range| range.contains(&self.entry)) { ranges } else { mapped }
    }

    fn check(&self) -> Result<(), Refusal> {
        // User space ends here on every x86_64 kernel, and not before on those of aarch64. So the sums below cannot
        // overflow.
        const LIMIT: u64 = 1 << 47;
        let mut end = 0;
        for segment in &self.segments {
            let file_end = segment.offset.checked_add(segment.file_size);
            if segment.kind != 0 && segment.file_size != 0 && file_end.is_none_or(|end| end > self.bytes.len() as u64) {
                return Err(malformed("a segment is outside the file: it is cut off, or damaged"));
            }
            if segment.kind != PT_LOAD {
                continue;
            }
            if segment.address >= LIMIT || segment.memory_size >= LIMIT || segment.file_size > segment.memory_size {
                return Err(malformed("a segment is outside the address space"));
            }
            if segment.address < end {
                return Err(malformed("its segments overlap, or are not in order"));
            }
            // ELF specification, chapter 5: the two are congruent modulo the page size, or the segment cannot be
            // mapped.
            if segment.address % 4096 != segment.offset % 4096 {
                return Err(malformed("a segment's offset and address do not fit together"));
            }
            end = segment.memory().end;
        }
        for segment in self.segments.iter().filter(|segment| segment.kind == PT_TLS) {
            let mapped = segment.file_size == 0
                || self.read(segment.address, usize::try_from(segment.file_size).unwrap_or(usize::MAX)).is_some();
            let sane = segment.address < LIMIT
                && segment.memory_size < 1 << 30
                && segment.file_size <= segment.memory_size
                && mapped;
            if !sane || !(segment.align.is_power_of_two() || segment.align == 0) || segment.align > 1 << 21 {
                return Err(malformed("its thread-local storage cannot be"));
            }
        }
        for section in &self.sections {
            if section.content().is_some_and(|content| content.end > self.bytes.len()) {
                return Err(malformed("a section is outside the file: it is cut off, or damaged"));
            }
        }
        // The names are copied, and names of new sections added.
        let names = self.sections.get(usize::from(self.names_index)).and_then(Section::content).unwrap_or_default();
        let names = self.bytes.get(names).unwrap_or_default();
        let has_name = |section: &Section| {
            let name = names.get(section.name as usize..).unwrap_or_default();
            memchr::memchr(0, name).is_some_and(|length| length > 0 || section.kind == SHT_NULL)
        };
        if !self.sections.iter().all(has_name) {
            return Err(malformed("a section has no name in the table of names"));
        }
        match self.loads().next() {
            Some(_) => Ok(()),
            None => Err(malformed("it has nothing to load")),
        }
    }

    /// R_X86_64_RELATIVE, R_AARCH64_RELATIVE: base + addend.
    pub(crate) fn relative_kind(&self) -> u32 {
        if self.arch == Arch::Aarch64 { 1027 } else { 8 }
    }

    pub(crate) fn loads(&self) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(|segment| segment.kind == PT_LOAD)
    }

    pub(crate) fn segment(&self, kind: u32) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.kind == kind)
    }

    /// The offset in the file of the byte at that address.
    pub(crate) fn offset(&self, address: u64) -> Option<usize> {
        let load = self.loads().find(|load| (load.address..load.address + load.file_size).contains(&address))?;
        usize::try_from(load.offset + (address - load.address)).ok()
    }

    /// The bytes of the file from that address to the end of its segment.
    pub(crate) fn bytes_from(&self, address: u64) -> &'a [u8] {
        let load = self.loads().find(|load| (load.address..load.address + load.file_size).contains(&address));
        load.and_then(|load| {
            let start = usize::try_from(load.offset + (address - load.address)).ok()?;
            self.bytes.get(start..usize::try_from(load.offset + load.file_size).ok()?)
        })
        .unwrap_or_default()
    }

    /// `size` bytes from that address on.
    pub(crate) fn read(&self, address: u64, size: usize) -> Option<&'a [u8]> {
        self.bytes_from(address).get(..size)
    }

    /// The ranges that may be code: address and bytes.
    pub(crate) fn executable(&self) -> impl Iterator<Item = (u64, &'a [u8])> {
        self.code.iter().map(|range| {
            let bytes = self.bytes_from(range.start);
            let size = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            (range.start, bytes.get(..size).unwrap_or(bytes))
        })
    }

    pub(crate) fn is_executable(&self, address: u64) -> bool {
        self.code.iter().any(|range| range.contains(&address))
    }

    pub(crate) fn is_writable(&self, address: u64) -> bool {
        self.loads().any(|load| load.flags & PF_W != 0 && load.memory().contains(&address))
    }

    /// Every address, in the file's order, at which these bytes are loaded.
    pub(crate) fn find(&self, wanted: &[u8]) -> Vec<u64> {
        let mut found = Vec::new();
        for load in self.loads() {
            found.extend(
                memchr::memmem::find_iter(self.bytes_from(load.address), wanted).map(|at| load.address + at as u64),
            );
        }
        found
    }

    /// The defined symbols of the symbol table; empty for a stripped file.
    pub(crate) fn symbols(&self) -> Vec<Symbol<'a>> {
        self.symbols_of(SHT_SYMTAB).into_iter().filter(|symbol| symbol.section != 0).collect()
    }

    /// The symbols of a kind of table, undefined ones included, at their indexes; none if there is no such table, or an
    /// entry of it is damaged.
    pub(crate) fn symbols_of(&self, kind: u32) -> Vec<Symbol<'a>> {
        let Some(table) = self.sections.iter().find(|section| section.kind == kind) else { return Vec::new() };
        let names = self.sections.get(table.link as usize).and_then(Section::content).unwrap_or_default();
        let (Some(content), Some(names)) = (table.content().and_then(|at| self.bytes.get(at)), self.bytes.get(names))
        else {
            return Vec::new();
        };
        let symbol = |entry: &[u8]| {
            let name = names.get(u32_at(entry, 0)? as usize..)?;
            Some(Symbol {
                name: &name[..memchr::memchr(0, name)?],
                kind: entry[4] & 15,
                global: entry[4] >> 4 != STB_LOCAL,
                section: u16::from_le_bytes([entry[6], entry[7]]),
                value: u64_at(entry, 8)?,
                size: u64_at(entry, 16)?,
            })
        };
        content.chunks_exact(SYMBOL).map(symbol).collect::<Option<_>>().unwrap_or_default()
    }

    pub(crate) fn section_name(&self, section: &Section) -> &'a [u8] {
        let names = self.sections.get(usize::from(self.names_index)).and_then(Section::content).unwrap_or_default();
        let name = self.bytes.get(names).and_then(|names| names.get(section.name as usize..)).unwrap_or_default();
        &name[..memchr::memchr(0, name).unwrap_or(0)]
    }

    pub(crate) fn section(&self, name: &[u8]) -> Option<&Section> {
        self.sections.iter().find(|section| self.section_name(section) == name)
    }
}

impl equivalence::Program for Image<'_> {
    fn arch(&self) -> Arch {
        self.arch
    }

    fn code(&self, address: u64) -> &[u8] {
        if self.is_executable(address) { self.bytes_from(address) } else { &[] }
    }

    fn constant(&self, address: u64, size: usize) -> Option<&[u8]> {
        let last = address.checked_add(size as u64)? - 1;
        if self.is_writable(address) || self.is_writable(last) { None } else { self.read(address, size) }
    }
}

/// By `e_machine`: EM_X86_64, EM_AARCH64.
fn arch_of(machine: u16) -> Option<Arch> {
    match machine {
        62 => Some(Arch::X86_64),
        183 => Some(Arch::Aarch64),
        _ => None,
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}
