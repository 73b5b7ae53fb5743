//! The section headers of a grafted file: the program's, and new ones behind them. Tools that go by sections keep the
//! new parts; elfutils' strip would overwrite parts that no section covers.

use crate::appended::Appended;
use crate::image::{
    Image, PROGRAM_HEADER, SHF_ALLOC, SHF_TLS, SHT_NOBITS, SHT_NOTE, SHT_SHLIB, SHT_SYMTAB, STT_FUNC, STT_TLS, SYMBOL,
    Section, u64_at,
};
use crate::probes;
use crate::thread_storage::ThreadStorage;

const STB_GLOBAL: u8 = 1;

/// The section of the program headers.
const HEADERS: &str = ".allograft.headers";

/// A function that is added to the symbol table, for debuggers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) address: u64,
    pub(crate) size: u64,
}

/// Section headers and their names, as they will be in the file.
#[derive(Debug)]
pub(crate) struct SectionTable {
    pub(crate) sections: Vec<Section>,
    text: Vec<u8>,
    /// The index of the section of names.
    names: usize,
    /// The number of the program's sections.
    pub(crate) stock: usize,
}

impl SectionTable {
    /// Takes the program's section headers. The program has some.
    pub(crate) fn from_image(image: &Image<'_>) -> SectionTable {
        let (sections, names) = (image.sections.clone(), usize::from(image.names_index));
        let text = sections[names].content().and_then(|at| image.bytes.get(at)).unwrap_or_default().to_vec();
        SectionTable { stock: sections.len(), sections, text, names }
    }

    /// Adds a section that is loaded, with this name. Returns its index.
    pub(crate) fn add(&mut self, name: &str, section: Section) -> usize {
        let flags = section.flags | SHF_ALLOC;
        let name = self.name(name.as_bytes());
        self.sections.push(Section { name, flags, ..section });
        self.sections.len() - 1
    }

    /// Adds the section of the `count` program headers, which are the last part of the file that is loaded.
    ///
    /// elfutils (`eu-strip`; debugedit by libelf) writes over everything behind the last section that is loaded, and
    /// fills gaps between sections with zeros; so the headers need a section. GNU's tools put the headers in front of
    /// all sections of their segment, and move nothing if it has none. SHT_SHLIB serves both: the gABI reserves it
    /// without a meaning, libelf copies its bytes, and BFD leaves it out (bfd/elf.c, `bfd_section_from_shdr`).
    pub(crate) fn add_program_headers(&mut self, appended: &Appended, count: usize) {
        let range = appended.headers_at..appended.headers_at + (count * PROGRAM_HEADER) as u64;
        self.add(HEADERS, appended.section(SHT_SHLIB, 0, &range, 8));
    }

    /// Appends the notes on the donor's probes, if it has any. Those of a program that has probes itself come first in
    /// the same section: readers take one section of that name.
    pub(crate) fn add_probes(&mut self, file: &mut Vec<u8>, notes: &[u8]) {
        if notes.is_empty() {
            return;
        }
        let name = [probes::SECTION.as_bytes(), b"\0"].concat();
        let has_probes = |section: &Section| {
            let at = self.text.get(section.name as usize..);
            let is_note = section.kind == SHT_NOTE && section.flags & SHF_ALLOC == 0 && section.size.is_multiple_of(4);
            is_note && at.is_some_and(|text| text.starts_with(&name))
        };
        let own = self.sections[..self.stock].iter().position(has_probes);
        let before = own.and_then(|own| file.get(self.sections[own].content()?)).unwrap_or_default().to_vec();
        let index = own.unwrap_or_else(|| {
            let name = self.name(probes::SECTION.as_bytes());
            self.sections.push(Section { name, kind: SHT_NOTE, align: 4, ..Section::default() });
            self.sections.len() - 1
        });
        self.rewrite(file, index, &[before.as_slice(), notes].concat());
    }

    /// Adds a name. Returns its place among the names.
    pub(crate) fn name(&mut self, name: &[u8]) -> u32 {
        let at = self.text.len() as u32;
        self.text.extend(name);
        self.text.push(0);
        at
    }

    /// Makes the sections `tdata` and `tbss` those of the thread-local storage. The program's own storage is part of
    /// the new one. Its bytes stay as data that nothing reads. Symbols still have to resolve to its variables where
    /// they are.
    pub(crate) fn move_thread_storage(
        &mut self,
        file: &mut [u8],
        image: &Image<'_>,
        storage: &ThreadStorage,
        (tdata, tbss): (usize, usize),
    ) {
        self.sections[tdata].align = storage.align;
        let tables: Vec<Section> =
            self.sections[..self.stock].iter().filter(|section| section.kind == SHT_SYMTAB).copied().collect();
        for content in tables.iter().filter_map(Section::content) {
            for entry in file[content].chunks_exact_mut(SYMBOL) {
                let index = usize::from(u16::from_le_bytes([entry[6], entry[7]]));
                let Some(section) = image.sections.get(index).filter(|section| section.flags & SHF_TLS != 0) else {
                    continue;
                };
                let mut now = if section.kind == SHT_NOBITS { tbss } else { tdata };
                if entry[4] & 15 == STT_TLS {
                    let value = u64_at(entry, 8).unwrap_or(0).wrapping_add(storage.front);
                    entry[8..16].copy_from_slice(&value.to_le_bytes());
                    now = if value < storage.image.len() as u64 { tdata } else { tbss };
                }
                entry[6..8].copy_from_slice(&(now as u16).to_le_bytes());
            }
        }
        for section in self.sections[..self.stock].iter_mut().filter(|section| section.flags & SHF_TLS != 0) {
            section.flags &= !SHF_TLS;
            if section.kind == SHT_NOBITS {
                section.size = 0;
            }
        }
    }

    /// Adds functions of the section `code` to the program's symbol table, if it has one. Table and names are written
    /// anew at the end of the file.
    ///
    /// gdb takes the names of a file from that table alone, unless the file has no such table (gdb/elfread.c,
    /// `elf_symtab_read`).
    pub(crate) fn add_functions(&mut self, file: &mut Vec<u8>, functions: &[Function<'_>], code: usize) {
        let Some(table) = self.sections[..self.stock].iter().position(|section| section.kind == SHT_SYMTAB) else {
            return;
        };
        let strings = self.sections[table].link as usize;
        let content = |section: Option<&Section>| Some(file.get(section?.content()?)?.to_vec());
        let symbols = content(self.sections.get(table));
        // A file may have one section for the names of symbols and of sections.
        let names = if strings == self.names { Some(Vec::new()) } else { content(self.sections.get(strings)) };
        let (Some(mut symbols), Some(mut names)) = (symbols, names) else { return };
        for function in functions {
            let name = if strings == self.names {
                self.name(function.name)
            } else {
                let at = names.len() as u32;
                names.extend(function.name);
                names.push(0);
                at
            };
            symbols.extend(name.to_le_bytes());
            symbols.extend([(STB_GLOBAL << 4) | STT_FUNC, 0]);
            symbols.extend((code as u16).to_le_bytes());
            symbols.extend(function.address.to_le_bytes());
            symbols.extend(function.size.to_le_bytes());
        }
        self.rewrite(file, table, &symbols);
        if strings != self.names {
            self.rewrite(file, strings, &names);
        }
    }

    /// Puts the new content of a section that is not loaded at the end of the file.
    fn rewrite(&mut self, file: &mut Vec<u8>, index: usize, content: &[u8]) {
        file.resize(file.len().next_multiple_of(8), 0);
        (self.sections[index].offset, self.sections[index].size) = (file.len() as u64, content.len() as u64);
        file.extend(content);
    }

    /// Appends names and headers to the file, and enters them in the ELF header.
    pub(crate) fn write(mut self, file: &mut Vec<u8>) {
        self.sections[self.names].offset = file.len() as u64;
        self.sections[self.names].size = self.text.len() as u64;
        file.extend(&self.text);
        file.resize(file.len().next_multiple_of(8), 0);
        let headers = file.len() as u64;
        file.extend(self.sections.iter().flat_map(Section::encode));
        file[40..48].copy_from_slice(&headers.to_le_bytes());
        file[60..62].copy_from_slice(&(self.sections.len() as u16).to_le_bytes());
    }
}
