//! The formats that the parts of allograft share. No files, no processes, nothing about how a graft is made.
//!
//! The crate `inspector` does not use this one: it checks grafts by its own copy, written from the pages in `docs`.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `arch` | the architectures with donors |
//! | `compressed` | files that are kept compressed in a program |
//! | `kind` | the kinds of donors: for the malloc family or for string functions |
//! | `linked` | the kinds of linked files: programs, loaders, dynamic programs, libraries |
//! | [`family`] | the names of the malloc family that a donor defines |
//! | [`note`] | the note that names the donor: its layout, reading and writing it |
//! | [`options`] | the block of options in an allocator: its layout, reading and writing it |
//! | [`entries`] | the note on the entry points of an executable, and the numbers in it |
//! | [`merged`] | the note on a dynamic program that a donor was merged into |
//! | [`needed`] | the note on a dynamic program that loads its donor as a shared object |
//! | [`windows`] | sections and names of a donor for Windows |
//! | `string_function` | the string functions that an executable's graft redirects, and their numbers |
//! | [`parameters`] | the parameters that an executable's graft writes for the donor's start |
//! | [`sealed`] | the ranges that a merged donor makes read-only when it starts |
//! | `printable` | bytes of a file as text for messages |

#![forbid(unsafe_code)]

mod arch;
mod compressed;
pub mod entries;
pub mod family;
mod kind;
mod linked;
pub mod merged;
pub mod needed;
pub mod note;
pub mod options;
pub mod parameters;
mod printable;
pub mod sealed;
mod string_function;
pub mod windows;

pub use arch::Arch;
pub use compressed::Compressed;
pub use entries::Role;
pub use kind::{DEFAULT_DONORS, DonorKind};
pub use linked::{LOADER, Linked, Marks};
pub use note::{Note, NoteError};
pub use options::{DonorOption, OptionsError};
pub use printable::printable;
pub use string_function::StringFunction;
