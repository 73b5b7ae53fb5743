//! Reads files of Windows: images (programs and DLLs) and COFF objects. Sections, and the functions that an image
//! imports. (Microsoft, PE Format.)

use crate::bytes::{Bytes, c_string};
use crate::report::Arch;

/// The size of the header of a COFF file, and of a section.
const FILE_HEADER: usize = 20;
const SECTION: usize = 40;
/// The size of an entry of the import table.
const IMPORTS: usize = 20;
/// More DLLs or functions than real images import, and more sections than they have.
const MOST: usize = 1 << 14;
const MOST_SECTIONS: usize = 1 << 10;

/// A section.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section<'a> {
    /// Its name: up to 8 bytes. Longer names of objects are not resolved.
    pub(crate) name: &'a [u8],
    address: u32,
    /// Its content in the file.
    pub(crate) data: &'a [u8],
}

/// The kind of a file of Windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileKind {
    Program,
    Library,
    Object,
}

/// A file of Windows.
pub(crate) struct Pe<'a> {
    pub(crate) bytes: Bytes<'a>,
    pub(crate) form: FileKind,
    pub(crate) arch: Arch,
    pub(crate) sections: Vec<Section<'a>>,
    /// Whether there is a table of COFF symbols.
    pub(crate) symbols: bool,
    /// Whether it can be loaded at any address. `None` for objects.
    pub(crate) movable: Option<bool>,
    /// Addresses are of 8 bytes.
    wide: bool,
    /// The address of the import table.
    imports: Option<u32>,
}

/// A function that an image imports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Import<'a> {
    pub(crate) library: &'a [u8],
    /// `None`: it is named by a number.
    pub(crate) function: Option<&'a [u8]>,
}

/// The offset of an image's PE signature; `None` if the file is not an image.
fn signature(bytes: &Bytes<'_>) -> Option<usize> {
    if !bytes.data.starts_with(b"MZ") {
        return None;
    }
    let at = usize::try_from(bytes.u32(0x3c)?).ok()?;
    (bytes.slice(at as u64, 4)? == b"PE\0\0").then_some(at)
}

/// Whether the file begins as an image does, or as an object for a processor that there are programs for.
pub(crate) fn is_pe(data: &[u8]) -> bool {
    let bytes = Bytes { data, little: true, wide: true };
    // An object has no magic: its machine, and no optional header.
    let object = || {
        let machine = bytes.u16(0)?;
        let sections = usize::from(bytes.u16(2)?);
        let fits = FILE_HEADER + sections * SECTION <= data.len();
        Some(machine_arch(machine).is_some() && bytes.u16(16)? == 0 && sections > 0 && fits)
    };
    signature(&bytes).is_some() || object() == Some(true)
}

fn machine_arch(machine: u16) -> Option<Arch> {
    match machine {
        0x8664 => Some(Arch::X86_64),
        0xaa64 => Some(Arch::Aarch64),
        0x014c => Some(Arch::I686),
        _ => None,
    }
}

impl<'a> Pe<'a> {
    /// Reads a file for which [`is_pe`] holds.
    ///
    /// # Errors
    /// Which header is cut, or makes no sense.
    pub(crate) fn parse(data: &'a [u8]) -> Result<Pe<'a>, String> {
        let bytes = Bytes { data, little: true, wide: true };
        let cut = |what: &str| format!("{what} is cut: the file has {} bytes", data.len());
        let image = signature(&bytes);
        let header = image.map_or(0, |at| at + 4);
        let word = |at: usize| bytes.u16(header + at).ok_or_else(|| cut("the file header"));
        let machine = word(0)?;
        let arch = machine_arch(machine).unwrap_or(Arch::Machine(machine));
        let (count, optional, flags) = (usize::from(word(2)?), usize::from(word(16)?), word(18)?);
        let symbols = bytes.u32(header + 8).ok_or_else(|| cut("the file header"))? != 0;
        let mut pe = Pe {
            bytes,
            form: match (image, flags & 0x2000) {
                (None, _) => FileKind::Object,
                (Some(_), 0) => FileKind::Program,
                (Some(_), _) => FileKind::Library,
            },
            arch,
            sections: Vec::new(),
            symbols,
            movable: None,
            wide: false,
            imports: None,
        };
        if image.is_some() {
            let at = header + FILE_HEADER;
            let magic = bytes.u16(at).ok_or_else(|| cut("the optional header"))?;
            // The number of directories, and the directory of imports behind that of exports.
            let (directories, table) = match magic {
                0x10b => (92, 104),
                0x20b => (108, 120),
                other => return Err(format!("the optional header has the magic {other:#x}, expected 0x10b or 0x20b")),
            };
            pe.wide = magic == 0x20b;
            pe.movable = bytes.u16(at + 70).map(|flags| flags & 0x40 != 0);
            if table + 8 <= optional && bytes.u32(at + directories).is_some_and(|count| count > 1) {
                pe.imports = bytes.u32(at + table).filter(|address| *address != 0);
            }
        }
        if image.is_some() && count > MOST_SECTIONS {
            return Err(format!("it has {count} sections, expected at most {MOST_SECTIONS}"));
        }
        let table = header + FILE_HEADER + optional;
        for number in 0..count {
            let at = table + number * SECTION;
            let entry = bytes.slice(at as u64, SECTION as u64).ok_or_else(|| cut("the section table"))?;
            let field = |place: usize| bytes.over(entry).u32(place).unwrap_or(0);
            let (address, offset, mut size) = (field(12), field(20), field(16));
            // The file is padded; a section's loaded size may be smaller.
            if image.is_some() && field(8) != 0 {
                size = size.min(field(8));
            }
            let name = entry.get(..8).unwrap_or_default();
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            let data = if offset == 0 { Some(&[][..]) } else { bytes.slice(offset.into(), size.into()) };
            let data = data.ok_or_else(|| cut(&format!("section {number}")))?;
            pe.sections.push(Section { name, address, data });
        }
        Ok(pe)
    }

    /// Returns the bytes from an address of the loaded image on, to the end of its section.
    fn loaded(&self, address: u32) -> Option<&'a [u8]> {
        self.sections.iter().find_map(|section| {
            let at = usize::try_from(address.checked_sub(section.address)?).ok()?;
            section.data.get(at..).filter(|rest| !rest.is_empty())
        })
    }

    /// Returns the functions that the image imports. The table of a damaged file ends where it is damaged.
    pub(crate) fn imports(&self) -> Vec<Import<'a>> {
        let mut found = Vec::new();
        let Some(table) = self.imports.and_then(|address| self.loaded(address)) else { return found };
        for entry in table.chunks_exact(IMPORTS).take(MOST) {
            let field = |at: usize| self.bytes.over(entry).u32(at).unwrap_or(0);
            let (names, library, slots) = (field(0), field(12), field(16));
            let Some(library) = self.loaded(library).and_then(|name| c_string(name, 0)) else { break };
            // Old linkers write the names into the slots only.
            let names = if names == 0 { slots } else { names };
            let Some(names) = self.loaded(names) else { break };
            let width = if self.wide { 8 } else { 4 };
            for name in names.chunks_exact(width) {
                let numbers = Bytes { wide: self.wide, ..self.bytes.over(name) };
                let Some(value) = numbers.word(0).filter(|value| *value != 0) else { break };
                let by_number = value >> (8 * width - 1) == 1;
                let text = || self.loaded(u32::try_from(value).ok()?)?.get(2..).and_then(|name| c_string(name, 0));
                let function = if by_number { None } else { text() };
                found.push(Import { library, function });
                if found.len() >= MOST {
                    return found;
                }
            }
        }
        found
    }
}
