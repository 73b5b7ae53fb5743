//! The section headers of an object, of any class and byte order.

use object::elf;
use object::read::elf::{FileHeader, SectionHeader};

use crate::ObjectError;

/// A section header's fields.
#[derive(Debug, Clone, Copy)]
pub struct Section<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// `sh_type`.
    pub kind: elf::SectionType,
    /// `sh_flags`.
    pub flags: u64,
    /// The offset of the content, in bytes from the start of the object.
    pub offset: usize,
    /// The content; empty for sections without content.
    pub data: &'a [u8],
    /// `sh_link`.
    pub link: u32,
    /// `sh_info`.
    pub info: u32,
}

/// All sections, with the empty first one.
#[derive(Debug, Clone)]
pub struct Sections<'a> {
    /// The offset of the section headers, in bytes from the start of the object.
    pub offset: usize,
    /// The sections by index.
    pub sections: Vec<Section<'a>>,
}

impl<'a> Sections<'a> {
    pub(crate) fn read<Elf: FileHeader>(data: &'a [u8]) -> Result<Self, ObjectError> {
        let damaged = ObjectError::reading("the section headers");
        let header = Elf::parse(data).map_err(ObjectError::reading("the header"))?;
        let endian = header.endian().map_err(damaged)?;
        let table = header.sections(endian, data).map_err(damaged)?;
        let mut sections = Vec::with_capacity(table.len());
        for section in table.iter() {
            let kind = section.sh_type(endian);
            let content = if kind == elf::SHT_NULL { &[] } else { section.data(endian, data).map_err(damaged)? };
            let offset: u64 = section.sh_offset(endian).into();
            // The library reads nothing of an empty section, wherever it is.
            if ![elf::SHT_NULL, elf::SHT_NOBITS].contains(&kind) && offset > data.len() as u64 {
                let (part, problem) = ("the section headers", format!("a section at {offset:#x} is outside the file"));
                return Err(ObjectError::Damaged { part, problem });
            }
            sections.push(Section {
                name: table.section_name(endian, section).map_err(damaged)?,
                kind,
                flags: section.sh_flags(endian).0,
                offset: usize::try_from(offset).unwrap_or(usize::MAX),
                data: content,
                link: section.sh_link(endian),
                info: section.sh_info(endian),
            });
        }
        let offset: u64 = header.e_shoff(endian).into();
        Ok(Sections { offset: usize::try_from(offset).unwrap_or(usize::MAX), sections })
    }

    /// The sections in the order of their indices.
    pub fn iter(&self) -> impl Iterator<Item = &Section<'a>> {
        self.sections.iter()
    }
}
