//! One instruction, as far as every architecture's has it.

/// Where an instruction lies, and what is executed after it. What it does is its architecture's to say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) address: u64,
    /// Behind its last byte.
    pub(crate) next: u64,
    pub(crate) flow: Flow,
}

/// What is executed next. A target is there where the instruction says it itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// The next one in memory.
    Next,
    /// A function, or the kernel, and then the next one.
    Call(Option<u64>),
    Jump(Option<u64>),
    Conditional(u64),
    Return,
    /// Nothing: what the compiler knows not to go on.
    Trap,
}
