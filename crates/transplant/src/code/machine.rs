//! What is particular to an architecture. Which function has which role, what has to be accounted for and when a
//! program is refused is the same for all, and written down once, in `family` and `libc`.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use super::{Branch, Code, Deeds, Function, Instruction, Reference};
use crate::image::Image;

/// What has the donor's main handed over in place of the program's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Edit {
    /// Four bytes of an instruction that name main.
    Operand {
        /// Their address.
        field: u64,
        /// What they are counted from; nothing: they are the address itself.
        from: Option<u64>,
        /// The donor's symbol: its main, or a word that holds the address of it.
        to: &'static str,
    },
    /// The branch to `__libc_start_main`, which goes through the donor.
    Branch { site: u64, target: u64, is_call: bool },
}

/// A branch that hands main to `__libc_start_main`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Handover {
    /// The program's main.
    pub(crate) main: u64,
    /// What makes it hand over the donor's.
    pub(crate) edit: Edit,
}

/// What parts of musl look like in an architecture's code.
pub(crate) trait Musl: fmt::Debug + Sync {
    /// Whether a function asks whether its one argument is negative or 0, and sets `lock` to 0 in one of the cases.
    fn makes_anew(&self, code: &Code<'_>, function: &Function, lock: u64) -> bool;

    /// Where a function stores ENOMEM as errno, as distances from the thread pointer.
    fn no_memory_stores(&self, code: &Code<'_>, function: &Function) -> BTreeSet<i64>;

    /// What `__errno_location` adds to the thread pointer, if the function is that and does nothing else.
    fn errno_location(&self, code: &Code<'_>, start: u64) -> Option<i64>;

    /// Where errno can be: `struct pthread` (src/internal/pthread_impl.h), from the thread pointer.
    fn errno_range(&self) -> Range<i64>;

    /// Whether there is the system call by which musl forks (src/process/_Fork.c).
    fn forks(&self, code: &Code<'_>) -> bool;

    /// The instructions that make the system call clone.
    fn clones(&self, code: &Code<'_>) -> Vec<u64>;

    /// Every `__unmapself` (src/thread/ARCH/__unmapself.s), by which a detached thread gives its stack back and ends.
    fn unmap_selves(&self, code: &Code<'_>) -> Vec<u64>;

    /// Whether a function is `__block_app_sigs` (src/signal/block.c): the one system call rt_sigprocmask, to block (how
    /// is 0), with 8 bytes of mask.
    fn blocks_signals(&self, code: &Code<'_>, function: &Function) -> bool;

    /// Branches with main in the first argument, `_init` in the fourth and `_fini` in the fifth; and functions whose
    /// addresses the code takes, as far as it may go on to them.
    fn handovers(&self, code: &Code<'_>, function: &Function) -> (Vec<Handover>, Vec<u64>);
}

/// An architecture's code.
pub(crate) trait Machine: Musl {
    /// The instruction whose first bytes these are.
    fn instruction(&self, address: u64, bytes: &[u8]) -> Option<Instruction>;

    /// Every jump and call that says its target and reaches far.
    fn branches(&self, image: &Image<'_>) -> Vec<Branch>;

    /// Every place in the code that reads as a reference into the range, branches included.
    fn references(&self, code: &Code<'_>, range: Range<u64>) -> Vec<Reference>;

    /// What a function's instructions refer to: the address, and the instruction's.
    fn refers(&self, code: &Code<'_>, function: &Function) -> BTreeSet<(u64, u64)>;

    /// Whether the instruction at an address of a function refers to `target`. True by default: `refers` has followed
    /// what it gives to the very instruction.
    fn says(&self, _: &Code<'_>, _: &Function, _: u64, _: u64) -> bool {
        true
    }

    /// The function in which a place is the reference that it reads as; nothing if it is something else by chance.
    fn confirmed(&self, code: &mut Code<'_>, reference: Reference, ends: &BTreeSet<u64>) -> Option<u64>;

    /// Whether what lies before an address ends a function, padding left out.
    fn follows_an_end(&self, image: &Image<'_>, address: u64) -> bool;

    /// Whether the code reads nothing but its arguments before it writes them, as a function's first instructions do.
    fn reads_as_entry(&self, code: &Code<'_>, start: u64) -> bool;

    /// Whether the code there cannot be a function of its own, as it works with a frame that another one has made. By
    /// default this is not asked: where bytes that read as a call are rare, what has to be a reference is confirmed
    /// otherwise.
    fn is_part(&self, _: &Code<'_>, _: u64) -> bool {
        false
    }

    /// Whether compilers leave a function for another one by a conditional branch.
    fn leaves_by_condition(&self) -> bool;

    /// Whether an instruction is what compilers and linkers fill gaps between functions with.
    fn is_padding(&self, image: &Image<'_>, instruction: &Instruction) -> bool;

    /// Behind a landing pad, if there is one: where a jump may be written.
    fn behind_landing_pad(&self, image: &Image<'_>, start: u64) -> u64;

    /// What a function calls that does nothing else, where compilers write that without a jump. By default they do not.
    fn passes_on(&self, _: &Code<'_>, _: u64) -> Option<u64> {
        None
    }

    /// What a function does.
    fn deeds(&self, code: &Code<'_>, function: &Function) -> Deeds;

    /// Places that only the allocator is likely to have: its threshold, the mark of a freed block.
    fn marks(&self, code: &Code<'_>) -> BTreeSet<u64>;

    /// The numbers that an argument of a call or of a system call at `site` may be given by the instructions directly
    /// before it. The first argument has the index 0, the third 2; others are not asked for.
    fn argument(&self, code: &Code<'_>, site: u64, index: u32) -> Vec<u64>;

    /// Site and target of branches that [`branches`](Self::branches) leaves out and that lead behind the first byte of
    /// what a jump is written over: for each function its address, and the range. None by default: a jump that takes
    /// the place of one instruction has no place behind its first byte where another could begin.
    fn other_branches(&self, _: &Code<'_>, _: &[(u64, Range<u64>)]) -> Vec<(u64, u64)> {
        Vec::new()
    }

    /// How many bytes a jump or a call takes.
    fn jump_size(&self) -> u64;

    /// How far a jump or a call reaches, in bytes, in either direction.
    fn reach(&self) -> u64;

    /// A jump or a call from `site` to `target`; nothing if it does not reach.
    fn jump(&self, site: u64, target: u64, is_call: bool) -> Option<Vec<u8>>;

    /// The largest page that the architecture's kernels have: no segment may share one with another.
    fn page(&self) -> u64;
}
