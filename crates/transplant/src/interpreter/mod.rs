//! Instructions of x86_64, executed one by one on memory that is watched: what a function does with given arguments, and
//! nothing of it on trust.
//!
//! Only what compilers and musl's assembly make string functions of is known here (general registers, string
//! instructions, SSE2); at anything else the run ends, and the function counts as unproven. So does whatever the
//! architecture or the calling convention leaves open: a run ends where a register, a flag or a byte of the stack is used
//! that nobody has set.

mod body;
mod flags;
mod general;
mod memory;
mod processor;
mod repeated;
mod vector;

pub(crate) use body::Body;
pub(crate) use memory::{Memory, PAGE};
pub(crate) use processor::{Argument, Outcome, Processor};

/// Why a run, or the reading of a function, ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// An instruction that is not known here.
    Unknown {
        /// Its address.
        address: u64,
    },
    /// Where it goes on is not in the code: a jump or a call through a register or a table.
    Indirect {
        /// The instruction's address.
        address: u64,
    },
    /// More instructions than a string function has.
    Large,
    /// Memory that it must not touch.
    Fault {
        /// What it wanted to touch.
        at: u64,
    },
    /// Something was used that nobody has set.
    Unset {
        /// The instruction's address.
        address: u64,
    },
    /// The stack, or a register that belongs to the caller, was not as it was.
    Convention,
    /// It did not come to an end.
    Endless,
}
