//! Why a program is left alone.

use format::Role;

/// What speaks against a graft. Except for [`Refusal::Malformed`], the file may be perfectly good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Damaged, or cut off.
    #[error("it is malformed: {what}")]
    Malformed {
        /// What is wrong.
        what: String,
    },
    /// For a processor that no donor is built for in this form.
    #[error("it is for another architecture than x86_64 and aarch64: {found}")]
    Architecture {
        /// What it is for.
        found: String,
    },
    /// Linked with libraries.
    #[error("it is dynamic: its libraries, and malloc with them, are loaded when it starts")]
    Dynamic,
    /// Known, and nothing that musl's malloc is in.
    #[error("it is {what}")]
    Other {
        /// What it is, with its article.
        what: &'static str,
    },
    /// It has been grafted already, in this way or before it was linked.
    #[error("it carries a graft already: {donor}")]
    Grafted {
        /// The donor in it.
        donor: String,
    },
    /// It has symbols, and none of the malloc family is among them.
    #[error("no malloc is in it: there is nothing to replace")]
    NoMalloc,
    /// No size classes: it may have no malloc at all, or another one.
    #[error("mallocng, musl's malloc, is not in it: its table of size classes is not there")]
    NoMallocng,
    /// Its size classes are there more than once.
    #[error("mallocng's table of size classes is in it {found} times, expected once")]
    Table {
        /// How often.
        found: usize,
    },
    /// The table is there, and no code refers to it.
    #[error("no code refers to mallocng's table of size classes")]
    TableUnused,
    /// A function that has to be there was not found.
    #[error("no function was found that does what mallocng's {role} does")]
    Missing {
        /// Which.
        role: Role,
    },
    /// Several functions do what only one does.
    #[error("{} functions do what mallocng's {role} does, expected one: {}", .found.len(), Addresses(.found))]
    Ambiguous {
        /// What they do.
        role: Role,
        /// Where they begin.
        found: Vec<u64>,
    },
    /// A function that does not call what its role makes it call.
    #[error("the function at {address:#x} looks like mallocng's {role}, and does not call its {expected}")]
    Unconfirmed {
        /// What it looks like.
        role: Role,
        /// Where it begins.
        address: u64,
        /// What it should call.
        expected: Role,
    },
    /// The symbol table says something else than the code.
    #[error("the symbol `{name}` is at {address:#x}, and by its code the function {}", At(.found))]
    Symbol {
        /// The symbol.
        name: &'static str,
        /// Its value.
        address: u64,
        /// Where the code says it is.
        found: Option<u64>,
    },
    /// The allocator's variables were not found.
    #[error("{found} places could be mallocng's context, expected one")]
    Context {
        /// How many.
        found: usize,
    },
    /// Code outside the family uses the allocator's variables.
    #[error(
        "code at {address:#x} (in the function at {function:#x}) uses mallocng's state and is none of its functions"
    )]
    StateElsewhere {
        /// Where.
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
    #[error("its `{name}`, at {address:#x}, is not musl's: it brings an allocator of its own")]
    OwnAllocator {
        /// The function.
        name: &'static str,
        /// Where it is.
        address: u64,
    },
    /// Stripped, and nothing shows that the program's own blocks are musl's.
    #[error("it has no symbols, and no public `free` of musl's: it may bring an allocator of its own")]
    NoPublicFree,
    /// There is no room for a jump.
    #[error("{role} at {address:#x} has no room for a jump")]
    NoRoom {
        /// Whose.
        role: Role,
        /// Where.
        address: u64,
    },
    /// Something jumps to bytes that would be overwritten.
    #[error("code at {site:#x} jumps into the beginning of {role}, to {address:#x}")]
    JumpedInto {
        /// Whose beginning.
        role: Role,
        /// Where to.
        address: u64,
        /// Where from.
        site: u64,
    },
    /// Where errno is kept could not be told.
    #[error("where its errno is kept cannot be told: {found} places, expected one")]
    Errno {
        /// How many were found.
        found: usize,
    },
    /// It forks, and has no hook, or the hook was not found.
    #[error("it forks, and the hook that fork calls for the allocator was not found")]
    ForkHook,
    /// It has threads, and the place where they end was not found.
    #[error("it starts threads, and the call at their end was not found: {found}")]
    ThreadEnd {
        /// What was found.
        found: &'static str,
    },
    /// It makes threads by itself, with thread-local storage that musl did not lay out.
    #[error("code at {address:#x} makes threads with thread-local storage of its own (CLONE_SETTLS)")]
    OwnThreads {
        /// The system call, or a call that leads to it.
        address: u64,
    },
    /// Where main is handed to libc was not found.
    #[error("{found} places hand main to __libc_start_main, expected one")]
    Main {
        /// How many were found.
        found: usize,
    },
    /// Something is stored behind what the headers know of.
    #[error("{bytes} bytes are appended to it, which it may look for at its end")]
    Appended {
        /// How many.
        bytes: u64,
    },
    /// There are no addresses left where a jump reaches.
    #[error("there is no room for the donor within reach of a jump: the program spans {span:#x} bytes")]
    OutOfReach {
        /// From its first to its last address.
        span: u64,
    },
    /// Its thread-local storage leaves no room that instructions can name.
    #[error("its thread-local storage of {bytes} bytes leaves no room within reach for the donor's")]
    ThreadLocalSize {
        /// The program's.
        bytes: u64,
    },
    /// String functions were asked for, and none can be redirected.
    #[error("none of its string functions can be exchanged: {found}")]
    Strings {
        /// What was found.
        found: String,
    },
    /// Branches through a register have to end at landing pads, which the donor has none of.
    #[error(
        "its code is guarded: branches through a register have to end at landing pads (BTI), and the donor has none"
    )]
    Guarded,
    /// Its thread-local storage is relocated in a way that cannot be repeated.
    #[error("its thread-local storage is relocated in an unknown way, at {address:#x}")]
    ThreadLocal {
        /// Where.
        address: u64,
    },
}

impl Refusal {
    /// Whether the file itself is at fault.
    pub fn is_damage(&self) -> bool {
        matches!(self, Refusal::Malformed { .. })
    }

    /// What to do instead.
    pub fn remedy(&self) -> Remedy {
        Remedy::Advice(match self {
            Refusal::Malformed { .. } => "get the program again; nothing was changed",
            Refusal::Architecture { .. } => "graft the `libc.a` that it is linked from, and link it again",
            Refusal::Dynamic => {
                "preload an allocator (LD_PRELOAD), or link the program statically against a grafted `libc.a`"
            }
            Refusal::NoMalloc => {
                "leave it as it is: it asks malloc for no memory, so that none would make a difference"
            }
            Refusal::Other { .. } | Refusal::NoMallocng => return Remedy::Inspect,
            Refusal::Grafted { .. } => return Remedy::GraftStock,
            Refusal::Strings { .. } => return Remedy::WithoutStrings,
            Refusal::Appended { .. } => "graft the program before the data is appended to it",
            Refusal::OwnAllocator { .. } | Refusal::NoPublicFree => {
                "musl's malloc serves only musl's own blocks in it: there is nothing to gain"
            }
            _ => {
                "what is not certain is not grafted. Graft the `libc.a` of the toolchain and link the program again, if you can"
            }
        })
    }
}

/// What to do about a refusal. What a program has for it is the program's to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// In words, since it takes nothing of a program that makes grafts.
    Advice(&'static str),
    /// Look up what serves malloc in the executable.
    Inspect,
    /// Graft the stock file, which takes back an earlier graft in place.
    GraftStock,
    /// Graft the allocator without string functions.
    WithoutStrings,
}

struct Addresses<'a>(&'a [u64]);

impl std::fmt::Display for Addresses<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text: Vec<String> = self.0.iter().map(|address| format!("{address:#x}")).collect();
        f.write_str(&text.join(", "))
    }
}

struct At<'a>(&'a Option<u64>);

impl std::fmt::Display for At<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(address) => write!(f, "is at {address:#x}"),
            None => f.write_str("was not found"),
        }
    }
}
