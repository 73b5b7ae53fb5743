//! The variables that a loader reads, and the effects of preloads, the files that are to be loaded before all others.

use crate::loader::configuration::Kind;
use crate::loader::module::Module;
use crate::loader::tree::TreeFile;

/// The variables of a process that its loader reads. Without variables, only the files decide.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Environment {
    /// `LD_PRELOAD`.
    pub preload: Option<Vec<u8>>,
    /// `LD_LIBRARY_PATH`.
    pub library_path: Option<Vec<u8>>,
    /// Whether `LD_AUDIT` is set to something.
    pub audit: bool,
}

impl Environment {
    /// Returns the files of `LD_PRELOAD` (glibc elf/rtld.c, `handle_preload_list`; musl ldso/dynlink.c,
    /// `load_preload`): between colons and blanks, of which musl knows more kinds.
    pub(super) fn preloads(&self, kind: &Kind) -> impl Iterator<Item = &[u8]> {
        let is_musl = matches!(kind, Kind::Musl { .. });
        let between = move |byte: &u8| match is_musl {
            true => byte.is_ascii_whitespace() || matches!(byte, b':' | 0x0b),
            false => matches!(byte, b':' | b' '),
        };
        self.preload.as_deref().unwrap_or_default().split(between).filter(|name| !name.is_empty())
    }
}

/// A file that is to be loaded before all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preload {
    /// Its name, as written in the variable or the list.
    pub name: Vec<u8>,
    /// Where it is named.
    pub origin: Origin,
    /// The file that the loader finds.
    pub file: Option<TreeFile>,
    /// Its effect on the program.
    pub effect: Effect,
}

/// Where a preload is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The variable `LD_PRELOAD`.
    Variable,
    /// The file `/etc/ld.so.preload`.
    List,
}

/// The effect of a preload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// It is loaded, and its `malloc` serves the program.
    Serves,
    /// It is loaded, and its `malloc`, if it has one, does not serve the program.
    Loaded,
    /// The loader does not find it.
    Missing,
    /// It is for another architecture.
    OtherArchitecture,
    /// It is not a library.
    NoLibrary,
    /// It is for another libc than the program's. Whether the program starts at all is not known.
    OtherLibc,
    /// The loader leaves it out, as the program runs with other rights than its caller.
    Privileged,
    /// The loader's behaviour is unknown, for this reason.
    Unknown(String),
}

/// Whether a library is for the other libc than the one of this loader: it asks for glibc's, or for musl's under one of
/// the names that programs for musl ask for.
pub(super) fn is_for_other_libc(module: &Module, kind: &Kind) -> bool {
    module.needed.iter().any(|name| match kind {
        Kind::Glibc { .. } => name.starts_with(b"libc.musl-") || name == b"libc.so" || name.starts_with(b"ld-musl-"),
        Kind::Musl { .. } => name == b"libc.so.6" || name.starts_with(b"ld-linux") || name.starts_with(b"ld64.so"),
    })
}

/// Whether a file is an ELF file that a loader may load: a shared object or a program, by its type.
pub(super) fn is_loadable(bytes: &[u8]) -> bool {
    let e_type = match (bytes.get(5), bytes.get(16), bytes.get(17)) {
        (Some(2), Some(&high), Some(&low)) => u16::from_be_bytes([high, low]),
        (_, Some(&low), Some(&high)) => u16::from_le_bytes([low, high]),
        _ => 0,
    };
    bytes.starts_with(b"\x7fELF") && matches!(e_type, 2 | 3)
}
