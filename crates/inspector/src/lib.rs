//! An independent reader: which allocator a file carries, and whether a graft is intact.
//!
//! It shares no code with the crates that make grafts, not even names and numbers, so that a mistake there is not
//! repeated here. Only `known` is shared: it describes other people's allocators, not grafts. It only reads; the crate
//! `trial` links and runs programs.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `subject` | inspects each kind of file: executables, archives, files of Windows |
//! | `evidence` | evidence of an allocator: symbols, constants, families of names |
//! | `code` | the machine code behind `malloc` and its like, as evidence of its owner |
//! | `entry_points` | the note on the entry points of an executable, checked against the code |
//! | `redirected` | the addresses of a donor in such an executable, for profilers |
//! | `note` | the notes of a graft |
//! | [`verify`] | the checks of a graft |
//! | `report` | the result of [`inspect`] |
//! | `loader` | follows a dynamic loader to the library whose `malloc` a program is bound to |
//! | `facts` | facts about a program, beside its allocators, that matter for a graft |
//! | `archive`, `library` | static archives and the objects in them |
//! | `elf` | ELF files |
//! | `tables` | the tables of a dynamic program, as its loader reads them |
//! | `pointers` | the pointers in a program, after its loader has changed them |
//! | `pe` | files of Windows: images and COFF objects |
//! | `bytes` | numbers and texts in bytes |
//! | `error` | errors of the reader |

mod archive;
mod bytes;
mod code;
mod elf;
mod entry_points;
mod error;
mod evidence;
mod facts;
mod library;
mod loader;
mod note;
mod pe;
mod pointers;
mod redirected;
mod report;
mod subject;
mod tables;
pub mod verify;

pub use error::InspectError;
pub use loader::{Effect, Environment, Loaded, Loader, Mapped, Origin, Preload, ProgramFile, Tree, TreeFile, preloads};
pub use redirected::{Redirected, redirected};
pub use report::{
    Allocator, Arch, Evidence, Facts, Graft, GraftMethod, Hook, Kind, Libc, Link, Relro, Report, Source, Strings, name,
};

/// Finds the allocator in a file: an ELF executable, shared object or relocatable object, or a static archive. In files
/// of Windows it finds donors only.
///
/// Never guesses: an allocator that the file itself does not prove is `unknown`.
///
/// # Errors
/// The file is of a different kind, or too damaged to be read.
pub fn inspect(bytes: &[u8]) -> Result<Report, InspectError> {
    if archive::is_archive(bytes) {
        subject::library::inspect(bytes)
    } else if bytes.starts_with(b"\x7fELF") {
        subject::image::inspect(bytes)
    } else if pe::is_pe(bytes) {
        subject::windows::inspect(bytes)
    } else {
        let start = bytes.get(..8).unwrap_or(bytes);
        let found =
            if start.is_empty() { "nothing: it is empty".to_owned() } else { format!("`{}`", bytes::printable(start)) };
        Err(InspectError::NotRecognised(found))
    }
}
