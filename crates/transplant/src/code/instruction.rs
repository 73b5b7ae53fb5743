//! The part of an instruction that is the same on every architecture.

/// The address of an instruction, and what is executed after it. Its operation is defined per architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) address: u64,
    /// The address behind its last byte.
    pub(crate) next: u64,
    pub(crate) flow: Flow,
}

/// What is executed next. A target is given if the instruction contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The next instruction in memory.
    Next,
    /// A function or the kernel, and then the next instruction.
    Call(Option<u64>),
    Jump(Option<u64>),
    Conditional(u64),
    Return,
    /// Nothing: the compiler knows that control does not continue.
    Trap,
}
