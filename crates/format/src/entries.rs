//! The note on the entry points of an executable that was grafted after it was linked (docs/note.md): the functions of
//! the program that are redirected to the donor's. The C side is `struct transplant_entries` in
//! `crates/donors/transplant/parameters.h`.
//!
//! Entries of two 32-bit numbers follow a note's head: the distance from the entry's own place to the function, and the
//! function's number, [`Role::number`] or [`crate::StringFunction::number`]. Unused entries are 0.

use std::fmt;

/// The note's type.
pub const NOTE_TYPE: u32 = 4;
/// The size of an entry in bytes.
pub const ENTRY: usize = 8;
/// The number of entries of a donor without string functions, and of any donor's entries for the malloc family.
pub const ROOM: usize = 24;
/// The number of entries of a donor with string functions.
pub const ROOM_WITH_STRINGS: usize = 64;

/// The role of an entry point: a function of the malloc family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// `malloc`
    Malloc,
    /// `free`
    Free,
    /// `calloc`
    Calloc,
    /// `realloc`
    Realloc,
    /// `aligned_alloc`
    AlignedAlloc,
    /// `malloc_usable_size`
    UsableSize,
    /// `__malloc_allzerop`: tells calloc that it need not clear a block
    IsZero,
    /// `__malloc_atfork`
    ForkHook,
    /// `__malloc_donate`: gives the loader's leftover memory to the allocator; only in the dynamic loader
    Donate,
}

impl Role {
    /// The function's name in musl.
    pub fn name(self) -> &'static str {
        match self {
            Role::Malloc => "malloc",
            Role::Free => "free",
            Role::Calloc => "calloc",
            Role::Realloc => "realloc",
            Role::AlignedAlloc => "aligned_alloc",
            Role::UsableSize => "malloc_usable_size",
            Role::IsZero => "__malloc_allzerop",
            Role::ForkHook => crate::family::FORK_HOOK,
            Role::Donate => "__malloc_donate",
        }
    }

    /// Its number in the note.
    pub fn number(self) -> u32 {
        self as u32 + 1
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
