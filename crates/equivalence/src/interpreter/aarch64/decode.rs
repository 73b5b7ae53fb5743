//! Decoding of A64 instructions on general registers (Arm Architecture Reference Manual, C4.1).

use crate::a64::{Word, bit_mask};
use crate::interpreter::body::{Decoded, Flow};
use crate::interpreter::processor;
use crate::{Program, Unproven};

/// Register 31 in most places: reads as 0, and ignores writes.
pub(super) const ZERO: u32 = 32;
/// Register 31 in the others: the stack pointer.
pub(super) const STACK: u32 = 31;
/// The register in which a call leaves the return address.
pub(super) const LINK: usize = 30;

/// An instruction that can be executed.
#[derive(Debug, Clone, Copy)]
pub(in crate::interpreter) struct A64Instruction {
    pub(super) address: u64,
    pub(super) operation: Operation,
}

/// LSL, LSR, ASR, ROR.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shift {
    Left,
    Right,
    Arithmetic,
    Rotate,
}

/// A second operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Immediate(u64),
    Shifted { register: u32, shift: Shift, by: u32 },
    // The lowest bytes of a register, extended with the sign or with zeros, and shifted left.
    Extended { register: u32, bytes: u32, signed: bool, by: u32 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bits {
    And,
    Or,
    Xor,
}

/// The bits that SBFM, BFM and UBFM put around a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Around {
    Sign,
    Kept,
    Zeros,
}

/// RBIT, REV16, REV32, REV, CLZ, CLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Single {
    ReverseBits,
    /// Reverses the bytes within units of this many bytes.
    ReverseBytes(usize),
    LeadingZeros,
    LeadingSigns,
}

/// MADD and MSUB, those of 32 bits with a result of 64, and the upper half of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Product {
    Plain,
    LongSigned,
    LongUnsigned,
    HighSigned,
    HighUnsigned,
}

/// A load or a store of one register or two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) loads: bool,
    pub(super) registers: [Option<u32>; 2],
    /// The size of one register's part in bytes.
    pub(super) size: u32,
    /// The number of bytes that the sign is extended to.
    pub(super) signed: Option<u32>,
    pub(super) place: Location,
}

/// The address of a load or a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Location {
    // An address that the instruction contains.
    Literal(u64),
    // A register and an offset. After the access the register is changed by `step`.
    Based { base: u32, by: i64, step: Option<i64> },
    Index { base: u32, index: Source },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Condition {
    Flags(u32),
    Zero { register: u32, wide: bool, not: bool },
    Bit { register: u32, bit: u32, set: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    Nothing,
    Address { to: u32, value: u64 },
    Constant { to: u32, value: u64 },
    Keep { to: u32, value: u64, mask: u64, wide: bool },
    Add { to: u32, from: u32, other: Source, subtract: bool, flags: bool, wide: bool },
    Logic { to: u32, from: u32, other: Source, bits: Bits, invert: bool, flags: bool, wide: bool },
    Field { to: u32, from: u32, around: Around, rotate: u32, last: u32, wide: bool },
    Extract { to: u32, high: u32, low: u32, by: u32, wide: bool },
    Shift { to: u32, from: u32, by: u32, shift: Shift, wide: bool },
    Single { to: u32, from: u32, single: Single, wide: bool },
    Multiply { to: u32, one: u32, other: u32, plus: u32, subtract: bool, product: Product, wide: bool },
    Select { to: u32, one: u32, other: u32, condition: u32, invert: bool, increment: bool, wide: bool },
    CompareIf { from: u32, other: Source, condition: u32, otherwise: u32, subtract: bool, wide: bool },
    Memory(Access),
    Branch(Condition),
    Return { register: u32 },
}

impl processor::Instruction for A64Instruction {
    fn decode(program: &dyn Program, address: u64) -> Result<Decoded<A64Instruction>, Unproven> {
        let unknown = Unproven::Unknown(address);
        let bits = program.code(address).first_chunk().filter(|_| address.is_multiple_of(4));
        take_apart(address, u32::from_le_bytes(*bits.ok_or(unknown)?))
    }

    fn number(&self) -> Option<u64> {
        match self.operation {
            Operation::Add { other: Source::Immediate(value), .. }
            | Operation::Logic { other: Source::Immediate(value), flags: true, .. }
            | Operation::CompareIf { other: Source::Immediate(value), .. }
            | Operation::Constant { value, .. } => Some((value as i64).unsigned_abs()),
            Operation::Branch(Condition::Bit { bit, .. }) => Some(1 << bit),
            _ => None,
        }
    }

    fn touches_memory(&self) -> bool {
        matches!(self.operation, Operation::Memory(Access { place, .. }) if match place {
            Location::Literal(_) => false,
            Location::Based { base, .. } | Location::Index { base, .. } => base != STACK,
        })
    }
}

pub(super) fn take_apart(address: u64, bits: u32) -> Result<Decoded<A64Instruction>, Unproven> {
    let word = Word { address, bits };
    let flow = flow(word).ok_or(Unproven::Indirect(address))?;
    let operation = operation(word, flow).ok_or(Unproven::Unknown(address))?;
    Ok(Decoded { instruction: A64Instruction { address, operation }, flow, behind: address + 4 })
}

/// A register that may be the zero register.
fn general(word: Word, low: u32) -> u32 {
    match word.field(low, 5) {
        31 => ZERO,
        register => register,
    }
}

/// `None` for an indirect branch.
fn flow(word: Word) -> Option<Flow> {
    match () {
        () if word.is(0xfc00_0000, 0x1400_0000) => Some(Flow::Jump(word.target(0, 26))),
        () if word.is(0xfc00_0000, 0x9400_0000) => Some(Flow::Call(word.target(0, 26))),
        () if word.is(0xff00_0010, 0x5400_0000) || word.is(0x7e00_0000, 0x3400_0000) => {
            Some(Flow::Conditional(word.target(5, 19)))
        }
        () if word.is(0x7e00_0000, 0x3600_0000) => Some(Flow::Conditional(word.target(5, 14))),
        () if word.is(0xffff_fc1f, 0xd65f_0000) => Some(Flow::Return),
        () if word.is(0xfe00_0000, 0xd600_0000) => None,
        () => Some(Flow::Next),
    }
}

fn operation(word: Word, flow: Flow) -> Option<Operation> {
    let wide = word.bit(31);
    match flow {
        Flow::Jump(_) | Flow::Call(_) => Some(Operation::Nothing),
        Flow::Return => Some(Operation::Return { register: general(word, 5) }),
        Flow::Conditional(_) => {
            let register = general(word, 0);
            Some(Operation::Branch(match () {
                () if word.is(0xff00_0000, 0x5400_0000) => Condition::Flags(word.field(0, 4)),
                () if word.bit(25) => {
                    let bit = word.field(31, 1) << 5 | word.field(19, 5);
                    Condition::Bit { register, bit, set: word.bit(24) }
                }
                () => Condition::Zero { register, wide, not: word.bit(24) },
            }))
        }
        Flow::Next => match word.field(25, 4) {
            8 | 9 => with_immediate(word, wide),
            5 | 13 => with_registers(word, wide),
            4 | 12 => access(word).map(Operation::Memory),
            // NOP; BTI; PACIASP and AUTIASP, which older processors do not know
            _ if matches!(word.bits, 0xd503_201f | 0xd503_233f | 0xd503_23bf) || word.is(0xffff_ff3f, 0xd503_241f) => {
                Some(Operation::Nothing)
            }
            _ => None,
        },
    }
}

fn with_immediate(word: Word, wide: bool) -> Option<Operation> {
    let (to, from) = (general(word, 0), general(word, 5));
    let (plain_to, plain_from) = (word.field(0, 5), word.field(5, 5));
    let mask = if wide { u64::MAX } else { 0xffff_ffff };
    let (rotate, last) = (word.field(16, 6), word.field(10, 6));
    let fits = wide || rotate < 32 && last < 32;
    match word.field(23, 3) {
        0 | 1 => {
            let distance = word.signed(5, 19) << 2 | i64::from(word.field(29, 2));
            let value = match wide {
                true => (word.address & !0xfff).wrapping_add_signed(distance << 12),
                false => word.address.wrapping_add_signed(distance),
            };
            Some(Operation::Address { to, value })
        }
        2 => {
            let value = u64::from(word.field(10, 12)) << if word.bit(22) { 12 } else { 0 };
            let flags = word.bit(29);
            let to = if flags { to } else { plain_to };
            let other = Source::Immediate(value);
            Some(Operation::Add { to, from: plain_from, other, subtract: word.bit(30), flags, wide })
        }
        4 => {
            let value = bit_mask(word.bit(22), last, rotate).filter(|_| wide || !word.bit(22))? & mask;
            let (bits, flags) = bits_of_logic(word);
            let (to, other) = (if flags { to } else { plain_to }, Source::Immediate(value));
            Some(Operation::Logic { to, from, other, bits, invert: false, flags, wide })
        }
        5 => {
            let shift = word.field(21, 2) * 16;
            let value = u64::from(word.field(5, 16)) << shift;
            match word.field(29, 2) {
                _ if !wide && shift > 16 => None,
                0 => Some(Operation::Constant { to, value: !value & mask }),
                2 => Some(Operation::Constant { to, value }),
                3 => Some(Operation::Keep { to, value, mask: !(0xffff << shift), wide }),
                _ => None,
            }
        }
        6 => {
            let around = match word.field(29, 2) {
                0 => Around::Sign,
                1 => Around::Kept,
                2 => Around::Zeros,
                _ => return None,
            };
            (fits && word.bit(22) == wide).then_some(Operation::Field { to, from, around, rotate, last, wide })
        }
        _ => (word.is(0x7fa0_0000, 0x1380_0000) && fits && word.bit(22) == wide).then_some(Operation::Extract {
            to,
            high: from,
            low: general(word, 16),
            by: last,
            wide,
        }),
    }
}

fn bits_of_logic(word: Word) -> (Bits, bool) {
    match word.field(29, 2) {
        1 => (Bits::Or, false),
        2 => (Bits::Xor, false),
        flags => (Bits::And, flags == 3),
    }
}

fn shift(word: Word) -> Shift {
    [Shift::Left, Shift::Right, Shift::Arithmetic, Shift::Rotate][word.field(22, 2) as usize]
}

fn extended(word: Word, register: u32, by: u32) -> Source {
    let option = word.field(13, 3);
    Source::Extended { register, bytes: 1 << (option & 3), signed: option & 4 != 0, by }
}

fn with_registers(word: Word, wide: bool) -> Option<Operation> {
    let (to, from, other) = (general(word, 0), general(word, 5), general(word, 16));
    let (subtract, flags) = (word.bit(30), word.bit(29));
    let shifted = Source::Shifted { register: other, shift: shift(word), by: word.field(10, 6) };
    let fits = wide || word.field(10, 6) < 32;
    match () {
        () if word.is(0x1f00_0000, 0x0a00_0000) && fits => {
            let (bits, flags) = bits_of_logic(word);
            Some(Operation::Logic { to, from, other: shifted, bits, invert: word.bit(21), flags, wide })
        }
        () if word.is(0x1f20_0000, 0x0b00_0000) && fits && shift(word) != Shift::Rotate => {
            Some(Operation::Add { to, from, other: shifted, subtract, flags, wide })
        }
        () if word.is(0x1fe0_0000, 0x0b20_0000) && word.field(10, 3) <= 4 => {
            let to = if flags { to } else { word.field(0, 5) };
            let other = extended(word, other, word.field(10, 3));
            Some(Operation::Add { to, from: word.field(5, 5), other, subtract, flags, wide })
        }
        () if word.is(0x3fe0_0410, 0x3a40_0000) => {
            let other = match word.bit(11) {
                true => Source::Immediate(u64::from(word.field(16, 5))),
                false => Source::Shifted { register: other, shift: Shift::Left, by: 0 },
            };
            let (condition, otherwise) = (word.field(12, 4), word.field(0, 4));
            Some(Operation::CompareIf { from, other, condition, otherwise, subtract, wide })
        }
        () if word.is(0x3fe0_0800, 0x1a80_0000) => {
            let (condition, increment) = (word.field(12, 4), word.bit(10));
            Some(Operation::Select { to, one: from, other, condition, invert: subtract, increment, wide })
        }
        () if word.is(0x7fe0_f000, 0x1ac0_2000) => {
            let shift = [Shift::Left, Shift::Right, Shift::Arithmetic, Shift::Rotate][word.field(10, 2) as usize];
            Some(Operation::Shift { to, from, by: other, shift, wide })
        }
        () if word.is(0x7fff_0000, 0x5ac0_0000) => {
            let single = match (word.field(10, 6), wide) {
                (0, _) => Single::ReverseBits,
                (1, _) => Single::ReverseBytes(2),
                (2, _) => Single::ReverseBytes(4),
                (3, true) => Single::ReverseBytes(8),
                (4, _) => Single::LeadingZeros,
                (5, _) => Single::LeadingSigns,
                _ => return None,
            };
            Some(Operation::Single { to, from, single, wide })
        }
        () if word.is(0x7f00_0000, 0x1b00_0000) => {
            let product = match (word.field(21, 3), wide) {
                (0, _) => Product::Plain,
                (1, true) => Product::LongSigned,
                (5, true) => Product::LongUnsigned,
                (2, true) if word.field(10, 6) == 31 => Product::HighSigned,
                (6, true) if word.field(10, 6) == 31 => Product::HighUnsigned,
                _ => return None,
            };
            let plus = general(word, 10);
            Some(Operation::Multiply { to, one: from, other, plus, subtract: word.bit(15), product, wide })
        }
        () => None,
    }
}

fn access(word: Word) -> Option<Access> {
    // Vector instructions are not known here.
    if word.bit(26) {
        return None;
    }
    let (register, base) = (general(word, 0), word.field(5, 5));
    let size = 1u32 << word.field(30, 2);
    match () {
        // LDR (literal), LDRSW (literal)
        () if word.is(0x3b00_0000, 0x1800_0000) => {
            let (size, signed) = match word.field(30, 2) {
                0 => (4, None),
                1 => (8, None),
                2 => (4, Some(8)),
                _ => return None,
            };
            let place = Location::Literal(word.target(5, 19));
            Some(Access { loads: true, registers: [Some(register), None], size, signed, place })
        }
        // Pairs
        () if word.is(0x3a00_0000, 0x2800_0000) => {
            let size = match word.field(30, 2) {
                0 => 4,
                2 => 8,
                _ => return None,
            };
            let by = word.signed(15, 7) * i64::from(size);
            let place = match word.field(23, 2) {
                1 => Location::Based { base, by: 0, step: Some(by) },
                3 => Location::Based { base, by, step: Some(by) },
                _ => Location::Based { base, by, step: None },
            };
            let registers = [Some(register), Some(general(word, 10))];
            Some(Access { loads: word.bit(22), registers, size, signed: None, place })
        }
        () if word.is(0x3a00_0000, 0x3800_0000) => {
            let near = word.signed(12, 9);
            let place = match (word.bit(24), word.bit(21), word.field(10, 2)) {
                (true, ..) => Location::Based { base, by: i64::from(word.field(10, 12)) * i64::from(size), step: None },
                (false, false, 0) => Location::Based { base, by: near, step: None },
                (false, false, 1) => Location::Based { base, by: 0, step: Some(near) },
                (false, false, 3) => Location::Based { base, by: near, step: Some(near) },
                (false, true, 2) if word.bit(14) => {
                    let by = if word.bit(12) { size.trailing_zeros() } else { 0 };
                    Location::Index { base, index: extended(word, general(word, 16), by) }
                }
                _ => return None,
            };
            let (loads, signed) = match (word.field(22, 2), size) {
                (0, _) => (false, None),
                (1, _) => (true, None),
                (2, 1..8) => (true, Some(8)),
                (3, 1 | 2) => (true, Some(4)),
                _ => return None,
            };
            Some(Access { loads, registers: [Some(register), None], size, signed, place })
        }
        () => None,
    }
}
