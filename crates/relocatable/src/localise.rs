//! Makes defined symbols local, in place: the object keeps its size and every section its offset.
//!
//! ELF requires local symbols to come first (gABI, chapter 4, symbol table). So the table is reordered, and everything
//! that refers to symbols by number is updated: relocations, group signatures, extended section indices.

use object::elf;

use crate::layout::{Layout, SH_FLAGS, SH_TYPE, word};
use crate::{Object, ObjectError, Section, Sections};
use format::printable;

/// LLVM's list of symbols whose address is significant (ULEB128 symbol numbers), and its older call graph profile,
/// which also has symbol numbers.
pub(crate) const SHT_LLVM_ADDRSIG: u32 = 0x6fff_4c03;
const SHT_LLVM_CALL_GRAPH_PROFILE_BY_NUMBER: u32 = 0x6fff_4c02;
/// All of LLVM's own types. Types other than the two above refer to symbols by relocation, or not at all.
const SHT_LLVM: std::ops::RangeInclusive<u32> = 0x6fff_4c00..=0x6fff_4c0c;
/// Unwind tables on x86_64 and ARM, and attributes on AArch64, ARM and others.
const SHT_PROCESSOR: [u32; 2] = [0x7000_0001, 0x7000_0003];

/// Returns a copy of the little-endian object in which every defined symbol is local if `keep` returns false for it.
/// Undefined symbols do not change. A section group whose signature becomes local loses the flag that lets a linker
/// drop it in favour of a different object's group.
///
/// # Errors
/// The object is of a different kind, is damaged, or has sections that might refer to symbols in an unknown way.
pub fn localise(data: &[u8], keep: &dyn Fn(&[u8]) -> bool) -> Result<Vec<u8>, ObjectError> {
    let object = Object::recognise(data).ok_or(ObjectError::NotAnObject)?;
    if object.machine.big_endian {
        return Err(ObjectError::Machine { found: object.machine.to_string() });
    }
    let sections = object.sections()?;
    let Some((table_index, table)) = symbol_table(&sections.sections)? else { return Ok(data.to_vec()) };
    if table.data.is_empty() {
        return Ok(data.to_vec());
    }
    let layout = Layout::for_object(&object);
    check_apart(&sections, layout)?;
    let order = Order::new(&object, table, layout, keep)?;

    let mut edit = Edit { out: data.to_vec(), headers: sections.offset, table: table_index, layout, order: &order };
    edit.symbols(table);
    edit.set_header(table_index, layout.sh_info, &(order.first_shared as u32).to_le_bytes());
    for (index, section) in sections.iter().enumerate() {
        edit.section(index, section)?;
    }
    Ok(edit.out)
}

/// Checks that the headers and the tables that are written share no bytes: writing one would damage the other.
fn check_apart(sections: &Sections<'_>, layout: &Layout) -> Result<(), ObjectError> {
    let headers = sections.offset..sections.offset + sections.sections.len() * layout.section;
    let tables = sections.iter().filter(|section| {
        let kinds = [elf::SHT_SYMTAB, elf::SHT_STRTAB, elf::SHT_RELA, elf::SHT_REL, elf::SHT_GROUP];
        kinds.contains(&section.kind) || section.kind == elf::SHT_SYMTAB_SHNDX
    });
    let tables = tables.map(|section| section.offset..section.offset.saturating_add(section.data.len()));
    let mut ranges: Vec<_> = [0..layout.header, headers].into_iter().chain(tables).collect();
    ranges.retain(|range| !range.is_empty());
    ranges.sort_by_key(|range| (range.start, range.end));
    match ranges.windows(2).any(|pair| pair[0].end > pair[1].start) {
        true => Err(ObjectError::Damaged { part: "the section headers", problem: "tables share bytes".to_owned() }),
        false => Ok(()),
    }
}

pub(crate) fn symbol_table<'s, 'a>(
    sections: &'s [Section<'a>],
) -> Result<Option<(usize, &'s Section<'a>)>, ObjectError> {
    let mut tables = sections.iter().enumerate().filter(|(_, section)| section.kind == elf::SHT_SYMTAB);
    let first = tables.next();
    match (first, tables.next()) {
        (Some((first, _)), Some((second, _))) => Err(ObjectError::SecondSymbolTable { first, second }),
        _ => Ok(first),
    }
}

/// The new order of the symbol table.
struct Order {
    /// The old numbers in their new order.
    old: Vec<usize>,
    /// The new numbers by old number.
    new: Vec<u32>,
    /// By old number: whether the symbol becomes local.
    localised: Vec<bool>,
    /// The new number of the first symbol that is not local.
    first_shared: usize,
}

impl Order {
    fn new(
        object: &Object<'_>,
        table: &Section<'_>,
        layout: &Layout,
        keep: &dyn Fn(&[u8]) -> bool,
    ) -> Result<Order, ObjectError> {
        let count = table.data.len() / layout.symbol;
        let (mut locals, mut made, mut shared) = (vec![0], Vec::new(), Vec::new());
        let mut localised = vec![false; count];
        for symbol in object.symbols()? {
            if symbol.binding == crate::Binding::Local {
                locals.push(symbol.index);
            } else if symbol.defined && !keep(symbol.name) {
                let section = &table.data[symbol.index * layout.symbol + layout.st_shndx..][..2];
                if u16::from_le_bytes([section[0], section[1]]) == elf::SHN_COMMON.0 {
                    return Err(ObjectError::Common { symbol: printable(symbol.name) });
                }
                localised[symbol.index] = true;
                made.push(symbol.index);
            } else {
                shared.push(symbol.index);
            }
        }
        let first_shared = locals.len() + made.len();
        let old: Vec<usize> = locals.into_iter().chain(made).chain(shared).collect();
        let mut new = vec![0; count];
        for (position, number) in old.iter().enumerate() {
            new[*number] = position as u32;
        }
        Ok(Order { old, new, localised, first_shared })
    }

    fn renumbered(&self, section: usize, symbol: u64) -> Result<u32, ObjectError> {
        let missing = ObjectError::NoSuchSymbol { section, symbol, count: self.new.len() };
        usize::try_from(symbol).ok().and_then(|symbol| self.new.get(symbol)).copied().ok_or(missing)
    }
}

/// The object while it is edited.
struct Edit<'o> {
    out: Vec<u8>,
    /// The offset of the section headers.
    headers: usize,
    /// Index of the symbol table's section.
    table: usize,
    layout: &'o Layout,
    order: &'o Order,
}

impl Edit<'_> {
    // The reader has checked that all headers and contents are inside the object.
    fn set_header(&mut self, section: usize, field: usize, value: &[u8]) {
        let at = self.headers + section * self.layout.section + field;
        self.out[at..at + value.len()].copy_from_slice(value);
    }

    fn symbols(&mut self, table: &Section<'_>) {
        let Layout { symbol: size, st_info, st_other, .. } = *self.layout;
        for (position, old) in self.order.old.iter().enumerate() {
            let mut entry = table.data[old * size..][..size].to_vec();
            if self.order.localised[*old] {
                entry[st_info] &= 0x0f; // STB_LOCAL, the type as it was
                entry[st_other] &= !3; // STV_DEFAULT: a local symbol has no other
            }
            let at = table.offset + position * size;
            self.out[at..at + size].copy_from_slice(&entry);
        }
    }

    fn section(&mut self, index: usize, section: &Section<'_>) -> Result<(), ObjectError> {
        match section.kind {
            elf::SHT_RELA => self.relocations(index, section, self.layout.rela),
            elf::SHT_REL => self.relocations(index, section, self.layout.rel),
            elf::SHT_GROUP => self.group(index, section),
            elf::SHT_SYMTAB_SHNDX => {
                self.linked(index, section)?;
                self.permute(section);
                Ok(())
            }
            elf::SectionType(SHT_LLVM_ADDRSIG) => {
                // Without the list, every address counts as significant, which is always correct. An empty list would
                // mean that none is, so the section has to get a different type.
                self.set_header(index, SH_TYPE, &elf::SHT_PROGBITS.0.to_le_bytes());
                let Layout { word, sh_size, sh_link, .. } = *self.layout;
                self.set_header(index, SH_FLAGS, &elf::SHF_EXCLUDE.0.to_le_bytes()[..word]);
                self.set_header(index, sh_size, &0_u64.to_le_bytes()[..word]);
                self.set_header(index, sh_link, &0_u32.to_le_bytes());
                Ok(())
            }
            elf::SHT_NULL
            | elf::SHT_PROGBITS
            | elf::SHT_SYMTAB
            | elf::SHT_STRTAB
            | elf::SHT_NOTE
            | elf::SHT_NOBITS
            | elf::SHT_INIT_ARRAY
            | elf::SHT_FINI_ARRAY
            | elf::SHT_PREINIT_ARRAY => Ok(()),
            elf::SectionType(kind)
                if (SHT_LLVM.contains(&kind) && kind != SHT_LLVM_CALL_GRAPH_PROFILE_BY_NUMBER)
                    || SHT_PROCESSOR.contains(&kind) =>
            {
                Ok(())
            }
            elf::SectionType(kind) => Err(ObjectError::SectionType { section: index, kind }),
        }
    }

    fn linked(&self, index: usize, section: &Section<'_>) -> Result<(), ObjectError> {
        if section.link as usize == self.table {
            return Ok(());
        }
        Err(ObjectError::Link { section: index, found: section.link, expected: self.table })
    }

    fn relocations(&mut self, index: usize, section: &Section<'_>, entry: usize) -> Result<(), ObjectError> {
        self.linked(index, section)?;
        for start in (0..section.data.len() / entry).map(|position| position * entry) {
            let number = self.layout.symbol_of(&section.data[start..start + entry]);
            // There are no more symbols than before, so a number of 24 bits still fits.
            let renumbered = self.order.renumbered(index, u64::from(number))?;
            let at = section.offset + start;
            self.layout.set_symbol_of(&mut self.out[at..at + entry], renumbered);
        }
        Ok(())
    }

    fn group(&mut self, index: usize, section: &Section<'_>) -> Result<(), ObjectError> {
        self.linked(index, section)?;
        let renumbered = self.order.renumbered(index, u64::from(section.info))?;
        self.set_header(index, self.layout.sh_info, &renumbered.to_le_bytes());
        if self.order.localised[section.info as usize] && section.data.len() >= 4 {
            // Linkers identify groups by name: a different object's group of this name would replace this one.
            let flags = word(section.data, 0) & !elf::GRP_COMDAT.0;
            self.out[section.offset..section.offset + 4].copy_from_slice(&flags.to_le_bytes());
        }
        Ok(())
    }

    /// Extended section indices: one word for each symbol.
    fn permute(&mut self, section: &Section<'_>) {
        let words = section.data.len() / 4;
        for (position, old) in self.order.old.iter().enumerate().filter(|(position, _)| *position < words) {
            let index = if *old < words { word(section.data, old * 4) } else { 0 };
            let at = section.offset + position * 4;
            self.out[at..at + 4].copy_from_slice(&index.to_le_bytes());
        }
    }
}
