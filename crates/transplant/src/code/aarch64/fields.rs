//! The fields of A64 instructions, one word each (Arm Architecture Reference Manual, C4.1).

/// An instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word {
    /// Its address.
    pub(crate) address: u64,
    /// Its encoding.
    pub(crate) bits: u32,
}

impl Word {
    /// The `bits` bits from `low` on.
    pub(crate) fn field(self, low: u32, bits: u32) -> u32 {
        self.bits >> low & ((1 << bits) - 1)
    }

    /// The bits as a signed number.
    pub(crate) fn signed(self, low: u32, bits: u32) -> i64 {
        i64::from(((self.bits << (32 - low - bits)) as i32) >> (32 - bits))
    }

    /// Whether a bit is set.
    pub(crate) fn bit(self, at: u32) -> bool {
        self.bits >> at & 1 == 1
    }

    /// Whether the bits of `mask` are those of `value`.
    pub(crate) fn is(self, mask: u32, value: u32) -> bool {
        self.bits & mask == value
    }

    /// The target of a branch, by a field that counts words from its own address.
    pub(crate) fn target(self, low: u32, bits: u32) -> u64 {
        self.address.wrapping_add_signed(self.signed(low, bits) * 4)
    }
}

/// The immediate of a logical instruction (Arm ARM, shared pseudocode `DecodeBitMasks`).
pub(super) fn bit_mask(n: bool, last: u32, rotate: u32) -> Option<u64> {
    let length = (u32::from(n) << 6 | (!last & 0x3f)).checked_ilog2()?;
    if length == 0 {
        return None;
    }
    let size = 1u32 << length;
    let (ones, rotate) = (last & (size - 1), rotate & (size - 1));
    if ones == size - 1 {
        return None;
    }
    let element = (1u64 << (ones + 1)) - 1;
    let all = if size == 64 { u64::MAX } else { (1u64 << size) - 1 };
    let rotated = match rotate {
        0 => element,
        _ => (element >> rotate | element << (size - rotate)) & all,
    };
    Some((0..64 / size).fold(0, |whole, part| whole | rotated << (part * size)))
}
