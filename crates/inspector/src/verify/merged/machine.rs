//! The architecture's part of a merged program: the numbers of relocations, the pages, and the place of thread-local
//! storage.

use crate::elf::{Elf, Segment};
use crate::report::Arch;

/// The numbers and rules of an architecture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Machine {
    pub(super) relative: u32,
    pub(super) absolute: u32,
    pub(super) glob_dat: u32,
    pub(super) jump_slot: u32,
    pub(super) tpoff: u32,
    /// The relocations whose addend is a place in the program's thread-local storage: offsets in a module, from the
    /// thread pointer, and descriptors.
    pub(super) of_storage: [u32; 3],
    /// The largest page of the system in bytes, which parts with other permissions do not share.
    pub(super) page: u64,
    /// Whether storage ends at the thread pointer (variant II); else it begins 16 bytes behind it (variant I; Drepper,
    /// ELF Handling For Thread-Local Storage, 3).
    ends_at_pointer: bool,
}

/// System V ABI, AMD64 supplement, 4.4.
const X86_64: Machine = Machine {
    relative: 8,
    absolute: 1,
    glob_dat: 6,
    jump_slot: 7,
    tpoff: 18,
    of_storage: [17, 18, 36],
    page: 4096,
    ends_at_pointer: true,
};
/// ELF for the Arm 64-bit Architecture, 5.7.
const AARCH64: Machine = Machine {
    relative: 1027,
    absolute: 257,
    glob_dat: 1025,
    jump_slot: 1026,
    tpoff: 1030,
    of_storage: [1029, 1030, 1031],
    page: 0x1_0000,
    ends_at_pointer: false,
};
/// The size of the two words at the thread pointer, in variant I.
const HEAD: u64 = 16;

impl Machine {
    /// Returns the numbers of the file's architecture. Others have no merged programs, so any numbers will do.
    pub(super) fn for_file(elf: &Elf<'_>) -> Machine {
        if elf.arch == Arch::Aarch64 { AARCH64 } else { X86_64 }
    }

    /// The distance from the thread pointer to a program's storage, by the storage's size, address and alignment, as
    /// the loader lays it out.
    pub(super) fn distance(&self, storage: &Segment<'_>) -> u64 {
        let mask = storage.align.max(1) - 1;
        match self.ends_at_pointer {
            true => {
                let padding = 0_u64.wrapping_sub(storage.memory).wrapping_sub(storage.address) & mask;
                0_u64.wrapping_sub(storage.memory).wrapping_sub(padding)
            }
            false => HEAD.wrapping_add(storage.address.wrapping_sub(HEAD) & mask),
        }
    }
}
