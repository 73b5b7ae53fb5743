//! Sizes and offsets, in bytes, that differ between ELF32 and ELF64 (gABI, chapter 4). `e_type` to `e_version`,
//! `sh_name`, `sh_type` and `sh_flags` are at the same places in both.

use crate::Object;

/// The sizes and offsets of one class.
pub(crate) struct Layout {
    /// The size of the file's header, and the offsets of its fields.
    pub(crate) header: usize,
    pub(crate) e_shoff: usize,
    pub(crate) e_shnum: usize,
    pub(crate) e_shstrndx: usize,
    /// The size of a symbol, and the offsets of its fields. `st_name` is first in both classes.
    pub(crate) symbol: usize,
    pub(crate) st_info: usize,
    pub(crate) st_other: usize,
    pub(crate) st_shndx: usize,
    /// The size of a section header, and the offsets of its fields.
    pub(crate) section: usize,
    pub(crate) sh_offset: usize,
    pub(crate) sh_size: usize,
    pub(crate) sh_link: usize,
    pub(crate) sh_info: usize,
    pub(crate) sh_addralign: usize,
    /// The size of `sh_flags`, `sh_size` and other fields as large as an address.
    pub(crate) word: usize,
    /// The size of a relocation without addend and of one with.
    pub(crate) rel: usize,
    pub(crate) rela: usize,
}

const ELF64: Layout = Layout {
    header: 64,
    e_shoff: 40,
    e_shnum: 60,
    e_shstrndx: 62,
    symbol: 24,
    st_info: 4,
    st_other: 5,
    st_shndx: 6,
    section: 64,
    sh_offset: 24,
    sh_size: 32,
    sh_link: 40,
    sh_info: 44,
    sh_addralign: 48,
    word: 8,
    rel: 16,
    rela: 24,
};

const ELF32: Layout = Layout {
    header: 52,
    e_shoff: 32,
    e_shnum: 48,
    e_shstrndx: 50,
    symbol: 16,
    st_info: 12,
    st_other: 13,
    st_shndx: 14,
    section: 40,
    sh_offset: 16,
    sh_size: 20,
    sh_link: 24,
    sh_info: 28,
    sh_addralign: 32,
    word: 4,
    rel: 8,
    rela: 12,
};

pub(crate) const SH_TYPE: usize = 4;
pub(crate) const SH_FLAGS: usize = 8;

impl Layout {
    pub(crate) fn for_object(object: &Object<'_>) -> &'static Layout {
        if object.machine.bits == 64 { &ELF64 } else { &ELF32 }
    }

    /// Reads the symbol number of a relocation. `r_info` is the second word of the entry, and the number is its upper
    /// half, in ELF32 its upper 24 bits.
    pub(crate) fn symbol_of(&self, entry: &[u8]) -> u32 {
        match self.word {
            8 => word(entry, 12),
            _ => word(entry, 4) >> 8,
        }
    }

    /// Writes a symbol number into a relocation. In ELF32 it has to fit into 24 bits.
    pub(crate) fn set_symbol_of(&self, entry: &mut [u8], number: u32) {
        let (at, value) = match self.word {
            8 => (12, number),
            _ => (4, number << 8 | word(entry, 4) & 0xff),
        };
        entry[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
}

/// The four bytes at `at`; 0 beyond the end.
pub(crate) fn word(data: &[u8], at: usize) -> u32 {
    data.get(at..at + 4).map_or(0, |bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}
