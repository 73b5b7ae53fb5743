//! A64 instructions (Arm Architecture Reference Manual, C4.1).

use super::{Decoded, Exit, Store};

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

/// A register that has a value of known origin.
#[derive(Debug, Clone, Copy)]
enum Value {
    /// It is this address.
    Page(u64),
    /// It was loaded from this address.
    LoadedFrom(u64),
}

/// Returns the calls and jumps that leave the function.
pub(super) fn exits(start: u64, data: &[u8]) -> Vec<Exit> {
    let inside = start..start.saturating_add(data.len() as u64);
    let (mut exits, mut values, mut before) = (Vec::new(), [None; 32], 0);
    for (address, word) in words(start, data) {
        let (register, base) = ((word & 31) as usize, (word >> 5 & 31) as usize);
        // BR and BLR, with authentication of the pointer too. RET has a different code.
        let indirect = matches!(word >> 21 & !0b1000, 0b110_1011_0000 | 0b110_1011_0001);
        let is_call = word >> 26 == 0b10_0101 || indirect && word >> 21 & 1 == 1;
        if indirect && (is_call || !is_by_table(before, base)) {
            exits.push(match values[base] {
                Some(Value::LoadedFrom(place)) => Exit::Slot(place),
                _ => Exit::Unknown,
            });
        }
        // B, BL, or a condition
        let to = match word >> 26 & 0b01_1111 == 0b00_0101 {
            true => Some(target(address, word, 0, 26)),
            false => step(address, &word.to_le_bytes()).and_then(|step| step.target),
        };
        exits.extend(to.filter(|to| !inside.contains(to)).map(Exit::To));
        // ADRP; LDR of 64 bits, with an unsigned distance
        let value = if word & 0x9f00_0000 == 0x9000_0000 {
            Some(Value::Page(page(address, word)))
        } else if let (0xf940_0000, Some(Value::Page(page))) = (word & 0xffc0_0000, values[base]) {
            Some(Value::LoadedFrom(page.wrapping_add(u64::from(word >> 10 & 0xfff) * 8)))
        } else {
            None
        };
        // Whatever else an instruction does, it can change the registers that these fields name, and a call others.
        values[(word >> 10 & 31) as usize] = None;
        values[register] = value;
        if is_call {
            values = [None; 32];
        }
        before = word;
    }
    exits
}

/// Returns the address of ADRP.
fn page(address: u64, word: u32) -> u64 {
    let pages = (word >> 5 & 0x7_ffff) << 2 | word >> 29 & 3;
    let pages = i64::from((pages << 11) as i32 >> 11);
    (address & !0xfff).wrapping_add_signed(pages << 12)
}

/// Whether a jump through `register` goes to an entry of a table of the function's own places: the entry was added to
/// the address of the table just before.
fn is_by_table(before: u32, register: usize) -> bool {
    // ADD of 64 bits, of a shifted or an extended register
    before & 0xff00_0000 == 0x8b00_0000 && (before & 31) as usize == register
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
    fn calls_and_jumps_leave_a_function() {
        let of = |code: &[u32]| {
            let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
            exits(0x1000, &bytes)
        };
        // br x16, blr x16, braa, blraa, braaz, blraaz. Then ret, retaa
        for word in [0xd61f_0200_u32, 0xd63f_0200, 0xd71f_0a11, 0xd73f_0a11, 0xd61f_081f, 0xd63f_081f] {
            assert_eq!(of(&[word]), [Exit::Unknown], "{word:x}");
        }
        assert_eq!(of(&[0xd65f_03c0, 0xd65f_0bff]), []);
        // bl +8, which is inside; bl +0x100; b -4; cbz x0, -4
        assert_eq!(of(&[0x9400_0002, 0x9400_0040, 0xd503_201f]), [Exit::To(0x1104)]);
        assert_eq!(of(&[0x17ff_ffff, 0xb4ff_ffc0]), [Exit::To(0xffc), Exit::To(0xffc)]);
        // adrp x8, +2 pages; ldr x8, [x8, #24]; blr x8. Then blr x9
        assert_eq!(of(&[0xd000_0008, 0xf940_0d08, 0xd63f_0100]), [Exit::Slot(0x3018)]);
        assert_eq!(of(&[0xd000_0008, 0xf940_0d08, 0xd63f_0120]), [Exit::Unknown]);
        // ldr x8, [x8, #24] of an object that is not known
        assert_eq!(of(&[0xf940_0d08, 0xd63f_0100]), [Exit::Unknown]);
        // In between, x8 is changed: mov x8, x0; ldp x9, x8, [sp]; bl +4, which is inside
        for between in [0xaa00_03e8, 0xa940_23e9, 0x9400_0001] {
            assert_eq!(of(&[0xd000_0008, 0xf940_0d08, between, 0xd63f_0100]), [Exit::Unknown], "{between:x}");
        }
        // adrp x16, -1 page
        assert_eq!(of(&[0xf0ff_fff0, 0xf940_0611, 0xd61f_0220]), [Exit::Slot(8)]);
        // add x8, x9, x8, lsl #2; br x8: a table. br x10 after it: none
        assert_eq!(of(&[0x8b08_0928, 0xd61f_0100]), []);
        assert_eq!(of(&[0x8b08_0928, 0xd61f_0140]), [Exit::Unknown]);
        // A call never goes to a table of the function's own places.
        assert_eq!(of(&[0x8b08_0928, 0xd63f_0100]), [Exit::Unknown]);
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
