//! The pointers in a program, after its loader has changed them.

use std::collections::HashMap;

use crate::elf::Elf;
use crate::report::Arch;
use crate::tables::Tables;

/// The relocation that adds the address at which the program is loaded: R_X86_64_RELATIVE, R_AARCH64_RELATIVE. `None`
/// if the pointers of such programs are not read.
fn relative(arch: Arch) -> Option<u32> {
    match arch {
        Arch::X86_64 => Some(8),
        Arch::Aarch64 => Some(1027),
        _ => None,
    }
}

/// The pointers of a program whose values do not depend on other files.
pub(crate) struct Pointers<'e, 'a> {
    elf: &'e Elf<'a>,
    /// By the place that a relocation changes: the address that it writes. `None` if that is a symbol's.
    relocated: HashMap<u64, Option<u64>>,
}

impl<'e, 'a> Pointers<'e, 'a> {
    /// Reads the relocations of a program.
    pub(crate) fn new(elf: &'e Elf<'a>) -> Self {
        let relative = relative(elf.arch);
        let relocations = relative.and_then(|_| Tables::new(elf).relocations()).unwrap_or_default();
        let written = |kind, addend: i64| (Some(kind) == relative).then_some(addend.cast_unsigned());
        let relocated = relocations.into_iter().map(|entry| (entry.place, written(entry.kind, entry.addend))).collect();
        Pointers { elf, relocated }
    }

    /// Returns the address in the pointer at `place`. `None` if another file's symbol decides it, or if it is not
    /// known.
    pub(crate) fn target(&self, place: u64) -> Option<u64> {
        if let Some(written) = self.relocated.get(&place) {
            return *written;
        }
        let bytes = self.elf.at_address(place).filter(|_| relative(self.elf.arch).is_some())?;
        bytes.first_chunk().map(|word| u64::from_le_bytes(*word)).filter(|address| *address != 0)
    }
}
