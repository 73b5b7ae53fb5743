//! The part of one file that the dynamic loader reads: needed libraries, search paths, and the `malloc` that it defines
//! or refers to.

use crate::bytes::Bytes;
use crate::elf::{ET_EXEC, Elf, PT_DYNAMIC, SHT_DYNSYM};

/// The longest text of the dynamic section that is read, in bytes. The kernel's limit for a path is 4,096.
const LONGEST: usize = 1 << 16;
/// The most libraries that one file may ask for.
const MOST_NEEDED: usize = 4096;
/// The most versions that are looked through: numbers of versions have 15 bits.
const MOST_VERSIONS: usize = 1 << 15;

const DT_NEEDED: u64 = 1;
const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_SONAME: u64 = 14;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_DEPAUDIT: u64 = 0x6fff_fefb;
const DT_AUDIT: u64 = 0x6fff_fefc;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_FLAGS_1: u64 = 0x6fff_fffb;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERNEED: u64 = 0x6fff_fffe;
const DT_AUXILIARY: u64 = 0x7fff_fffd;
const DT_FILTER: u64 = 0x7fff_ffff;
/// The flag of `DT_FLAGS_1` that excludes the system's folders.
const DF_1_NODEFLIB: u64 = 0x800;
/// The flag of `DT_FLAGS_1` that a position-independent program has.
const DF_1_PIE: u64 = 0x0800_0000;

const VERSION_HIDDEN: u16 = 0x8000;
const VER_FLG_BASE: u16 = 1;
const SHN_ABS: u16 = 0xfff1;
const STT_TLS: u8 = 6;
const STT_GNU_IFUNC: u8 = 10;

/// The kind of machine code of a file: the loader passes over libraries of a different kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Machine {
    /// `e_machine`.
    pub(super) number: u16,
    /// ELFCLASS64.
    pub(super) wide: bool,
    /// Least significant byte first.
    pub(super) little: bool,
    /// `e_flags`.
    pub(super) flags: u32,
}

impl Machine {
    /// Whether a loader takes a library for `other` into a process of this machine.
    pub(super) fn takes(self, other: Machine) -> bool {
        (self.number, self.wide, self.little) == (other.number, other.wide, other.little)
    }
}

/// A definition of a symbol, with its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Definition {
    /// The version: `None` without a table of versions, else its number and, unless it is the base, its name.
    version: Option<(u16, Option<Vec<u8>>)>,
    /// Whether only a reference to this version takes it.
    hidden: bool,
    /// Whether musl passes over it: it is an indirect function.
    indirect: bool,
    /// Whether it is invisible to others, which a symbol of this table should not be.
    invisible: bool,
}

/// A reference to a symbol: the version that it asks for.
pub(super) type Reference = Option<Vec<u8>>;

/// The part of a file that counts when the loader makes a process.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) machine: Machine,
    /// `DT_NEEDED`, in order.
    pub(super) needed: Vec<Vec<u8>>,
    pub(super) soname: Option<Vec<u8>>,
    pub(super) rpath: Option<Vec<u8>>,
    pub(super) runpath: Option<Vec<u8>>,
    /// Whether the system's folders are excluded.
    pub(super) without_defaults: bool,
    /// A request that makes the loader call or put in other files: for an audit library, for a filter.
    pub(super) special: Option<&'static str>,
    /// The definitions of `malloc` that others may be bound to.
    pub(super) definitions: Vec<Definition>,
    /// Its reference to `malloc`.
    pub(super) reference: Option<Reference>,
    /// Whether it is a program, which glibc's loader does not load as a library.
    pub(super) is_program: bool,
    /// Whether it is a libc, which musl never loads a second time.
    pub(super) is_libc: bool,
}

impl Module {
    /// Reads the parts that the loader reads. The error is a fault of the file that hides what a loader would see.
    pub(super) fn read(bytes: &[u8]) -> Result<Module, String> {
        let elf = Elf::parse(bytes)?;
        if let Some(damage) = elf.damage.as_ref().filter(|_| elf.segments.iter().any(|part| part.data.is_none())) {
            return Err(damage.clone());
        }
        if !elf.segments.iter().any(|part| part.kind == PT_DYNAMIC) {
            return Err(elf.damage.unwrap_or_else(|| "it has no dynamic section".to_owned()));
        }
        let machine = Machine {
            number: elf.bytes.u16(18).unwrap_or_default(),
            wide: elf.bytes.wide,
            little: elf.bytes.little,
            flags: elf.bytes.u32(if elf.bytes.wide { 48 } else { 36 }).unwrap_or_default(),
        };
        let entries: Vec<(u64, u64)> = elf.dynamic_entries().collect();
        let value = |tag: u64| entries.iter().rev().find(|(found, _)| *found == tag).map(|(_, value)| *value);
        let strings = match value(DT_STRTAB) {
            Some(address) => elf.at_address(address).ok_or("its table of names is outside of the file")?,
            None => &[],
        };
        let text = |offset: u64| -> Result<Vec<u8>, String> {
            let rest = usize::try_from(offset).ok().and_then(|offset| strings.get(offset..));
            let rest = rest.ok_or("a name of its dynamic section is outside of the file")?;
            let end = memchr::memchr(0, rest.get(..LONGEST).unwrap_or(rest));
            end.map(|end| rest[..end].to_owned()).ok_or_else(|| "a name of its dynamic section has no end".to_owned())
        };
        let needed: Vec<u64> = entries.iter().filter(|(tag, _)| *tag == DT_NEEDED).map(|(_, value)| *value).collect();
        if needed.len() > MOST_NEEDED {
            return Err(format!("it asks for {} libraries; {MOST_NEEDED} are followed", needed.len()));
        }
        let table = Table { elf: &elf, strings, entries: &entries };
        let runpath = value(DT_RUNPATH).map(text).transpose()?;
        let rpath = value(DT_RPATH).map(text).transpose()?;
        Ok(Module {
            machine,
            needed: needed.into_iter().map(text).collect::<Result<_, _>>()?,
            soname: value(DT_SONAME).map(text).transpose()?,
            rpath,
            runpath,
            without_defaults: value(DT_FLAGS_1).unwrap_or_default() & DF_1_NODEFLIB != 0,
            special: match () {
                () if value(DT_AUDIT).or(value(DT_DEPAUDIT)).is_some() => Some("an audit library (DT_AUDIT)"),
                () if value(DT_FILTER).is_some() => Some("a library to filter (DT_FILTER)"),
                () if value(DT_AUXILIARY).is_some() => Some("an auxiliary library (DT_AUXILIARY)"),
                () => None,
            },
            definitions: table.definitions(b"malloc")?,
            reference: table.reference(b"malloc")?,
            is_program: elf.file_type == ET_EXEC || value(DT_FLAGS_1).unwrap_or_default() & DF_1_PIE != 0,
            is_libc: !table.definitions(b"__libc_start_main")?.is_empty() && !table.definitions(b"stdin")?.is_empty(),
        })
    }

    /// Whether glibc's loader binds the reference to this file's `malloc` (elf/dl-lookup.c, `check_match`).
    pub(super) fn serves_glibc(&self, reference: &Reference) -> bool {
        let visible = || self.definitions.iter().filter(|definition| !definition.invisible);
        let Some(wanted) = reference else {
            let first = visible().any(|definition| definition.version.as_ref().is_none_or(|(number, _)| *number < 3));
            let later = visible().filter(|definition| {
                !definition.hidden && definition.version.as_ref().is_some_and(|(number, _)| *number >= 3)
            });
            return first || later.count() == 1;
        };
        visible().any(|definition| match &definition.version {
            None => true,
            Some((_, Some(name))) => name == wanted,
            Some((_, None)) => !definition.hidden,
        })
    }

    /// Whether musl's loader binds a reference to this file's `malloc` (ldso/dynlink.c, `find_sym2`): it knows no
    /// versions, only those that are hidden.
    pub(super) fn serves_musl(&self) -> bool {
        self.definitions.iter().any(|definition| !definition.hidden && !definition.indirect)
    }

    /// Returns the version of its own `malloc` that a reference without a version would take.
    pub(super) fn own_version(&self) -> Option<Reference> {
        let own = self.definitions.iter().find(|definition| !definition.hidden)?;
        Some(own.version.as_ref().and_then(|(_, name)| name.clone()))
    }

    /// Whether a process with `other` in its place has the same libraries and the same `malloc`. False for files that
    /// define a `malloc`, or that search from their own place.
    pub(super) fn is_alike(&self, other: &Module) -> bool {
        let places = [&self.rpath, &self.runpath, &other.rpath, &other.runpath];
        self.definitions.is_empty()
            && other.definitions.is_empty()
            && (&self.needed, &self.soname, &self.rpath, &self.runpath, self.special)
                == (&other.needed, &other.soname, &other.rpath, &other.runpath, other.special)
            && !places.into_iter().flatten().any(|path| path.contains(&b'$'))
    }
}

/// The tables of symbols, found as the loader finds them: by the dynamic section, without section headers.
struct Table<'e, 'a> {
    elf: &'e Elf<'a>,
    strings: &'a [u8],
    entries: &'e [(u64, u64)],
}

struct TableSymbol {
    index: usize,
    value: u64,
    section: u16,
    kind: u8,
    binding: u8,
    visibility: u8,
}

impl<'a> Table<'_, 'a> {
    /// Returns the bytes that an entry of the dynamic section points to, to the end of their segment.
    fn part(&self, tag: u64) -> Result<Option<Bytes<'a>>, String> {
        let Some((_, address)) = self.entries.iter().rev().find(|(found, _)| *found == tag) else { return Ok(None) };
        match self.elf.at_address(*address) {
            Some(data) => Ok(Some(self.elf.bytes.over(data))),
            None => Err(format!("the table of entry {tag:#x} of its dynamic section is outside of the file")),
        }
    }

    fn symbol(&self, table: &Bytes<'a>, index: usize, name: &[u8]) -> Option<TableSymbol> {
        let wide = table.wide;
        let at = index.checked_mul(if wide { 24 } else { 16 })?;
        let (info, other, section, value) = if wide { (4, 5, 6, 8) } else { (12, 13, 14, 4) };
        let start = table.u32(at)? as usize;
        let end = start.checked_add(name.len())?;
        let equal = self.strings.get(start..end)? == name && self.strings.get(end) == Some(&0);
        let info = table.u8(at + info)?;
        let found = TableSymbol {
            index,
            value: table.word(at + value)?,
            section: table.u16(at + section)?,
            kind: info & 15,
            binding: info >> 4,
            visibility: table.u8(at + other)? & 3,
        };
        equal.then_some(found)
    }

    /// Returns the symbols of that name in a hash table.
    fn hashed(&self, name: &[u8]) -> Result<Vec<TableSymbol>, String> {
        let Some(symbols) = self.part(DT_SYMTAB)? else { return Ok(Vec::new()) };
        let indexes = if let Some(table) = self.part(DT_GNU_HASH)? {
            by_gnu_hash(&table, name)
        } else if let Some(table) = self.part(DT_HASH)? {
            by_hash(&table, name)
        } else {
            return Ok(Vec::new());
        };
        let indexes = indexes.ok_or("its hash table of symbols is damaged")?;
        Ok(indexes.into_iter().filter_map(|index| self.symbol(&symbols, index, name)).collect())
    }

    /// Returns the definitions of a function that others may be bound to. Weak definitions count like strong ones.
    fn definitions(&self, name: &[u8]) -> Result<Vec<Definition>, String> {
        let mut definitions = Vec::new();
        for found in self.hashed(name)? {
            let defined = found.section != 0 && (found.value != 0 || found.section == SHN_ABS);
            // STB_GLOBAL, STB_WEAK, STB_GNU_UNIQUE; no type, data, function, common, indirect function.
            let binds = matches!(found.binding, 1 | 2 | 10);
            let is_function = matches!(found.kind, 0 | 1 | 2 | 5 | STT_GNU_IFUNC) && found.kind != STT_TLS;
            if !(defined && binds && is_function) {
                continue;
            }
            let version = self.version_number(found.index)?;
            definitions.push(Definition {
                hidden: version.is_some_and(|version| version & VERSION_HIDDEN != 0),
                version: match version.map(|version| version & !VERSION_HIDDEN) {
                    Some(number) => Some((number, self.defined_version(number)?)),
                    None => None,
                },
                indirect: found.kind == STT_GNU_IFUNC,
                // STV_INTERNAL, STV_HIDDEN.
                invisible: matches!(found.visibility, 1 | 2),
            });
        }
        Ok(definitions)
    }

    /// Returns the version of an undefined symbol of that name. Undefined symbols precede those with a hash.
    fn reference(&self, name: &[u8]) -> Result<Option<Reference>, String> {
        let Some(symbols) = self.part(DT_SYMTAB)? else { return Ok(None) };
        let entry = if symbols.wide { 24 } else { 16 };
        let section = self.elf.sections.iter().find(|section| section.kind == SHT_DYNSYM);
        let by_section = section.and_then(|section| section.data).map(|data| data.len() / entry);
        let count = match (by_section, self.part(DT_HASH)?, self.part(DT_GNU_HASH)?) {
            (Some(count), ..) => count,
            (None, Some(table), _) => table.u32(4).ok_or("its hash table of symbols is damaged")? as usize,
            (None, None, Some(table)) => table.u32(4).ok_or("its hash table of symbols is damaged")? as usize,
            (None, None, None) => 0,
        };
        for index in 0..count.min(symbols.data.len() / entry) {
            if let Some(found) = self.symbol(&symbols, index, name)
                && found.section == 0
                && found.binding != 0
            {
                return Ok(Some(match self.version_number(index)? {
                    Some(number) => self.needed_version(number & !VERSION_HIDDEN)?,
                    None => None,
                }));
            }
        }
        Ok(None)
    }

    fn version_number(&self, index: usize) -> Result<Option<u16>, String> {
        let Some(versions) = self.part(DT_VERSYM)? else { return Ok(None) };
        let number = index.checked_mul(2).and_then(|at| versions.u16(at));
        number.map(Some).ok_or_else(|| "its table of versions is cut".to_owned())
    }

    /// Returns the name of a version that the file defines. The base has none.
    fn defined_version(&self, number: u16) -> Result<Option<Vec<u8>>, String> {
        let Some(table) = self.part(DT_VERDEF)? else { return Ok(None) };
        let cut = "its definitions of versions are damaged";
        let mut at = 0usize;
        for _ in 0..MOST_VERSIONS {
            let (flags, index) = (table.u16(at + 2).ok_or(cut)?, table.u16(at + 4).ok_or(cut)?);
            let (first, next) = (table.u32(at + 12).ok_or(cut)? as usize, table.u32(at + 16).ok_or(cut)? as usize);
            if index & !VERSION_HIDDEN == number {
                let name = at.checked_add(first).and_then(|at| table.u32(at)).ok_or(cut)?;
                return Ok((flags & VER_FLG_BASE == 0).then(|| self.text(name)));
            }
            if next == 0 {
                return Ok(None);
            }
            at = at.checked_add(next).ok_or(cut)?;
        }
        Err(cut.to_owned())
    }

    /// Returns the name of a version that the file asks of others.
    fn needed_version(&self, number: u16) -> Result<Option<Vec<u8>>, String> {
        let Some(table) = self.part(DT_VERNEED)? else { return Ok(None) };
        let cut = "its requests for versions are damaged";
        let mut at = 0usize;
        let mut steps = 0;
        loop {
            let (first, next) = (table.u32(at + 8).ok_or(cut)? as usize, table.u32(at + 12).ok_or(cut)? as usize);
            let mut inner = at.checked_add(first).ok_or(cut)?;
            loop {
                // Entries may overlap in a hostile file.
                steps += 1;
                if steps > MOST_VERSIONS {
                    return Err(cut.to_owned());
                }
                let (other, name) = (table.u16(inner + 6).ok_or(cut)?, table.u32(inner + 8).ok_or(cut)?);
                if other & !VERSION_HIDDEN == number {
                    return Ok(Some(self.text(name)));
                }
                match table.u32(inner + 12).ok_or(cut)? as usize {
                    0 => break,
                    step => inner = inner.checked_add(step).ok_or(cut)?,
                }
            }
            if next == 0 {
                return Ok(None);
            }
            at = at.checked_add(next).ok_or(cut)?;
        }
    }

    fn text(&self, offset: u32) -> Vec<u8> {
        crate::bytes::c_string(self.strings, offset as usize).unwrap_or_default().to_owned()
    }
}

/// Returns the symbols in the chain of a name's hash (glibc elf/dl-lookup.c, `do_lookup_x`). `None`: the table is cut.
fn by_gnu_hash(table: &Bytes<'_>, name: &[u8]) -> Option<Vec<usize>> {
    let hash = name.iter().fold(5381u32, |hash, &byte| hash.wrapping_mul(33).wrapping_add(u32::from(byte)));
    let (buckets, offset) = (table.u32(0)? as usize, table.u32(4)? as usize);
    let (words, shift) = (table.u32(8)? as usize, table.u32(12)?);
    if buckets == 0 {
        return Some(Vec::new());
    }
    let width = if table.wide { 8 } else { 4 };
    let bits = width as u32 * 8;
    // The loader masks, since the number of words is a power of two.
    let word = table.word(16 + ((hash / bits) as usize & words.wrapping_sub(1)).checked_mul(width)?)?;
    let both = word >> (hash % bits) & word >> (hash.checked_shr(shift).unwrap_or_default() % bits);
    if both & 1 == 0 {
        return Some(Vec::new());
    }
    let first = 16 + words.checked_mul(width)?;
    let chains = first + buckets.checked_mul(4)?;
    let mut index = table.u32(first + (hash as usize % buckets) * 4)? as usize;
    let mut found = Vec::new();
    if index == 0 {
        return Some(found);
    }
    loop {
        let link = table.u32(chains.checked_add(index.checked_sub(offset)?.checked_mul(4)?)?)?;
        if link | 1 == hash | 1 {
            found.push(index);
        }
        if link & 1 != 0 {
            return Some(found);
        }
        index += 1;
    }
}

/// Looks a name up in the older kind of hash table.
fn by_hash(table: &Bytes<'_>, name: &[u8]) -> Option<Vec<usize>> {
    let hash = name.iter().fold(0u32, |hash, &byte| {
        let hash = (hash << 4).wrapping_add(u32::from(byte));
        let high = hash & 0xf000_0000;
        (hash ^ high >> 24) & !high
    });
    let (buckets, count) = (table.u32(0)? as usize, table.u32(4)? as usize);
    if buckets == 0 {
        return Some(Vec::new());
    }
    let mut index = table.u32(8 + (hash as usize % buckets) * 4)? as usize;
    let mut found = Vec::new();
    // A circular chain ends after one step for each symbol.
    while index != 0 {
        if found.len() > count {
            return None;
        }
        found.push(index);
        index = table.u32(8usize.checked_add(buckets.checked_add(index)?.checked_mul(4)?)?)? as usize;
    }
    Some(found)
}
