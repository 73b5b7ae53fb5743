//! Compares the end of a grafted file with stock's: section headers and their names. Nothing loads them; debuggers and
//! the tools that write a program anew go by them. Each kind of graft says what its edit changes in stock's headers.

use std::ops::Range;

use super::image::PROGRAM_HEADER;
use super::probes;
use crate::bytes::{c_string, printable};
use crate::elf::{Elf, PF_X, SHF_ALLOC, SHT_NOBITS, SHT_SYMTAB, Section};
use crate::entry_points::loads;
use crate::tables::{ALIAS, Tables};

const SHT_PROGBITS: u32 = 1;
const SHT_STRTAB: u32 = 3;
const SHT_RELA: u32 = 4;
const SHT_HASH: u32 = 5;
const SHT_DYNAMIC: u32 = 6;
const SHT_NOTE: u32 = 7;
const SHT_SHLIB: u32 = 10;
const SHT_DYNSYM: u32 = 11;
const SHT_GNU_HASH: u32 = 0x6fff_fff6;
const SHT_GNU_VERSYM: u32 = 0x6fff_ffff;
const SHF_WRITE: u64 = 1;
const SHF_EXECINSTR: u64 = 4;
const SHF_TLS: u64 = 0x400;
const PF_W: u32 = 2;
/// The size of a section header, in bytes (64-bit; gABI, "Sections").
const SECTION_HEADER: usize = 64;
/// The section of the program headers. Its type is SHT_SHLIB, which the gABI reserves without a meaning.
const HEADERS: &[u8] = b".allograft.headers";
/// Before the name of a section that a graft has written anew elsewhere.
const STOCK: &[u8] = b".stock";

/// A section that a graft adds: its name, its type, its flags beside SHF_ALLOC, and the size of an entry.
type New = (&'static [u8], u32, u64, u64);
const NEW: [New; 19] = [
    (b".note.allograft.merged", SHT_NOTE, 0, 0),
    (b".note.allograft.needed", SHT_NOTE, 0, 0),
    (b".note.allograft", SHT_NOTE, 0, 0),
    (b".allograft.head", SHT_PROGBITS, 0, 0),
    (b".dynsym", SHT_DYNSYM, 0, 24),
    (b".gnu.hash", SHT_GNU_HASH, 0, 0),
    (b".hash", SHT_HASH, 0, 4),
    (b".gnu.version", SHT_GNU_VERSYM, 0, 2),
    (b".rela.dyn", SHT_RELA, 0, 24),
    (b".dynstr", SHT_STRTAB, 0, 0),
    (b".allograft.rodata", SHT_PROGBITS, 0, 0),
    (b".allograft.text", SHT_PROGBITS, SHF_EXECINSTR, 0),
    (b".allograft.data", SHT_PROGBITS, SHF_WRITE, 0),
    (b".allograft.tdata", SHT_PROGBITS, SHF_WRITE | SHF_TLS, 0),
    (b".allograft.tbss", SHT_NOBITS, SHF_WRITE | SHF_TLS, 0),
    (b".allograft.array", SHT_PROGBITS, SHF_WRITE, 8),
    (b".dynamic", SHT_DYNAMIC, SHF_WRITE, 16),
    (b".allograft.relocations", SHT_PROGBITS, SHF_WRITE, 0),
    (HEADERS, SHT_SHLIB, 0, 0),
];

/// A section header (gABI, "Sections").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header<'a> {
    pub(super) name: &'a [u8],
    pub(super) kind: u32,
    pub(super) flags: u64,
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) link: u32,
    pub(super) info: u32,
    pub(super) align: u64,
    pub(super) entry: u64,
}

/// Where the new parts are, and how many sections they have.
pub(super) struct Added {
    /// They are loaded from this address on.
    pub(super) start: u64,
    /// They end at this offset.
    pub(super) end: usize,
    /// Without the one of the donor's probes, which the program may have already. `None` if that depends.
    pub(super) sections: Option<usize>,
}

fn headers<'a>(elf: &Elf<'a>) -> Option<Vec<Header<'a>>> {
    let names = elf.sections.get(usize::from(elf.bytes.u16(62)?))?.data?;
    let raw = table(elf, elf.bytes.word(40)?, elf.sections.len(), SECTION_HEADER);
    raw.into_iter()
        .map(|raw| {
            let words = elf.bytes.over(raw);
            Some(Header {
                name: c_string(names, words.u32(0)? as usize)?,
                kind: words.u32(4)?,
                flags: words.u64(8)?,
                address: words.u64(16)?,
                offset: words.u64(24)?,
                size: words.u64(32)?,
                link: words.u32(40)?,
                info: words.u32(44)?,
                align: words.u64(48)?,
                entry: words.u64(56)?,
            })
        })
        .collect()
}

/// Checks the section headers at the end of the file. Stock's headers must be unchanged except for `expected` (called
/// with all headers now, stock's, and an index), and the new parts' headers must be correct. Bytes behind the new
/// parts, and between new sections, must be in a section, or zeros.
pub(super) fn check(elf: &Elf<'_>, stock: &Elf<'_>, added: &Added, expected: Changes<'_>) -> Result<(), String> {
    let size = elf.bytes.data.len();
    if stock.sections.is_empty() {
        let excess = size - added.end;
        return if excess == 0 { Ok(()) } else { Err(format!("{excess} bytes are behind the new parts")) };
    }
    let ends = elf.bytes.word(40).and_then(|at| range(at, elf.sections.len() * SECTION_HEADER));
    let (Some(found), Some(wanted), Some(own)) = (headers(elf), headers(stock), ends.filter(|own| own.end == size))
    else {
        return Err("the file does not end with its section headers".to_owned());
    };
    let with_probes = |headers: &[Header<'_>]| headers.iter().filter(|header| header.name == probes::SECTION).count();
    let more_probes = with_probes(&found).saturating_sub(with_probes(&wanted)).min(1);
    let count = added.sections.map_or(found.len(), |more| wanted.len() + more + more_probes);
    if found.len() != count || count < wanted.len() {
        return Err(format!("there are {} sections, expected {count}", found.len()));
    }
    let names = usize::from(stock.bytes.u16(62).unwrap_or(0));
    for (index, before) in wanted.iter().enumerate() {
        let now = &found[index];
        let mut header = expected(&found, &wanted, index);
        if now.link as usize >= wanted.len() && same_name(&found, now.link, &wanted, header.link) {
            // Links follow a content that is elsewhere now.
            header.link = now.link;
        }
        if index == names || is_grown(now, before) {
            (header.offset, header.size) = (now.offset, now.size);
        }
        if *now != header || !same_content(elf, stock, index, (now, before), added.end) {
            return Err(format!("the header of section {index}, `{}`, is not stock's", printable(before.name)));
        }
    }
    section_of_headers(elf).unwrap_or_else(|| Err("the program headers are in no section".to_owned()))?;
    let new = &found[wanted.len()..];
    if let Some(section) = new.iter().find(|section| !is_true(elf, section, &found, added.start)) {
        return Err(format!("the header of the new section `{}` is not true", printable(section.name)));
    }
    between(elf, new, added.start)?;
    let behind: Vec<_> = found.iter().filter_map(|it| range(it.offset, it.size as usize)).chain([own]).collect();
    let stray = (added.end..size).find(|at| elf.bytes.data[*at] != 0 && !behind.iter().any(|all| all.contains(at)));
    stray.map_or(Ok(()), |at| Err(format!("the byte at offset {at:#x} is behind the new parts, in no section")))
}

/// Returns the header that a kind of graft makes of stock's header with this index. Takes all headers now, and all
/// headers of stock.
pub(super) type Changes<'c> = &'c dyn for<'a> Fn(&[Header<'a>], &[Header<'a>], usize) -> Header<'a>;

impl<'a> Header<'a> {
    /// Stock's header after the graft has put all thread-local storage into one: this section no longer contains
    /// stock's part.
    pub(super) fn without_storage(self) -> Header<'a> {
        match self.flags & SHF_TLS {
            0 => self,
            _ => Header {
                flags: self.flags & !SHF_TLS,
                size: if self.kind == SHT_NOBITS { 0 } else { self.size },
                ..self
            },
        }
    }
}

/// The header after a merge, or after a library's name was added: a section whose content was rewritten elsewhere gets
/// a new name, and has no meaning.
pub(super) fn of_dynamic<'a>(found: &[Header<'a>], wanted: &[Header<'a>], index: usize) -> Header<'a> {
    let (now, before) = (&found[index], wanted[index]);
    if now.name.strip_prefix(STOCK) == Some(before.name) {
        return Header { name: now.name, kind: SHT_PROGBITS, link: 0, info: 0, entry: 0, ..before };
    }
    if now.flags & SHF_TLS == 0 { before.without_storage() } else { before }
}

fn same_name(found: &[Header<'_>], link: u32, wanted: &[Header<'_>], before: u32) -> bool {
    let [found, wanted] = [found.get(link as usize), wanted.get(before as usize)].map(|it| it.map(|it| it.name));
    found == wanted
}

/// Whether this is a table that is not loaded and was written anew, with more entries, or the program's own notes on
/// probes, which the donor's follow.
fn is_grown(now: &Header<'_>, before: &Header<'_>) -> bool {
    let is_table = [SHT_SYMTAB, SHT_STRTAB].contains(&before.kind) || before.name == probes::SECTION;
    before.flags & SHF_ALLOC == 0 && is_table && now.offset > before.offset && now.size > before.size
}

/// Whether a table that is not loaded is where it was, or at the end of the file and begins as it did. A table at its
/// old place is compared with stock's elsewhere.
fn same_content(
    elf: &Elf<'_>,
    stock: &Elf<'_>,
    index: usize,
    (now, before): (&Header<'_>, &Header<'_>),
    end: usize,
) -> bool {
    if (now.offset, now.size) == (before.offset, before.size) || before.flags & SHF_ALLOC != 0 {
        return true;
    }
    let first = match before.kind {
        // Symbols of thread-local storage have moved there too.
        SHT_SYMTAB => range(before.offset, before.size as usize).and_then(|at| elf.bytes.data.get(at)),
        _ => stock.sections.get(index).and_then(|section| section.data),
    };
    let grown = elf.sections.get(index).and_then(|section| section.data);
    let (Some(grown), Some(first)) = (grown, first) else { return false };
    let Some(rest) = grown.strip_prefix(first).filter(|_| now.offset as usize >= end) else { return false };
    before.kind != SHT_SYMTAB || are_dynamic(elf, rest, elf.sections.get(now.link as usize))
}

/// Whether each of these entries of a symbol table, whose names are in `names`, is a function that the program defines
/// for others too, in the donor's code.
fn are_dynamic(elf: &Elf<'_>, entries: &[u8], names: Option<&Section<'_>>) -> bool {
    const GLOBAL_FUNCTION: u8 = 0x12;
    let tables = Tables::new(elf);
    let names = names.and_then(|names| names.data).unwrap_or_default();
    let is_dynamic = |entry: &[u8]| {
        let words = elf.bytes.over(entry);
        let name = c_string(names, words.u32(0)? as usize)?;
        let section = elf.sections.get(usize::from(words.u16(6)?))?;
        let place = (words.u64(8)?, words.u64(16)?);
        // The public name may denote one of the program's stubs.
        let own = [name.to_vec(), [ALIAS, name].concat()];
        let defined = own.iter().any(|name| match tables.found(name) {
            Ok(Some(symbol)) => symbol.section != 0 && (symbol.value, symbol.size) == place,
            _ => false,
        });
        let (info, other) = (words.u8(4)?, words.u8(5)?);
        Some(defined && section.name == b".allograft.text" && (info, other) == (GLOBAL_FUNCTION, 0))
    };
    entries.chunks(24).all(|entry| is_dynamic(entry) == Some(true))
}

/// Whether the header of a new section is correct.
fn is_true(elf: &Elf<'_>, section: &Header<'_>, found: &[Header<'_>], start: u64) -> bool {
    if section.name == probes::SECTION {
        // Its content is compared with the donor's.
        let plain = [section.flags, section.address, section.entry, u64::from(section.link), u64::from(section.info)];
        return section.kind == SHT_NOTE && plain == [0; 5] && section.align == 4;
    }
    let Some((_, kind, flags, entry)) = NEW.into_iter().find(|(name, ..)| *name == section.name) else { return false };
    let is_described = (section.kind, section.flags, section.entry) == (kind, flags | SHF_ALLOC, entry);
    // The donor's segments may be several of a kind.
    let is_unique = kind == SHT_PROGBITS || found.iter().filter(|other| other.name == section.name).count() == 1;
    let link = found.get(section.link as usize).map(|header| (header.kind, header.flags & SHF_ALLOC != 0));
    let is_linked = match kind {
        SHT_DYNSYM | SHT_DYNAMIC => link == Some((SHT_STRTAB, true)),
        SHT_GNU_HASH | SHT_HASH | SHT_GNU_VERSYM | SHT_RELA => link == Some((SHT_DYNSYM, true)),
        _ => section.link == 0,
    };
    // One greater than the last local symbol's index (gABI, "Sections", sh_info).
    let locals = || {
        let symbols = range(section.offset, section.size as usize).and_then(|at| elf.bytes.data.get(at));
        let symbols = symbols.unwrap_or_default().chunks_exact(24);
        symbols.take_while(|symbol| symbol[4] >> 4 == 0).count() as u32
    };
    let is_counted = section.info == if kind == SHT_DYNSYM { locals() } else { 0 };
    let is_loaded = loads(elf).filter(|load| load.address >= start).any(|load| {
        let at = section.address.checked_sub(load.address);
        let size = if kind == SHT_NOBITS { 0 } else { section.size };
        at.is_some_and(|at| at.checked_add(size).is_some_and(|end| end <= load.memory))
            && at.and_then(|at| load.offset.checked_add(at)) == Some(section.offset)
            && (flags & SHF_WRITE == 0 || load.flags & PF_W != 0)
            && (flags & SHF_EXECINSTR == 0 || load.flags & PF_X != 0)
    });
    let is_aligned = section.align.is_power_of_two();
    is_described && is_unique && is_linked && is_counted && is_loaded && is_aligned
}

/// Checks that new sections follow each other, and that zeros fill what is loaded between them.
fn between(elf: &Elf<'_>, new: &[Header<'_>], start: u64) -> Result<(), String> {
    let mut sections: Vec<(u64, u64)> = new
        .iter()
        .filter(|section| section.kind != SHT_NOBITS && section.flags & SHF_ALLOC != 0)
        .map(|section| (section.address, section.size))
        .collect();
    sections.sort_unstable();
    if let Some(pair) = sections.windows(2).find(|pair| pair[0].0.saturating_add(pair[0].1) > pair[1].0) {
        return Err(format!("two sections overlap at {:#x}", pair[1].0));
    }
    for load in loads(elf).filter(|load| load.address >= start) {
        let data = load.data.unwrap_or_default();
        let is_in_section = |at: u64| sections.iter().any(|(from, size)| at.wrapping_sub(*from) < *size);
        let stray = data.iter().enumerate().filter(|(_, byte)| **byte != 0).map(|(at, _)| load.address + at as u64);
        if let Some(at) = stray.into_iter().find(|at| !is_in_section(*at)) {
            return Err(format!("the byte at {at:#x} is in no section"));
        }
    }
    Ok(())
}

/// Returns the raw entries of a table.
pub(super) fn table<'a>(elf: &Elf<'a>, at: u64, count: usize, size: usize) -> Vec<&'a [u8]> {
    let bytes = elf.bytes.slice(at, (count * size) as u64).unwrap_or_default();
    bytes.chunks_exact(size).collect()
}

pub(super) fn range(offset: u64, length: usize) -> Option<Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    Some(start..start.checked_add(length)?)
}

/// Checks the section of the program headers, which keeps tools that go by sections from overwriting them: it has to
/// cover them, and to count as loaded. `None` if the section is missing: GNU's tools leave it out.
pub(super) fn section_of_headers(elf: &Elf<'_>) -> Option<Result<(), String>> {
    let section = elf.sections.iter().find(|section| section.name == HEADERS)?;
    let table = (elf.bytes.word(32).unwrap_or(0), elf.segments.len() * PROGRAM_HEADER);
    let covered = (section.offset, section.data.map_or(0, <[u8]>::len));
    let kept = (section.kind, section.flags) == (SHT_SHLIB, SHF_ALLOC);
    Some(match covered == table && kept {
        true => Ok(()),
        false => {
            let name = String::from_utf8_lossy(HEADERS);
            let (at, size) = table;
            Err(format!("the section `{name}` is not the {size} bytes of program headers at offset {at:#x}"))
        }
    })
}
