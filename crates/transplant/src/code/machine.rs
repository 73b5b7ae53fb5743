//! The parts that are particular to an architecture. The roles of functions, the references that have to be accounted
//! for and the reasons to refuse a program are the same for all: they are in `family` and `libc`.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use super::origin::{Definition, Location};
use super::{Branch, Code, Features, Function, Instruction, Reference};
use crate::image::Image;

/// An edit that passes the donor's main instead of the program's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Edit {
    /// Four bytes of an instruction that name main.
    Operand {
        /// Their address.
        field: u64,
        /// The address that they are counted from; `None` if they are the address itself.
        from: Option<u64>,
        /// The donor's symbol: its main, or a word that holds its address.
        to: &'static str,
    },
    /// The branch to `__libc_start_main`, redirected through the donor.
    Branch { site: u64, target: u64, is_call: bool },
}

/// A branch that passes main to `__libc_start_main`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct MainCall {
    /// The program's main.
    pub(crate) main: u64,
    /// The edit that makes it pass the donor's main.
    pub(crate) edit: Edit,
}

/// Recognises parts of musl in an architecture's code.
pub(crate) trait Musl: fmt::Debug + Sync {
    /// Whether a function tests if its one argument is negative or 0, and sets `lock` to 0 in one of the cases.
    fn resets_lock(&self, code: &Code<'_>, function: &Function, lock: u64) -> bool;

    /// The places where a function stores ENOMEM as errno, as distances from the thread pointer.
    fn no_memory_stores(&self, code: &Code<'_>, function: &Function) -> BTreeSet<i64>;

    /// The number that `__errno_location` adds to the thread pointer; `None` if the function is not exactly that.
    fn errno_location(&self, code: &Code<'_>, start: u64) -> Option<i64>;

    /// The places where errno can be: `struct pthread` (src/internal/pthread_impl.h), from the thread pointer.
    fn errno_range(&self) -> Range<i64>;

    /// The places of the system call by which musl forks (src/process/_Fork.c).
    fn forks(&self, code: &Code<'_>) -> Vec<u64>;

    /// System calls that may be clone: code near before them loads its number.
    fn clones(&self, code: &Code<'_>) -> Vec<u64>;

    /// System calls whose number may be the first argument of the function around them, as in musl's `syscall`
    /// (src/misc/syscall.c).
    fn passed_calls(&self, code: &Code<'_>) -> Vec<u64>;

    /// The number of the system call clone.
    fn clone_number(&self) -> u64;

    /// The register with the number of a system call. The arguments are where functions have theirs, as far as the
    /// third.
    fn number_register(&self) -> u32;

    /// The instructions that make the system call exit_group.
    fn ends(&self, code: &Code<'_>) -> Vec<u64>;

    /// Every `__unmapself` (src/thread/ARCH/__unmapself.s), by which a detached thread unmaps its stack and ends.
    fn unmapself_functions(&self, code: &Code<'_>) -> Vec<u64>;

    /// Whether a function is `__block_app_sigs` (src/signal/block.c): the one system call rt_sigprocmask, to block (how
    /// is 0), with 8 bytes of mask.
    fn blocks_signals(&self, code: &Code<'_>, function: &Function) -> bool;

    /// Jumps through a word of memory: the address of each, and of the word.
    fn indirect_jumps(&self, image: &Image<'_>) -> Vec<(u64, u64)>;

    /// Where a thread keeps the address of its values of pthread keys, from the thread pointer: `self->tsd`, by the
    /// code of `pthread_getspecific` (src/thread/pthread_getspecific.c). `None` if the function is not exactly that.
    fn key_values(&self, code: &Code<'_>, start: u64) -> Option<i64>;

    /// The addresses that a function stores as that of a thread's values, `offset` from the thread pointer: the main
    /// thread's values, `__pthread_tsd_main` (src/thread/pthread_key_create.c).
    fn stored_addresses(&self, code: &Code<'_>, function: &Function, offset: i64) -> BTreeSet<u64>;

    /// Branches with main in the first argument, `_init` in the fourth and `_fini` in the fifth; and functions whose
    /// addresses the code takes and may go on to.
    fn main_calls(&self, code: &Code<'_>, function: &Function) -> (Vec<MainCall>, Vec<u64>);
}

/// An architecture's code.
pub(crate) trait Machine: Musl {
    /// Decodes the instruction at the beginning of `bytes`.
    fn instruction(&self, address: u64, bytes: &[u8]) -> Option<Instruction>;

    /// Every jump and call with a target in the instruction and a long reach.
    fn branches(&self, image: &Image<'_>) -> Vec<Branch>;

    /// Every place in the code that reads as a reference into the range, branches included.
    fn references(&self, code: &Code<'_>, range: Range<u64>) -> Vec<Reference>;

    /// The addresses that a function's instructions refer to, each with the address of the instruction.
    fn refers(&self, code: &Code<'_>, function: &Function) -> BTreeSet<(u64, u64)>;

    /// Whether the instruction at an address of a function refers to `target`. True by default: `refers` has followed
    /// each reference to its very instruction.
    fn refers_to(&self, _: &Code<'_>, _: &Function, _: u64, _: u64) -> bool {
        true
    }

    /// The start of the function that contains this reference; `None` if the bytes only read as a reference by chance.
    fn confirmed(&self, code: &mut Code<'_>, reference: Reference, ends: &BTreeSet<u64>) -> Option<u64>;

    /// Whether a function ends before an address, padding left out.
    fn follows_an_end(&self, image: &Image<'_>, address: u64) -> bool;

    /// Whether the code reads only its arguments before it writes registers, as a function's first instructions do.
    fn reads_as_entry(&self, code: &Code<'_>, start: u64) -> bool;

    /// Whether the code there cannot be a function of its own, since it uses a frame that a different function has
    /// made. False by default: where bytes rarely look like a call by chance, references are confirmed differently.
    fn is_part(&self, _: &Code<'_>, _: u64) -> bool {
        false
    }

    /// Whether the instruction at an address ends the process, by musl's a_crash (src/internal/atomic.h), which the
    /// compiler takes to return. False by default: where it ends a path anyway.
    fn crashes(&self, _: &Image<'_>, _: u64) -> bool {
        false
    }

    /// Whether the instruction at an address is a system call that does not return, by the number that the one before
    /// loads: exit, exit_group and rt_sigreturn. musl's functions in assembly end so. False by default.
    fn is_last_system_call(&self, _: &Image<'_>, _: u64) -> bool {
        false
    }

    /// Whether the stack pointer has its value from the function's start wherever the function returns or jumps to
    /// another function. It has not in the middle of a function with a frame.
    ///
    /// False by default: unknown.
    fn keeps_stack(&self, _: &Code<'_>, _: &Function) -> bool {
        false
    }

    /// Whether compilers end a function by a conditional branch to a different function.
    fn leaves_by_condition(&self) -> bool;

    /// Whether an instruction is one that compilers and linkers fill gaps between functions with.
    fn is_padding(&self, image: &Image<'_>, instruction: &Instruction) -> bool;

    /// The address behind the landing pad, if there is one: the place to write a jump.
    fn behind_landing_pad(&self, image: &Image<'_>, start: u64) -> u64;

    /// The function that a thunk calls, where compilers write a thunk without a jump; `None` if it does more. By
    /// default there are no such thunks.
    fn thunk_target(&self, _: &Code<'_>, _: u64) -> Option<u64> {
        None
    }

    /// The features of a function.
    fn features(&self, code: &Code<'_>, function: &Function) -> Features;

    /// Places that only the allocator is likely to have: its threshold, the mark of a freed block.
    fn marks(&self, code: &Code<'_>) -> BTreeSet<u64>;

    /// The numbers that the instructions directly before a call or system call at `site` may give an argument, for
    /// code that cannot be followed. The first argument has index 0, the third index 2; others are not supported.
    fn near_argument(&self, code: &Code<'_>, site: u64, index: u32) -> Vec<u64>;

    /// The register of a function's argument; `None` if that is on the stack.
    fn argument_register(&self, index: u32) -> Option<u32>;

    /// The index of the function's argument that a register holds at its start.
    fn argument_of(&self, register: u32) -> Option<u32>;

    /// The effect of the instruction at an address on the value in a location.
    fn define(&self, code: &Code<'_>, address: u64, location: Location) -> Definition;

    /// Site and target of branches behind the first overwritten byte that [`branches`](Self::branches) leaves out.
    /// Given are the address of each function, and the range behind that byte. None by default: a jump that replaces
    /// one whole instruction has no place behind its first byte where an instruction could begin.
    fn other_branches(&self, _: &Code<'_>, _: &[(u64, Range<u64>)]) -> Vec<(u64, u64)> {
        Vec::new()
    }

    /// The size of a jump or a call, in bytes.
    fn jump_size(&self) -> u64;

    /// The reach of a jump or a call in either direction, in bytes.
    fn reach(&self) -> u64;

    /// Encodes a jump or a call from `site` to `target`; `None` if it does not reach.
    fn jump(&self, site: u64, target: u64, is_call: bool) -> Option<Vec<u8>>;

    /// The largest page size of the architecture's kernels: no two segments may share such a page.
    fn page(&self) -> u64;
}
