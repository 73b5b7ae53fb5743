//! Registers, and one run of a function.

use iced_x86::{Instruction, OpKind, Register};

use super::decode::{X64Instruction, unknown, unset};
use super::flags::{Flags, mask};
use crate::Unproven;
use crate::interpreter::Argument;
use crate::interpreter::memory::Memory;
use crate::interpreter::processor::{self, Budget};

pub(super) const RAX: usize = 0;
pub(super) const RCX: usize = 1;
pub(super) const RDX: usize = 2;
pub(super) const RSP: usize = 4;
pub(super) const RBP: usize = 5;
pub(super) const RSI: usize = 6;
pub(super) const RDI: usize = 7;
/// Registers that a function has to restore (System V ABI, 3.2.1).
const CALLERS: [usize; 6] = [3, RBP, 12, 13, 14, 15];
/// The registers with the arguments.
const ARGUMENTS: [usize; 3] = [RDI, RSI, RDX];

/// All bytes of a general register.
pub(super) const WHOLE: u8 = 0xff;

/// The state that instructions work on.
#[derive(Debug)]
pub(in crate::interpreter) struct Processor<'a> {
    pub(super) general: [u64; 16],
    /// For each general register, the bytes that have been set, as bits.
    pub(super) known: [u8; 16],
    /// Registers whose lowest four bits depend only on those of the pointer arguments.
    pub(super) of_alignment: [bool; 16],
    /// Whether the flags depend only on those bits.
    pub(super) flags_of_alignment: bool,
    pub(super) vector: [u128; 16],
    pub(super) vector_known: [bool; 16],
    pub(super) flags: Flags,
    /// The direction flag: string instructions go down.
    pub(super) down: bool,
    pub(super) memory: Memory<'a>,
    pub(super) budget: Budget,
    /// The values of the caller's registers.
    callers: [u64; CALLERS.len()],
}

impl<'a> processor::Processor<'a> for Processor<'a> {
    type Instruction = X64Instruction;

    fn new(memory: Memory<'a>) -> Processor<'a> {
        Processor {
            general: [0; 16],
            known: [0; 16],
            of_alignment: [false; 16],
            flags_of_alignment: false,
            vector: [0; 16],
            vector_known: [false; 16],
            flags: Flags::default(),
            down: false,
            memory,
            budget: Budget::default(),
            callers: [0; CALLERS.len()],
        }
    }

    fn memory(&mut self) -> &mut Memory<'a> {
        &mut self.memory
    }

    fn budget(&mut self) -> &mut Budget {
        &mut self.budget
    }

    fn begin(&mut self, arguments: &[Argument]) {
        for (register, value) in self.general.iter_mut().enumerate() {
            // A number that is not an address or length in use.
            *value = 0x9d3f_5a71_c80b_2e64_u64.rotate_left(register as u32 * 3) ^ self.budget.steps;
        }
        self.callers = CALLERS.map(|register| self.general[register]);
        self.known = [0; 16];
        (self.of_alignment, self.flags_of_alignment) = ([false; 16], false);
        self.vector_known = [false; 16];
        (self.flags, self.down) = (Flags::default(), false);
        (self.general[RSP], self.known[RSP]) = (Memory::stack_top(), WHOLE);
        for (argument, register) in arguments.iter().zip(ARGUMENTS) {
            match argument {
                Argument::Address(value) => {
                    (self.general[register], self.known[register]) = (*value, WHOLE);
                    self.of_alignment[register] = true;
                }
                Argument::Word(value) => (self.general[register], self.known[register]) = (*value, WHOLE),
                Argument::Int(value) => {
                    self.general[register] = self.general[register] & !0xffff_ffff | u64::from(*value);
                    self.known[register] = 15;
                }
            }
        }
    }

    fn end(&self) -> Result<(u64, u8), Unproven> {
        let restored = CALLERS.map(|register| self.general[register]) == self.callers;
        if !restored || self.general[RSP] != Memory::stack_top() || self.down {
            return Err(Unproven::Convention);
        }
        Ok((self.general[RAX], self.known[RAX]))
    }

    fn execute(&mut self, step: &X64Instruction) -> Result<(), Unproven> {
        (step.execution)(self, &step.instruction)
    }

    fn decide(&self, X64Instruction { instruction, .. }: &X64Instruction) -> Result<(bool, bool), Unproven> {
        if !instruction.is_jcc_short_or_near() {
            return Err(unknown(instruction));
        }
        Ok((self.flags.hold(instruction.condition_code()).ok_or(unset(instruction))?, self.flags_of_alignment))
    }

    fn enter(&mut self, step: &X64Instruction) -> Result<u64, Unproven> {
        self.push(u128::from(step.instruction.next_ip()), u16::MAX)?;
        Ok(self.general[RSP])
    }

    fn leave(&mut self, _: &X64Instruction, expected: Option<u64>) -> Result<(), Unproven> {
        match expected {
            None => Ok(()),
            Some(stack) if stack == self.general[RSP] => {
                self.general[RSP] += 8;
                Ok(())
            }
            Some(_) => Err(Unproven::Convention),
        }
    }
}

impl Processor<'_> {
    pub(super) fn push(&mut self, value: u128, known: u16) -> Result<(), Unproven> {
        let at = self.general[RSP].wrapping_sub(8);
        self.memory.write(at, 8, value, known)?;
        self.general[RSP] = at;
        Ok(())
    }

    /// Takes a word from the stack, with its set bytes.
    pub(super) fn pop(&mut self) -> Result<(u64, u8), Unproven> {
        let (value, known) = self.memory.read(self.general[RSP], 8)?;
        self.general[RSP] = self.general[RSP].wrapping_add(8);
        Ok((value as u64, known as u8))
    }

    /// A register, whose lowest `size` bytes must have been set.
    pub(super) fn set_part(&self, instruction: &Instruction, register: usize, size: usize) -> Result<u64, Unproven> {
        let needed = mask_of_bytes(size);
        if self.known[register] & needed == needed { Ok(self.general[register]) } else { Err(unset(instruction)) }
    }

    /// The address of an operand in memory; `true` if the instruction contains it.
    pub(super) fn address(&self, instruction: &Instruction) -> Result<(u64, bool), Unproven> {
        let (address, known, constant) = self.effective_address(instruction)?;
        if known == WHOLE { Ok((address, constant)) } else { Err(unset(instruction)) }
    }

    /// The address that an operand computes, with the bytes of its registers that have all been set, as bits.
    pub(super) fn effective_address(&self, instruction: &Instruction) -> Result<(u64, u8, bool), Unproven> {
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let mut address = instruction.memory_displacement64();
        if matches!(base, Register::RIP | Register::None) && index == Register::None {
            return Ok((address, WHOLE, true));
        }
        let mut known = WHOLE;
        for (register, scale) in [(base, 1), (index, instruction.memory_index_scale())] {
            if register == Register::None {
                continue;
            }
            if !register.is_gpr64() {
                return Err(unset(instruction));
            }
            known &= self.known[register.number()];
            address = address.wrapping_add(self.general[register.number()].wrapping_mul(u64::from(scale)));
        }
        Ok((address, known, false))
    }

    /// An operand in memory, and which of its bytes have been set.
    pub(super) fn load(&self, instruction: &Instruction, size: usize) -> Result<(u128, u16), Unproven> {
        match self.address(instruction)? {
            (at, true) => Ok((self.memory.constant(at, size)?, u16::MAX)),
            (at, false) => self.memory.read(at, size),
        }
    }

    pub(super) fn store(
        &mut self,
        instruction: &Instruction,
        size: usize,
        value: u128,
        known: u16,
    ) -> Result<(), Unproven> {
        match self.address(instruction)? {
            (_, true) => Err(Unproven::Memory),
            (at, false) => self.memory.write(at, size, value, known),
        }
    }

    /// The size of a general operand in bytes.
    pub(super) fn size(instruction: &Instruction, operand: u32) -> usize {
        match instruction.op_kind(operand) {
            OpKind::Register => instruction.op_register(operand).size(),
            OpKind::Memory => instruction.memory_size().size(),
            _ => Processor::size(instruction, 0),
        }
    }

    /// A general operand, and which of its bytes have been set.
    pub(super) fn operand(&self, instruction: &Instruction, operand: u32) -> Result<(u64, u8), Unproven> {
        match instruction.op_kind(operand) {
            OpKind::Register => Ok(self.register(instruction.op_register(operand))),
            OpKind::Memory => {
                let (value, known) = self.load(instruction, Processor::size(instruction, operand).min(8))?;
                Ok((value as u64, known as u8))
            }
            _ => Ok((instruction.try_immediate(operand).map_err(|_| unknown(instruction))?, WHOLE)),
        }
    }

    /// A general operand's value; an error unless all its bytes have been set.
    pub(super) fn value(&self, instruction: &Instruction, operand: u32) -> Result<u64, Unproven> {
        let (value, known) = self.operand(instruction, operand)?;
        let size = Processor::size(instruction, operand);
        let needed = mask_of_bytes(size);
        if known & needed != needed {
            return Err(unset(instruction));
        }
        Ok(value & mask(size))
    }

    /// A general operand, and which of its bytes have been set. Bytes beyond its size count as set.
    pub(super) fn whole(&self, instruction: &Instruction, operand: u32) -> Result<(u64, u8), Unproven> {
        let (value, known) = self.operand(instruction, operand)?;
        let size = Processor::size(instruction, operand);
        Ok((value & mask(size), known | !mask_of_bytes(size)))
    }

    /// A register's value, and which of its bytes have been set, from bit 0 on.
    pub(super) fn register(&self, register: Register) -> (u64, u8) {
        let (number, high) = place(register);
        let shift = if high { 8 } else { 0 };
        (self.general[number] >> shift, self.known[number] >> (shift / 8))
    }

    /// Writes to a register: 32 bits clear the upper half; fewer bits keep the rest.
    pub(super) fn set_register(&mut self, register: Register, value: u64, known: u8) {
        let (number, high) = place(register);
        self.of_alignment[number] = false;
        match register.size() {
            8 => (self.general[number], self.known[number]) = (value, known),
            4 => (self.general[number], self.known[number]) = (value & 0xffff_ffff, known | 0xf0),
            size => {
                let shift = if high { 8 } else { 0 };
                let (bits, bytes) = (mask(size) << shift, mask_of_bytes(size) << (shift / 8));
                self.general[number] = self.general[number] & !bits | value << shift & bits;
                self.known[number] = self.known[number] & !bytes | known << (shift / 8) & bytes;
            }
        }
    }

    /// Whether an operand's lowest four bits depend only on the alignment of arguments, or are an immediate.
    pub(super) fn is_of_alignment(&self, instruction: &Instruction, operand: u32) -> bool {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let (number, high) = place(instruction.op_register(operand));
                !high && self.of_alignment[number]
            }
            _ => instruction.try_immediate(operand).is_ok(),
        }
    }

    /// Writes to the first operand, and records `of_alignment` for it if it is a register.
    pub(super) fn set_first(
        &mut self,
        instruction: &Instruction,
        value: u64,
        known: u8,
        of_alignment: bool,
    ) -> Result<(), Unproven> {
        self.set(instruction, 0, value, known)?;
        if instruction.op0_kind() == OpKind::Register {
            let (number, high) = place(instruction.op0_register());
            self.of_alignment[number] = of_alignment && !high;
        }
        Ok(())
    }

    /// Writes to a general operand.
    pub(super) fn set(
        &mut self,
        instruction: &Instruction,
        operand: u32,
        value: u64,
        known: u8,
    ) -> Result<(), Unproven> {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                self.set_register(instruction.op_register(operand), value, known);
                Ok(())
            }
            OpKind::Memory => {
                let size = Processor::size(instruction, operand);
                self.store(instruction, size, u128::from(value), u16::from(known))
            }
            _ => Err(unknown(instruction)),
        }
    }
}

/// One bit for each byte.
pub(super) fn mask_of_bytes(size: usize) -> u8 {
    if size >= 8 { WHOLE } else { (1 << size) - 1 }
}

/// A general register's number, and whether the operand is its second byte.
fn place(register: Register) -> (usize, bool) {
    match register {
        Register::AH => (0, true),
        Register::CH => (1, true),
        Register::DH => (2, true),
        Register::BH => (3, true),
        other => (other.full_register().number(), false),
    }
}
