//! The pointers in a program, after its loader has changed them.

use std::collections::HashMap;

use crate::elf::Elf;
use crate::report::Arch;
use crate::tables::Tables;

const R_X86_64_RELATIVE: u32 = 8;

/// The pointers of a program whose values do not depend on other files.
pub(crate) struct Pointers<'e, 'a> {
    elf: &'e Elf<'a>,
    /// By the place that a relocation changes: the address that it writes. `None` if that is a symbol's.
    relocated: HashMap<u64, Option<u64>>,
}

impl<'e, 'a> Pointers<'e, 'a> {
    /// Reads the relocations of a program.
    pub(crate) fn new(elf: &'e Elf<'a>) -> Self {
        let relocations = match elf.arch {
            Arch::X86_64 => Tables::new(elf).relocations().unwrap_or_default(),
            _ => Vec::new(),
        };
        let written = |kind, addend: i64| (kind == R_X86_64_RELATIVE).then_some(addend.cast_unsigned());
        let relocated = relocations.into_iter().map(|entry| (entry.place, written(entry.kind, entry.addend))).collect();
        Pointers { elf, relocated }
    }

    /// Returns the address in the pointer at `place`. `None` if another file's symbol decides it, or if it is not
    /// known.
    pub(crate) fn target(&self, place: u64) -> Option<u64> {
        if let Some(written) = self.relocated.get(&place) {
            return *written;
        }
        let bytes = self.elf.at_address(place).filter(|_| self.elf.arch == Arch::X86_64)?;
        bytes.first_chunk().map(|word| u64::from_le_bytes(*word)).filter(|address| *address != 0)
    }
}
