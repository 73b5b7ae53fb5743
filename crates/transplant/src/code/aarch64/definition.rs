//! The effect of an aarch64 instruction on the value in a register or on the stack.

use super::super::Code;
use super::super::origin::{Definition, Location};
use super::fields::Word;
use super::values::{SCRATCH, calls};
use super::word::{Access, Operation, ZERO, operation, selects, writes};
use super::word_at;

/// The number of arguments in registers, x0 to x7 (Procedure Call Standard for the Arm 64-bit Architecture, 6.8.2).
pub(super) const ARGUMENTS: u32 = 8;
const WORD: u64 = 0xffff_ffff;

pub(super) fn define(code: &Code<'_>, address: u64, location: Location) -> Definition {
    let Some(word) = word_at(code.image, address) else { return Definition::Unknown };
    match location {
        Location::Register(ZERO) => Definition::Number(0),
        Location::Register(wanted) => of_register(word, wanted),
        Location::Memory(base, distance) => of_memory(word, base, distance),
    }
}

fn of_register(word: Word, wanted: u32) -> Definition {
    let same = Definition::Same(Location::Register(wanted));
    if calls(word) {
        return if SCRATCH >> wanted & 1 == 1 { Definition::Unknown } else { same };
    }
    if writes(word) >> wanted & 1 == 0 {
        return same;
    }
    let copy = |from: u32, and: u64, or: u64| Definition::Copy { from: vec![Location::Register(from)], and, or };
    match operation(word) {
        Operation::Constant { value, .. } => Definition::Number(value),
        Operation::Keep { value, mask, .. } => copy(wanted, mask, value),
        Operation::Move { from, .. } => copy(from, u64::MAX, 0),
        Operation::Add { from, value: 0, .. } if from != ZERO => copy(from, u64::MAX, 0),
        Operation::Logic { from, value, and: true, .. } => copy(from, value, 0),
        // ORR; EOR has another number in these bits.
        Operation::Logic { from, value, .. } if word.field(29, 2) == 1 => copy(from, u64::MAX, value),
        // SXTW, UXTW
        Operation::Field { from, rotate: 0, last: 31, insert: false, .. } => copy(from, WORD, 0),
        Operation::Memory(access)
            if access.loads && !access.stores && access.step.is_none_or(|_| access.base != wanted) =>
        {
            loaded(&access, wanted)
        }
        // CSEL without an increment or an inversion.
        Operation::Other if selects(word) && !word.bit(30) && !word.bit(10) => {
            let from = [word.field(5, 5), word.field(16, 5)].map(Location::Register).to_vec();
            Definition::Copy { from, and: u64::MAX, or: 0 }
        }
        // ORR of registers, unshifted.
        Operation::Other if word.is(0x7fe0_fc00, 0x2a00_0000) => {
            Definition::Merge([word.field(5, 5), word.field(16, 5)].map(Location::Register).to_vec())
        }
        _ => Definition::Unknown,
    }
}

/// The value that a load puts into a register.
fn loaded(access: &Access, wanted: u32) -> Definition {
    if access.literal.is_some() || access.index.is_some() || access.size < 4 {
        return Definition::Unknown;
    }
    let distance = match (access.register, access.second) {
        (Some(first), _) if first == wanted => access.offset,
        (_, Some(second)) if second == wanted => access.offset + i64::from(access.size),
        _ => return Definition::Unknown,
    };
    Definition::copy(Location::Memory(access.base, distance))
}

/// The value that is in memory after the instruction at a distance from the value that `base` has then.
fn of_memory(word: Word, base: u32, distance: i64) -> Definition {
    let before = |base: u32, distance: i64| Definition::Same(Location::Memory(base, distance));
    if calls(word) {
        let changed = base != ZERO && SCRATCH >> base & 1 == 1;
        return if changed { Definition::Unknown } else { before(base, distance) };
    }
    match operation(word) {
        // The stack pointer has the number of the zero register here.
        Operation::Add { to: Some(to), from, value, flags: false, .. } if to == base => {
            before(from, distance.wrapping_add(value))
        }
        Operation::Move { to, from } if to == base && from != ZERO => before(from, distance),
        Operation::Memory(access) if access.base == base && access.index.is_none() && access.literal.is_none() => {
            let step = access.step.unwrap_or(0);
            // From the base's value before the instruction.
            let place = distance.wrapping_add(step);
            let stored = access.stores && access.size >= 4;
            let value = match (access.register, access.second) {
                (Some(first), _) if place == access.offset => Some(first),
                (_, Some(second)) if place == access.offset + i64::from(access.size) => Some(second),
                _ => None,
            };
            let covered = access.stores
                && (access.offset..access.offset + i64::from(access.size) * 2).contains(&place)
                && (access.second.is_some() || place < access.offset + i64::from(access.size));
            match value {
                Some(register) if stored && !access.loads => Definition::copy(Location::Register(register)),
                _ if covered => Definition::Unknown,
                _ if writes_base(word, base) && access.step.is_none() => Definition::Unknown,
                _ => before(base, place),
            }
        }
        _ if writes_base(word, base) => Definition::Unknown,
        _ => before(base, distance),
    }
}

fn writes_base(word: Word, base: u32) -> bool {
    base != ZERO && writes(word) >> base & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bits: u32) -> Word {
        Word { address: 0x1000, bits }
    }

    fn copy(from: &[u32], and: u64, or: u64) -> Definition {
        Definition::Copy { from: from.iter().copied().map(Location::Register).collect(), and, or }
    }

    #[test]
    fn flags_are_put_together_and_passed_on() {
        let defined = |bits, register| of_register(word(bits), register);
        // As llvm-mc assembles them.
        assert_eq!(defined(0x529f_fd88, 8), Definition::Number(65516), "mov w8, #65516");
        assert_eq!(defined(0x529f_fd88, 2), Definition::Same(Location::Register(2)));
        assert_eq!(defined(0x72a0_0028, 8), copy(&[8], 0xffff, 0x1_0000), "movk w8, #1, lsl #16");
        assert_eq!(defined(0x3218_0042, 2), copy(&[2], u64::MAX, 0x100), "orr w2, w2, #0x100");
        assert_eq!(defined(0x9a83_0083, 3), copy(&[4, 3], u64::MAX, 0), "csel x3, x4, x3, eq");
        assert_eq!(defined(0xaa1f_03e0, 0), copy(&[ZERO], u64::MAX, 0), "mov x0, xzr");
        assert_eq!(defined(0x9400_0002, 2), Definition::Unknown, "bl");
        assert_eq!(defined(0x9400_0002, 20), Definition::Same(Location::Register(20)), "bl");
        assert_eq!(defined(0xd400_0001, 2), Definition::Same(Location::Register(2)), "svc #0");
    }

    #[test]
    fn the_stack_is_followed() {
        let defined = |bits, distance| of_memory(word(bits), ZERO, distance);
        let same = |distance| Definition::Same(Location::Memory(ZERO, distance));
        assert_eq!(defined(0xb900_0fe2, 12), copy(&[2], u64::MAX, 0), "str w2, [sp, #12]");
        assert_eq!(defined(0xb900_0fe2, 16), same(16), "str w2, [sp, #12]");
        assert_eq!(defined(0xd100_83ff, 12), same(-20), "sub sp, sp, #32");
        assert_eq!(defined(0xa9bd_7bfd, 8), copy(&[30], u64::MAX, 0), "stp x29, x30, [sp, #-48]!");
        assert_eq!(defined(0xa9bd_7bfd, 20), same(-28), "stp x29, x30, [sp, #-48]!");
        let loaded = Definition::copy(Location::Memory(ZERO, 12));
        assert_eq!(of_register(word(0xb940_0fe0), 0), loaded, "ldr w0, [sp, #12]");
    }
}
