//! Executes instructions one by one on watched memory: the effect of a function with given arguments, without any
//! assumption about its code.
//!
//! Only the instructions that compilers and musl's assembly use for string functions are known. At any other
//! instruction the run ends, and the function counts as unproven. That also holds for everything that the architecture
//! or the calling convention leaves undefined: a run ends if it uses a register, a flag or a byte of the stack that was
//! never set.

mod body;
mod memory;
mod processor;
mod x86_64;

use std::fmt;

use format::Arch;

pub(crate) use memory::{Memory, PAGE};

use crate::{Program, Unproven};

/// An argument.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Argument {
    /// A pointer.
    Address(u64),
    /// A number of 64 bits.
    Word(u64),
    /// A number of 32 bits. The function must not use the register's other bits.
    Int(u32),
}

/// The result of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome {
    result: u64,
    /// The bytes of the result that have been set, as bits.
    known: u8,
    /// Executed instructions, plus the rounds of those that repeat.
    pub(crate) steps: u64,
}

impl Outcome {
    /// All 64 bits; `None` unless all of them were set.
    pub(crate) fn word(&self) -> Option<u64> {
        (self.known == 0xff).then_some(self.result)
    }

    /// The lower 32 bits; `None` unless all of them were set.
    pub(crate) fn int(&self) -> Option<i32> {
        (self.known & 15 == 15).then_some(self.result as i32)
    }
}

/// A function with its interpreter.
pub(crate) trait Interpreter<'a>: fmt::Debug {
    /// Reads the function at an address, as far as direct branches and calls reach. It replaces the one before.
    fn read(&mut self, start: u64) -> Result<(), Unproven>;

    fn memory(&mut self) -> &mut Memory<'a>;

    /// Calls the function, and records what it executes.
    fn call(&mut self, arguments: &[Argument], limit: u64) -> Result<Outcome, Unproven>;

    /// Clears the record of what has been executed.
    fn forget(&mut self);

    /// The first instruction that has not been executed, or branch that always went the same way.
    fn untested(&self) -> Option<u64>;

    /// The numbers that its instructions compare with, or subtract: lengths from which it may treat blocks differently.
    fn numbers(&self) -> Vec<u64>;

    /// Whether it touches memory other than the stack, as every string function does.
    fn touches_memory(&self) -> bool;
}

/// The interpreter for a program's architecture; `None` if it has no interpreter.
pub(crate) fn for_program<'a>(program: &'a dyn Program) -> Option<Box<dyn Interpreter<'a> + 'a>> {
    match program.arch() {
        Arch::X86_64 => Some(Box::new(processor::Run::<x86_64::Processor<'a>>::new(program))),
        _ => None,
    }
}
