//! The section headers of an object, of any class and byte order.

use object::elf;
use object::read::elf::{FileHeader, SectionHeader};

use super::ObjectError;

/// A section header's fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Section<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) kind: elf::SectionType,
    pub(crate) flags: u64,
    /// Of the content, in bytes from the start of the object.
    pub(crate) offset: usize,
    /// Of the content; empty for sections without any.
    pub(crate) data: &'a [u8],
    pub(crate) link: u32,
    pub(crate) info: u32,
}

/// All sections, the empty first one included.
#[derive(Debug, Clone)]
pub(crate) struct Sections<'a> {
    /// Of the section headers, in bytes from the start of the object.
    pub(crate) offset: usize,
    pub(crate) sections: Vec<Section<'a>>,
}

impl<'a> Sections<'a> {
    pub(super) fn read<Elf: FileHeader>(data: &'a [u8]) -> Result<Self, ObjectError> {
        let damaged = ObjectError::reading("the section headers");
        let header = Elf::parse(data).map_err(ObjectError::reading("the header"))?;
        let endian = header.endian().map_err(damaged)?;
        let table = header.sections(endian, data).map_err(damaged)?;
        let mut sections = Vec::with_capacity(table.len());
        for section in table.iter() {
            let kind = section.sh_type(endian);
            let content = if kind == elf::SHT_NULL { &[] } else { section.data(endian, data).map_err(damaged)? };
            let offset: u64 = section.sh_offset(endian).into();
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

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Section<'a>> {
        self.sections.iter()
    }
}
