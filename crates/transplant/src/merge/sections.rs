//! Section headers of a merged program. A section whose content is written anew elsewhere stays as data that nothing
//! reads, under another name; the new one has the old name. So every loaded byte is in a section, in the order of
//! addresses, which GNU strip and objcopy need to keep it.

use std::ops::Range;

use crate::image::{
    Image, SHF_ALLOC, SHF_EXECINSTR, SHF_TLS, SHF_WRITE, SHT_DYNSYM, SHT_NOBITS, SHT_NOTE, SHT_PROGBITS, SHT_RELA,
    SYMBOL, Section,
};
use crate::section_table::{Function, SectionTable};
use crate::thread_storage::ThreadStorage;

use super::dynamic::RELOCATION;
use super::layout::Parts;

// gABI, "Sections"; the last two are GNU's.
const SHT_STRTAB: u32 = 3;
const SHT_HASH: u32 = 5;
const SHT_DYNAMIC: u32 = 6;
const SHT_GNU_HASH: u32 = 0x6fff_fff6;
const SHT_GNU_VERSYM: u32 = 0x6fff_ffff;
/// Before the name of a section that is written anew elsewhere.
const STOCK: &[u8] = b".stock";

/// The content of a new part of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Note,
    /// The note on a shared object.
    NoteOnNeeded,
    /// The start of a shared object: its own headers.
    Head,
    DonorsNotes,
    Symbols {
        locals: u32,
    },
    GnuHash,
    Hash,
    Versions,
    Relocations,
    Strings,
    Constants,
    Code,
    Data,
    ThreadImage,
    ThreadZeros,
    Lists,
    Dynamic,
}

/// A donor's entries for debuggers and profilers: functions, for a symbol table if there is one, and the notes on its
/// probes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ForTools<'a> {
    pub(super) functions: &'a [Function<'a>],
    pub(super) probes: &'a [u8],
}

/// A new part of the file, by its addresses.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) kind: Kind,
    pub(super) range: Range<u64>,
}

impl Kind {
    /// Name, type, flags, alignment and the size of an entry.
    fn described(self) -> (&'static str, u32, u64, u64, u64) {
        match self {
            Kind::Note => (format::merged::SECTION, SHT_NOTE, 0, 4, 0),
            Kind::NoteOnNeeded => (format::needed::SECTION, SHT_NOTE, 0, 4, 0),
            Kind::Head => (".allograft.head", SHT_PROGBITS, 0, 8, 0),
            Kind::DonorsNotes => (".note.allograft", SHT_NOTE, 0, 4, 0),
            Kind::Symbols { .. } => (".dynsym", SHT_DYNSYM, 0, 8, SYMBOL as u64),
            Kind::GnuHash => (".gnu.hash", SHT_GNU_HASH, 0, 8, 0),
            Kind::Hash => (".hash", SHT_HASH, 0, 8, 4),
            Kind::Versions => (".gnu.version", SHT_GNU_VERSYM, 0, 2, 2),
            Kind::Relocations => (".rela.dyn", SHT_RELA, 0, 8, RELOCATION as u64),
            Kind::Strings => (".dynstr", SHT_STRTAB, 0, 1, 0),
            Kind::Constants => (".allograft.rodata", SHT_PROGBITS, 0, 16, 0),
            Kind::Code => (".allograft.text", SHT_PROGBITS, SHF_EXECINSTR, 16, 0),
            Kind::Data => (".allograft.data", SHT_PROGBITS, SHF_WRITE, 64, 0),
            Kind::ThreadImage => (".allograft.tdata", SHT_PROGBITS, SHF_WRITE | SHF_TLS, 1, 0),
            Kind::ThreadZeros => (".allograft.tbss", SHT_NOBITS, SHF_WRITE | SHF_TLS, 1, 0),
            Kind::Lists => (".allograft.array", SHT_PROGBITS, SHF_WRITE, 8, 8),
            Kind::Dynamic => (".dynamic", SHT_DYNAMIC, SHF_WRITE, 8, 16),
        }
    }

    /// Whether the program's section of that type is written anew: of these kinds a program has at most one.
    fn replaces(self, section: &Section) -> bool {
        let (_, kind, ..) = self.described();
        !matches!(kind, SHT_PROGBITS | SHT_NOTE | SHT_NOBITS | SHT_RELA | SHT_STRTAB) && section.kind == kind
    }
}

/// The number of the section that the donor's symbols name. A defined symbol needs one, which loaders do not look up.
/// It is the program's first section of code: `eu-strip` renumbers sections and enters the new numbers in the
/// symbols, which are loaded; the numbers of the sections up to there stay. Debuggers and `nm` take a symbol for a
/// function if it names a section of code.
pub(super) fn of_symbols(image: &Image<'_>) -> u16 {
    let code = image.sections.iter().position(|section| section.flags & SHF_EXECINSTR != 0);
    code.and_then(|index| u16::try_from(index).ok()).unwrap_or(1).max(1)
}

/// Appends the program's section headers and those of the new parts, which `places` puts into the file. `storage` is
/// that of both, if the program's moves.
pub(super) fn append(
    file: &mut Vec<u8>,
    image: &Image<'_>,
    parts: &[Part],
    storage: Option<&ThreadStorage>,
    places: &Parts,
    extra: ForTools<'_>,
) {
    let mut table = SectionTable::from_image(image);
    // The program's names of dynamic symbols, and relocations: linked from the symbols, and to them.
    let symbols = table.sections.iter().position(|section| section.kind == SHT_DYNSYM);
    let strings = symbols.map(|symbols| table.sections[symbols].link as usize);
    let rewritten = |is: fn(Kind) -> bool| parts.iter().any(|part| is(part.kind));
    let is_moved = |index: usize, section: &Section| {
        let relocations = rewritten(|kind| kind == Kind::Relocations)
            && section.kind == SHT_RELA
            && image.section_name(section) == b".rela.dyn";
        section.flags & SHF_ALLOC != 0
            && (Some(index) == strings || relocations || parts.iter().any(|part| part.kind.replaces(section)))
    };
    let moved: Vec<usize> = (0..table.stock).filter(|index| is_moved(*index, &image.sections[*index])).collect();
    let mut numbers = Vec::new();
    for part in parts {
        let (name, kind, flags, align, entry_size) = part.kind.described();
        let section = Section { entry_size, ..places.appended.section(kind, flags, &part.range, align) };
        numbers.push((part.kind, table.add(name, section)));
    }
    let number = |wanted: fn(Kind) -> bool| numbers.iter().find(|(kind, _)| wanted(*kind)).map(|(_, number)| *number);
    let new_symbols = number(|kind| matches!(kind, Kind::Symbols { .. })).or(symbols).unwrap_or(0) as u32;
    let new_strings = number(|kind| kind == Kind::Strings).unwrap_or(0) as u32;
    for (kind, number) in &numbers {
        let section = &mut table.sections[*number];
        match kind {
            Kind::Symbols { locals } => (section.link, section.info) = (new_strings, *locals),
            Kind::GnuHash | Kind::Hash | Kind::Versions | Kind::Relocations => section.link = new_symbols,
            Kind::Dynamic => section.link = new_strings,
            _ => {}
        }
    }
    for index in 0..table.stock {
        let link = table.sections[index].link as usize;
        if moved.contains(&index) {
            let name = [STOCK, image.section_name(&image.sections[index])].concat();
            let name = table.name(&name);
            let section = &mut table.sections[index];
            *section = Section { name, kind: SHT_PROGBITS, link: 0, info: 0, entry_size: 0, ..*section };
        } else if link != 0 && Some(link) == symbols {
            table.sections[index].link = new_symbols;
        } else if link != 0 && Some(link) == strings {
            table.sections[index].link = new_strings;
        }
    }
    let thread = (number(|kind| kind == Kind::ThreadImage), number(|kind| kind == Kind::ThreadZeros));
    if let (Some(tdata), Some(tbss), Some(storage)) = (thread.0, thread.1, storage) {
        table.move_thread_storage(file, image, storage, (tdata, tbss));
    }
    let headers = usize::from(u16::from_le_bytes([file[56], file[57]]));
    table.add_program_headers(&places.appended, headers);
    if let Some(code) = number(|kind| kind == Kind::Code) {
        table.add_functions(file, extra.functions, code);
    }
    table.add_probes(file, extra.probes);
    table.write(file);
}
