//! SSE2 instructions on whole registers of 16 bytes.

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::decode::{Execution, unknown, unset};
use super::processor::{Processor, WHOLE};
use crate::Unproven;

type Lane = [u8; 16];

/// Returns the execution of an instruction of that name; `None` if it cannot be executed here.
pub(super) fn execution(mnemonic: Mnemonic) -> Option<Execution> {
    use Mnemonic as M;
    Some(match mnemonic {
        _ if moved(mnemonic).is_some() => move_whole,
        _ if combined(mnemonic).is_some() => combine,
        M::Movd => |p, i| between(p, i, 4),
        M::Movq => |p, i| between(p, i, 8),
        M::Movss => |p, i| move_low(p, i, 4),
        M::Movsd => |p, i| move_low(p, i, 8),
        M::Movhps | M::Movhpd => |p, i| move_half(p, i, 64),
        M::Movlps | M::Movlpd => |p, i| move_half(p, i, 0),
        M::Pmovmskb => |p, i| {
            let lane = p.lane(i, p.lane_of(i, 1)?)?.to_le_bytes();
            let bits = lane.iter().enumerate().fold(0, |bits, (at, byte)| bits | u64::from(byte >> 7) << at);
            p.set(i, 0, bits, WHOLE)
        },
        M::Pshufd => |p, i| shuffle(p, i, 4, 0),
        M::Pshuflw => |p, i| shuffle(p, i, 2, 0),
        M::Pshufhw => |p, i| shuffle(p, i, 2, 8),
        M::Pslldq => |p, i| shift(p, i, u128::checked_shl),
        M::Psrldq => |p, i| shift(p, i, u128::checked_shr),
        _ => return None,
    })
}

/// Whether it moves 16 bytes, and if so, whether their address has to be a multiple of 16.
fn moved(mnemonic: Mnemonic) -> Option<bool> {
    match mnemonic {
        Mnemonic::Movdqa | Mnemonic::Movaps | Mnemonic::Movapd | Mnemonic::Movntdq | Mnemonic::Movntps => Some(true),
        Mnemonic::Movdqu | Mnemonic::Movups | Mnemonic::Movupd | Mnemonic::Lddqu => Some(false),
        _ => None,
    }
}

fn each(a: Lane, b: Lane, of: impl Fn(u8, u8) -> u8) -> Lane {
    std::array::from_fn(|at| of(a[at], b[at]))
}

/// Compares units of `UNIT` bytes.
fn equal<const UNIT: usize>(a: Lane, b: Lane) -> Lane {
    std::array::from_fn(|at| {
        let from = at / UNIT * UNIT;
        if a[from..from + UNIT] == b[from..from + UNIT] { 0xff } else { 0 }
    })
}

/// Interleaves units of `UNIT` bytes, from the lower half or the upper one.
fn interleaved<const UNIT: usize, const FROM: usize>(a: Lane, b: Lane) -> Lane {
    std::array::from_fn(|at| {
        let unit = at / UNIT;
        let place = FROM + unit / 2 * UNIT + at % UNIT;
        if unit.is_multiple_of(2) { a[place] } else { b[place] }
    })
}

type Combination = fn(Lane, Lane) -> Lane;

/// The operation on two registers.
fn combined(mnemonic: Mnemonic) -> Option<Combination> {
    Some(match mnemonic {
        Mnemonic::Pxor | Mnemonic::Xorps | Mnemonic::Xorpd => |a, b| each(a, b, |a, b| a ^ b),
        Mnemonic::Por | Mnemonic::Orps | Mnemonic::Orpd => |a, b| each(a, b, |a, b| a | b),
        Mnemonic::Pand | Mnemonic::Andps | Mnemonic::Andpd => |a, b| each(a, b, |a, b| a & b),
        Mnemonic::Pandn | Mnemonic::Andnps | Mnemonic::Andnpd => |a, b| each(a, b, |a, b| !a & b),
        Mnemonic::Pcmpeqb => equal::<1>,
        Mnemonic::Pcmpeqw => equal::<2>,
        Mnemonic::Pcmpeqd => equal::<4>,
        Mnemonic::Pcmpgtb => |a, b| each(a, b, |a, b| if a.cast_signed() > b.cast_signed() { 0xff } else { 0 }),
        Mnemonic::Pminub => |a, b| each(a, b, u8::min),
        Mnemonic::Pmaxub => |a, b| each(a, b, u8::max),
        Mnemonic::Paddb => |a, b| each(a, b, u8::wrapping_add),
        Mnemonic::Psubb => |a, b| each(a, b, u8::wrapping_sub),
        Mnemonic::Psubusb => |a, b| each(a, b, u8::saturating_sub),
        Mnemonic::Punpcklbw => interleaved::<1, 0>,
        Mnemonic::Punpcklwd => interleaved::<2, 0>,
        Mnemonic::Punpckldq => interleaved::<4, 0>,
        Mnemonic::Punpcklqdq => interleaved::<8, 0>,
        Mnemonic::Punpckhbw => interleaved::<1, 8>,
        Mnemonic::Punpckhwd => interleaved::<2, 8>,
        Mnemonic::Punpckhdq => interleaved::<4, 8>,
        Mnemonic::Punpckhqdq => interleaved::<8, 8>,
        _ => return None,
    })
}

fn number(register: Register) -> Option<usize> {
    register.is_xmm().then(|| register.number()).filter(|number| *number < 16)
}

impl Processor<'_> {
    /// The number of an operand's vector register.
    fn lane_of(&self, i: &Instruction, operand: u32) -> Result<usize, Unproven> {
        let register = (i.op_kind(operand) == OpKind::Register).then(|| number(i.op_register(operand))).flatten();
        register.ok_or(unknown(i))
    }

    /// A register's value; an error unless it has been set.
    fn lane(&self, i: &Instruction, register: usize) -> Result<u128, Unproven> {
        self.vector_known[register].then(|| self.vector[register]).ok_or(unset(i))
    }

    fn set_lane(&mut self, register: usize, value: u128) -> Result<(), Unproven> {
        (self.vector[register], self.vector_known[register]) = (value, true);
        Ok(())
    }

    /// Loads `size` bytes of memory; an error unless all of them have been set.
    fn load_set(&self, i: &Instruction, size: usize, aligned: bool) -> Result<u128, Unproven> {
        let (at, _) = self.address(i)?;
        if aligned && !at.is_multiple_of(16) {
            return Err(Unproven::Memory);
        }
        let (value, known) = self.load(i, size)?;
        let needed = ((1u32 << size) - 1) as u16;
        if known & needed == needed { Ok(value) } else { Err(unset(i)) }
    }

    /// 16 bytes of a register or of memory.
    fn source(&self, i: &Instruction, operand: u32, aligned: bool) -> Result<u128, Unproven> {
        match i.op_kind(operand) {
            OpKind::Memory => self.load_set(i, 16, aligned),
            _ => self.lane(i, self.lane_of(i, operand)?),
        }
    }
}

/// Moves 16 bytes.
fn move_whole(p: &mut Processor<'_>, i: &Instruction) -> Result<(), Unproven> {
    let aligned = moved(i.mnemonic()) == Some(true);
    if i.op0_kind() == OpKind::Memory {
        let value = p.lane(i, p.lane_of(i, 1)?)?;
        let (at, _) = p.address(i)?;
        if aligned && !at.is_multiple_of(16) {
            return Err(Unproven::Memory);
        }
        return p.store(i, 16, value, u16::MAX);
    }
    let value = p.source(i, 1, aligned)?;
    p.set_lane(p.lane_of(i, 0)?, value)
}

/// Executes an operation on two registers.
fn combine(p: &mut Processor<'_>, i: &Instruction) -> Result<(), Unproven> {
    use Mnemonic::{Pcmpeqb, Pcmpeqd, Pcmpeqw, Pxor, Xorpd, Xorps};
    let (to, mnemonic) = (p.lane_of(i, 0)?, i.mnemonic());
    let combination = combined(mnemonic).ok_or(unknown(i))?;
    let same = i.op1_kind() == OpKind::Register && i.op1_register() == i.op0_register();
    // The result of these does not depend on the register's value.
    let (a, b) = match same && matches!(mnemonic, Pxor | Xorps | Xorpd | Pcmpeqb | Pcmpeqw | Pcmpeqd) {
        true => (0, 0),
        false => (p.lane(i, to)?, p.source(i, 1, true)?),
    };
    p.set_lane(to, u128::from_le_bytes(combination(a.to_le_bytes(), b.to_le_bytes())))
}

/// `movss` and `movsd`: between registers, the upper part of the first operand stays.
fn move_low(p: &mut Processor<'_>, i: &Instruction, size: usize) -> Result<(), Unproven> {
    if i.op0_kind() == OpKind::Memory || i.op1_kind() == OpKind::Memory {
        return between(p, i, size);
    }
    let (to, from) = (p.lane_of(i, 0)?, p.lane_of(i, 1)?);
    let low = (1u128 << (8 * size)) - 1;
    p.set_lane(to, p.lane(i, to)? & !low | p.lane(i, from)? & low)
}

/// Moves the half of a register from bit `shift` on to memory, or from there.
fn move_half(p: &mut Processor<'_>, i: &Instruction, shift: u32) -> Result<(), Unproven> {
    let half = u128::from(u64::MAX);
    if i.op0_kind() == OpKind::Memory {
        let value = p.lane(i, p.lane_of(i, 1)?)? >> shift;
        return p.store(i, 8, value & half, u16::MAX);
    }
    let to = p.lane_of(i, 0)?;
    if i.op1_kind() != OpKind::Memory {
        return Err(unknown(i));
    }
    p.set_lane(to, p.lane(i, to)? & !(half << shift) | (p.load_set(i, 8, false)? & half) << shift)
}

/// Copies four units of `unit` bytes from byte `first` on, in the order that the immediate gives.
fn shuffle(p: &mut Processor<'_>, i: &Instruction, unit: usize, first: usize) -> Result<(), Unproven> {
    let (to, from) = (p.lane_of(i, 0)?, p.source(i, 1, true)?.to_le_bytes());
    let order = i.immediate(2) as usize;
    let mut lane = from;
    for (place, byte) in lane[first..first + 4 * unit].iter_mut().enumerate() {
        let chosen = order >> (2 * (place / unit)) & 3;
        *byte = from[first + chosen * unit + place % unit];
    }
    p.set_lane(to, u128::from_le_bytes(lane))
}

/// Shifts a whole register by bytes.
fn shift(p: &mut Processor<'_>, i: &Instruction, by: fn(u128, u32) -> Option<u128>) -> Result<(), Unproven> {
    let to = p.lane_of(i, 0)?;
    p.set_lane(to, by(p.lane(i, to)?, 8 * i.immediate(1).min(16) as u32).unwrap_or(0))
}

/// `movd` and `movq`: moves between the lower part of a vector register and a general register, memory or another
/// vector register. The part above is cleared.
fn between(p: &mut Processor<'_>, i: &Instruction, size: usize) -> Result<(), Unproven> {
    let low = (1u128 << (8 * size)) - 1;
    if let Ok(to) = p.lane_of(i, 0) {
        let value = match i.op1_kind() {
            OpKind::Memory => p.load_set(i, size, false)?,
            _ => match p.lane_of(i, 1) {
                Ok(from) => p.lane(i, from)?,
                Err(_) => u128::from(p.value(i, 1)?),
            },
        };
        return p.set_lane(to, value & low);
    }
    let value = p.lane(i, p.lane_of(i, 1)?)? & low;
    match i.op0_kind() {
        OpKind::Memory => p.store(i, size, value, u16::MAX),
        _ => p.set(i, 0, value as u64, WHOLE),
    }
}
