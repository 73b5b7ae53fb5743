//! Inspects each kind of file: one ELF file, or an archive of many.

pub(crate) mod image;
pub(crate) mod library;
mod served;
