//! What speaks for an allocator: symbols, and constants that survive `strip`. The graft's note is read in
//! [`crate::note`].

pub(crate) mod catalogue;
pub(crate) mod constants;
pub(crate) mod families;
pub(crate) mod symbols;
