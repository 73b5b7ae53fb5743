//! Registers, and one run of a function.

use super::decode::{A64Instruction, Condition, LINK, Operation, STACK, ZERO};
use super::flags::Flags;
use crate::Unproven;
use crate::interpreter::Argument;
use crate::interpreter::memory::Memory;
use crate::interpreter::processor::{self, Budget};

/// Registers that a function has to restore (Procedure Call Standard for the Arm 64-bit Architecture, 6.1.1).
const CALLERS: std::ops::Range<usize> = 19..30;
/// The caller's return address, which is not an address of the program's.
const RETURN: u64 = 0x5b6e_41c0_2d78;

/// All bytes of a register.
pub(super) const WHOLE: u8 = 0xff;

/// The part of a value that depends only on the alignment of the pointer arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum OfAlignment {
    No,
    /// Its lowest four bits.
    Lowest,
    /// All of it.
    Whole,
}

/// A register's content.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value {
    pub(super) bits: u64,
    /// The bytes of it that have been set, as bits.
    pub(super) known: u8,
    pub(super) of_alignment: OfAlignment,
    /// Whether it is an address that the code contains.
    pub(super) of_code: bool,
}

impl Value {
    pub(super) const fn of(bits: u64, known: u8) -> Value {
        Value { bits, known, of_alignment: OfAlignment::No, of_code: false }
    }

    /// The value as a 32-bit register has it if not `wide`: the upper half counts as set.
    fn of_width(self, wide: bool) -> Value {
        match wide {
            true => self,
            false => Value { bits: self.bits & 0xffff_ffff, known: self.known | 0xf0, of_code: false, ..self },
        }
    }

    pub(super) const fn with(self, of_alignment: OfAlignment) -> Value {
        Value { of_alignment, ..self }
    }
}

/// The state that instructions work on.
#[derive(Debug)]
pub(in crate::interpreter) struct Processor<'a> {
    /// x0 to x30, the stack pointer, and the register that reads as 0.
    registers: [Value; 33],
    pub(super) flags: Option<Flags>,
    /// Whether the flags depend only on alignment.
    pub(super) flags_of_alignment: bool,
    pub(super) memory: Memory<'a>,
    budget: Budget,
    /// The values of the caller's registers.
    callers: [u64; CALLERS.end - CALLERS.start],
}

impl Processor<'_> {
    pub(super) fn get(&self, register: u32, wide: bool) -> Value {
        self.registers[register as usize].of_width(wide)
    }

    /// A register's value; an error unless all its bytes have been set.
    pub(super) fn whole(&self, register: u32, wide: bool, address: u64) -> Result<u64, Unproven> {
        let value = self.get(register, wide);
        if value.known == WHOLE { Ok(value.bits) } else { Err(Unproven::Unset(address)) }
    }

    /// Writes to a register: 32 bits clear the upper half.
    pub(super) fn set(&mut self, register: u32, value: Value, wide: bool) {
        if register != ZERO {
            self.registers[register as usize] = value.of_width(wide);
        }
    }

    fn stack_top() -> u64 {
        // 16 bytes are aligned there.
        Memory::stack_top() & !15
    }
}

impl<'a> processor::Processor<'a> for Processor<'a> {
    type Instruction = A64Instruction;

    fn new(memory: Memory<'a>) -> Processor<'a> {
        Processor {
            registers: [Value::of(0, 0); 33],
            flags: None,
            flags_of_alignment: false,
            memory,
            budget: Budget::default(),
            callers: [0; CALLERS.end - CALLERS.start],
        }
    }

    fn memory(&mut self) -> &mut Memory<'a> {
        &mut self.memory
    }

    fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    fn begin(&mut self, arguments: &[Argument]) {
        for (register, value) in self.registers.iter_mut().enumerate() {
            // A number that is no address or length in use.
            *value = Value::of(0x9d3f_5a71_c80b_2e64_u64.rotate_left(register as u32 * 3) ^ self.budget.steps, 0);
        }
        self.callers = std::array::from_fn(|at| self.registers[CALLERS.start + at].bits);
        self.registers[ZERO as usize] = Value::of(0, WHOLE);
        self.registers[STACK as usize] = Value::of(Processor::stack_top(), WHOLE);
        self.registers[LINK] = Value::of(RETURN, WHOLE);
        (self.flags, self.flags_of_alignment) = (None, false);
        for (argument, register) in arguments.iter().zip(&mut self.registers) {
            *register = match argument {
                Argument::Address(value) => Value::of(*value, WHOLE).with(OfAlignment::Lowest),
                Argument::Word(value) => Value::of(*value, WHOLE),
                Argument::Int(value) => Value::of(register.bits & !0xffff_ffff | u64::from(*value), 15),
            };
        }
    }

    fn end(&self) -> Result<(u64, u8), Unproven> {
        let restored = self.registers[CALLERS].iter().zip(&self.callers).all(|(value, before)| value.bits == *before);
        if !restored || self.registers[STACK as usize].bits != Processor::stack_top() {
            return Err(Unproven::Convention);
        }
        Ok((self.registers[0].bits, self.registers[0].known))
    }

    fn execute(&mut self, step: &A64Instruction) -> Result<(), Unproven> {
        super::execute::execute(self, step)
    }

    fn decide(&self, step: &A64Instruction) -> Result<(bool, bool), Unproven> {
        let Operation::Branch(condition) = step.operation else {
            return Err(Unproven::Unknown(step.address));
        };
        match condition {
            Condition::Flags(number) => {
                let flags = self.flags.ok_or(Unproven::Unset(step.address))?;
                Ok((flags.hold(number), self.flags_of_alignment))
            }
            Condition::Zero { register, wide, not } => {
                let value = self.whole(register, wide, step.address)?;
                Ok(((value == 0) != not, self.get(register, wide).of_alignment == OfAlignment::Whole))
            }
            Condition::Bit { register, bit, set } => {
                let value = self.get(register, true);
                if value.known >> (bit / 8) & 1 == 0 {
                    return Err(Unproven::Unset(step.address));
                }
                let lowest = bit < 4 && value.of_alignment == OfAlignment::Lowest;
                Ok(((value.bits >> bit & 1 == 1) == set, lowest || value.of_alignment == OfAlignment::Whole))
            }
        }
    }

    fn enter(&mut self, step: &A64Instruction) -> Result<u64, Unproven> {
        self.registers[LINK] = Value::of(step.address + 4, WHOLE);
        Ok(step.address + 4)
    }

    fn leave(&mut self, step: &A64Instruction, expected: Option<u64>) -> Result<(), Unproven> {
        let Operation::Return { register } = step.operation else {
            return Err(Unproven::Unknown(step.address));
        };
        let to = self.whole(register, true, step.address)?;
        if to == expected.unwrap_or(RETURN) { Ok(()) } else { Err(Unproven::Convention) }
    }
}
