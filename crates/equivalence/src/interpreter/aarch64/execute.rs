//! The effect of instructions (Arm Architecture Reference Manual, C6.2).

use super::decode::{A64Instruction, Access, Around, Bits, Location, Operation, Product, Shift, Single, Source};
use super::flags::Flags;
use super::processor::{OfAlignment, Processor, Value, WHOLE};
use crate::Unproven;

pub(super) fn execute(p: &mut Processor<'_>, step: &A64Instruction) -> Result<(), Unproven> {
    let address = step.address;
    match step.operation {
        Operation::Nothing | Operation::Branch(_) | Operation::Return { .. } => {}
        Operation::Address { to, value } => p.set(to, Value { of_code: true, ..Value::of(value, WHOLE) }, true),
        Operation::Constant { to, value } => p.set(to, Value::of(value, WHOLE), true),
        Operation::Keep { to, value, mask, wide } => {
            let before = p.get(to, wide);
            p.set(to, Value::of(before.bits & mask | value, before.known | !whole_bytes(mask)), wide);
        }
        Operation::Add { to, from, other, subtract, flags, wide } => {
            let (one, other) = (p.get(from, wide), operand(p, other, wide));
            let bits = if subtract { !other.bits } else { other.bits };
            let (result, set) = Flags::of_sum(one.bits, bits, subtract, wide);
            let known = lowest(one.known & other.known);
            let of_alignment = one.of_alignment.min(other.of_alignment);
            if flags {
                p.flags = (known == WHOLE).then_some(set);
                p.flags_of_alignment = of_alignment == OfAlignment::Whole;
            }
            let of_code = one.of_code && matches!(step.operation, Operation::Add { other: Source::Immediate(_), .. });
            p.set(to, Value { bits: result, known, of_alignment, of_code }, wide);
        }
        Operation::Logic { to, from, other, bits, invert, flags, wide } => {
            logic(p, (to, from), other, (bits, invert, flags), wide);
        }
        Operation::Field { to, from, around, rotate, last, wide } => field(p, (to, from), around, (rotate, last), wide),
        Operation::Extract { to, high, low, by, wide } => {
            let (high, low) = (p.whole(high, wide, address)?, p.whole(low, wide, address)?);
            let bits = if wide { 64 } else { 32 };
            let both = u128::from(high) << bits | u128::from(low);
            p.set(to, Value::of((both >> by) as u64, WHOLE), wide);
        }
        Operation::Shift { to, from, by, shift, wide } => {
            let by = p.whole(by, wide, address)? as u32 % if wide { 64 } else { 32 };
            let value = p.whole(from, wide, address)?;
            p.set(to, Value::of(shifted(value, shift, by, wide), WHOLE), wide);
        }
        Operation::Single { to, from, single, wide } => {
            let value = p.whole(from, wide, address)?;
            p.set(to, Value::of(alone(value, single, wide), WHOLE), wide);
        }
        Operation::Multiply { to, one, other, plus, subtract, product, wide } => {
            let factors = [one, other].map(|register| p.get(register, wide));
            let known = lowest(factors[0].known & factors[1].known & p.get(plus, wide).known);
            let [one, other] = factors.map(|value| value.bits);
            let product = match product {
                Product::Plain => one.wrapping_mul(other),
                Product::LongSigned => (i64::from(one as i32) * i64::from(other as i32)).cast_unsigned(),
                Product::LongUnsigned => u64::from(one as u32) * u64::from(other as u32),
                Product::HighSigned => ((i128::from(one as i64) * i128::from(other as i64)) >> 64) as u64,
                Product::HighUnsigned => ((u128::from(one) * u128::from(other)) >> 64) as u64,
            };
            let plus = p.get(plus, wide).bits;
            let result = if subtract { plus.wrapping_sub(product) } else { plus.wrapping_add(product) };
            // Every byte of an upper half depends on all bytes of the factors.
            let known = if known == WHOLE { WHOLE } else { 0 };
            p.set(to, Value::of(result, known), wide);
        }
        Operation::Select { to, one, other, condition, invert, increment, wide } => {
            let flags = p.flags.ok_or(Unproven::Unset(address))?;
            let value = match flags.hold(condition) {
                true => p.get(one, wide),
                false => {
                    let other = p.get(other, wide);
                    let bits = if invert { !other.bits } else { other.bits };
                    let known = if increment { lowest(other.known) } else { other.known };
                    match (invert, increment) {
                        (false, false) => other,
                        _ => Value::of(bits.wrapping_add(u64::from(increment)), known),
                    }
                }
            };
            // The choice between them depends on more than alignment.
            p.set(to, Value { of_alignment: OfAlignment::No, of_code: false, ..value }, wide);
        }
        Operation::CompareIf { from, other, condition, otherwise, subtract, wide } => {
            let flags = p.flags.ok_or(Unproven::Unset(address))?;
            p.flags_of_alignment = false;
            p.flags = match flags.hold(condition) {
                false => Some(Flags::of_bits(otherwise)),
                true => {
                    let (one, other) = (p.get(from, wide), operand(p, other, wide));
                    let bits = if subtract { !other.bits } else { other.bits };
                    let (_, flags) = Flags::of_sum(one.bits, bits, subtract, wide);
                    (one.known & other.known == WHOLE).then_some(flags)
                }
            };
        }
        Operation::Memory(access) => return memory(p, &access, address),
    }
    Ok(())
}

/// The bytes in which a mask has a bit, as bits.
fn whole_bytes(mask: u64) -> u8 {
    (0..8).fold(0, |bytes, byte| bytes | u8::from(mask >> (8 * byte) & 0xff != 0) << byte)
}

/// The bytes below the first unknown one. An unknown byte spoils all above it by carries.
fn lowest(known: u8) -> u8 {
    match known.trailing_ones() {
        8 => WHOLE,
        bytes => (1 << bytes) - 1,
    }
}

/// A second operand.
fn operand(p: &Processor<'_>, source: Source, wide: bool) -> Value {
    match source {
        // An immediate adds no dependency: the result depends on what the other operand depends on.
        Source::Immediate(value) => Value::of(value, WHOLE).with(OfAlignment::Whole),
        Source::Shifted { register, by: 0, .. } => p.get(register, wide),
        Source::Shifted { register, shift, by } => {
            let value = p.get(register, wide);
            let known = if value.known == WHOLE { WHOLE } else { 0 };
            Value::of(shifted(value.bits, shift, by, wide), known)
        }
        Source::Extended { register, bytes, signed, by } => {
            let value = p.get(register, true);
            let needed = u8::MAX >> (8 - bytes);
            let known = if value.known & needed == needed { WHOLE } else { 0 };
            Value::of(extended(value.bits, 8 * bytes, signed) << by, known)
        }
    }
}

/// Extends the lowest `bits` bits with the sign or with zeros.
fn extended(value: u64, bits: u32, signed: bool) -> u64 {
    let rest = 64 - bits;
    if signed { ((value << rest).cast_signed() >> rest).cast_unsigned() } else { value << rest >> rest }
}

fn shifted(value: u64, shift: Shift, by: u32, wide: bool) -> u64 {
    match (shift, wide) {
        (Shift::Left, _) => value << by,
        (Shift::Right, _) => value >> by,
        (Shift::Arithmetic, true) => (value.cast_signed() >> by).cast_unsigned(),
        (Shift::Arithmetic, false) => u64::from((value as i32 >> by).cast_unsigned()),
        (Shift::Rotate, true) => value.rotate_right(by),
        (Shift::Rotate, false) => u64::from((value as u32).rotate_right(by)),
    }
}

fn alone(value: u64, single: Single, wide: bool) -> u64 {
    let half = value as u32;
    match (single, wide) {
        (Single::ReverseBits, true) => value.reverse_bits(),
        (Single::ReverseBits, false) => u64::from(half.reverse_bits()),
        (Single::ReverseBytes(unit), _) => {
            let bytes = value.to_le_bytes();
            u64::from_le_bytes(std::array::from_fn(|at| bytes[at / unit * unit + unit - 1 - at % unit]))
        }
        (Single::LeadingZeros, true) => u64::from(value.leading_zeros()),
        (Single::LeadingZeros, false) => u64::from(half.leading_zeros()),
        (Single::LeadingSigns, true) => u64::from((value ^ value << 1 | 1).leading_zeros()),
        (Single::LeadingSigns, false) => u64::from((half ^ half << 1 | 1).leading_zeros()),
    }
}

fn logic(
    p: &mut Processor<'_>,
    (to, from): (u32, u32),
    source: Source,
    (bits, invert, flags): (Bits, bool, bool),
    wide: bool,
) {
    let (one, mut other) = (p.get(from, wide), operand(p, source, wide));
    if invert {
        other.bits = if wide { !other.bits } else { !other.bits & 0xffff_ffff };
    }
    let result = match bits {
        Bits::And => one.bits & other.bits,
        Bits::Or => one.bits | other.bits,
        Bits::Xor => one.bits ^ other.bits,
    };
    let mut known = one.known & other.known;
    if let (Bits::And, Source::Immediate(mask)) = (bits, source) {
        known |= !whole_bytes(mask);
    }
    let is_move = bits == Bits::Or && from == super::decode::ZERO && !invert;
    let of_alignment = match source {
        _ if is_move && matches!(source, Source::Shifted { by: 0, .. }) => other.of_alignment,
        // The lowest four bits of the other operand are the whole result.
        Source::Immediate(1..16) if bits == Bits::And && one.of_alignment != OfAlignment::No => OfAlignment::Whole,
        _ => one.of_alignment.min(other.of_alignment),
    };
    if flags {
        p.flags = (known == WHOLE).then_some(Flags::of_result(result, wide));
        p.flags_of_alignment = of_alignment == OfAlignment::Whole;
    }
    p.set(to, Value { bits: result, known, of_alignment, of_code: false }, wide);
}

/// SBFM, BFM, UBFM: a field from `rotate` to `last` becomes the lowest bits; if `rotate` is greater, the lowest `last +
/// 1` bits move up.
fn field(p: &mut Processor<'_>, (to, from): (u32, u32), around: Around, (rotate, last): (u32, u32), wide: bool) {
    let bits = if wide { 64 } else { 32 };
    let (value, before) = (p.get(from, wide), p.get(to, wide));
    let (low, width, up) = match rotate <= last {
        true => (rotate, last - rotate + 1, 0),
        false => (0, last + 1, bits - rotate),
    };
    let mask = u64::MAX >> (64 - width);
    let part = value.bits >> low & mask;
    let needed = whole_bytes(mask << low);
    let mut known = if value.known & needed == needed { WHOLE } else { 0 };
    let result = match around {
        Around::Zeros => part << up,
        Around::Sign => extended(part, width, true) << up,
        Around::Kept => {
            known &= if before.known == WHOLE { WHOLE } else { 0 };
            before.bits & !(mask << up) | part << up
        }
    };
    // The lowest bits of a number that depends only on alignment.
    let of_alignment = match (around, value.of_alignment) {
        (Around::Zeros, OfAlignment::Whole) => OfAlignment::Whole,
        (Around::Zeros, OfAlignment::Lowest) if up == 0 && low + width <= 4 => OfAlignment::Whole,
        _ => OfAlignment::No,
    };
    p.set(to, Value::of(result, known).with(of_alignment), wide);
}

fn memory(p: &mut Processor<'_>, access: &Access, address: u64) -> Result<(), Unproven> {
    let unset = Unproven::Unset(address);
    let place = |p: &Processor<'_>, base: u32, by: i64| -> Result<(u64, bool), Unproven> {
        let value = p.get(base, true);
        if value.known == WHOLE { Ok((value.bits.wrapping_add_signed(by), value.of_code)) } else { Err(unset) }
    };
    let (mut at, of_code, changed) = match access.place {
        Location::Literal(at) => (at, true, None),
        Location::Based { base, by, step } => {
            let (at, of_code) = place(p, base, by)?;
            (at, of_code, step.map(|step| (base, step)))
        }
        Location::Index { base, index } => {
            let index = operand(p, index, true);
            if index.known != WHOLE {
                return Err(unset);
            }
            let (at, _) = place(p, base, index.bits.cast_signed())?;
            (at, false, None)
        }
    };
    if of_code && !access.loads {
        return Err(Unproven::Memory);
    }
    let mut loaded = Vec::with_capacity(2);
    for register in access.registers.into_iter().flatten() {
        let size = access.size as usize;
        if access.loads {
            let (value, known) = match of_code {
                true => (p.memory.constant(at, size)?, u16::MAX),
                false => p.memory.read(at, size)?,
            };
            let needed = u8::MAX >> (8 - size);
            let all = known as u8 & needed == needed;
            let bits = extended(value as u64, 8 * access.size, access.signed.is_some());
            // The bytes behind the loaded ones are zeros, or copies of the sign.
            let known = match (all, access.signed) {
                (true, _) => WHOLE,
                (false, None) => known as u8 | !needed,
                (false, Some(_)) => 0,
            };
            loaded.push((register, Value::of(bits, known), access.signed != Some(4)));
        } else {
            let value = p.get(register, true);
            p.memory.write(at, size, u128::from(value.bits), u16::from(value.known) | 0xff00)?;
        }
        at = at.wrapping_add(u64::from(access.size));
    }
    if let Some((base, by)) = changed {
        let value = p.get(base, true);
        p.set(base, Value { bits: value.bits.wrapping_add_signed(by), ..value }, true);
    }
    for (register, value, wide) in loaded {
        p.set(register, value, wide);
    }
    Ok(())
}
