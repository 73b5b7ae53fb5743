//! Inspects each kind of file: one ELF file, or an archive of many.

mod allocators;
mod confirmation;
pub(crate) mod image;
pub(crate) mod library;
pub(crate) mod windows;
