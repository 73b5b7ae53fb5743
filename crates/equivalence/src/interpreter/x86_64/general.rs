//! Instructions on general registers (Intel SDM, volume 2).

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::flags::{ALL, CARRY, Flags, OVERFLOW, mask, top};
use super::processor::{Processor, RAX, RBP, RDX, RSP, WHOLE, mask_of_bytes};
use crate::interpreter::Stop;
use crate::is_immediate;

/// Whether an instruction of that name can be executed here.
pub(super) fn knows(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Adc, Add, And, Bsf, Bsr, Bswap, Bt, Cbw, Cdq, Cdqe, Cld, Cmp, Cqo, Cwde, Dec, Endbr64, Imul, Inc, Lea, Leave,
        Mov, Movsx, Movsxd, Movzx, Neg, Nop, Not, Or, Pop, Prefetchnta, Prefetcht0, Prefetcht1, Prefetcht2, Push, Rol,
        Ror, Sar, Sbb, Shl, Shr, Std, Sub, Test, Tzcnt, Xchg, Xor,
    };
    matches!(
        mnemonic,
        Adc | Add
            | And
            | Bsf
            | Bsr
            | Bswap
            | Bt
            | Cbw
            | Cdq
            | Cdqe
            | Cld
            | Cmp
            | Cqo
            | Cwde
            | Dec
            | Endbr64
            | Imul
            | Inc
            | Lea
            | Leave
            | Mov
            | Movsx
            | Movsxd
            | Movzx
            | Neg
            | Nop
            | Not
            | Or
            | Pop
            | Prefetchnta
            | Prefetcht0
            | Prefetcht1
            | Prefetcht2
            | Push
            | Rol
            | Ror
            | Sar
            | Sbb
            | Shl
            | Shr
            | Std
            | Sub
            | Test
            | Tzcnt
            | Xchg
            | Xor
    ) || is_set(mnemonic)
        || is_move_if(mnemonic)
}

fn is_set(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Seta, Setae, Setb, Setbe, Sete, Setg, Setge, Setl, Setle, Setne, Setno, Setnp, Setns, Seto, Setp, Sets,
    };
    matches!(
        mnemonic,
        Seta | Setae
            | Setb
            | Setbe
            | Sete
            | Setg
            | Setge
            | Setl
            | Setle
            | Setne
            | Setno
            | Setnp
            | Setns
            | Seto
            | Setp
            | Sets
    )
}

fn is_move_if(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{
        Cmova, Cmovae, Cmovb, Cmovbe, Cmove, Cmovg, Cmovge, Cmovl, Cmovle, Cmovne, Cmovno, Cmovnp, Cmovns, Cmovo,
        Cmovp, Cmovs,
    };
    matches!(
        mnemonic,
        Cmova
            | Cmovae
            | Cmovb
            | Cmovbe
            | Cmove
            | Cmovg
            | Cmovge
            | Cmovl
            | Cmovle
            | Cmovne
            | Cmovno
            | Cmovnp
            | Cmovns
            | Cmovo
            | Cmovp
            | Cmovs
    )
}

pub(super) fn execute(processor: &mut Processor<'_>, instruction: &Instruction) -> Result<(), Stop> {
    let i = instruction;
    let p = processor;
    let unset = Stop::Unset { address: i.ip() };
    let unknown = Stop::Unknown { address: i.ip() };
    // Constants and loaded values are never marked: they depend on nothing, or on more than alignment.
    let of_alignment = match i.mnemonic() {
        Mnemonic::Mov => i.op1_kind() == OpKind::Register && p.is_of_alignment(i, 1),
        Mnemonic::Lea => {
            [i.memory_base(), i.memory_index()]
                .into_iter()
                .all(|register| register == Register::None || register.is_gpr64() && p.of_alignment[register.number()])
                && i.memory_index_scale() == 1
        }
        _ => false,
    };
    match i.mnemonic() {
        Mnemonic::Nop
        | Mnemonic::Endbr64
        | Mnemonic::Prefetchnta
        | Mnemonic::Prefetcht0
        | Mnemonic::Prefetcht1
        | Mnemonic::Prefetcht2 => Ok(()),
        Mnemonic::Cld | Mnemonic::Std => {
            p.down = i.mnemonic() == Mnemonic::Std;
            Ok(())
        }
        Mnemonic::Mov => {
            let (value, known) = p.operand(i, 1)?;
            p.set(i, 0, value, known)?;
            p.note_alignment(i, of_alignment);
            Ok(())
        }
        Mnemonic::Movzx => {
            let value = p.value(i, 1)?;
            p.set(i, 0, value, WHOLE)
        }
        Mnemonic::Movsx | Mnemonic::Movsxd => {
            let value = extended(p.value(i, 1)?, Processor::size(i, 1));
            p.set(i, 0, value, WHOLE)
        }
        Mnemonic::Cbw | Mnemonic::Cwde | Mnemonic::Cdqe => {
            let size = match i.mnemonic() {
                Mnemonic::Cbw => 1,
                Mnemonic::Cwde => 2,
                _ => 4,
            };
            if p.known[RAX] & mask_of_bytes(size) != mask_of_bytes(size) {
                return Err(unset);
            }
            let value = extended(p.general[RAX], size);
            let register = [Register::AX, Register::EAX, Register::RAX][size / 2];
            p.set_register(register, value & mask(2 * size), mask_of_bytes(2 * size));
            Ok(())
        }
        Mnemonic::Cdq | Mnemonic::Cqo => {
            let size = if i.mnemonic() == Mnemonic::Cdq { 4 } else { 8 };
            if p.known[RAX] & mask_of_bytes(size) != mask_of_bytes(size) {
                return Err(unset);
            }
            let negative = p.general[RAX] & top(size) != 0;
            (p.general[RDX], p.known[RDX]) = (if negative { mask(size) } else { 0 }, WHOLE);
            Ok(())
        }
        Mnemonic::Lea => {
            let (address, _) = p.address(i)?;
            p.set(i, 0, address, WHOLE)?;
            p.note_alignment(i, of_alignment);
            Ok(())
        }
        Mnemonic::Push => {
            let (value, known) = p.operand(i, 0)?;
            if i.op0_kind() == OpKind::Register && Processor::size(i, 0) != 8 {
                return Err(unknown);
            }
            p.push(u128::from(value), u16::from(known))
        }
        Mnemonic::Pop => {
            let (value, known) = p.memory.read(p.general[RSP], 8)?;
            if i.op0_kind() != OpKind::Register || Processor::size(i, 0) != 8 {
                return Err(unknown);
            }
            p.general[RSP] = p.general[RSP].wrapping_add(8);
            p.set(i, 0, value as u64, known as u8)
        }
        Mnemonic::Leave => {
            if p.known[RBP] != WHOLE {
                return Err(unset);
            }
            p.general[RSP] = p.general[RBP];
            let (value, known) = p.memory.read(p.general[RSP], 8)?;
            p.general[RSP] = p.general[RSP].wrapping_add(8);
            (p.general[RBP], p.known[RBP]) = (value as u64, known as u8);
            Ok(())
        }
        Mnemonic::Xchg => {
            let (one, other) = (p.operand(i, 0)?, p.operand(i, 1)?);
            if i.op0_kind() != OpKind::Register || i.op1_kind() != OpKind::Register {
                return Err(unknown);
            }
            p.set(i, 0, other.0, other.1)?;
            p.set(i, 1, one.0, one.1)
        }
        Mnemonic::Not => {
            let (value, known) = p.operand(i, 0)?;
            p.set(i, 0, !value, known)
        }
        Mnemonic::Bswap => {
            let value = p.value(i, 0)?;
            let swapped =
                if Processor::size(i, 0) == 8 { value.swap_bytes() } else { (value as u32).swap_bytes().into() };
            p.set(i, 0, swapped, WHOLE)
        }
        mnemonic if is_set(mnemonic) => {
            let holds = p.flags.hold(i.condition_code()).ok_or(unset)?;
            p.set(i, 0, u64::from(holds), WHOLE)
        }
        mnemonic if is_move_if(mnemonic) => {
            let holds = p.flags.hold(i.condition_code()).ok_or(unset)?;
            // Memory is read in either case, and a 32-bit register's upper half is cleared.
            let (moved, kept) = (p.operand(i, 1)?, p.operand(i, 0)?);
            let (value, known) = if holds { moved } else { kept };
            p.set(i, 0, value, known)
        }
        Mnemonic::Shl | Mnemonic::Shr | Mnemonic::Sar | Mnemonic::Rol | Mnemonic::Ror => shift(p, i),
        Mnemonic::Imul => multiply(p, i),
        Mnemonic::Bsf | Mnemonic::Bsr | Mnemonic::Tzcnt => {
            let value = p.value(i, 1)?;
            p.flags.lose(ALL);
            p.flags_of_alignment = false;
            if i.mnemonic() != Mnemonic::Tzcnt {
                p.flags.set(super::flags::ZERO, Flags::of_result(value, Processor::size(i, 1)));
            }
            // The destination is undefined then: the architecture does not define it, and processors without BMI1 read
            // `tzcnt` as `bsf`.
            if value == 0 {
                return p.set(i, 0, 0, 0);
            }
            let place = if i.mnemonic() == Mnemonic::Bsr { 63 - value.leading_zeros() } else { value.trailing_zeros() };
            p.set(i, 0, u64::from(place), WHOLE)
        }
        Mnemonic::Bt => {
            let (value, bit) = (p.value(i, 0)?, p.value(i, 1)?);
            if i.op0_kind() != OpKind::Register {
                return Err(unknown);
            }
            let set = value >> (bit % (8 * Processor::size(i, 0) as u64)) & 1 == 1;
            p.flags_of_alignment = false;
            p.flags.lose(ALL & !super::flags::ZERO);
            p.flags.set(CARRY, if set { CARRY } else { 0 });
            Ok(())
        }
        _ => arithmetic(p, i),
    }
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
fn arithmetic(p: &mut Processor<'_>, i: &Instruction) -> Result<(), Stop> {
    let size = Processor::size(i, 0);
    let mnemonic = i.mnemonic();
    // The result of these does not depend on the register's value.
    if matches!(mnemonic, Mnemonic::Xor | Mnemonic::Sub) && same_register(i) {
        p.flags.set(ALL, Flags::of_result(0, size));
        p.flags_of_alignment = false;
        return p.set(i, 0, 0, WHOLE);
    }
    let carry = |p: &Processor<'_>| p.flags.get(CARRY).ok_or(Stop::Unset { address: i.ip() });
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
        _ => return Err(Stop::Unknown { address: i.ip() }),
    };
    // An unset byte spoils its own byte of the result, and all bytes above it if there are carries.
    let known = match mnemonic {
        Mnemonic::And | Mnemonic::Or | Mnemonic::Xor => a_known & b_known,
        _ => lowest(a_known & b_known),
    };
    let which = if matches!(mnemonic, Mnemonic::Inc | Mnemonic::Dec) { ALL & !CARRY } else { ALL };
    let carries = matches!(mnemonic, Mnemonic::Adc | Mnemonic::Sbb);
    let of_alignment = !carries && p.is_of_alignment(i, 0) && (i.op_count() == 1 || p.is_of_alignment(i, 1));
    // Only for a test of the lowest four bits, and not for the distance between two pointers, for example.
    let asks = matches!(mnemonic, Mnemonic::Test | Mnemonic::And) && is_immediate(i.op1_kind()) && (1..16).contains(&b);
    p.flags_of_alignment = of_alignment && asks;
    match known == WHOLE {
        true => p.flags.set(which, flags),
        false => p.flags.lose(which),
    }
    if matches!(mnemonic, Mnemonic::Cmp | Mnemonic::Test) {
        return Ok(());
    }
    p.set(i, 0, result, known)?;
    p.note_alignment(i, of_alignment);
    Ok(())
}

/// The bytes below the first unknown one.
fn lowest(known: u8) -> u8 {
    mask_of_bytes(known.trailing_ones() as usize)
}

fn shift(p: &mut Processor<'_>, i: &Instruction) -> Result<(), Stop> {
    let size = Processor::size(i, 0);
    let bits = 8 * size as u32;
    let (value, by) = (p.value(i, 0)?, p.value(i, 1)?);
    let by = by as u32 & if size == 8 { 63 } else { 31 };
    if by == 0 {
        // No flag changes, but a 32-bit register's upper half is cleared.
        return p.set(i, 0, value, WHOLE);
    }
    if by >= bits {
        return Err(Stop::Unknown { address: i.ip() });
    }
    let flag = |set: bool| if set { CARRY } else { 0 };
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
    p.flags.set(ALL & !OVERFLOW, Flags::of_result(result, size) | flag(carry));
    p.flags.lose(OVERFLOW);
    p.set(i, 0, result, WHOLE)
}

/// Multiplication with two or three operands.
fn multiply(p: &mut Processor<'_>, i: &Instruction) -> Result<(), Stop> {
    let size = Processor::size(i, 0);
    let (one, other) = match i.op_count() {
        2 => (p.whole(i, 0)?, p.whole(i, 1)?),
        3 => (p.whole(i, 1)?, p.whole(i, 2)?),
        _ => return Err(Stop::Unknown { address: i.ip() }),
    };
    p.flags.lose(ALL);
    p.set(i, 0, one.0.wrapping_mul(other.0) & mask(size), lowest(one.1 & other.1))
}
