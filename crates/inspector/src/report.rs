//! The result for a file: the fields of one `files[]` entry of `inspect --json`, except the path. The document is this
//! type, and docs/json.md is made from it and its comments, so that code, document and page agree.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

/// The result of an inspection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The kind of file.
    pub kind: Kind,
    /// The processor architecture.
    pub arch: Arch,
    /// How an executable is linked. `None` for other files.
    pub link: Option<Link>,
    /// The C library inside, or the one that is loaded at run time.
    pub libc: Libc,
    /// The allocator that serves `malloc`.
    pub malloc: Allocator,
    /// The allocator of the language's own blocks (Rust's `#[global_allocator]`, Go's runtime), if it differs from
    /// `malloc`'s. One of the program's own cannot be seen in a program without symbols.
    pub language_allocator: Option<Allocator>,
    /// Whether the string functions are the C library's own.
    pub strings: Strings,
    /// The evidence, where the string functions are allograft's.
    pub strings_evidence: Vec<Evidence>,
    /// The C library's release, or a bound of it: `2.36`, `>=2.34`.
    pub libc_version: Option<String>,
    /// The allocator of the C library's own blocks, if a different one serves `malloc`: such a program still contains
    /// musl's allocator, and calls it.
    pub libc_allocator: Option<Allocator>,
    /// Further facts that matter for a graft.
    pub facts: Facts,
    /// Whether and how the file's allocator can be replaced.
    pub graft: Graft,
}

/// Further facts that matter for a graft. `None` where one does not apply or is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The stack size in bytes of a thread for which the program sets none: of musl programs, from `PT_GNU_STACK`.
    pub thread_stack: Option<u64>,
    /// The function that musl's `fork` calls to keep the allocator consistent in the child.
    pub malloc_atfork: Hook,
    /// The parts that are read-only after relocation.
    pub relro: Option<Relro>,
    /// Whether it can be loaded at any address.
    pub position_independent: Option<bool>,
    /// Whether the stack may be executed.
    pub executable_stack: Option<bool>,
    /// Whether there is a symbol table.
    pub symbols: bool,
    /// Whether there are section headers.
    pub sections: bool,
}

/// `__malloc_atfork`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Hook {
    /// It is there, and does something.
    Real,
    /// It does nothing: a child of a program with threads may hang.
    Empty,
    /// The file has no such function.
    None,
    /// It is unknown.
    Unknown,
}

/// `PT_GNU_RELRO`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Relro {
    /// Everything but lazily bound functions.
    Partial,
    /// Everything.
    Full,
    /// Nothing.
    None,
}

/// Whether and how a file's allocator can be replaced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Graft {
    /// The way to replace it.
    pub way: GraftMethod,
    /// The reason, as a sentence.
    pub detail: String,
}

/// A way to replace a file's allocator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GraftMethod {
    /// `allograft graft` takes this file.
    Graft,
    /// The program has to be linked again, against a grafted libc.
    Relink,
    /// The allocator has to be loaded before libc's when the program starts.
    Preload,
    /// There is nothing to replace.
    None,
    /// It is unknown.
    Unknown,
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A static archive.
    Archive,
    /// A relocatable object.
    Object,
    /// A program.
    Executable,
    /// A shared object.
    Shared,
}

/// How an executable is linked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Link {
    /// At a fixed address, without libraries.
    Static,
    /// Position-independent, without libraries.
    StaticPie,
    /// With libraries that are loaded when it starts.
    Dynamic,
}

/// The C library of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Libc {
    /// musl.
    Musl,
    /// The GNU C library.
    Glibc,
    /// Windows' Universal C Runtime.
    Ucrt,
    /// Windows' older C library, `msvcrt.dll`.
    Msvcrt,
    /// The file needs no C library.
    None,
    /// It is unknown.
    Unknown,
}

/// The owner of the string functions (memcpy, strlen and similar).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Strings {
    /// The C library's own.
    Stock,
    /// allograft's.
    Grafted,
    /// It is unknown.
    Unknown,
}

/// An allocator, and the evidence for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Allocator {
    /// A donor's name, another allocator's (`mallocng`, `jemalloc`, ...: see [`name`]), `none` or `unknown`.
    pub name: String,
    /// Its version, where the evidence carries one.
    pub version: Option<String>,
    /// The evidence, strongest first; other observations follow.
    pub evidence: Vec<Evidence>,
    /// The file that contains it: the library that a dynamic program is bound to, as a path in the root. Null if the
    /// inspected file contains it, or if that is unknown.
    pub file: Option<String>,
}

impl Allocator {
    /// Returns the allocator `name` without a version, with this evidence.
    pub(crate) fn named(name: &str, evidence: Vec<Evidence>) -> Self {
        Allocator { name: name.to_owned(), version: None, evidence, file: None }
    }
}

/// Names of allocators that are not donors.
pub mod name {
    /// musl's, since 1.2.1.
    pub const MALLOCNG: &str = "mallocng";
    /// musl's until 1.2.0, still available as an option.
    pub const OLDMALLOC: &str = "oldmalloc";
    /// The GNU C library's.
    pub const GLIBC: &str = "glibc";
    /// The Go runtime's.
    pub const GO: &str = "go";
    /// The zig standard library's.
    pub const ZIG: &str = "zig";
    /// That of Windows' Universal C Runtime.
    pub const UCRT: &str = "ucrt";
    /// That of Windows' older C library.
    pub const MSVCRT: &str = "msvcrt";
    /// There is no allocator in the file.
    pub const NONE: &str = "none";
    /// It is unknown.
    pub const UNKNOWN: &str = "unknown";
    /// Whether a report may have the name without a note: one of these, or that of an allocator that has marks.
    pub fn is_reported(name: &str) -> bool {
        [MALLOCNG, OLDMALLOC, GLIBC, GO, ZIG, UCRT, MSVCRT, NONE, UNKNOWN].contains(&name)
            || known::ROWS.iter().any(|row| row.name == name && row.is_reported())
    }

    /// Whether `name` is a build or a line of releases of `allocator`, as `mimalloc3`, `mimalloc-secure` and
    /// `hardened-light` are.
    pub(crate) fn is_variant(name: &str, allocator: &str) -> bool {
        name.strip_prefix(allocator).is_some_and(|rest| {
            let number = rest.trim_start_matches(|letter: char| letter.is_ascii_digit());
            number.is_empty() || number.starts_with('-')
        })
    }
}

/// One observation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Its source.
    pub source: Source,
    /// A description of it.
    pub detail: String,
}

impl Evidence {
    pub(crate) fn new(source: Source, detail: impl Into<String>) -> Self {
        Evidence { source, detail: detail.into() }
    }
}

/// The sources of evidence, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The note that a graft leaves.
    Note,
    /// The dynamic loader's choice in the root: the files that it loads, and the one that it binds `malloc` to.
    Loader,
    /// Names of symbols, or of the libraries and the loader of a dynamic file.
    Symbols,
    /// Tables and texts that survive `strip`.
    Constants,
    /// The behaviour of the machine code.
    Code,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Source::Note => "note",
            Source::Loader => "loader",
            Source::Symbols => "symbols",
            Source::Constants => "constants",
            Source::Code => "code",
        })
    }
}

/// A processor architecture. Not the crate `format`'s: this reader shares nothing with the code that makes grafts, and
/// also names architectures without donors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Arch {
    /// EM_X86_64.
    X86_64,
    /// EM_AARCH64.
    Aarch64,
    /// EM_386.
    I686,
    /// EM_ARM.
    Arm,
    /// EM_RISCV, 64-bit.
    Riscv64,
    /// EM_RISCV, 32-bit.
    Riscv32,
    /// EM_PPC64.
    PowerPc64,
    /// EM_S390.
    S390x,
    /// EM_LOONGARCH.
    LoongArch64,
    /// Any other `e_machine`.
    Machine(u16),
    /// An archive whose members are for several architectures.
    Mixed,
    /// An archive without ELF members.
    None,
}

impl Arch {
    /// Returns the architecture of an `e_machine` and a file class.
    pub(crate) fn new(machine: u16, wide: bool) -> Self {
        match (machine, wide) {
            (62, _) => Arch::X86_64,
            (183, _) => Arch::Aarch64,
            (3, _) => Arch::I686,
            (40, _) => Arch::Arm,
            (243, true) => Arch::Riscv64,
            (243, false) => Arch::Riscv32,
            (21, _) => Arch::PowerPc64,
            (22, _) => Arch::S390x,
            (258, _) => Arch::LoongArch64,
            (other, _) => Arch::Machine(other),
        }
    }

    /// Returns the name, as in target triples.
    pub fn name(self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
            Arch::I686 => "i686",
            Arch::Arm => "arm",
            Arch::Riscv64 => "riscv64",
            Arch::Riscv32 => "riscv32",
            Arch::PowerPc64 => "powerpc64",
            Arch::S390x => "s390x",
            Arch::LoongArch64 => "loongarch64",
            Arch::Mixed => "mixed",
            Arch::None => "none",
            Arch::Machine(number) => return Cow::Owned(format!("e_machine {number}")),
        })
    }
}

impl std::fmt::Display for Arch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl Serialize for Arch {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name())
    }
}
