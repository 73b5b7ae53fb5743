//! COFF objects, as compilers for Windows make them: their sections, and their symbols made local in place. (Microsoft,
//! PE Format: "COFF File Header", "Section Table", "COFF Symbol Table".)

use std::ops::Range;

use format::printable;
use object::pe::{
    IMAGE_FILE_MACHINE_AMD64, IMAGE_SCN_LNK_COMDAT, IMAGE_SIZEOF_SYMBOL, IMAGE_SYM_CLASS_STATIC, ImageSymbol,
};
use object::read::coff::{CoffFile, CoffHeader};
use object::{Object as _, ObjectSection, ObjectSymbol, SectionFlags};

use crate::ObjectError;

/// The offset of the storage class in a symbol.
const STORAGE_CLASS: usize = std::mem::offset_of!(ImageSymbol, storage_class);

/// The beginning of the name of a pointer that compilers make for the address of another symbol (mingw-w64). It is the
/// same in every object, and linkers take one of them.
const POINTER: &[u8] = b".refptr.";

/// A COFF object for x86_64.
#[derive(Debug)]
pub struct Coff<'a> {
    bytes: &'a [u8],
    file: CoffFile<'a>,
}

impl<'a> Coff<'a> {
    /// Reads an object.
    ///
    /// # Errors
    /// The bytes are not such an object, or are damaged.
    pub fn parse(bytes: &'a [u8]) -> Result<Coff<'a>, ObjectError> {
        let file: CoffFile<'_> = CoffFile::parse(bytes).map_err(ObjectError::reading("the COFF object"))?;
        let machine = file.coff_header().machine();
        match machine == IMAGE_FILE_MACHINE_AMD64 {
            true => Ok(Coff { bytes, file }),
            false => Err(ObjectError::Machine { found: format!("the COFF machine {:#x}", machine.0) }),
        }
    }

    /// Returns the ranges of the contents of the sections with that name.
    ///
    /// # Errors
    /// A section's name or content cannot be read.
    pub fn sections(&self, name: &str) -> Result<Vec<Range<usize>>, ObjectError> {
        let damaged = ObjectError::reading("the section headers");
        let mut found = Vec::new();
        for section in self.file.sections() {
            if section.name_bytes().map_err(damaged)? == name.as_bytes() {
                let size = section.data().map_err(damaged)?.len();
                let (start, _) = section.file_range().unwrap_or_default();
                let start = usize::try_from(start).unwrap_or(usize::MAX);
                found.push(start..start.saturating_add(size));
            }
        }
        Ok(found)
    }

    /// Returns the names of the symbols that other objects can refer to.
    ///
    /// # Errors
    /// A symbol's name cannot be read.
    pub fn exports(&self) -> Result<Vec<&[u8]>, ObjectError> {
        let defined = self.file.symbols().filter(|symbol| symbol.is_definition() && symbol.is_global());
        defined.map(|symbol| symbol.name_bytes().map_err(ObjectError::reading("the symbols"))).collect()
    }

    /// Returns a copy in which every defined symbol is local if `keep` returns false for it.
    ///
    /// # Errors
    /// A symbol that has to become local names a section that linkers take from one of several objects, or it is a
    /// common symbol.
    pub fn localised(&self, keep: &dyn Fn(&[u8]) -> bool) -> Result<Vec<u8>, ObjectError> {
        let damaged = ObjectError::reading("the symbols");
        let table = self.file.coff_header().pointer_to_symbol_table() as usize;
        let mut localised = self.bytes.to_vec();
        for symbol in self.file.symbols() {
            let name = symbol.name_bytes().map_err(damaged)?;
            if !symbol.is_global() || symbol.is_undefined() || keep(name) || name.starts_with(POINTER) {
                continue;
            }
            if symbol.is_common() {
                return Err(ObjectError::Common { symbol: printable(name) });
            }
            // A weak reference is defined elsewhere, or nowhere.
            let Some(section) = symbol.section_index() else { continue };
            if let SectionFlags::Coff { characteristics } =
                self.file.section_by_index(section).map_err(damaged)?.flags()
                && characteristics.contains(IMAGE_SCN_LNK_COMDAT)
            {
                return Err(ObjectError::Comdat { symbol: printable(name) });
            }
            localised[table + symbol.index().0 * IMAGE_SIZEOF_SYMBOL + STORAGE_CLASS] = IMAGE_SYM_CLASS_STATIC.0;
        }
        Ok(localised)
    }
}
