//! Instructions on general registers (Intel SDM, volume 2).

use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

use super::decode::{Execution, unknown, unset};
use super::flags::{ALL, CARRY, Flags, OVERFLOW, ZERO, flag, mask, top};
use super::processor::{Processor, RAX, RBP, RDX, RSP, WHOLE, mask_of_bytes};
use crate::Unproven;

/// Returns the execution of an instruction; `None` if it cannot be executed here.
pub(super) fn execution(i: &Instruction) -> Option<Execution> {
    use Mnemonic as M;
    Some(match i.mnemonic() {
        M::Nop | M::Endbr64 | M::Prefetchnta | M::Prefetcht0 | M::Prefetcht1 | M::Prefetcht2 => |_, _| Ok(()),
        M::Cld | M::Std => |p, i| {
            p.down = i.mnemonic() == Mnemonic::Std;
            Ok(())
        },
        // Constants and loaded values are never marked: they do not depend on alignment, or on more than alignment.
        M::Mov => |p, i| {
            let of_alignment = i.op1_kind() == OpKind::Register && p.is_of_alignment(i, 1);
            let (value, known) = p.operand(i, 1)?;
            p.set_first(i, value, known, of_alignment)
        },
        M::Lea => |p, i| {
            let mut registers = [i.memory_base(), i.memory_index()].into_iter().filter(|it| *it != Register::None);
            let of_alignment = registers.all(|register| register.is_gpr64() && p.of_alignment[register.number()])
                && i.memory_index_scale() == 1;
            // It also adds numbers of which only the lower bytes have been set.
            let (address, known, _) = p.effective_address(i)?;
            p.set_first(i, address, lowest(known), of_alignment)
        },
        M::Movzx => |p, i| p.set(i, 0, p.value(i, 1)?, WHOLE),
        M::Movsx | M::Movsxd => |p, i| p.set(i, 0, extended(p.value(i, 1)?, Processor::size(i, 1)), WHOLE),
        M::Cbw | M::Cwde | M::Cdqe => |p, i| {
            let (size, register) = match i.mnemonic() {
                Mnemonic::Cbw => (1, Register::AX),
                Mnemonic::Cwde => (2, Register::EAX),
                _ => (4, Register::RAX),
            };
            let value = extended(p.set_part(i, RAX, size)?, size);
            p.set_register(register, value & mask(2 * size), mask_of_bytes(2 * size));
            Ok(())
        },
        M::Cdq | M::Cqo => |p, i| {
            let size = if i.mnemonic() == Mnemonic::Cdq { 4 } else { 8 };
            let negative = p.set_part(i, RAX, size)? & top(size) != 0;
            (p.general[RDX], p.known[RDX]) = (if negative { mask(size) } else { 0 }, WHOLE);
            Ok(())
        },
        M::Push => |p, i| {
            let (value, known) = p.operand(i, 0)?;
            if i.op0_kind() == OpKind::Register && Processor::size(i, 0) != 8 {
                return Err(unknown(i));
            }
            p.push(u128::from(value), u16::from(known))
        },
        M::Pop => |p, i| {
            let (value, known) = p.pop()?;
            if i.op0_kind() != OpKind::Register || Processor::size(i, 0) != 8 {
                return Err(unknown(i));
            }
            p.set(i, 0, value, known)
        },
        M::Leave => |p, i| {
            if p.known[RBP] != WHOLE {
                return Err(unset(i));
            }
            p.general[RSP] = p.general[RBP];
            (p.general[RBP], p.known[RBP]) = p.pop()?;
            Ok(())
        },
        M::Xchg => |p, i| {
            let (one, other) = (p.operand(i, 0)?, p.operand(i, 1)?);
            if i.op0_kind() != OpKind::Register || i.op1_kind() != OpKind::Register {
                return Err(unknown(i));
            }
            p.set(i, 0, other.0, other.1)?;
            p.set(i, 1, one.0, one.1)
        },
        M::Not => |p, i| {
            let (value, known) = p.operand(i, 0)?;
            p.set(i, 0, !value, known)
        },
        M::Bswap => |p, i| {
            let upper = if Processor::size(i, 0) == 8 { 0 } else { 32 };
            p.set(i, 0, p.value(i, 0)?.swap_bytes() >> upper, WHOLE)
        },
        M::Shl | M::Shr | M::Sar | M::Rol | M::Ror => shift,
        M::Imul => multiply,
        M::Bsf | M::Bsr | M::Tzcnt => find_bit,
        M::Bt | M::Bts => test_bit,
        M::Adc | M::Add | M::And | M::Cmp | M::Dec | M::Inc | M::Neg | M::Or | M::Sbb | M::Sub | M::Test | M::Xor => {
            arithmetic
        }
        // SETcc and CMOVcc.
        _ if i.condition_code() != ConditionCode::None && i.op_count() == 1 => |p, i| {
            let holds = p.flags.hold(i.condition_code()).ok_or(unset(i))?;
            p.set(i, 0, u64::from(holds), WHOLE)
        },
        _ if i.condition_code() != ConditionCode::None && i.op_count() == 2 => |p, i| {
            let holds = p.flags.hold(i.condition_code()).ok_or(unset(i))?;
            // Memory is read in either case, and a 32-bit register's upper half is cleared.
            let (moved, kept) = (p.operand(i, 1)?, p.operand(i, 0)?);
            let (value, known) = if holds { moved } else { kept };
            p.set(i, 0, value, known)
        },
        _ => return None,
    })
}

/// BSF, BSR and TZCNT.
fn find_bit(p: &mut Processor<'_>, i: &Instruction) -> Result<(), Unproven> {
    let value = p.value(i, 1)?;
    p.flags.lose(ALL);
    p.flags_of_alignment = false;
    if i.mnemonic() != Mnemonic::Tzcnt {
        p.flags.set(ZERO, Flags::of_result(value, Processor::size(i, 1)));
    }
    // The destination is undefined then: the architecture does not define it, and processors without BMI1 read `tzcnt`
    // as `bsf`.
    if value == 0 {
        return p.set(i, 0, 0, 0);
    }
    let place = if i.mnemonic() == Mnemonic::Bsr { 63 - value.leading_zeros() } else { value.trailing_zeros() };
    p.set(i, 0, u64::from(place), WHOLE)
}

/// BT and BTS of a register.
fn test_bit(p: &mut Processor<'_>, i: &Instruction) -> Result<(), Unproven> {
    let (value, bit) = (p.value(i, 0)?, p.value(i, 1)?);
    if i.op0_kind() != OpKind::Register {
        return Err(unknown(i));
    }
    let set = value >> (bit % (8 * Processor::size(i, 0) as u64)) & 1 == 1;
    p.flags_of_alignment = false;
    p.flags.lose(ALL & !ZERO);
    p.flags.set(CARRY, flag(set, CARRY));
    if i.mnemonic() == Mnemonic::Bts {
        return p.set(i, 0, value | 1 << (bit % (8 * Processor::size(i, 0) as u64)), WHOLE);
    }
    Ok(())
}

/// Extends a number of `size` bytes with its sign.
fn extended(value: u64, size: usize) -> u64 {
    let shift = 64 - 8 * size as u32;
    ((value << shift).cast_signed() >> shift).cast_unsigned()
}

fn same_register(i: &Instruction) -> bool {
    i.op0_kind() == OpKind::Register && i.op1_kind() == OpKind::Register && i.op0_register() == i.op1_register()
}

/// Sums, differences and logic: all of them set every flag, or every flag but the carry.
fn arithmetic(p: &mut Processor<'_>, i: &Instruction) -> Result<(), Unproven> {
    let size = Processor::size(i, 0);
    let mnemonic = i.mnemonic();
    // The result of these does not depend on the register's value.
    if matches!(mnemonic, Mnemonic::Xor | Mnemonic::Sub) && same_register(i) {
        p.flags.set(ALL, Flags::of_result(0, size));
        p.flags_of_alignment = false;
        return p.set(i, 0, 0, WHOLE);
    }
    let carry = |p: &Processor<'_>| p.flags.get(CARRY).ok_or(unset(i));
    if mnemonic == Mnemonic::Sbb && same_register(i) {
        let (result, flags) = Flags::of_difference(0, 0, carry(p)?, size);
        p.flags.set(ALL, flags);
        p.flags_of_alignment = false;
        return p.set(i, 0, result, WHOLE);
    }
    let (a, a_known) = p.whole(i, 0)?;
    let (b, b_known) = match i.op_count() {
        1 => (1, WHOLE),
        _ => p.whole(i, 1)?,
    };
    let (result, flags) = match mnemonic {
        Mnemonic::Add | Mnemonic::Inc => Flags::of_sum(a, b, false, size),
        Mnemonic::Adc => Flags::of_sum(a, b, carry(p)?, size),
        Mnemonic::Sub | Mnemonic::Cmp | Mnemonic::Dec => Flags::of_difference(a, b, false, size),
        Mnemonic::Sbb => Flags::of_difference(a, b, carry(p)?, size),
        Mnemonic::Neg => Flags::of_difference(0, a, false, size),
        Mnemonic::And | Mnemonic::Test => (a & b, Flags::of_result(a & b, size)),
        Mnemonic::Or => (a | b, Flags::of_result(a | b, size)),
        Mnemonic::Xor => (a ^ b, Flags::of_result(a ^ b, size)),
        _ => return Err(unknown(i)),
    };
    // An unset byte spoils its own byte of the result, and all bytes above it if there are carries.
    let known = match mnemonic {
        Mnemonic::And | Mnemonic::Or | Mnemonic::Xor => a_known & b_known,
        _ => lowest(a_known & b_known),
    };
    let which = if matches!(mnemonic, Mnemonic::Inc | Mnemonic::Dec) { ALL & !CARRY } else { ALL };
    let carries = matches!(mnemonic, Mnemonic::Adc | Mnemonic::Sbb);
    let of_alignment = !carries && p.is_of_alignment(i, 0) && (i.op_count() == 1 || p.is_of_alignment(i, 1));
    // Only for a test of the lowest four bits; not, for example, for the distance between two pointers.
    let asks = matches!(mnemonic, Mnemonic::Test | Mnemonic::And) && matches!(i.try_immediate(1), Ok(1..16));
    p.flags_of_alignment = of_alignment && asks;
    match known == WHOLE {
        true => p.flags.set(which, flags),
        false => p.flags.lose(which),
    }
    if matches!(mnemonic, Mnemonic::Cmp | Mnemonic::Test) {
        return Ok(());
    }
    p.set_first(i, result, known, of_alignment)
}

/// The bytes below the first unknown one.
fn lowest(known: u8) -> u8 {
    mask_of_bytes(known.trailing_ones() as usize)
}

fn shift(p: &mut Processor<'_>, i: &Instruction) -> Result<(), Unproven> {
    let size = Processor::size(i, 0);
    let bits = 8 * size as u32;
    let (value, by) = (p.value(i, 0)?, p.value(i, 1)?);
    let by = by as u32 & if size == 8 { 63 } else { 31 };
    if by == 0 {
        // No flag changes, but a 32-bit register's upper half is cleared.
        return p.set(i, 0, value, WHOLE);
    }
    if by >= bits {
        return Err(unknown(i));
    }
    let signed = extended(value, size).cast_signed();
    let (result, carry) = match i.mnemonic() {
        Mnemonic::Shl => (value << by, value >> (bits - by) & 1 == 1),
        Mnemonic::Shr => (value >> by, value >> (by - 1) & 1 == 1),
        Mnemonic::Sar => ((signed >> by).cast_unsigned(), signed >> (by - 1) & 1 == 1),
        _ => {
            let left = if i.mnemonic() == Mnemonic::Rol { by } else { bits - by };
            let result = (value << left | value >> (bits - left)) & mask(size);
            p.flags.lose(OVERFLOW | CARRY);
            return p.set(i, 0, result, WHOLE);
        }
    };
    let result = result & mask(size);
    p.flags_of_alignment = false;
    p.flags.set(ALL & !OVERFLOW, Flags::of_result(result, size) | flag(carry, CARRY));
    p.flags.lose(OVERFLOW);
    p.set(i, 0, result, WHOLE)
}

/// Multiplication with two or three operands.
fn multiply(p: &mut Processor<'_>, i: &Instruction) -> Result<(), Unproven> {
    let size = Processor::size(i, 0);
    let (one, other) = match i.op_count() {
        2 => (p.whole(i, 0)?, p.whole(i, 1)?),
        3 => (p.whole(i, 1)?, p.whole(i, 2)?),
        _ => return Err(unknown(i)),
    };
    p.flags.lose(ALL);
    p.set(i, 0, one.0.wrapping_mul(other.0) & mask(size), lowest(one.1 & other.1))
}
