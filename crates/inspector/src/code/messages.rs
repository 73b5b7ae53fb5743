//! Finds code that hands texts of an allocator to one function. A text alone may be in any file; glibc's malloc calls
//! `malloc_printerr` with each of its messages (glibc malloc/malloc.c).

use std::collections::{BTreeMap, BTreeSet};

use crate::code::Code;
use crate::elf::{Elf, PT_LOAD};
use crate::report::Arch;

/// The most instructions between a text's address in the first argument and the call.
const BETWEEN: usize = 4;
/// The number of texts that have to be handed to one function.
const ENOUGH: usize = 3;
/// The most places of a text: a hostile file may have thousands.
const MOST_PLACES: usize = 64;

/// Whether code hands at least three of the texts to the same function, which is called directly. Only for x86_64 and
/// aarch64.
pub(crate) fn are_used(elf: &Elf<'_>, texts: &[Vec<u8>]) -> bool {
    let mut places: BTreeMap<u64, usize> = BTreeMap::new();
    for (number, text) in texts.iter().enumerate() {
        for segment in elf.segments.iter().filter(|segment| segment.kind == PT_LOAD) {
            let found = memchr::memmem::find_iter(segment.data.unwrap_or_default(), text).take(MOST_PLACES);
            places.extend(found.map(|at| (segment.address.wrapping_add(at as u64), number)));
        }
    }
    let Some(code) = Code::new(elf).filter(|_| !places.is_empty()) else { return false };
    let hands = match elf.arch {
        Arch::X86_64 => on_x86,
        Arch::Aarch64 => on_aarch64,
        _ => return false,
    };
    let mut by_function: BTreeMap<u64, BTreeSet<usize>> = BTreeMap::new();
    for (address, bytes) in &code.parts {
        hands(&code, *address, bytes, &mut |text, function| {
            if let Some(number) = places.get(&text) {
                by_function.entry(function).or_default().insert(*number);
            }
        });
    }
    by_function.values().any(|texts| texts.len() >= ENOUGH)
}

/// Calls `found` with each address that is loaded into the first argument, and the function that is called next.
fn on_x86(code: &Code<'_>, start: u64, bytes: &[u8], found: &mut dyn FnMut(u64, u64)) {
    let word = |at: usize| Some(i32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    for at in 0..bytes.len() {
        // lea rdi, [rip + x]; mov edi, x
        let (text, length) = match bytes[at..] {
            [0x48, 0x8d, 0x3d, ..] => {
                let Some(distance) = word(at + 3) else { continue };
                (start.wrapping_add(at as u64 + 7).wrapping_add(i64::from(distance).cast_unsigned()), 7)
            }
            [0xbf, ..] => {
                let Some(address) = word(at + 1) else { continue };
                (u64::from(address.cast_unsigned()), 5)
            }
            _ => continue,
        };
        let mut next = start.wrapping_add((at + length) as u64);
        for _ in 0..BETWEEN {
            let Some(step) = code.bytes_at(next).map(|bytes| (bytes, super::x86::step(64, next, bytes))) else { break };
            let (bytes, Some(step)) = step else { break };
            if bytes[0] == 0xe8 {
                let distance = bytes.get(1..).and_then(|rest| rest.first_chunk()).map(|word| i32::from_le_bytes(*word));
                if let Some(distance) = distance {
                    found(text, next.wrapping_add(5).wrapping_add(i64::from(distance).cast_unsigned()));
                }
                break;
            }
            if !step.falls_through {
                break;
            }
            next = next.wrapping_add(step.length);
        }
    }
}

/// As [`on_x86`]: adrp x0, page; add x0, x0, x; bl.
fn on_aarch64(_code: &Code<'_>, start: u64, bytes: &[u8], found: &mut dyn FnMut(u64, u64)) {
    let words: Vec<u32> =
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
    for (at, page) in words.iter().enumerate().filter(|(_, word)| **word & 0x9f00_001f == 0x9000_0000) {
        let address = start.wrapping_add(4 * at as u64);
        let pages = i64::from(((page >> 5 & 0x7_ffff) << 2 | page >> 29 & 3).cast_signed() << 11 >> 11);
        let base = (address & !0xfff).wrapping_add((pages << 12).cast_unsigned());
        let mut text = None;
        for (distance, word) in words[at + 1..].iter().take(2 * BETWEEN).enumerate() {
            match word {
                // add x0, x0, #x
                word if word & 0xffc0_03ff == 0x9100_0000 => {
                    text = Some(base.wrapping_add(u64::from(word >> 10 & 0xfff)))
                }
                word if word >> 26 == 0b10_0101 => {
                    let place = address.wrapping_add(4 * (distance as u64 + 1));
                    let words = i64::from((word << 6).cast_signed() >> 6);
                    if let Some(text) = text {
                        found(text, place.wrapping_add((4 * words).cast_unsigned()));
                    }
                    break;
                }
                _ => {}
            }
        }
    }
}
