//! Evidence of an allocator: symbols, and constants that survive `strip`. [`crate::note`] reads the graft's note.

pub(crate) mod constants;
pub(crate) mod families;
pub(crate) mod symbols;
