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

/// `which` if it is set, else no flag.
pub(super) fn flag(set: bool, which: u8) -> u8 {
    if set { which } else { 0 }
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
        let even = (result as u8).count_ones().is_multiple_of(2);
        flag(result & mask(size) == 0, ZERO) | flag(result & top(size) != 0, SIGN) | flag(even, PARITY)
    }

    /// The sum a + b + carry, with its flags.
    pub(super) fn of_sum(a: u64, b: u64, carry: bool, size: usize) -> (u64, u8) {
        let wide = u128::from(a & mask(size)) + u128::from(b & mask(size)) + u128::from(carry);
        let result = wide as u64 & mask(size);
        let overflows = (a ^ result) & (b ^ result) & top(size) != 0;
        let carries = flag(wide > u128::from(mask(size)), CARRY);
        (result, Flags::of_result(result, size) | carries | flag(overflows, OVERFLOW))
    }

    /// The difference a - b - borrow, with its flags.
    pub(super) fn of_difference(a: u64, b: u64, borrow: bool, size: usize) -> (u64, u8) {
        let (a, b) = (a & mask(size), b & mask(size));
        let result = a.wrapping_sub(b).wrapping_sub(u64::from(borrow)) & mask(size);
        let overflows = (a ^ b) & (a ^ result) & top(size) != 0;
        let borrows = flag(u128::from(a) < u128::from(b) + u128::from(borrow), CARRY);
        (result, Flags::of_result(result, size) | borrows | flag(overflows, OVERFLOW))
    }

    /// Whether a condition holds; `None` if it needs an unknown flag.
    pub(super) fn hold(self, condition: ConditionCode) -> Option<bool> {
        use ConditionCode as C;
        let get = |which| self.get(which);
        let holds = match condition {
            C::None => return None,
            C::o | C::no => get(OVERFLOW)?,
            C::b | C::ae => get(CARRY)?,
            C::e | C::ne => get(ZERO)?,
            C::be | C::a => get(CARRY)? | get(ZERO)?,
            C::s | C::ns => get(SIGN)?,
            C::p | C::np => get(PARITY)?,
            C::l | C::ge => get(SIGN)? != get(OVERFLOW)?,
            C::le | C::g => get(ZERO)? | (get(SIGN)? != get(OVERFLOW)?),
        };
        let negated = matches!(condition, C::no | C::ae | C::ne | C::a | C::ns | C::np | C::ge | C::g);
        Some(holds != negated)
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
