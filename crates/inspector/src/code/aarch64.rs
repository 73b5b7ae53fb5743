//! A64 instructions (Arm Architecture Reference Manual, C4.1).

use super::{Decoded, Store};

fn words<'a>(start: u64, data: &'a [u8]) -> impl Iterator<Item = (u64, u32)> + 'a {
    let words = data.chunks_exact(4).map(|raw| u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]));
    words.enumerate().map(move |(index, word)| (start.wrapping_add(4 * index as u64), word))
}

/// Returns the target of a branch. Its field has `bits` bits from bit `low` on, and counts words from the instruction.
fn target(address: u64, word: u32, low: u32, bits: u32) -> u64 {
    let field = ((word << (32 - low - bits)) as i32) >> (32 - bits);
    address.wrapping_add_signed(i64::from(field) * 4)
}

pub(super) fn step(address: u64, bytes: &[u8]) -> Option<Decoded> {
    let (_, word) = words(address, bytes.get(..4)?).next()?;
    let (mut falls_through, mut branch) = (true, None);
    if word >> 26 == 0b00_0101 {
        // B
        (falls_through, branch) = (false, Some(target(address, word, 0, 26)));
    } else if word & 0xff00_0000 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 {
        // B.cond, CBZ, CBNZ
        branch = Some(target(address, word, 5, 19));
    } else if word & 0x7e00_0000 == 0x3600_0000 {
        // TBZ, TBNZ
        branch = Some(target(address, word, 5, 14));
    } else if word & 0xfe00_0000 == 0xd600_0000 {
        // BR, RET and similar; of these only BLR and its variants (opc 1 and 9) return.
        falls_through = word >> 21 & 0b0111 == 1;
    } else if word & 0xffe0_001f == 0xd420_0000 || word >> 16 == 0 {
        // BRK, UDF
        falls_through = false;
    }
    Some(Decoded { length: 4, falls_through, target: branch, store: store(word) })
}

/// STURB Wt, [Xn, #-3] and STURH Wt, [Xn, #-2]. A separate instruction loads the 0xff, so the two stores are the
/// pattern: one after the other, on the same register.
fn store(word: u32) -> Option<Store> {
    let base = word >> 5 & 31;
    match word & 0xffff_fc00 {
        0x381f_d000 => Some(Store::Mark { base }),
        // The offset is zeroed from the zero register.
        0x781f_e000 if word & 31 == 31 => Some(Store::Offset { base }),
        _ => None,
    }
}

/// Returns the addresses of stores of 16 zero bits at -2 that have a store of a byte at -3 of the same register nearby.
pub(super) fn marks(parts: &[(u64, &[u8])], most: usize) -> Vec<u64> {
    let mut found = Vec::new();
    for (start, data) in parts {
        let stores: Vec<(u64, Store)> =
            words(*start, data).filter_map(|(address, word)| Some((address, store(word)?))).collect();
        for (place, (address, store)) in stores.iter().enumerate() {
            let Store::Offset { base } = store else { continue };
            let around = &stores[place.saturating_sub(8)..stores.len().min(place + 9)];
            let near =
                |other: &(u64, Store)| other.0.abs_diff(*address) <= 64 && other.1 == Store::Mark { base: *base };
            if found.len() < most {
                found.extend(around.iter().any(near).then_some(*address));
            }
        }
    }
    found
}

/// Returns the functions that consist of one jump, each with its target. A landing pad may precede the jump.
pub(super) fn jumps(parts: &[(u64, &[u8])], mut wanted: impl FnMut(u64) -> bool, most: usize) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for (start, data) in parts {
        let mut before = 0;
        for (address, word) in words(*start, data) {
            if word >> 26 == 0b00_0101 {
                let target = target(address, word, 0, 26);
                if found.len() >= most {
                    return found;
                }
                if wanted(target) {
                    found.push((address, target));
                    // BTI c
                    found.extend((before == 0xd503_245f).then_some((address.wrapping_sub(4), target)));
                }
            }
            before = word;
        }
    }
    found
}

pub(super) fn is_called(parts: &[(u64, &[u8])], address: u64) -> bool {
    parts.iter().any(|(start, data)| {
        words(*start, data).any(|(at, word)| word >> 26 == 0b10_0101 && target(at, word, 0, 26) == address)
    })
}

pub(super) fn has_indirect_calls(start: u64, data: &[u8]) -> bool {
    // br and blr, with authentication of the pointer too. `ret` has a different code.
    words(start, data).any(|(_, word)| matches!(word >> 21 & !0b1000, 0b110_1011_0000 | 0b110_1011_0001))
}

pub(super) fn callees(start: u64, data: &[u8]) -> Vec<u64> {
    let calls = words(start, data).filter(|(_, word)| word >> 26 & 0b01_1111 == 0b00_0101);
    calls.map(|(at, word)| target(at, word, 0, 26)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(word: u32) -> Decoded {
        step(0x1000, &word.to_le_bytes()).unwrap()
    }

    #[test]
    fn calls_through_registers_are_indirect() {
        // br x16, blr x16, braa, blraa, braaz, blraaz. Then ret, retaa, bl, b
        for word in [0xd61f_0200_u32, 0xd63f_0200, 0xd71f_0a11, 0xd73f_0a11, 0xd61f_081f, 0xd63f_081f] {
            assert!(has_indirect_calls(0x1000, &word.to_le_bytes()), "{word:x}");
        }
        for word in [0xd65f_03c0_u32, 0xd65f_0bff, 0x9400_0002, 0x1400_0002] {
            assert!(!has_indirect_calls(0x1000, &word.to_le_bytes()), "{word:x}");
        }
    }

    #[test]
    fn branches_lead_where_they_say() {
        assert_eq!((one(0x1400_0002).falls_through, one(0x1400_0002).target), (false, Some(0x1008)));
        assert_eq!((one(0x17ff_ffff).falls_through, one(0x17ff_ffff).target), (false, Some(0xffc)));
        assert_eq!((one(0x9400_0002).falls_through, one(0x9400_0002).target), (true, None));
        assert_eq!((one(0x5400_0040).falls_through, one(0x5400_0040).target), (true, Some(0x1008)));
        assert_eq!(one(0xb4ff_ffe0).target, Some(0xffc), "cbz");
        assert_eq!(one(0x3607_ffe0).target, Some(0xffc), "tbz");
        assert!(!one(0xd65f_03c0).falls_through && !one(0xd61f_0200).falls_through, "ret, br x16");
        assert!(one(0xd63f_0200).falls_through, "blr x16");
        assert!(!one(0xd420_0000).falls_through, "brk");
    }

    #[test]
    fn what_free_does_to_a_slot_is_seen() {
        assert_eq!(one(0x381f_d0c2).store, Some(Store::Mark { base: 6 }), "sturb w2, [x6, #-3]");
        assert_eq!(one(0x781f_e0df).store, Some(Store::Offset { base: 6 }), "sturh wzr, [x6, #-2]");
        assert_eq!(one(0x781f_e0c2).store, None, "sturh w2, [x6, #-2]");
    }
}
