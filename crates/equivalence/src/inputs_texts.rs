//! Inputs for the functions on strings: strlen and strnlen, strchr and similar, strcmp and strncmp, with and without
//! regard to case, strcpy and similar, strcat and strncat, strspn and strcspn.

use crate::Unproven;
use crate::interpreter::Argument::{Address, Int, Word};
use crate::proof::{Letter, Prover, SHORT, aligned, alignments, neighbours};
use format::StringFunction;

/// A length with more than 32 bits, of which the lower 32 are 0.
const WIDE: u64 = 1 << 32;

/// A byte that is never 0: with and without the highest bit, values that word-wise tricks take for 0, and in long
/// strings every value.
fn letter(at: usize) -> u8 {
    if at < 96 { [0x01, 0x80, 0x81, 0xff, 0x7f, 0x61, 0x02][at % 7] } else { (at % 255) as u8 + 1 }
}

/// Lays out a string of `n` bytes, and returns its address. The bytes behind its end must not matter.
fn lay_out(
    prover: &mut Prover<'_>,
    region: usize,
    n: usize,
    align: u64,
    at_end: bool,
    kind: usize,
    special: u8,
) -> u64 {
    let text = prover.place(region, n + 1, align, at_end);
    let end = text + n as u64;
    prover.surround(region, text..end + 1, kind, special);
    let bytes = prover.bytes(region, text..end + 1);
    bytes[..n].iter_mut().enumerate().for_each(|(at, byte)| *byte = letter(at));
    bytes[n] = 0;
    prover.allow(region, text..end + 1, text..text);
    text
}

/// Picks `count` of the values, different ones on each turn.
fn turns<T: Copy>(values: &[T], count: usize, turn: usize) -> impl Iterator<Item = T> + '_ {
    (0..count).map(move |index| values[(turn * count + index) % values.len()])
}

/// strlen; with a limit strnlen.
pub(crate) fn lengths(prover: &mut Prover<'_>, limited: bool) -> Result<(), Unproven> {
    let length = |prover: &mut Prover<'_>, n: usize, align: u64, at_end: bool, kind: usize| {
        let text = lay_out(prover, 0, n, align, at_end, kind, 0);
        prover.allow(1, 0..0, 0..0);
        if !limited {
            return prover.returns(&[Address(text)], n, n as u64);
        }
        let limits = [n as u64, n as u64 + 1, WIDE, WIDE + 1, u64::MAX / 2, u64::MAX - text, u64::MAX];
        for limit in turns(&limits, 3, n + align as usize) {
            prover.returns(&[Address(text), Word(limit)], n, (n as u64).min(limit))?;
        }
        // Bytes behind the limit are not read, or do not matter.
        for limit in turns(&[0, n / 3, n / 2, n.saturating_sub(1), n.saturating_sub(9)], 2, n + align as usize) {
            let limit = limit.min(n) as u64;
            prover.allow(0, text..text + limit, text..text);
            prover.returns(&[Address(text), Word(limit)], n, limit)?;
        }
        Ok(0)
    };
    length(prover, 5, 3, false, 2)?;
    for n in (0..=SHORT).chain(prover.long_lengths()) {
        for align in aligned(n) {
            length(prover, n, align, false, n + align as usize)?;
        }
        length(prover, n, 0, true, n)?;
    }
    Ok(())
}

/// strchr, strchrnul, strrchr. Only the lowest byte of the second argument counts, and it may be 0.
pub(crate) fn finds(prover: &mut Prover<'_>, function: StringFunction) -> Result<(), Unproven> {
    let find = |prover: &mut Prover<'_>, n: usize, align: u64, places: &[usize], byte: u8, at_end: bool| {
        let text = lay_out(prover, 0, n, align, at_end, n + places.len() + align as usize, byte);
        let bytes = prover.bytes(0, text..text + n as u64);
        // Bytes that resemble the searched byte, but differ from it and from 0.
        let others = [byte ^ 0x80, byte.wrapping_add(1), byte.wrapping_sub(1), byte ^ 1, 0x7f, 0xff, 0x81, 0x01];
        for (at, to) in bytes.iter_mut().enumerate() {
            let mut other = others[(at + n) % others.len()];
            while other == 0 || other == byte {
                other = other.wrapping_add(3);
            }
            *to = other;
        }
        if byte != 0 {
            places.iter().for_each(|place| bytes[*place] = byte);
        }
        prover.allow(1, 0..0, 0..0);
        let (first, last) = match byte {
            0 => (Some(&n), Some(&n)),
            _ => (places.iter().min(), places.iter().max()),
        };
        let expected = match function {
            StringFunction::Strrchr => last.map(|place| *place as u64),
            StringFunction::Strchrnul => Some(*first.unwrap_or(&n) as u64),
            _ => first.map(|place| *place as u64),
        };
        let expected = expected.map_or(0, |place| text + place);
        prover.returns(&[Address(text), Int(0x5b6a_4300 | u32::from(byte))], n, expected).map(|_| ())
    };
    find(prover, 7, 1, &[2, 5], 0x62, false)?;
    find(prover, 7, 1, &[], 0x62, false)?;
    for byte in 0..=255 {
        find(prover, 40, u64::from(byte % 16), &[39], byte, false)?;
        find(prover, 40, u64::from(byte % 16), &[], byte, false)?;
    }
    every_value(prover, function)?;
    for n in (0..=SHORT).chain(prover.long_lengths()) {
        for byte in [0].into_iter().chain(turns(&[0x62, 0x80, 0xff, 0x01, 0x7f], 1, n)) {
            // For 0 some implementations call strlen, which has its own thresholds.
            for align in if byte == 0 && n < 24 { (0..16).collect() } else { aligned(n) } {
                find(prover, n, align, &[], byte, false)?;
                if n > 0 {
                    find(prover, n, align, &[(align as usize * 7 + n) % n], byte, false)?;
                }
            }
            find(prover, n, 0, &[], byte, true)?;
        }
        let byte = [0x62, 0x80, 0xff, 0x01, 0x7f][n % 5];
        for place in 0..n.min(SHORT) {
            find(prover, n, (n + 3 * place) as u64 % 16, &[place], byte, place.is_multiple_of(3))?;
            find(prover, n, (n + place) as u64 % 16, &[place, (place * 5 + 1) % n], byte, false)?;
        }
    }
    Ok(())
}

/// A string of every byte but one: without that byte, and with it at the end.
fn every_value(prover: &mut Prover<'_>, function: StringFunction) -> Result<(), Unproven> {
    for byte in 1..=255u8 {
        for present in [false, true] {
            let text = lay_out(prover, 0, 255, u64::from(byte % 16), false, 2, byte);
            let bytes = prover.bytes(0, text..text + 255);
            for (at, to) in bytes.iter_mut().enumerate() {
                let value = (at as u8).wrapping_add(byte) ^ 0x55;
                let other = if byte == 0x77 { 0x76 } else { 0x77 };
                *to = if value == byte || value == 0 { other } else { value };
            }
            if present {
                bytes[254] = byte;
            }
            let expected = match (present, function) {
                (true, _) => text + 254,
                (false, StringFunction::Strchrnul) => text + 255,
                (false, _) => 0,
            };
            prover.returns(&[Address(text), Int(u32::from(byte))], 255, expected)?;
        }
    }
    Ok(())
}

/// Strings of a single byte: every value against every other.
fn every_pair(prover: &mut Prover<'_>, limited: bool, letter: Letter) -> Result<(), Unproven> {
    let (one, other) = (lay_out(prover, 0, 1, 5, false, 1, 7), lay_out(prover, 1, 1, 9, false, 1, 8));
    prover.every_pair(one, other, limited.then_some(9), true, letter)
}

/// Pairs of bytes that signed and unsigned characters order differently, or that end one of the strings.
const PAIRS: [(u8, u8); 8] =
    [(0x00, 0xff), (0x7f, 0x80), (0x80, 0x7f), (0xff, 0x01), (0x41, 0x42), (0xfe, 0xff), (0x80, 0x00), (0x01, 0x00)];

/// A letter of the other case, and any other byte unchanged.
fn other_case(byte: u8) -> u8 {
    if byte.is_ascii_alphabetic() { byte ^ 0x20 } else { byte }
}

/// strcmp; with a limit strncmp. Without regard to case, as `letter` says: strcasecmp and strncasecmp.
pub(crate) fn compares(prover: &mut Prover<'_>, limited: bool, letter: Letter) -> Result<(), Unproven> {
    let by_case = letter(b'A') != b'A';
    let compare =
        |prover: &mut Prover<'_>, n: usize, (a, b): (u64, u64), place: Option<(usize, (u8, u8))>, at_end: bool| {
            // The strings continue behind that place, with different lengths that must not matter.
            let one = lay_out(prover, 0, n, a, at_end, n, 1);
            let other = lay_out(prover, 1, n, b, at_end, n + 1, 2);
            let letters = prover.bytes(1, other..other + n as u64).iter_mut().enumerate();
            letters
                .filter(|(at, _)| by_case && (at * 7 + n).is_multiple_of(3))
                .for_each(|(_, byte)| *byte = other_case(*byte));
            if let Some((place, (x, y))) = place.filter(|(_, (x, y))| letter(*x) == letter(*y)) {
                prover.bytes(0, one + place as u64..one + place as u64 + 1)[0] = x;
                prover.bytes(1, other + place as u64..other + place as u64 + 1)[0] = y;
            }
            let place = place.filter(|(_, (x, y))| letter(*x) != letter(*y));
            let (x, y) = place.map_or((0, 0), |(_, pair)| pair);
            let at = place.map_or(n, |(place, _)| place);
            if place.is_some() {
                prover.bytes(0, one + at as u64..one + at as u64 + 1)[0] = x;
                prover.bytes(1, other + at as u64..other + at as u64 + 1)[0] = y;
                if at + 2 < n {
                    // The opposite difference behind it.
                    prover.bytes(0, one + n as u64 - 1..one + n as u64)[0] = y.max(1);
                    prover.bytes(1, other + n as u64 - 1..other + n as u64)[0] = x.max(1);
                }
            }
            // Reading ends at the first difference.
            for (region, text) in [(0, one), (1, other)] {
                prover.allow(region, text..text + at as u64 + 1, text..text);
            }
            if !limited {
                return prover.orders(&[Address(one), Address(other)], n, letter(x), letter(y)).map(|_| ());
            }
            let end = at as u64 + 1;
            for limit in turns(&[end, end + 1, WIDE, WIDE + 1, u64::MAX / 2, u64::MAX], 2, n + at + a as usize) {
                prover.orders(&[Address(one), Address(other), Word(limit)], n, letter(x), letter(y))?;
            }
            for limit in turns(&[0, at / 2, at.saturating_sub(1), at], 1, n + at + a as usize) {
                for (region, text) in [(0, one), (1, other)] {
                    prover.allow(region, text..text + limit as u64, text..text);
                }
                prover.orders(&[Address(one), Address(other), Word(limit as u64)], n, 0, 0)?;
            }
            Ok(())
        };
    compare(prover, 6, (1, 2), Some((3, (0x80, 0x7f))), false)?;
    compare(prover, 6, (0, 0), Some((4, (0x10, 0x7f))), false)?;
    let mut turn = 0;
    for n in (0..=SHORT).chain(prover.long_lengths()) {
        for (index, pair) in alignments(n).into_iter().enumerate() {
            turn += 1;
            if index < 8 || n == 0 {
                compare(prover, n, pair, None, false)?;
            }
            if n > 0 {
                compare(prover, n, pair, Some(((turn * 7) % n, PAIRS[turn % PAIRS.len()])), false)?;
            }
        }
        for place in 0..n.min(SHORT) {
            turn += 1;
            compare(
                prover,
                n,
                (turn as u64 % 16, n as u64 % 16),
                Some((place, PAIRS[turn % PAIRS.len()])),
                turn.is_multiple_of(3),
            )?;
        }
        compare(prover, n, (0, 0), None, true)?;
    }
    for turn in 0..256 * 12 {
        let place = turn % 24;
        compare(prover, 24, (place as u64 % 16, turn as u64 / 24 % 16), Some((place, neighbours(turn))), false)?;
    }
    every_pair(prover, limited, letter)
}

/// strcpy and stpcpy; with a limit strncpy and stpncpy, which fill the rest of it with zeros.
pub(crate) fn copies(prover: &mut Prover<'_>, function: StringFunction) -> Result<(), Unproven> {
    let limited = matches!(function, StringFunction::Stpncpy | StringFunction::Strncpy);
    let to_end = matches!(function, StringFunction::Stpncpy | StringFunction::Stpcpy);
    let copy = |prover: &mut Prover<'_>, n: usize, (a, b): (u64, u64), limit: Option<usize>, at_end: bool| {
        let from = lay_out(prover, 1, n, b, at_end, n, 0x61);
        let (copied, written) = match limit {
            Some(limit) => (n.min(limit), limit),
            None => (n, n + 1),
        };
        if limit.is_some() {
            prover.allow(1, from..from + written.min(n + 1) as u64, from..from);
        }
        let to = prover.place(0, written, a, at_end);
        let end = to + written as u64;
        prover.bytes(0, to..end).fill(0x3c);
        prover.allow(0, to..end, to..end);
        let result = if to_end { to + copied as u64 } else { to };
        let mut arguments = vec![Address(to), Address(from)];
        arguments.extend(limit.map(|limit| Word(limit as u64)));
        prover.returns(&arguments, n + written, result)?;
        let right = prover.bytes(0, to..end).iter().enumerate().all(|(at, byte)| match at < copied {
            true => *byte == letter(at),
            false => *byte == 0,
        });
        if right { Ok(()) } else { Err(Unproven::Result) }
    };
    let each = |prover: &mut Prover<'_>, n: usize, pair: (u64, u64), at_end: bool| {
        if !limited {
            return copy(prover, n, pair, None, at_end);
        }
        // The filled part may be long, and done by memset.
        let far = n + prover.far(n + pair.0 as usize);
        let turn = n + pair.0 as usize;
        let limits = [n, n + 1, n + turn * 7 % 80, n / 2, n.saturating_sub(1), n.saturating_sub(8), 0, far];
        for limit in turns(&limits, 3, turn) {
            copy(prover, n, pair, Some(limit), at_end)?;
        }
        Ok(())
    };
    each(prover, 5, (1, 2), false)?;
    for n in (0..=SHORT).chain(prover.long_lengths()) {
        for pair in alignments(n) {
            each(prover, n, pair, false)?;
        }
        each(prover, n, (0, 0), true)?;
    }
    if limited {
        // The beginning and the end of the filled part, at every alignment: loops up to an aligned address may be
        // unrolled.
        for (rest, a) in (0..=24).flat_map(|rest| (0..16).map(move |a| (rest, a))) {
            copy(prover, rest % 3, (a, rest as u64 % 16), Some(rest % 3 + rest), false)?;
        }
        // All 64 bits of the limit count: the rest has to be filled.
        for n in [WIDE, WIDE + 3] {
            let from = lay_out(prover, 1, 5, 0, false, 0, 0x61);
            let to = prover.place(0, 96, 0, true);
            prover.allow(0, to..to + 96, to..to + 96);
            prover.runs_out(&[Address(to), Address(from), Word(n)], 4096)?;
        }
    }
    Ok(())
}

/// Tries strcat, or with `limited` strncat, which always writes a terminator.
pub(crate) fn appends(prover: &mut Prover<'_>, limited: bool) -> Result<(), Unproven> {
    let append =
        |prover: &mut Prover<'_>, before: usize, n: usize, (a, b): (u64, u64), limit: Option<u64>, at_end: bool| {
            let from = lay_out(prover, 1, n, b, at_end, n, 0x61);
            let copied = limit.map_or(n, |limit| n.min(usize::try_from(limit).unwrap_or(usize::MAX)));
            let read = if copied < n { copied } else { n + 1 };
            let read = if limit == Some(n as u64) { n } else { read };
            prover.allow(1, from..from + read as u64, from..from);
            let size = before + copied + 1;
            let to = prover.place(0, size, a, at_end);
            let end = to + size as u64;
            let bytes = prover.bytes(0, to..end);
            bytes.fill(0x3c);
            bytes[..before].iter_mut().enumerate().for_each(|(at, byte)| *byte = letter(at + 3));
            bytes[before] = 0;
            prover.allow(0, to..end, to + before as u64..end);
            let mut arguments = vec![Address(to), Address(from)];
            arguments.extend(limit.map(Word));
            prover.returns(&arguments, size + n, to)?;
            let bytes = prover.bytes(0, to..end);
            let right = bytes[..before].iter().enumerate().all(|(at, byte)| *byte == letter(at + 3))
                && bytes[before..size - 1].iter().enumerate().all(|(at, byte)| *byte == letter(at))
                && bytes[size - 1] == 0;
            if right { Ok(()) } else { Err(Unproven::Result) }
        };
    let each = |prover: &mut Prover<'_>, before: usize, n: usize, pair: (u64, u64), at_end: bool| {
        if !limited {
            return append(prover, before, n, pair, None, at_end);
        }
        let short = n as u64;
        let limits = [short, short + 1, short + 9, short / 2, short.saturating_sub(1), 0, WIDE, WIDE + 1, u64::MAX];
        for limit in turns(&limits, 3, n + before + pair.0 as usize) {
            append(prover, before, n, pair, Some(limit), at_end)?;
        }
        Ok(())
    };
    each(prover, 3, 5, (1, 2), false)?;
    for n in (0..=SHORT).chain(prover.long_lengths()) {
        for (index, pair) in alignments(n).into_iter().enumerate() {
            each(prover, (n * 3 + index) % 41, n, pair, false)?;
        }
        each(prover, n, n / 2, (0, 0), true)?;
        each(prover, 0, n, (0, 0), true)?;
    }
    for before in 0..=SHORT {
        for align in aligned(before) {
            each(prover, before, 3, (align, 0), false)?;
        }
    }
    Ok(())
}

/// The sizes of the sets. One byte, few and many are often done differently.
const SIZES: [usize; 11] = [0, 1, 2, 3, 4, 5, 8, 16, 17, 40, 200];

/// Lays out these bytes as a string in a region, and returns its address.
fn lay_out_bytes(prover: &mut Prover<'_>, region: usize, text: &[u8], align: u64, at_end: bool, special: u8) -> u64 {
    let address = prover.place(region, text.len() + 1, align, at_end);
    let end = address + text.len() as u64;
    prover.surround(region, address..end + 1, text.len() + align as usize, special);
    let bytes = prover.bytes(region, address..end + 1);
    bytes[..text.len()].copy_from_slice(text);
    bytes[text.len()] = 0;
    address
}

/// A set of `size` bytes, different ones on each turn: neighbours, or scattered ones, with repetitions.
fn set(size: usize, turn: usize) -> Vec<u8> {
    let byte = |at: usize| match turn % 3 {
        0 => (turn * 53 + at) as u8,
        1 => (turn * 31 + at * 97) as u8,
        _ => (turn * 17) as u8 ^ (1 << (at % 8)),
    };
    (0..size).map(byte).map(|byte| byte.max(1)).collect()
}

/// strspn; with `complement` strcspn.
pub(crate) fn spans(prover: &mut Prover<'_>, complement: bool) -> Result<(), Unproven> {
    let span = |prover: &mut Prover<'_>, text: &[u8], set: &[u8], (a, b): (u64, u64), at_end: bool| {
        let place = text.iter().position(|byte| set.contains(byte) == complement).unwrap_or(text.len());
        let inside = set.first().copied().unwrap_or(0x61);
        let (from, to) =
            (lay_out_bytes(prover, 0, text, a, at_end, inside), lay_out_bytes(prover, 1, set, b, at_end, inside));
        // Reading ends at the byte that decides.
        prover.allow(0, from..from + place as u64 + 1, from..from);
        prover.allow(1, to..to + set.len() as u64 + 1, to..to);
        // Some go through the set for each byte.
        let bytes = (text.len() + 1) * (set.len() + 1);
        prover.returns(&[Address(from), Address(to)], bytes, place as u64).map(|_| ())
    };
    span(prover, b"abcabd", b"cba", (1, 2), false)?;
    span(prover, b"xyzxya", b"cba", (3, 0), false)?;
    let mut turn = 0;
    for n in (0..=SHORT).chain([100, 257, 1025]) {
        for align in aligned(n) {
            turn += 1;
            let set = set(SIZES[turn % SIZES.len()], turn);
            let (members, others): (Vec<u8>, Vec<u8>) = (1..=255).partition(|byte| set.contains(byte));
            let (goes_on, stops) = if complement { (&others, &members) } else { (&members, &others) };
            // The empty set has no member, and another may have no other byte.
            let byte = |bytes: &[u8], at: usize| bytes.get(at % bytes.len().max(1)).copied();
            let mut text: Vec<u8> = (0..n).map(|at| byte(goes_on, at * 7 + turn).unwrap_or(0x61)).collect();
            span(prover, &text, &set, (align, turn as u64 % 16), turn.is_multiple_of(4))?;
            if let Some(stop) = byte(stops, turn).filter(|_| n > 0) {
                text[(turn * 5) % n] = stop;
                span(prover, &text, &set, (align, turn as u64 / 3 % 16), turn.is_multiple_of(5))?;
            }
        }
    }
    // Every byte against every other, in sets that hold it once or twice; and sets of all bytes but one.
    for (a, b) in (1..=255u8).flat_map(|a| (1..=255u8).map(move |b| (a, b))) {
        span(prover, &[a], &[b, b][b as usize % 2..], (u64::from(a % 16), 3), false)?;
    }
    for missing in 1..=255u8 {
        let set: Vec<u8> = (1..=255).filter(|byte| *byte != missing).collect();
        span(prover, &[(missing ^ 1).max(2), missing], &set, (0, 0), false)?;
        span(prover, &[missing, (missing ^ 0x80).max(1)], &set, (5, 0), false)?;
    }
    Ok(())
}
