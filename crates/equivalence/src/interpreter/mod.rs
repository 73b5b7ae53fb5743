//! Instructions, executed one by one on memory that is watched: what a function does with given arguments, and nothing
//! of it on trust.
//!
//! Only what compilers and musl's assembly make string functions of is known here; at anything else the run ends, and
//! the function counts as unproven. So does whatever the architecture or the calling convention leaves open: a run ends
//! where a register, a flag or a byte of the stack is used that nobody has set.

mod aarch64;
mod body;
mod memory;
mod processor;
mod x86_64;

use std::fmt;

use format::Arch;

pub(crate) use memory::{Memory, PAGE};
pub use x86_64::is_immediate;

use crate::Program;

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

/// An argument.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Argument {
    /// A pointer.
    Address(u64),
    /// Another number of 64 bits.
    Word(u64),
    /// A number of 32 bits; the register's others are not the function's to use.
    Int(u32),
}

/// How a run ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    result: u64,
    /// Which of its bytes have been set.
    known: u8,
    /// Instructions, and rounds of those that repeat.
    pub(crate) steps: u64,
}

impl Outcome {
    /// 64 bits, if all of them were set.
    pub(crate) fn word(&self) -> Option<u64> {
        (self.known == 0xff).then_some(self.result)
    }

    /// The lower 32 bits.
    pub(crate) fn int(&self) -> Option<i32> {
        (self.known & 15 == 15).then_some(self.result as i32)
    }
}

/// A function, and what runs it.
pub(crate) trait Interpreter<'a>: fmt::Debug {
    /// Reads the function at an address, as far as direct branches and calls lead, instead of the one before.
    fn read(&mut self, start: u64) -> Result<(), Stop>;

    fn memory(&mut self) -> &mut Memory<'a>;

    /// Calls the function. What it executes is noted.
    fn call(&mut self, arguments: &[Argument], limit: u64) -> Result<Outcome, Stop>;

    /// Forgets what has been executed.
    fn forget(&mut self);

    /// The first instruction that has not been executed, or branch that always went the same way.
    fn untested(&self) -> Option<u64>;

    /// Numbers that its instructions compare with, or subtract: where it may treat longer blocks in another way.
    fn numbers(&self) -> Vec<u64>;

    /// Whether it touches memory other than the stack, as every string function does.
    fn touches_memory(&self) -> bool;
}

/// The interpreter for a program's architecture, if there is one.
pub(crate) fn of<'a>(program: &'a dyn Program) -> Option<Box<dyn Interpreter<'a> + 'a>> {
    match program.arch() {
        Arch::X86_64 => Some(Box::new(processor::Run::<x86_64::Processor<'a>>::new(program))),
        Arch::Aarch64 => Some(Box::new(processor::Run::<aarch64::Processor<'a>>::new(program))),
        _ => None,
    }
}
