//! The arithmetic flags, each known or not.

use iced_x86::ConditionCode;

pub(super) const CARRY: u8 = 1;
pub(super) const PARITY: u8 = 2;
pub(super) const ZERO: u8 = 4;
pub(super) const SIGN: u8 = 8;
pub(super) const OVERFLOW: u8 = 16;
pub(super) const ALL: u8 = 31;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Flags {
    value: u8,
    known: u8,
}

/// The bits of a number of `size` bytes.
pub(super) fn mask(size: usize) -> u64 {
    if size >= 8 { u64::MAX } else { (1 << (8 * size)) - 1 }
}

/// The highest bit of a number of `size` bytes.
pub(super) fn top(size: usize) -> u64 {
    1 << (8 * size - 1)
}

impl Flags {
    /// Sets the flags in `which` to those of `value`.
    pub(super) fn set(&mut self, which: u8, value: u8) {
        self.value = self.value & !which | value & which;
        self.known |= which;
    }

    /// Marks flags that the architecture leaves undefined as unknown.
    pub(super) fn lose(&mut self, which: u8) {
        self.known &= !which;
    }

    /// A single flag; `None` if it is not known.
    pub(super) fn get(self, which: u8) -> Option<bool> {
        (self.known & which == which).then_some(self.value & which != 0)
    }

    /// The flags that depend only on the result.
    pub(super) fn of_result(result: u64, size: usize) -> u8 {
        let mut flags = 0;
        if result & mask(size) == 0 {
            flags |= ZERO;
        }
        if result & top(size) != 0 {
            flags |= SIGN;
        }
        if (result as u8).count_ones().is_multiple_of(2) {
            flags |= PARITY;
        }
        flags
    }

    /// The sum a + b + carry, with its flags.
    pub(super) fn of_sum(a: u64, b: u64, carry: bool, size: usize) -> (u64, u8) {
        let wide = u128::from(a & mask(size)) + u128::from(b & mask(size)) + u128::from(carry);
        let result = wide as u64 & mask(size);
        let mut flags = Flags::of_result(result, size);
        if wide > u128::from(mask(size)) {
            flags |= CARRY;
        }
        if (a ^ result) & (b ^ result) & top(size) != 0 {
            flags |= OVERFLOW;
        }
        (result, flags)
    }

    /// The difference a - b - borrow, with its flags.
    pub(super) fn of_difference(a: u64, b: u64, borrow: bool, size: usize) -> (u64, u8) {
        let (a, b) = (a & mask(size), b & mask(size));
        let result = a.wrapping_sub(b).wrapping_sub(u64::from(borrow)) & mask(size);
        let mut flags = Flags::of_result(result, size);
        if u128::from(a) < u128::from(b) + u128::from(borrow) {
            flags |= CARRY;
        }
        if (a ^ b) & (a ^ result) & top(size) != 0 {
            flags |= OVERFLOW;
        }
        (result, flags)
    }

    /// Whether a condition holds; `None` if it needs an unknown flag.
    pub(super) fn hold(self, condition: ConditionCode) -> Option<bool> {
        let get = |which| self.get(which);
        Some(match condition {
            ConditionCode::None => return None,
            ConditionCode::o => get(OVERFLOW)?,
            ConditionCode::no => !get(OVERFLOW)?,
            ConditionCode::b => get(CARRY)?,
            ConditionCode::ae => !get(CARRY)?,
            ConditionCode::e => get(ZERO)?,
            ConditionCode::ne => !get(ZERO)?,
            ConditionCode::be => get(CARRY)? | get(ZERO)?,
            ConditionCode::a => !(get(CARRY)? | get(ZERO)?),
            ConditionCode::s => get(SIGN)?,
            ConditionCode::ns => !get(SIGN)?,
            ConditionCode::p => get(PARITY)?,
            ConditionCode::np => !get(PARITY)?,
            ConditionCode::l => get(SIGN)? != get(OVERFLOW)?,
            ConditionCode::ge => get(SIGN)? == get(OVERFLOW)?,
            ConditionCode::le => get(ZERO)? | (get(SIGN)? != get(OVERFLOW)?),
            ConditionCode::g => !get(ZERO)? & (get(SIGN)? == get(OVERFLOW)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every sum and difference of two bytes, against arithmetic on wider numbers.
    #[test]
    fn sums_and_differences_of_bytes() {
        for (a, b, carry) in (0..=255u64).flat_map(|a| (0..=255).flat_map(move |b| [(a, b, false), (a, b, true)])) {
            let (signed, extra) = (|byte: u64| i64::from(byte as u8 as i8), i64::from(carry));
            for (is_sum, (result, flags)) in
                [(true, Flags::of_sum(a, b, carry, 1)), (false, Flags::of_difference(a, b, carry, 1))]
            {
                let (wide, wide_signed) = match is_sum {
                    true => (a as i64 + b as i64 + extra, signed(a) + signed(b) + extra),
                    false => (a as i64 - b as i64 - extra, signed(a) - signed(b) - extra),
                };
                assert_eq!(result, wide.rem_euclid(256) as u64);
                let is = |flag: u8| flags & flag != 0;
                assert_eq!(is(CARRY), !(0..256).contains(&wide), "{a} {b} {carry} {is_sum}");
                assert_eq!(is(OVERFLOW), !(-128..128).contains(&wide_signed), "{a} {b} {carry} {is_sum}");
                assert_eq!((is(ZERO), is(SIGN)), (result == 0, result > 127));
                assert_eq!(is(PARITY), result.count_ones().is_multiple_of(2));
            }
        }
    }

    #[test]
    fn conditions_need_the_flags_that_they_ask_for() {
        let mut flags = Flags::default();
        assert_eq!(flags.hold(ConditionCode::e), None);
        flags.set(ZERO | CARRY, ZERO);
        assert_eq!(flags.hold(ConditionCode::e), Some(true));
        assert_eq!(flags.hold(ConditionCode::be), Some(true));
        assert_eq!(flags.hold(ConditionCode::a), Some(false));
        assert_eq!(flags.hold(ConditionCode::l), None);
        flags.lose(CARRY);
        assert_eq!(flags.hold(ConditionCode::be), None);
    }
}
