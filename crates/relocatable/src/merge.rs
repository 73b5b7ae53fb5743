//! Merges two relocatable objects into one, as `ld -r` does, but without joining sections: the result has every section
//! of both with its bytes, and the symbols of one resolve references of the other.

use std::collections::HashMap;

use object::elf;

use crate::layout::{Layout, SH_TYPE, word};
use crate::localise::{SHT_LLVM_ADDRSIG, symbol_table};
use crate::{Object, ObjectError, Section, Sections};
use format::printable;

/// Returns one object with everything of `first` and then everything of `second`, both little-endian and for the same
/// machine. If both define a symbol and one definition is weak, the other one counts; if both are weak, the first
/// object's.
///
/// # Errors
/// The objects are of a different kind, are damaged, are for different machines, or have section groups; or both define
/// a symbol.
pub fn merge(first: &[u8], second: &[u8]) -> Result<Vec<u8>, ObjectError> {
    let inputs = [Input::read(first)?, Input::read(second)?];
    let [one, other] = inputs.each_ref().map(|input| input.object.machine);
    if one != other {
        return Err(ObjectError::Mixed { first: one.to_string(), second: other.to_string() });
    }
    let layout = Layout::for_object(&inputs[0].object);
    let mut numbers = Numbers::default();
    for input in &inputs {
        numbers.sections(input)?;
    }
    let table = SymbolTable::join(&inputs, &numbers, layout)?;
    let mut merged = Merged::new(layout, &first[..layout.header]);
    for (input, sections) in inputs.iter().zip(&numbers.of) {
        for (index, section) in input.sections.iter().enumerate().filter(|(index, _)| sections[*index] != 0) {
            let symbols = &table.numbers[usize::from(!std::ptr::eq(input, &inputs[0]))];
            let content = input.renumbered(index, section, symbols, layout)?;
            let mut header = input.header(index, layout).to_vec();
            let relocations = matches!(section.kind, elf::SHT_REL | elf::SHT_RELA);
            let link = if relocations { numbers.count } else { input.mapped(sections, index, section.link)? };
            set(&mut header, layout.sh_link, link);
            if relocations {
                set(&mut header, layout.sh_info, input.mapped(sections, index, section.info)?);
            }
            merged.section(section.name, header, &content)?;
        }
    }
    merged.tables(table, numbers.count)
}

/// An object to merge.
struct Input<'a> {
    data: &'a [u8],
    object: Object<'a>,
    sections: Vec<Section<'a>>,
    /// The offset of the section headers.
    headers: usize,
    /// Index of the symbol table's section.
    table: usize,
}

impl<'a> Input<'a> {
    fn read(data: &'a [u8]) -> Result<Self, ObjectError> {
        let object = Object::recognise(data).ok_or(ObjectError::NotAnObject)?;
        if object.machine.big_endian {
            return Err(ObjectError::Machine { found: object.machine.to_string() });
        }
        let Sections { offset: headers, sections } = object.sections()?;
        let table = symbol_table(&sections)?.map_or(0, |(index, _)| index);
        Ok(Input { data, object, sections, headers, table })
    }

    /// The content of the symbol table.
    fn symbols(&self) -> &'a [u8] {
        self.sections.get(self.table).map_or(&[], |table| table.data)
    }

    fn header(&self, index: usize, layout: &Layout) -> &'a [u8] {
        &self.data[self.headers + index * layout.section..][..layout.section]
    }

    /// Whether a section goes into the result. The tables of names and symbols are written anew.
    fn keeps(&self, index: usize, section: &Section<'_>) -> Result<bool, ObjectError> {
        match section.kind {
            elf::SHT_NULL | elf::SHT_SYMTAB | elf::SHT_STRTAB | elf::SectionType(SHT_LLVM_ADDRSIG) => Ok(false),
            elf::SHT_REL | elf::SHT_RELA if section.link as usize != self.table => {
                Err(ObjectError::Link { section: index, found: section.link, expected: self.table })
            }
            elf::SHT_GROUP | elf::SHT_SYMTAB_SHNDX => {
                Err(ObjectError::SectionType { section: index, kind: section.kind.0 })
            }
            _ => Ok(true),
        }
    }

    /// A section's content. Relocations get the new numbers of their symbols.
    fn renumbered(
        &self,
        index: usize,
        section: &Section<'_>,
        symbols: &[u32],
        layout: &Layout,
    ) -> Result<Vec<u8>, ObjectError> {
        let entry = match section.kind {
            elf::SHT_REL => layout.rel,
            elf::SHT_RELA => layout.rela,
            _ => return Ok(section.data.to_vec()),
        };
        let mut content = section.data.to_vec();
        for entry in content.chunks_exact_mut(entry) {
            let symbol = layout.symbol_of(entry);
            let number = symbols.get(symbol as usize).ok_or(ObjectError::NoSuchSymbol {
                section: index,
                symbol: symbol.into(),
                count: symbols.len(),
            })?;
            layout.set_symbol_of(entry, *number);
        }
        Ok(content)
    }

    /// The new index of a section that section `of` refers to. 0 stays 0.
    fn mapped(&self, sections: &[u32], of: usize, section: u32) -> Result<u32, ObjectError> {
        let missing = ObjectError::Link { section: of, found: section, expected: self.sections.len() };
        sections.get(section as usize).copied().ok_or(missing)
    }
}

/// New section indices by old ones, for each object; 0 for a section that is left out.
#[derive(Default)]
struct Numbers {
    of: Vec<Vec<u32>>,
    /// The number of sections in the result so far, with the empty first one. In the end, the index of the symbol
    /// table.
    count: u32,
}

impl Numbers {
    fn sections(&mut self, input: &Input<'_>) -> Result<(), ObjectError> {
        self.count = self.count.max(1);
        let mut new = Vec::with_capacity(input.sections.len());
        for (index, section) in input.sections.iter().enumerate() {
            let kept = input.keeps(index, section)?;
            new.push(if kept { self.count } else { 0 });
            self.count += u32::from(kept);
        }
        self.of.push(new);
        Ok(())
    }
}

/// The symbols of both objects.
struct SymbolTable {
    entries: Vec<u8>,
    names: Vec<u8>,
    locals: u32,
    /// New numbers by old ones, for each object.
    numbers: [Vec<u32>; 2],
}

impl SymbolTable {
    fn join(inputs: &[Input<'_>; 2], sections: &Numbers, layout: &Layout) -> Result<Self, ObjectError> {
        let mut joined = SymbolTable {
            entries: vec![0; layout.symbol],
            names: vec![0],
            locals: 0,
            numbers: inputs.each_ref().map(|input| vec![0; input.symbols().len() / layout.symbol]),
        };
        let mut shared: HashMap<&[u8], u32> = HashMap::new();
        for locals in [true, false] {
            for (which, input) in inputs.iter().enumerate() {
                for symbol in input.object.symbols()? {
                    let is_local = symbol.binding == crate::Binding::Local;
                    if is_local != locals || symbol.index == 0 {
                        continue;
                    }
                    let mut entry = input.symbols()[symbol.index * layout.symbol..][..layout.symbol].to_vec();
                    place(&mut entry, &sections.of[which], layout)?;
                    let known = if is_local { None } else { shared.get(symbol.name).copied() };
                    let number = match known {
                        Some(number) => {
                            joined.unite(number, &entry, symbol.name, layout)?;
                            number
                        }
                        None => joined.push(entry, symbol.name, layout)?,
                    };
                    if !is_local {
                        shared.insert(symbol.name, number);
                    }
                    joined.numbers[which][symbol.index] = number;
                }
            }
            if locals {
                joined.locals = joined.count(layout);
            }
        }
        Ok(joined)
    }

    fn count(&self, layout: &Layout) -> u32 {
        (self.entries.len() / layout.symbol) as u32
    }

    fn push(&mut self, mut entry: Vec<u8>, name: &[u8], layout: &Layout) -> Result<u32, ObjectError> {
        let number = self.count(layout);
        // A relocation's symbol number has 24 bits in ELF32.
        let at = u32::try_from(self.names.len()).ok().filter(|_| number < 1 << 24).ok_or(ObjectError::TooMany)?;
        set(&mut entry, 0, if name.is_empty() { 0 } else { at });
        if !name.is_empty() {
            self.names.extend_from_slice(name);
            self.names.push(0);
        }
        self.entries.extend(entry);
        Ok(number)
    }

    /// Merges a symbol of the second object into the first object's symbol of that name, by the rules of the gABI,
    /// chapter 4, symbol table.
    fn unite(&mut self, number: u32, other: &[u8], name: &[u8], layout: &Layout) -> Result<(), ObjectError> {
        let at = number as usize * layout.symbol;
        let entry = &mut self.entries[at..at + layout.symbol];
        let section = |entry: &[u8]| u16::from_le_bytes([entry[layout.st_shndx], entry[layout.st_shndx + 1]]);
        let weak = |entry: &[u8]| entry[layout.st_info] >> 4 == elf::STB_WEAK.0;
        let visibility = [entry[layout.st_other], other[layout.st_other]].map(|byte| byte & 3);
        // The most constraining visibility counts: internal is 1, hidden 2, protected 3, and default 0.
        let strictest = visibility.into_iter().filter(|visibility| *visibility != 0).min().unwrap_or(0);
        let defined = [section(entry), section(other)].map(|section| section != 0);
        let replaced = match (defined, weak(entry), weak(other)) {
            ([true, true], false, false) => return Err(ObjectError::Twice { symbol: printable(name) }),
            ([true, true], was_weak, _) => was_weak && !weak(other),
            ([mine, its], ..) if mine != its => its,
            (_, was_weak, is_weak) => was_weak && !is_weak,
        };
        if replaced {
            let kept = word(entry, 0);
            entry.copy_from_slice(other);
            set(entry, 0, kept);
        }
        entry[layout.st_other] = entry[layout.st_other] & !3 | strictest;
        Ok(())
    }
}

/// Gives a symbol the new index of its section.
fn place(entry: &mut [u8], sections: &[u32], layout: &Layout) -> Result<(), ObjectError> {
    let at = layout.st_shndx;
    let section = u16::from_le_bytes([entry[at], entry[at + 1]]);
    // Absolute and common symbols have no section. SHN_XINDEX would need a table that has been refused already.
    if section < elf::SHN_LORESERVE {
        let new = sections.get(usize::from(section)).copied().unwrap_or(0);
        let new = u16::try_from(new).ok().filter(|new| *new < elf::SHN_LORESERVE).ok_or(ObjectError::TooMany)?;
        entry[at..at + 2].copy_from_slice(&new.to_le_bytes());
    }
    Ok(())
}

fn set(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// The largest alignment in bytes. No compiler uses a larger one, and a damaged header must not cause gigabytes of
/// padding.
const MOST_ALIGNED: usize = 1 << 16;

/// The merged object.
struct Merged {
    layout: &'static Layout,
    out: Vec<u8>,
    headers: Vec<u8>,
    /// The names of sections.
    names: Vec<u8>,
}

impl Merged {
    fn new(layout: &'static Layout, header: &[u8]) -> Merged {
        Merged { layout, out: header.to_vec(), headers: vec![0; layout.section], names: vec![0] }
    }

    fn word(&self, bytes: &mut [u8], at: usize, value: usize) {
        bytes[at..at + self.layout.word].copy_from_slice(&(value as u64).to_le_bytes()[..self.layout.word]);
    }

    /// Adds a section. Its header is complete except for its name and its offset.
    fn section(&mut self, name: &[u8], mut header: Vec<u8>, content: &[u8]) -> Result<(), ObjectError> {
        let align = word(&header, self.layout.sh_addralign).max(1) as usize;
        if align > MOST_ALIGNED {
            let problem = format!("an alignment of {align}");
            return Err(ObjectError::Damaged { part: "a section's header", problem });
        }
        self.out.resize(self.out.len().next_multiple_of(align), 0);
        self.word(&mut header, self.layout.sh_offset, self.out.len());
        set(&mut header, 0, self.names.len() as u32);
        self.names.extend_from_slice(name);
        self.names.push(0);
        self.out.extend_from_slice(content);
        self.headers.extend(header);
        Ok(())
    }

    /// Adds the tables of symbols, of their names, and of the sections' names, and completes the object. `index` is the
    /// index of the first of these.
    fn tables(mut self, symbols: SymbolTable, index: u32) -> Result<Vec<u8>, ObjectError> {
        let entry = self.layout.symbol;
        let header = self.table(elf::SHT_SYMTAB, symbols.entries.len(), [index + 1, symbols.locals], entry);
        self.section(b".symtab", header, &symbols.entries)?;
        let header = self.table(elf::SHT_STRTAB, symbols.names.len(), [0, 0], 0);
        self.section(b".strtab", header, &symbols.names)?;
        // The table's own name is part of it.
        let size = self.names.len() + b".shstrtab\0".len();
        let header = self.table(elf::SHT_STRTAB, size, [0, 0], 0);
        let names = [self.names.as_slice(), b".shstrtab\0"].concat();
        self.section(b".shstrtab", header, &names)?;

        let layout = self.layout;
        let count = u16::try_from(self.headers.len() / layout.section).ok();
        let count = count.filter(|count| *count < elf::SHN_LORESERVE).ok_or(ObjectError::TooMany)?;
        self.out.resize(self.out.len().next_multiple_of(layout.word), 0);
        let (mut out, at) = (std::mem::take(&mut self.out), self.headers.len());
        let offset = out.len();
        out.reserve(at);
        out.extend_from_slice(&self.headers);
        self.word(&mut out, layout.e_shoff, offset);
        // An object without sections need not have their size.
        let size = layout.section as u16;
        out[layout.e_shnum - 2..layout.e_shnum].copy_from_slice(&size.to_le_bytes());
        out[layout.e_shnum..layout.e_shnum + 2].copy_from_slice(&count.to_le_bytes());
        out[layout.e_shstrndx..layout.e_shstrndx + 2].copy_from_slice(&(count - 1).to_le_bytes());
        Ok(out)
    }

    fn table(&self, kind: elf::SectionType, size: usize, [link, info]: [u32; 2], entry: usize) -> Vec<u8> {
        let layout = self.layout;
        let mut header = vec![0; layout.section];
        set(&mut header, SH_TYPE, kind.0);
        self.word(&mut header, layout.sh_size, size);
        set(&mut header, layout.sh_link, link);
        set(&mut header, layout.sh_info, info);
        self.word(&mut header, layout.sh_addralign, if entry == 0 { 1 } else { layout.word });
        // sh_entsize is the last field in both classes.
        self.word(&mut header, layout.section - layout.word, entry);
        header
    }
}
