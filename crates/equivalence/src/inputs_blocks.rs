//! Inputs for the functions on blocks: memcpy and memmove, memset, memcmp and bcmp, memchr and memrchr.

use crate::Unproven;
use crate::interpreter::Argument::{Address, Int, Word};
use crate::proof::{Prover, SHORT, aligned, alignments, exact, neighbours};

/// A length with more than 32 bits.
const WIDE: u64 = 1 << 32;

fn pattern(at: usize) -> u8 {
    (at as u8).wrapping_mul(29) ^ (at >> 8) as u8 ^ 0x80
}

/// memcpy, and with `overlap` memmove.
pub(crate) fn copies(prover: &mut Prover<'_>, overlap: bool) -> Result<(), Unproven> {
    // First inputs that rule out most other functions.
    copy(prover, 5, 3, 1, false)?;
    if overlap {
        move_by(prover, 9, 4, 3)?;
        move_by(prover, 9, 4, -3)?;
    }
    for n in (0..=SHORT).chain(prover.long_lengths()) {
        let pairs = if n <= SHORT { alignments(n) } else { vec![(0, 0), (3, 8), (9, 1), (15, 15), (0, 7)] };
        for (to, from) in pairs {
            copy(prover, n, to, from, false)?;
        }
        copy(prover, n, 0, 0, true)?;
    }
    if overlap {
        for n in (1..=SHORT).chain(prover.long_lengths()) {
            let n = n as i64;
            for distance in [0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, n - 1, n, n + 1] {
                let aligns = if n <= SHORT as i64 { vec![0, (n + distance) as u64 % 16] } else { vec![3] };
                for align in aligns {
                    move_by(prover, n as usize, align, distance)?;
                    move_by(prover, n as usize, align, -distance)?;
                }
            }
        }
    }
    // All 64 bits of the length count, from whichever end the copy starts.
    for n in [WIDE, WIDE + 3, WIDE + 64] {
        let (to, from) = (prover.place(0, 96, 0, true), prover.place(1, 96, 0, true));
        prover.allow(0, to..to + 96, to..to + 96);
        prover.allow(1, from..from + 96, from..from);
        prover.runs_out(&[Address(to), Address(from), Word(n)], 4096)?;
    }
    Ok(())
}

fn copy(prover: &mut Prover<'_>, n: usize, to: u64, from: u64, at_end: bool) -> Result<(), Unproven> {
    let (to, from) = (prover.place(0, n, to, at_end), prover.place(1, n, from, at_end));
    let (to_end, from_end) = (to + n as u64, from + n as u64);
    prover.surround(1, from..from_end, n, 0x80);
    prover.bytes(1, from..from_end).iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at));
    prover.bytes(0, to..to_end).fill(0x55);
    prover.allow(0, to..to_end, to..to_end);
    prover.allow(1, from..from_end, from..from);
    prover.returns(&[Address(to), Address(from), Word(n as u64)], n, to)?;
    let right = prover.bytes(0, to..to_end).iter().enumerate().all(|(at, byte)| *byte == pattern(at));
    if right { Ok(()) } else { Err(Unproven::Result) }
}

/// Moves a block within one region by `distance`, up or down.
fn move_by(prover: &mut Prover<'_>, n: usize, align: u64, distance: i64) -> Result<(), Unproven> {
    let from = prover.place(0, 0, align, false) + if distance < 0 { distance.unsigned_abs() } else { 0 };
    let to = from.wrapping_add_signed(distance);
    let (start, end) = (to.min(from), to.max(from) + n as u64);
    prover.bytes(0, start..end).fill(0x33);
    prover.bytes(0, from..from + n as u64).iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at));
    let mut expected = prover.bytes(0, start..end).to_vec();
    expected.copy_within((from - start) as usize..(from - start) as usize + n, (to - start) as usize);
    prover.allow(0, start..end, to..to + n as u64);
    prover.allow(1, 0..0, 0..0);
    prover.returns(&[Address(to), Address(from), Word(n as u64)], n, to)?;
    if prover.bytes(0, start..end) == expected { Ok(()) } else { Err(Unproven::Result) }
}

/// memset. Only the lowest byte of the second argument counts.
pub(crate) fn fills(prover: &mut Prover<'_>) -> Result<(), Unproven> {
    let fill = |prover: &mut Prover<'_>, n: usize, align: u64, byte: u8, at_end: bool| {
        let to = prover.place(0, n, align, at_end);
        let end = to + n as u64;
        prover.bytes(0, to..end).fill(!byte);
        prover.allow(0, to..end, to..end);
        prover.allow(1, 0..0, 0..0);
        prover.returns(&[Address(to), Int(0x7f3c_9200 | u32::from(byte)), Word(n as u64)], n, to)?;
        let right = prover.bytes(0, to..end).iter().all(|found| *found == byte);
        if right { Ok(()) } else { Err(Unproven::Result) }
    };
    fill(prover, 6, 3, 0x9c, false)?;
    for n in (0..=2 * SHORT).chain(prover.long_lengths()) {
        for align in if n <= 40 { (0..16).collect() } else { aligned(n) } {
            fill(prover, n, align, [0, 0x7f, 0x80, 0xff, 0x31][n % 5], false)?;
        }
        fill(prover, n, 0, 0xe1, true)?;
    }
    for byte in 0..=255 {
        fill(prover, 21, u64::from(byte % 16), byte, false)?;
        fill(prover, 3, u64::from(byte % 16), byte, false)?;
    }
    for n in [WIDE, WIDE + 3, WIDE + 64] {
        let to = prover.place(0, 96, 0, true);
        prover.allow(0, to..to + 96, to..to + 96);
        prover.runs_out(&[Address(to), Int(7), Word(n)], 4096)?;
    }
    Ok(())
}

/// Pairs of bytes whose order depends on their type.
const PAIRS: [(u8, u8); 6] = [(0x00, 0xff), (0x7f, 0x80), (0x80, 0x7f), (0xff, 0x01), (0x41, 0x42), (0xfe, 0xff)];

/// memcmp; without `order` bcmp, where only a result of 0 or not 0 matters.
pub(crate) fn compares(prover: &mut Prover<'_>, order: bool) -> Result<(), Unproven> {
    difference(prover, 6, (1, 2), Some((3, (0x80, 0x7f))), false, order)?;
    difference(prover, 6, (0, 0), Some((4, (0x10, 0x7f))), false, order)?;
    let mut turn = 0;
    for n in (0..=SHORT).chain(prover.long_lengths()) {
        let places: Vec<usize> = match n <= SHORT {
            true => (0..n).collect(),
            false => vec![0, 1, n / 3, n / 2, n - 18, n - 9, n - 2, n - 1],
        };
        for (index, pair) in alignments(n).into_iter().enumerate() {
            turn += 1;
            if index < 8 || places.is_empty() {
                difference(prover, n, pair, None, false, order)?;
            }
            if let Some(place) = places.get((turn * 7) % places.len().max(1)) {
                difference(prover, n, pair, Some((*place, PAIRS[turn % PAIRS.len()])), false, order)?;
            }
        }
        for place in places {
            turn += 1;
            let pair = PAIRS[turn % PAIRS.len()];
            difference(
                prover,
                n,
                (turn as u64 % 16, n as u64 % 16),
                Some((place, pair)),
                turn.is_multiple_of(3),
                order,
            )?;
        }
        difference(prover, n, (0, 0), None, true, order)?;
    }
    // A block with every value of a byte. At one place, every value is compared with values that differ in a bit, and
    // with some others.
    difference(prover, 256, (3, 3), None, false, order)?;
    difference(prover, 256, (3, 8), None, false, order)?;
    for turn in 0..256 * 12 {
        let pair = neighbours(turn);
        let place = turn % 24;
        difference(prover, 24, (place as u64 % 16, turn as u64 / 24 % 16), Some((place, pair)), false, order)?;
    }
    every_pair(prover, order)?;
    // Bytes beyond the lower 32 bits of a length are compared, too.
    for n in [WIDE, WIDE + 3] {
        let (one, other) = (prover.place(0, 96, 0, true), prover.place(1, 96, 0, true));
        for (region, block) in [(0, one), (1, other)] {
            prover.bytes(region, block..block + 96).fill(0x61);
            prover.allow(region, block..block + 96, block..block);
        }
        prover.runs_out(&[Address(one), Address(other), Word(n)], 4096)?;
    }
    let early = difference(prover, 2000, (1, 1), Some((0, PAIRS[0])), false, order)?;
    let late = difference(prover, 2000, (1, 1), Some((1999, PAIRS[0])), false, order)?;
    if early < late / 2 { Ok(()) } else { Err(Unproven::ConstantTime) }
}

/// Blocks of a single byte: every value against every other.
fn every_pair(prover: &mut Prover<'_>, order: bool) -> Result<(), Unproven> {
    let (one, other) = (prover.place(0, 1, 5, false), prover.place(1, 1, 9, false));
    for (region, block) in [(0, one), (1, other)] {
        prover.allow(region, block..block + 1, block..block);
    }
    prover.every_pair(one, other, Some(1), order, exact)
}

/// Compares two blocks that differ in one place, and, to mislead, in others behind it. Returns the steps that it took.
fn difference(
    prover: &mut Prover<'_>,
    n: usize,
    (one, other): (u64, u64),
    place: Option<(usize, (u8, u8))>,
    at_end: bool,
    order: bool,
) -> Result<u64, Unproven> {
    let (one, other) = (prover.place(0, n, one, at_end), prover.place(1, n, other, at_end));
    for (region, block) in [(0, one), (1, other)] {
        let end = block + n as u64;
        prover.surround(region, block..end, n + 2 * region, 0x80);
        prover.bytes(region, block..end).iter_mut().enumerate().for_each(|(at, byte)| *byte = pattern(at));
        prover.allow(region, block..end, block..block);
    }
    let (a, b) = place.map_or((0, 0), |(_, pair)| pair);
    if let Some((place, _)) = place {
        let place = place as u64;
        prover.bytes(0, one + place..one + place + 1)[0] = a;
        prover.bytes(1, other + place..other + place + 1)[0] = b;
        // The opposite difference, if there is room.
        if place + 1 < n as u64 && n.is_multiple_of(2) {
            prover.bytes(0, one + n as u64 - 1..one + n as u64)[0] = b;
            prover.bytes(1, other + n as u64 - 1..other + n as u64)[0] = a;
        }
    }
    let arguments = [Address(one), Address(other), Word(n as u64)];
    prover.compares(&arguments, n, (a, b), order)
}

/// memchr, and with `last` memrchr. Only the lowest byte of the second argument counts.
pub(crate) fn finds(prover: &mut Prover<'_>, last: bool) -> Result<(), Unproven> {
    // Hits at `places`, for `byte`, among bytes that resemble it.
    let find = |prover: &mut Prover<'_>, n: usize, align: u64, places: &[usize], byte: u8, at_end: bool| {
        let block = prover.place(0, n, align, at_end);
        prover.surround(0, block..block + n as u64, n + places.len(), byte);
        let others = [byte ^ 0x80, byte ^ 1, byte.wrapping_add(1), byte.wrapping_sub(1), byte ^ 0x81];
        let bytes = prover.bytes(0, block..block + n as u64);
        bytes.iter_mut().enumerate().for_each(|(at, to)| *to = others[(at + n) % others.len()]);
        places.iter().for_each(|place| bytes[*place] = byte);
        let hit = if last { places.iter().max() } else { places.iter().min() };
        // memchr stops at the first hit, and may be given a larger size than the block has (C23, 7.26.5.2).
        let looked_at = hit.filter(|_| !last).map_or(n, |hit| hit + 1) as u64;
        prover.allow(0, block..block + looked_at, block..block);
        prover.allow(1, 0..0, 0..0);
        let expected = hit.map_or(0, |hit| block + *hit as u64);
        prover.returns(&[Address(block), Int(0x5b6a_4300 | u32::from(byte)), Word(n as u64)], n, expected)
    };
    find(prover, 7, 1, &[2, 5], 0x61, false)?;
    find(prover, 7, 2, &[], 0x61, false)?;
    for n in (0..=SHORT).chain(prover.long_lengths()) {
        let byte = [0, 0x7f, 0x80, 0xff, 0x61, 0x01][n % 6];
        for align in aligned(n) {
            find(prover, n, align, &[], byte, false)?;
            if n > 0 {
                find(prover, n, align, &[(align as usize * 7 + n) % n], byte, false)?;
                find(prover, n, align, &[n - 1], byte, false)?;
                find(prover, n, align, &[0, n / 2, n - 1], byte, false)?;
            }
        }
        for place in 0..n.min(SHORT) {
            find(prover, n, (n + 3 * place) as u64 % 16, &[place], byte, place.is_multiple_of(3))?;
            find(prover, n, (n + place) as u64 % 16, &[place, (place * 5 + 1) % n], byte ^ 0x35, false)?;
        }
        find(prover, n, 0, &[], byte, true)?;
    }
    every_value(prover, last)?;
    let block = prover.place(0, 96, 0, true);
    prover.bytes(0, block..block + 96).fill(0x61);
    prover.allow(0, block..block + 96, block..block);
    for n in [WIDE, WIDE + 3] {
        prover.runs_out(&[Address(block), Int(0x62), Word(n)], 4096)?;
    }
    if !last {
        // A hit, and a limit beyond all memory.
        for n in [u64::MAX, u64::MAX - block, u64::MAX / 2] {
            prover.bytes(0, block + 41..block + 42)[0] = 0x62;
            prover.returns(&[Address(block), Int(0x62), Word(n)], 96, block + 41)?;
        }
    }
    let (first, end) = if last { (1999, 0) } else { (0, 1999) };
    let early = find(prover, 2000, 1, &[first], 0x61, false)?;
    let late = find(prover, 2000, 1, &[end], 0x61, false)?;
    if early < late / 2 { Ok(()) } else { Err(Unproven::ConstantTime) }
}

/// A block with every byte but one, and a block in which that byte comes last, or first for memrchr.
fn every_value(prover: &mut Prover<'_>, last: bool) -> Result<(), Unproven> {
    for byte in 0..=255u8 {
        let block = prover.place(0, 256, u64::from(byte % 16), false);
        for present in [false, true] {
            let bytes = prover.bytes(0, block..block + 256);
            for (at, to) in bytes.iter_mut().enumerate() {
                let value = byte.wrapping_add(at as u8).wrapping_add(1);
                *to = if value == byte { byte ^ 0x20 } else { value };
            }
            let place = if last { 0 } else { 255 };
            if present {
                bytes[place] = byte;
            }
            prover.allow(0, block..block + 256, block..block);
            let expected = if present { block + place as u64 } else { 0 };
            prover.returns(&[Address(block), Int(u32::from(byte)), Word(256)], 256, expected)?;
        }
    }
    Ok(())
}
