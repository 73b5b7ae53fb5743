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
    /// What speaks for it, where they are ours.
    pub strings_evidence: Vec<Evidence>,
    /// The C library's release, or what is known of it: `2.36`, `>=2.34`.
    pub libc_version: Option<String>,
    /// What serves the C library's own blocks, where it is something else than what serves `malloc`: musl's allocator
    /// is still in such a program, and still reached.
    pub libc_allocator: Option<Allocator>,
    /// What else matters for a graft.
    pub facts: Facts,
    /// Whether and how another allocator can be put in.
    pub graft: Graft,
}

/// What else matters for a graft. Nothing, where it does not apply or cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// Bytes of a thread's stack where the program asks for no other size: of musl programs, from `PT_GNU_STACK`.
    pub thread_stack: Option<u64>,
    /// What musl's `fork` calls to keep the allocator whole in the child.
    pub malloc_atfork: Hook,
    /// What is read-only once the program has been relocated.
    pub relro: Option<Relro>,
    /// Whether it can be loaded at any address.
    pub position_independent: Option<bool>,
    /// Whether the stack may be executed.
    pub executable_stack: Option<bool>,
    /// Whether the symbol table is there.
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
    /// There is none.
    None,
    /// It cannot be told.
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

/// Whether and how another allocator can be put in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Graft {
    /// How.
    pub way: Way,
    /// In a sentence.
    pub detail: String,
}

/// How another allocator can be put in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// `allograft graft` takes this file.
    Graft,
    /// The program has to be linked again, against a grafted libc.
    Relink,
    /// The allocator has to be loaded before libc's when the program starts.
    Preload,
    /// There is nothing to replace.
    None,
    /// It cannot be told.
    Unknown,
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
    /// A donor's name, another allocator's (`mallocng`, `jemalloc`, ...: see [`name`]), `none` or `unknown`.
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
    /// Every name that a report may have without a note: these, and those of allocators that are known by their marks.
    pub const ALL: [&str; 14] = [
        MALLOCNG, OLDMALLOC, GLIBC, GO, ZIG, NONE, UNKNOWN, "mimalloc", "jemalloc", "snmalloc", "rpmalloc", "scudo",
        "tcmalloc", "hardened",
    ];

    /// Whether `name` is a build or a line of releases of `allocator`: `mimalloc3`, `mimalloc-secure`,
    /// `hardened-light`.
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
    /// What the machine code does.
    Code,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Source::Note => "note",
            Source::Symbols => "symbols",
            Source::Constants => "constants",
            Source::Code => "code",
        })
    }
}

/// A processor architecture, as far as it matters to name it. Not the crate `format`'s: this reader shares nothing with
/// what makes grafts, and names architectures without donors, too.
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
