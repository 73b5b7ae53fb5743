//! An independent reader: which allocator a file carries, and whether a graft is whole.
//!
//! It shares no code with the crates that make grafts, not even names and numbers, so that a mistake there is not
//! repeated here. It reads only: what links and runs programs is the crate `trial`.
//!
//! | module | what lives there |
//! | --- | --- |
//! | `subject` | what is asked of each kind of file: executables, archives, who serves `malloc` |
//! | `evidence` | what gives an allocator away: symbols, constants, families of names |
//! | `code` | the machine code behind `malloc` and its like, as far as it shows whose it is |
//! | `transplanted` | the note on the entry points of an executable, checked against the code |
//! | `note` | the notes of a graft |
//! | [`verify`] | the checks of a graft |
//! | `report` | what [`inspect`] says of a file |
//! | `facts` | what of a program matters for a graft, beside what allocates in it |
//! | `archive`, `library` | static archives and the objects in them |
//! | `elf` | ELF files |
//! | `bytes` | numbers and texts in bytes |
//! | `error` | why a file cannot be read |

mod archive;
mod bytes;
mod code;
mod elf;
mod error;
mod evidence;
mod facts;
mod library;
mod note;
mod report;
mod subject;
mod transplanted;
pub mod verify;

pub use error::InspectError;
pub use report::{
    Allocator, Arch, Evidence, Facts, Graft, Hook, Kind, Libc, Link, Relro, Report, Source, Strings, Way, name,
};

/// Says which allocator is in a file: an ELF executable, shared object or relocatable object, or a static archive.
///
/// Never guesses: what is not shown by the file itself is `unknown`.
///
/// # Errors
/// When the file is of another kind, or too damaged to be read.
pub fn inspect(bytes: &[u8]) -> Result<Report, InspectError> {
    if archive::is_archive(bytes) {
        subject::library::inspect(bytes)
    } else if bytes.starts_with(b"\x7fELF") {
        subject::image::inspect(bytes)
    } else {
        let start = bytes.get(..8).unwrap_or(bytes);
        let found =
            if start.is_empty() { "nothing: it is empty".to_owned() } else { format!("`{}`", bytes::printable(start)) };
        Err(InspectError::NotRecognised { found })
    }
}
