//! The reasons why a program is not grafted. Remedies are values, without commands and flags: only the program
//! `allograft` has those.

use format::Role;

/// Why a program cannot be grafted. Except for [`Refusal::Malformed`], the file may be perfectly good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The file is damaged, or cut off.
    #[error("it is malformed: {0}")]
    Malformed(String),
    /// The program is for an architecture without such donors.
    #[error("it is for another architecture than x86_64 and aarch64: {0}")]
    Architecture(String),
    /// The program is dynamically linked.
    #[error("it is dynamic: its libraries, and malloc with them, are loaded when it starts")]
    Dynamic,
    /// The file is a shared library.
    #[error("it is a library: its malloc is that of the program that loads it")]
    Library,
    /// The program is of a known kind that does not contain musl's malloc.
    #[error("it is {0}")]
    Other(&'static str),
    /// The program has been grafted already, as an executable or before it was linked.
    #[error("it carries a graft already: {0}")]
    Grafted(String),
    /// The program has symbols, and none of the malloc family is among them.
    #[error("no malloc is in it: there is nothing to replace")]
    NoMalloc,
    /// There are no size classes: the program may have no malloc at all, or a different one.
    #[error("mallocng, musl's malloc, is not in it: its table of size classes is not there")]
    NoMallocng,
    /// The size classes occur more than once.
    #[error("mallocng's table of size classes is in it {0} times, expected once")]
    Table(usize),
    /// The table is there, and no code refers to it.
    #[error("no code refers to mallocng's table of size classes")]
    TableUnused,
    /// A necessary function was not found.
    #[error("no function was found that does what mallocng's {0} does")]
    Missing(Role),
    /// Several functions do what only one should do.
    #[error("{} functions do what mallocng's {role} does, expected one: {}", .found.len(), addresses(.found))]
    Ambiguous {
        /// Their role.
        role: Role,
        /// Their starts.
        found: Vec<u64>,
    },
    /// A function does not call the function that its role requires.
    #[error("the function at {address:#x} looks like mallocng's {role}, and does not call its {expected}")]
    Unconfirmed {
        /// The role that it seems to have.
        role: Role,
        /// Its start.
        address: u64,
        /// The function that it should call.
        expected: Role,
    },
    /// The symbol table contradicts the code.
    #[error("the symbol `{name}` is at {address:#x}, and by its code the function {}", place(.found))]
    Symbol {
        /// The symbol.
        name: &'static str,
        /// Its value.
        address: u64,
        /// The address according to the code.
        found: Option<u64>,
    },
    /// The allocator's variables were not found.
    #[error("{0} places could be mallocng's context, expected one")]
    Context(usize),
    /// Code outside the family uses the allocator's variables.
    #[error(
        "code at {address:#x} (in the function at {function:#x}) uses mallocng's state and is not one of its functions"
    )]
    StateElsewhere {
        /// The address of the code.
        address: u64,
        /// The function's start.
        function: u64,
    },
    /// Code outside the family calls a function within.
    #[error("code at {address:#x} calls mallocng's inner function at {function:#x}")]
    InsideCalled {
        /// The inner function.
        function: u64,
        /// The call.
        address: u64,
    },
    /// The program has an allocator of its own under the public names.
    #[error("its `{name}`, at {address:#x}, is not musl's: {}", owner(.of))]
    OwnAllocator {
        /// The function.
        name: &'static str,
        /// Its address.
        address: u64,
        /// The allocator that the program's symbols name.
        of: Option<&'static str>,
    },
    /// The program is stripped, and nothing shows that it gets its own blocks from musl.
    #[error("it has no symbols, and no public `free` from musl: it may bring its own allocator")]
    NoPublicFree,
    /// There is no room for a jump.
    #[error("{role} at {address:#x} has no room for a jump")]
    NoRoom {
        /// The function's role.
        role: Role,
        /// The function's address.
        address: u64,
    },
    /// A branch targets bytes that would be overwritten.
    #[error("code at {site:#x} jumps into the beginning of {role}, to {address:#x}")]
    JumpedInto {
        /// The role of the function that would be overwritten.
        role: Role,
        /// The branch's target.
        address: u64,
        /// The branch.
        site: u64,
    },
    /// The place of errno could not be determined.
    #[error("the place of its errno is unclear: {0} places, expected one")]
    Errno(usize),
    /// The program forks, and has no hook, or the hook was not found.
    #[error("it forks, and the hook that fork calls for the allocator was not found")]
    ForkHook,
    /// The program has threads, and the place where they end was not found.
    #[error("it starts threads, and the call at their end was not found: {0}")]
    ThreadEnd(&'static str),
    /// The program makes threads itself, with thread-local storage that musl did not lay out.
    #[error("code at {0:#x} makes threads with thread-local storage of its own (CLONE_SETTLS)")]
    OwnThreads(u64),
    /// The program makes processes that use its thread-local storage beside it.
    #[error("code at {0:#x} makes processes that share its memory and its thread-local storage (CLONE_VM)")]
    SharedStorage(u64),
    /// The place that passes main to libc was not found.
    #[error("{0} places hand main to __libc_start_main, expected one")]
    Main(usize),
    /// Data is stored behind everything that the headers describe.
    #[error("{0} bytes are appended to it, which it may look for at its end")]
    Appended(u64),
    /// No addresses are left within reach of a jump.
    #[error("there is no room for the donor within reach of a jump: the program spans {0:#x} bytes")]
    OutOfReach(u64),
    /// The thread-local storage leaves no room within reach of the instructions.
    #[error("its thread-local storage of {0} bytes leaves no room within reach for the donor's")]
    ThreadLocalSize(u64),
    /// String functions were requested, and none can be redirected.
    #[error("none of its string functions can be exchanged: {0}")]
    Strings(String),
    /// Branches through a register have to end at landing pads, and the donor has none.
    #[error(
        "its code is guarded: branches through a register have to end at landing pads (BTI), and the donor has none"
    )]
    Guarded,
    /// The file is musl's dynamic loader, but differs from the known releases of musl.
    #[error("it is musl's dynamic loader, and {0}")]
    Loader(String),
    /// The program is dynamic, and has something that a merge cannot keep.
    #[error("it is dynamic, and {0}")]
    Merge(String),
    /// The program is dynamic, and names functions of a different allocator.
    #[error("it is dynamic, and {verb} `{symbol}`, which is another allocator's")]
    BringsAllocator {
        /// The function.
        symbol: String,
        /// The program's use of the name: imports or defines.
        verb: &'static str,
    },
    /// The program is dynamic, and not all of its libraries are known: one of them may bring an allocator.
    #[error("it is dynamic, and whether one of its libraries brings another allocator is not known: {0}")]
    LibrariesUnknown(String),
    /// The thread-local storage is relocated in a way that cannot be repeated.
    #[error("its thread-local storage is relocated in an unknown way, at {0:#x}")]
    ThreadLocal(u64),
}

impl Refusal {
    /// Whether the file itself is at fault.
    pub fn is_damage(&self) -> bool {
        matches!(self, Refusal::Malformed { .. })
    }

    /// The remedy.
    pub fn remedy(&self) -> Remedy {
        Remedy::Advice(match self {
            Refusal::Malformed { .. } => "get the program again; nothing was changed",
            Refusal::Architecture { .. } => "graft the `libc.a` that it is linked from, and link it again",
            Refusal::Dynamic => {
                "preload an allocator (LD_PRELOAD), or link the program statically against a grafted `libc.a`"
            }
            Refusal::Library => "graft the programs that load it, or their libc",
            Refusal::NoMalloc => "leave it unchanged: it never calls malloc, so a graft would make no difference",
            Refusal::Other { .. } | Refusal::NoMallocng => return Remedy::Inspect,
            Refusal::Grafted { .. } => return Remedy::GraftStock,
            Refusal::Strings { .. } => return Remedy::WithoutStrings,
            Refusal::Loader { .. } => {
                "without certainty there is no graft: leave it unchanged, or preload an allocator (LD_PRELOAD)"
            }
            Refusal::Merge { .. } => "without certainty there is no merge: preload an allocator (LD_PRELOAD)",
            Refusal::BringsAllocator { .. } => {
                "leave it unchanged: blocks of one allocator would be freed by the other"
            }
            Refusal::LibrariesUnknown { .. } => {
                "run this where the program finds its libraries, with the LD_LIBRARY_PATH of the program's start, or \
                 name the root folder that has them"
            }
            Refusal::Appended { .. } => "graft the program before the data is appended to it",
            Refusal::OwnAllocator { .. } | Refusal::NoPublicFree => {
                "musl's malloc serves only musl's own blocks in it: there is nothing to gain"
            }
            _ => {
                "without certainty there is no graft. Graft the `libc.a` of the toolchain and link the program again, \
                 if you can"
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
    /// Inspect which allocator the executable has.
    Inspect,
    /// Graft the stock file, which also replaces an earlier graft in place.
    GraftStock,
    /// Graft the allocator without string functions.
    WithoutStrings,
}

fn addresses(found: &[u64]) -> String {
    found.iter().map(|address| format!("{address:#x}")).collect::<Vec<_>>().join(", ")
}

fn owner(of: &Option<&'static str>) -> String {
    match of {
        Some(name) => format!("it brings {name}, by its symbols"),
        None => "it brings an allocator of its own".to_owned(),
    }
}

fn place(found: &Option<u64>) -> String {
    found.map_or_else(|| "was not found".to_owned(), |address| format!("is at {address:#x}"))
}
