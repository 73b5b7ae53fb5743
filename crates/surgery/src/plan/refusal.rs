//! The reasons why an archive must not be grafted, each with a remedy.

use format::{Arch, DonorKind, OptionsError};

use crate::archive::MemberId;
use crate::donor::DonorError;
use relocatable::ObjectError;

/// Why an archive must not be grafted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The archive is glibc's.
    #[error("this is glibc's libc.a (it defines {evidence}), expected musl's")]
    Glibc {
        /// Symbols that show it.
        evidence: String,
    },
    /// The archive is not a C library, or not musl's.
    #[error("this is not musl's libc.a: of the symbols that show musl it defines {found}")]
    NotMusl {
        /// Symbols that were found.
        found: String,
    },
    /// A musl without an allocator, like zig 0.16's.
    #[error("this libc.a has no allocator: no member defines `{symbol}`")]
    NoAllocator {
        /// The missing symbol.
        symbol: &'static str,
    },
    /// The archive has no string functions.
    #[error("this libc.a has no string functions: no member defines one that the donor brings")]
    NoStrings,
    /// An object in the archive is damaged.
    #[error("{member}: {source}")]
    Member {
        /// The member.
        member: MemberId,
        /// The error in the object.
        source: ObjectError,
    },
    /// A member to be removed is not machine code.
    #[error("{member} defines `{symbol}` by the archive's index, but is not an ELF object with that symbol")]
    Opaque {
        /// The member.
        member: MemberId,
        /// The symbol.
        symbol: String,
    },
    /// The archive's index is not that of its members: linkers would find something else than there is.
    #[error("the archive's index {problem}")]
    Index {
        /// The fault, as the end of a sentence.
        problem: String,
    },
    /// The archive holds no objects.
    #[error("this archive holds no ELF object among its {members} members")]
    NoObjects {
        /// How many members it has.
        members: usize,
    },
    /// The archive holds objects for different machines.
    #[error("{member} is for {found}, expected {expected} as member {first} is")]
    MixedMachines {
        /// The ordinal of the first object.
        first: usize,
        /// Its machine.
        expected: String,
        /// The first that differs.
        member: MemberId,
        /// Its machine.
        found: String,
    },
    /// There are no donors for the machine.
    #[error("this archive is for {found}, expected one of {}", Arch::ALL.map(Arch::name).join(", "))]
    Machine {
        /// The archive's machine.
        found: String,
    },
    /// The donor is for a different machine.
    #[error("the donor is for {donor}, expected {archive} as the archive is")]
    DonorArch {
        /// The donor's architecture.
        donor: Arch,
        /// The archive's architecture.
        archive: Arch,
    },
    /// There is no donor for the archive's architecture.
    #[error("there is no donor for {arch}")]
    NoDonor {
        /// The archive's architecture.
        arch: Arch,
    },
    /// The object is not a donor.
    #[error("{0}")]
    Donor(#[from] DonorError),
    /// An earlier graft's note cannot be read.
    #[error("{member} carries a graft whose note is malformed: {source}")]
    DamagedNote {
        /// The member.
        member: MemberId,
        /// The error in the note.
        source: DonorError,
    },
    /// Two members carry a graft's note.
    #[error("members {first} and {second} both carry a graft, expected one")]
    SeveralGrafts {
        /// The first one's ordinal.
        first: usize,
        /// The second one's ordinal.
        second: usize,
    },
    /// The archive carries an allocator that is not libc's own.
    #[error(
        "{member} defines `{symbol}` beside the malloc family: another allocator is in musl's place already, \
         {allocator}{}",
        and_have_gone(lost)
    )]
    ForeignAllocator {
        /// The member.
        member: MemberId,
        /// The symbol that shows it.
        symbol: String,
        /// The allocator's name.
        allocator: &'static str,
        /// Functions that stock has and the archive has lost.
        lost: Vec<&'static str>,
    },
    /// The other allocator cannot be replaced, because it defines symbols beside the malloc family.
    #[error("without {member}, the allocator that it carries, this archive would have no {}", quoted(symbols))]
    LostWithForeign {
        /// The member.
        member: MemberId,
        /// The symbols.
        symbols: Vec<String>,
    },
    /// A member that stays needs the allocator's internals.
    #[error(
        "{member} refers to `{symbol}`, which {} {definer} defines and the donor does not",
        possessive(*kind)
    )]
    Entangled {
        /// The kind of functions that are replaced.
        kind: DonorKind,
        /// The member that refers.
        member: MemberId,
        /// The symbol.
        symbol: String,
        /// The member that defines it.
        definer: MemberId,
    },
    /// A member that stays would fall back to its own weak definition of a part of the allocator, and the linker would
    /// not report it.
    #[error(
        "{member} has a weak default of `{symbol}`, which {} {definer} defines and the donor does not",
        possessive(*kind)
    )]
    UnknownHook {
        /// The kind of functions that are replaced.
        kind: DonorKind,
        /// The member with the weak definition.
        member: MemberId,
        /// The symbol.
        symbol: String,
        /// The member that defines it.
        definer: MemberId,
    },
    /// A symbol would be lost.
    #[error("{member} of {kind} also defines `{symbol}`, which would be lost")]
    Lost {
        /// The kind of functions that are replaced.
        kind: DonorKind,
        /// The member.
        member: MemberId,
        /// The symbol.
        symbol: String,
    },
    /// A symbol would be defined twice.
    #[error("{member} is not part of {kind} that {}, but defines `{symbol}`, as the donor does", go(*kind))]
    Collision {
        /// The kind of functions that are replaced.
        kind: DonorKind,
        /// The member.
        member: MemberId,
        /// The symbol.
        symbol: String,
    },
    /// The donor needs a symbol that the archive does not define, or does not define any more.
    #[error("donor `{donor}` needs `{symbol}`, which nothing in the grafted libc.a would define")]
    DonorNeeds {
        /// The donor's name.
        donor: String,
        /// The symbol.
        symbol: String,
    },
    /// The donor's string functions are strong, and would collide with those of other libraries.
    #[error("donor `{donor}` defines `{symbol}` strongly, expected weakly: other libraries may define it too")]
    Strong {
        /// The donor's name.
        donor: String,
        /// The symbol.
        symbol: String,
    },
    /// The donor lacks a function that every graft needs.
    #[error("donor `{donor}` does not define `{symbol}`, which a graft of this libc.a needs")]
    DonorLacks {
        /// The donor's name.
        donor: String,
        /// The symbol.
        symbol: String,
    },
}

/// The replaced functions as a possessive before a noun.
fn possessive(kind: DonorKind) -> &'static str {
    match kind {
        DonorKind::Malloc => "the allocator's",
        DonorKind::Strings => "the string functions'",
    }
}

/// The verb for the replaced functions, in singular or plural.
fn go(kind: DonorKind) -> &'static str {
    match kind {
        DonorKind::Malloc => "goes",
        DonorKind::Strings => "go",
    }
}

fn quoted(symbols: &[impl AsRef<str>]) -> String {
    symbols.iter().map(|symbol| format!("`{}`", symbol.as_ref())).collect::<Vec<_>>().join(", ")
}

fn and_have_gone(lost: &[&str]) -> String {
    if lost.is_empty() { String::new() } else { format!("; not in the archive any more: {}", quoted(lost)) }
}

impl Refusal {
    /// Whether the archive is damaged, rather than sound but unfit.
    pub fn is_damage(&self) -> bool {
        matches!(self, Refusal::Member { .. } | Refusal::DamagedNote { .. })
    }

    /// Whether the refusal is about an allocator that is not libc's own.
    pub fn is_about_foreign(&self) -> bool {
        matches!(self, Refusal::ForeignAllocator { .. } | Refusal::LostWithForeign { .. })
    }

    /// The remedy.
    pub fn remedy(&self) -> Remedy {
        Remedy::Advice(match self {
            Refusal::Glibc { .. } => {
                "link the program against musl (`-target x86_64-linux-musl` with zig cc, `*-linux-musl` with Rust), \
                 and graft that libc.a"
            }
            Refusal::NotMusl { .. } => "name the libc.a of a musl toolchain or sysroot",
            Refusal::NoAllocator { .. } => return Remedy::LinkDonor,
            Refusal::NoStrings => "this is not a libc that programs are linked with: keep its string functions",
            Refusal::Member { .. } => "the archive is damaged: get it from its package again",
            Refusal::Opaque { .. } => {
                "the archive was compiled for link-time optimisation: graft one with machine code"
            }
            Refusal::Index { .. } => "make the index anew: `ranlib libc.a`, or get the archive from where it came from",
            Refusal::NoObjects { .. } => "name an archive of ELF objects for Linux",
            Refusal::MixedMachines { .. } => "split the archive by machine and graft each part",
            Refusal::Machine { .. } | Refusal::NoDonor { .. } => return Remedy::ListArchitectures,
            Refusal::DonorArch { .. } => "use the donor's object for the archive's architecture",
            Refusal::Donor(DonorError::Options(OptionsError::Unknown { .. } | OptionsError::OutOfRange { .. })) => {
                return Remedy::ListOptions;
            }
            Refusal::Donor(_) | Refusal::DonorLacks { .. } | Refusal::Strong { .. } => return Remedy::AnotherDonor,
            Refusal::DamagedNote { .. } | Refusal::SeveralGrafts { .. } => return Remedy::TakeGraftBack,
            Refusal::ForeignAllocator { .. } => "graft the stock libc.a of this toolchain",
            Refusal::LostWithForeign { .. } => return Remedy::BringWhatIsLost,
            Refusal::Entangled { kind: DonorKind::Strings, .. }
            | Refusal::UnknownHook { kind: DonorKind::Strings, .. }
            | Refusal::Lost { kind: DonorKind::Strings, .. } => return Remedy::WithoutStrings,
            Refusal::Entangled { .. } | Refusal::UnknownHook { .. } => {
                "this libc has grown together with its allocator: graft one built from musl's own sources"
            }
            Refusal::Lost { .. } => "this libc's allocator does more than musl's: graft a stock musl libc.a",
            Refusal::Collision { .. } => "get the stock libc.a of this toolchain, and graft that",
            Refusal::DonorNeeds { .. } => {
                "this musl is too old for the donor: use musl 1.2.2 or later, or another donor"
            }
        })
    }
}

/// The remedy for a refusal. The program that makes the graft words all but [`Remedy::Advice`], since it knows its own
/// commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Advice in words: it names no command of the program.
    Advice(&'static str),
    /// The libc's malloc is in another library, whose members cannot be replaced: link the donor's object before it.
    LinkDonor,
    /// Look up the architectures that there are donors for.
    ListArchitectures,
    /// Look up the options of the donor.
    ListOptions,
    /// The donor's build is at fault: take a different donor.
    AnotherDonor,
    /// Undo the earlier graft, or get the archive again.
    TakeGraftBack,
    /// Name stock archives that define the symbols that would be lost.
    BringWhatIsLost,
    /// Graft only an allocator: the string functions are not musl's.
    WithoutStrings,
}
