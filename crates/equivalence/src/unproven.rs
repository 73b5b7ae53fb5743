//! Why a function is not proven, and why a run of it ended early.

/// The reason why a function is not proven to be a certain string function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// The interpreter does not know an instruction.
    #[error("the instruction at {0:#x} is not one that string functions are proven with")]
    Unknown(u64),
    /// The target of a jump or a call is not in the code.
    #[error("where the code goes on from {0:#x} is in a register or a table")]
    Indirect(u64),
    /// It has more code than a string function has.
    #[error("its code is too long to be followed")]
    Large,
    /// Its result is not the function's.
    #[error("it gives a different result")]
    Result,
    /// It touches memory that the function does not touch.
    #[error("it touches memory that the function leaves alone")]
    Memory,
    /// It depends on something other than its arguments.
    #[error("it uses an unset value at {0:#x}")]
    Unset(u64),
    /// It does not keep the calling convention.
    #[error("it leaves the stack or its caller's registers in a wrong state")]
    Convention,
    /// It does not end.
    #[error("it does not come to an end")]
    Endless,
    /// It takes as long for a difference at the beginning as for one at the end.
    #[error("it goes through the whole block when the first byte decides: that may be on purpose")]
    ConstantTime,
    /// It uses fewer than 64 bits of a length.
    #[error("it does not look at all 64 bits of a length")]
    ShortLength,
    /// No input has reached a part of its code.
    #[error("no input executes all there is at {0:#x}")]
    Untested(u64),
}
