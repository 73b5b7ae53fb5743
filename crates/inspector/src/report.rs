//! What is said about a file: the fields of one `files[]` entry of `inspect --json`, but for the path.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

/// Everything that is known about a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// What kind of file it is.
    pub kind: Kind,
    /// For which processor.
    pub arch: Arch,
    /// How an executable is linked; nothing for other files.
    pub link: Option<Link>,
    /// Whose C library is inside, or is asked for at run time.
    pub libc: Libc,
    /// What serves `malloc`.
    pub malloc: Allocator,
    /// What serves the language's own blocks (Rust's `#[global_allocator]`, Go's runtime), if that is something else.
    pub language_allocator: Option<Allocator>,
    /// Whether the string functions are the C library's own.
    pub strings: Strings,
}

/// What kind of file it is.
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

/// Whose C library.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Libc {
    /// musl.
    Musl,
    /// The GNU C library.
    Glibc,
    /// There is none.
    None,
    /// It cannot be told.
    Unknown,
}

/// Whose string functions (memcpy, strlen and their kin).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Strings {
    /// The C library's own.
    Stock,
    /// Ours.
    Grafted,
    /// It cannot be told.
    Unknown,
}

/// An allocator, and how it is known that it is this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Allocator {
    /// A donor's name, or one of the names in [`name`].
    pub name: String,
    /// Its version, where the evidence carries one.
    pub version: Option<String>,
    /// What speaks for it, strongest first; what else was seen comes after.
    pub evidence: Vec<Evidence>,
}

impl Allocator {
    /// `name` without a version, for this reason.
    pub(crate) fn named(name: &str, evidence: Vec<Evidence>) -> Self {
        Allocator { name: name.to_owned(), version: None, evidence }
    }
}

/// Names of allocators that are not donors.
pub mod name {
    /// musl's, since 1.2.1.
    pub const MALLOCNG: &str = "mallocng";
    /// musl's until 1.2.0, still to be had as an option.
    pub const OLDMALLOC: &str = "oldmalloc";
    /// The GNU C library's.
    pub const GLIBC: &str = "glibc";
    /// The Go runtime's.
    pub const GO: &str = "go";
    /// The zig standard library's.
    pub const ZIG: &str = "zig";
    /// There is no allocator in the file.
    pub const NONE: &str = "none";
    /// It cannot be told.
    pub const UNKNOWN: &str = "unknown";
}

/// One observation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Where it was seen.
    pub source: Source,
    /// What was seen.
    pub detail: String,
}

impl Evidence {
    pub(crate) fn new(source: Source, detail: impl Into<String>) -> Self {
        Evidence { source, detail: detail.into() }
    }
}

/// Where evidence is seen, strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// The note that a graft leaves.
    Note,
    /// Names: of symbols, of the libraries and the loader that a dynamic file asks for.
    Symbols,
    /// Tables and texts that survive `strip`.
    Constants,
}

/// A processor architecture, as far as it matters to name it.
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
    /// Another `e_machine`.
    Machine(u16),
    /// An archive whose members are for different ones.
    Mixed,
    /// An archive without ELF members.
    None,
}

impl Arch {
    /// From `e_machine` and the file class.
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

    /// The name, as in target triples.
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
