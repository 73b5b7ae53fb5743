//! Relocatable objects, bytes in and bytes out: ELF and, for donors for Windows, COFF. The build of the donors and the
//! plan of a graft both use this crate.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `symbols` | the machine of an object and its symbols, read over the `object` crate's low level |
//! | `sections` | the section headers of an object |
//! | [`arm`] | ARM's build attributes |
//! | `localise` | makes defined symbols local: the last step of a donor's build |
//! | `merge` | makes two objects one, for `allograft emit` |
//! | `coff` | COFF objects: sections, symbols made local |
//! | `layout` | the offsets of fields in headers, symbols and relocations, for `localise` and `merge` |
//! | `error` | the errors |

#![forbid(unsafe_code)]

pub mod arm;
mod coff;
mod error;
mod layout;
mod localise;
mod merge;
mod sections;
mod symbols;

pub use coff::Coff;
pub use error::ObjectError;
pub use localise::localise;
pub use merge::merge;
pub use sections::{Section, Sections};
pub use symbols::{Binding, Machine, Object, Symbol, Visibility, symbols};
