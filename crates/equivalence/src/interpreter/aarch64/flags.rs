//! The flags N, Z, C and V, and the conditions on them (Arm Architecture Reference Manual, C1.2.4).

/// The four flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags {
    pub(super) negative: bool,
    pub(super) zero: bool,
    pub(super) carry: bool,
    pub(super) overflow: bool,
}

impl Flags {
    /// The flags in an instruction: N is the highest of four bits.
    pub(super) fn of_bits(bits: u32) -> Flags {
        let is = |bit: u32| bits >> bit & 1 == 1;
        Flags { negative: is(3), zero: is(2), carry: is(1), overflow: is(0) }
    }

    /// The flags of a result that neither carries nor overflows.
    pub(super) fn of_result(value: u64, wide: bool) -> Flags {
        let negative = value >> if wide { 63 } else { 31 } & 1 == 1;
        Flags { negative, zero: value == 0, carry: false, overflow: false }
    }

    /// Returns the sum of two numbers and a carry, with its flags (shared pseudocode `AddWithCarry`).
    pub(super) fn of_sum(one: u64, other: u64, carry: bool, wide: bool) -> (u64, Flags) {
        let bits = if wide { 64 } else { 32 };
        let mask = u64::MAX >> (64 - bits);
        let unsigned = u128::from(one & mask) + u128::from(other & mask) + u128::from(carry);
        let signed = |value: u64| i128::from((value << (64 - bits)).cast_signed() >> (64 - bits));
        let exact = signed(one) + signed(other) + i128::from(carry);
        let result = unsigned as u64 & mask;
        let flags = Flags {
            carry: unsigned > u128::from(mask),
            overflow: signed(result) != exact,
            ..Flags::of_result(result, wide)
        };
        (result, flags)
    }

    /// Whether a condition holds, by its number in an instruction.
    pub(super) fn hold(self, condition: u32) -> bool {
        let Flags { negative, zero, carry, overflow } = self;
        let holds = match condition >> 1 {
            0 => zero,
            1 => carry,
            2 => negative,
            3 => overflow,
            4 => carry && !zero,
            5 => negative == overflow,
            6 => negative == overflow && !zero,
            _ => return true,
        };
        holds != (condition & 1 == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comparisons_hold_as_numbers_do() {
        let interesting = [0, 1, 2, 0x7f, 0x80, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 63, u64::MAX - 1, u64::MAX];
        for wide in [false, true] {
            for (one, other) in interesting.iter().flat_map(|one| interesting.iter().map(move |other| (*one, *other))) {
                let mask = if wide { u64::MAX } else { 0xffff_ffff };
                let (_, flags) = Flags::of_sum(one, !other, true, wide);
                let (a, b) = (one & mask, other & mask);
                let signed = |value: u64| if wide { value as i64 } else { i64::from(value as i32) };
                let holds = |condition: u32| flags.hold(condition);
                assert_eq!((holds(0), holds(1)), (a == b, a != b), "eq, ne");
                assert_eq!((holds(2), holds(3)), (a >= b, a < b), "hs, lo");
                assert_eq!((holds(8), holds(9)), (a > b, a <= b), "hi, ls");
                assert_eq!((holds(10), holds(11)), (signed(a) >= signed(b), signed(a) < signed(b)), "ge, lt");
                assert_eq!((holds(12), holds(13)), (signed(a) > signed(b), signed(a) <= signed(b)), "gt, le");
                assert!(holds(14) && holds(15));
            }
        }
        assert!(Flags::of_bits(0b0100).hold(0) && Flags::of_bits(0b0010).hold(2) && Flags::of_bits(0b1001).hold(10));
    }
}
