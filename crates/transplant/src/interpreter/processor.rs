//! Registers, and one run of a function.

use iced_x86::{Instruction, OpKind, Register};

use super::body::{Body, Flow, Unit};
use super::flags::{Flags, mask};
use super::memory::Memory;
use super::{Stop, general, repeated, vector};
use crate::code::is_immediate;

pub(super) const RAX: usize = 0;
pub(super) const RCX: usize = 1;
pub(super) const RDX: usize = 2;
pub(super) const RSP: usize = 4;
pub(super) const RBP: usize = 5;
pub(super) const RSI: usize = 6;
pub(super) const RDI: usize = 7;
/// Registers that a function leaves as it found them (System V ABI, 3.2.1).
const CALLERS: [usize; 6] = [3, RBP, 12, 13, 14, 15];
/// Where arguments are passed.
const ARGUMENTS: [usize; 3] = [RDI, RSI, RDX];

/// All bytes of a general register.
pub(super) const WHOLE: u8 = 0xff;

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
    known: u8,
    /// Instructions, and rounds of those that repeat.
    pub(crate) steps: u64,
}

impl Outcome {
    /// 64 bits, if all of them were set.
    pub(crate) fn word(&self) -> Option<u64> {
        (self.known == WHOLE).then_some(self.result)
    }

    /// The lower 32 bits.
    pub(crate) fn int(&self) -> Option<i32> {
        (self.known & 15 == 15).then_some(self.result as i32)
    }
}

/// What instructions work on.
#[derive(Debug)]
pub(crate) struct Processor<'a> {
    pub(super) general: [u64; 16],
    /// For each general register, which of its bytes have been set.
    pub(super) known: [u8; 16],
    /// Registers whose lowest four bits depend on nothing but those of the pointers that were passed.
    pub(super) of_alignment: [bool; 16],
    /// Whether the flags do.
    pub(super) flags_of_alignment: bool,
    pub(super) vector: [u128; 16],
    pub(super) vector_known: [bool; 16],
    pub(super) flags: Flags,
    /// The direction flag: string instructions go down.
    pub(super) down: bool,
    pub(crate) memory: Memory<'a>,
    pub(super) steps: u64,
    limit: u64,
}

impl<'a> Processor<'a> {
    pub(crate) fn new(memory: Memory<'a>) -> Processor<'a> {
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
            steps: 0,
            limit: 0,
        }
    }

    /// Calls a function. What it executes is noted in `body`.
    pub(crate) fn call(&mut self, body: &mut Body, arguments: &[Argument], limit: u64) -> Result<Outcome, Stop> {
        for (register, value) in self.general.iter_mut().enumerate() {
            // Something that is nothing else's address or length.
            *value = 0x9d3f_5a71_c80b_2e64_u64.rotate_left(register as u32 * 3) ^ self.steps;
        }
        self.known = [0; 16];
        (self.of_alignment, self.flags_of_alignment) = ([false; 16], false);
        self.vector_known = [false; 16];
        self.flags = Flags::default();
        (self.down, self.steps, self.limit) = (false, 0, limit);
        self.memory.clear_stack();
        let top = Memory::stack_top();
        (self.general[RSP], self.known[RSP]) = (top, WHOLE);
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
        let before = CALLERS.map(|register| self.general[register]);
        self.run(body)?;
        let restored = CALLERS.map(|register| self.general[register]) == before;
        if !restored || self.general[RSP] != top || self.down {
            return Err(Stop::Convention);
        }
        Ok(Outcome { result: self.general[RAX], known: self.known[RAX], steps: self.steps })
    }

    fn run(&mut self, body: &mut Body) -> Result<(), Stop> {
        let mut calls: Vec<(u64, usize)> = Vec::new();
        let mut at = 0;
        loop {
            self.spend(1)?;
            body.note(at);
            let step = &body.steps[at];
            let instruction = step.instruction;
            at = match step.flow {
                Flow::Next => {
                    let (unit, next) = (step.unit, step.next);
                    self.execute(unit, &instruction)?;
                    next
                }
                Flow::Jump => step.target,
                Flow::Conditional => {
                    let (target, next) = (step.target, step.next);
                    let holds = match instruction.is_jcc_short_or_near() {
                        true => self.flags.hold(instruction.condition_code()),
                        false => return Err(Stop::Unknown { address: instruction.ip() }),
                    };
                    let taken = holds.ok_or(Stop::Unset { address: instruction.ip() })?;
                    body.note_way(at, taken, self.flags_of_alignment);
                    if taken { target } else { next }
                }
                Flow::Call => {
                    let (target, next) = (step.target, step.next);
                    self.push(u128::from(instruction.next_ip()), u16::MAX)?;
                    calls.push((self.general[RSP], next));
                    if calls.len() > 8 {
                        return Err(Stop::Endless);
                    }
                    target
                }
                Flow::Return => match calls.pop() {
                    None => return Ok(()),
                    Some((stack, next)) if stack == self.general[RSP] => {
                        self.general[RSP] += 8;
                        next
                    }
                    Some(_) => return Err(Stop::Convention),
                },
            };
        }
    }

    pub(super) fn spend(&mut self, steps: u64) -> Result<(), Stop> {
        self.steps += steps;
        if self.steps > self.limit { Err(Stop::Endless) } else { Ok(()) }
    }

    fn execute(&mut self, unit: Unit, instruction: &Instruction) -> Result<(), Stop> {
        match unit {
            Unit::General => general::execute(self, instruction),
            Unit::Repeated => repeated::execute(self, instruction),
            Unit::Vector => vector::execute(self, instruction),
        }
    }

    pub(super) fn push(&mut self, value: u128, known: u16) -> Result<(), Stop> {
        let at = self.general[RSP].wrapping_sub(8);
        self.memory.write(at, 8, value, known)?;
        self.general[RSP] = at;
        Ok(())
    }

    /// The address of an operand in memory; `true` if the instruction says it by itself.
    pub(super) fn address(&self, instruction: &Instruction) -> Result<(u64, bool), Stop> {
        let (base, index) = (instruction.memory_base(), instruction.memory_index());
        let displacement = instruction.memory_displacement64();
        if matches!(base, Register::RIP | Register::None) && index == Register::None {
            return Ok((displacement, true));
        }
        let mut address = displacement;
        for (register, scale) in [(base, 1), (index, instruction.memory_index_scale())] {
            if register == Register::None {
                continue;
            }
            if !register.is_gpr64() || self.known[register.number()] != WHOLE {
                return Err(Stop::Unset { address: instruction.ip() });
            }
            address = address.wrapping_add(self.general[register.number()].wrapping_mul(u64::from(scale)));
        }
        Ok((address, false))
    }

    /// An operand in memory, and which of its bytes have been set.
    pub(super) fn load(&self, instruction: &Instruction, size: usize) -> Result<(u128, u16), Stop> {
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
    ) -> Result<(), Stop> {
        match self.address(instruction)? {
            (at, true) => Err(Stop::Fault { at }),
            (at, false) => self.memory.write(at, size, value, known),
        }
    }

    /// How many bytes a general operand has.
    pub(super) fn size(instruction: &Instruction, operand: u32) -> usize {
        match instruction.op_kind(operand) {
            OpKind::Register => instruction.op_register(operand).size(),
            OpKind::Memory => instruction.memory_size().size(),
            _ => Processor::size(instruction, 0),
        }
    }

    /// A general operand, and which of its bytes have been set.
    pub(super) fn operand(&self, instruction: &Instruction, operand: u32) -> Result<(u64, u8), Stop> {
        match instruction.op_kind(operand) {
            OpKind::Register => Ok(self.register(instruction.op_register(operand))),
            OpKind::Memory => {
                let (value, known) = self.load(instruction, Processor::size(instruction, operand).min(8))?;
                Ok((value as u64, known as u8))
            }
            kind if is_immediate(kind) => Ok((instruction.immediate(operand), WHOLE)),
            _ => Err(Stop::Unknown { address: instruction.ip() }),
        }
    }

    /// A general operand, all of whose bytes have to have been set.
    pub(super) fn value(&self, instruction: &Instruction, operand: u32) -> Result<u64, Stop> {
        let (value, known) = self.operand(instruction, operand)?;
        let size = Processor::size(instruction, operand);
        let needed = mask_of_bytes(size);
        if known & needed != needed {
            return Err(Stop::Unset { address: instruction.ip() });
        }
        Ok(value & mask(size))
    }

    /// A general operand, and which bytes of it have been set; those beyond its size count as if they were.
    pub(super) fn whole(&self, instruction: &Instruction, operand: u32) -> Result<(u64, u8), Stop> {
        let (value, known) = self.operand(instruction, operand)?;
        let size = Processor::size(instruction, operand);
        Ok((value & mask(size), known | !mask_of_bytes(size)))
    }

    /// A register's value and which bytes of it have been set, from bit 0 on.
    pub(super) fn register(&self, register: Register) -> (u64, u8) {
        let (number, high) = place(register);
        let shift = if high { 8 } else { 0 };
        (self.general[number] >> shift, self.known[number] >> (shift / 8))
    }

    /// Writes to a register: 32 bits clear the upper half, fewer leave the rest as it is.
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

    /// Whether an operand's lowest four bits depend on the alignment of arguments alone, or are the instruction's own.
    pub(super) fn is_of_alignment(&self, instruction: &Instruction, operand: u32) -> bool {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                let (number, high) = place(instruction.op_register(operand));
                !high && self.of_alignment[number]
            }
            kind => is_immediate(kind),
        }
    }

    /// Notes the same of a register that has been written.
    pub(super) fn note_alignment(&mut self, instruction: &Instruction, of_alignment: bool) {
        if instruction.op0_kind() == OpKind::Register {
            let (number, high) = place(instruction.op0_register());
            self.of_alignment[number] = of_alignment && !high;
        }
    }

    /// Writes to a general operand.
    pub(super) fn set(&mut self, instruction: &Instruction, operand: u32, value: u64, known: u8) -> Result<(), Stop> {
        match instruction.op_kind(operand) {
            OpKind::Register => {
                self.set_register(instruction.op_register(operand), value, known);
                Ok(())
            }
            OpKind::Memory => {
                let size = Processor::size(instruction, operand);
                self.store(instruction, size, u128::from(value), u16::from(known))
            }
            _ => Err(Stop::Unknown { address: instruction.ip() }),
        }
    }
}

/// One bit for each byte.
pub(super) fn mask_of_bytes(size: usize) -> u8 {
    if size >= 8 { WHOLE } else { (1 << size) - 1 }
}

/// A general register's number, and whether its second byte is meant.
fn place(register: Register) -> (usize, bool) {
    match register {
        Register::AH => (0, true),
        Register::CH => (1, true),
        Register::DH => (2, true),
        Register::BH => (3, true),
        other => (other.full_register().number(), false),
    }
}
