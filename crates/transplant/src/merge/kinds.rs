//! The numbers of relocations, which each architecture has of its own (System V ABI, AMD64 supplement, 4.4; ELF for the
//! Arm 64-bit Architecture, 5.7).

use format::Arch;

/// The relocations that a merge can handle. The rest is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kinds {
    /// A word that becomes base + addend.
    pub(super) relative: u32,
    /// A symbol's address and an addend.
    pub(super) absolute: u32,
    /// A symbol's address, for data and for calls.
    pub(super) glob_dat: u32,
    pub(super) jump_slot: u32,
    /// A distance from the thread pointer; a distance in a module's thread-local storage; a descriptor of either.
    pub(super) tpoff: u32,
    pub(super) dtpoff: u32,
    pub(super) tlsdesc: u32,
    /// The other kinds that linkers put into programs, which a merge leaves unchanged: R_ARCH_NONE, copies of
    /// libraries' variables, numbers of modules, functions that choose an address.
    pub(super) kept: &'static [u32],
}

const X86_64: Kinds = Kinds {
    relative: 8,
    absolute: 1,
    glob_dat: 6,
    jump_slot: 7,
    tpoff: 18,
    dtpoff: 17,
    tlsdesc: 36,
    kept: &[0, 5, 16, 37],
};

const AARCH64: Kinds = Kinds {
    relative: 1027,
    absolute: 257,
    glob_dat: 1025,
    jump_slot: 1026,
    tpoff: 1030,
    dtpoff: 1029,
    tlsdesc: 1031,
    kept: &[0, 256, 1024, 1028, 1032],
};

impl Kinds {
    /// The numbers of an architecture; `None` if dynamic programs for it are not merged.
    pub(super) fn for_arch(arch: Arch) -> Option<Kinds> {
        match arch {
            Arch::X86_64 => Some(X86_64),
            Arch::Aarch64 => Some(AARCH64),
            _ => None,
        }
    }
}
