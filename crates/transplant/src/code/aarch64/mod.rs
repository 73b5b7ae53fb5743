//! aarch64: every instruction is one word, so every word is an instruction or data.

mod definition;
mod features;
mod fields;
mod frame;
mod keys;
mod musl;
mod page;
mod values;
mod word;

use std::collections::BTreeSet;
use std::ops::Range;

use self::fields::Word;
use super::origin::{Definition, Location};
use super::{Branch, Code, Features, Flow, Function, Instruction, Machine, Reference};
use crate::image::Image;
use word::{Operation, flow, is_landing_pad, is_padding, operation, reads, writes};

#[derive(Debug)]
pub(crate) struct Aarch64;

/// The word at an address, which is a multiple of four.
fn word_at(image: &Image<'_>, address: u64) -> Option<Word> {
    if !address.is_multiple_of(4) || !image.is_executable(address) {
        return None;
    }
    Some(Word { address, bits: u32::from_le_bytes(*image.bytes_from(address).first_chunk()?) })
}

/// Every word of the code.
fn words<'i>(image: &'i Image<'_>) -> impl Iterator<Item = Word> + 'i {
    image.executable().flat_map(|(start, bytes)| {
        let skip = start.wrapping_neg() & 3;
        let bytes = bytes.get(skip as usize..).unwrap_or_default();
        bytes.chunks_exact(4).enumerate().map(move |(index, raw)| Word {
            address: start + skip + 4 * index as u64,
            bits: u32::from_le_bytes([raw[0], raw[1], raw[2], raw[3]]),
        })
    })
}

/// A function's instructions, by address.
fn all<'c>(image: &'c Image<'_>, function: &'c Function) -> impl Iterator<Item = Word> + 'c {
    function.instructions.keys().filter_map(|address| word_at(image, *address))
}

/// Pages with words that hold an address in the range, or will after relocation, such as entries of the global offset
/// table.
fn pointers_into(code: &Code<'_>, range: &Range<u64>) -> BTreeSet<u64> {
    if code.image.position_independent {
        return code.relocations.places_of(range.clone()).map(|place| place & !0xfff).collect();
    }
    let mut pages = BTreeSet::new();
    for load in code.image.loads() {
        let skip = load.address.wrapping_neg() & 7;
        let bytes = code.image.bytes_from(load.address).get(skip as usize..).unwrap_or_default();
        for (index, raw) in bytes.chunks_exact(8).enumerate() {
            if crate::image::u64_at(raw, 0).is_some_and(|value| range.contains(&value)) {
                pages.insert((load.address + skip + 8 * index as u64) & !0xfff);
            }
        }
    }
    pages
}

impl Machine for Aarch64 {
    fn instruction(&self, address: u64, bytes: &[u8]) -> Option<Instruction> {
        let bits = u32::from_le_bytes(*bytes.first_chunk()?);
        let word = Word { address, bits };
        address.is_multiple_of(4).then(|| Instruction { address, next: address + 4, flow: flow(word) })
    }

    fn branches(&self, image: &Image<'_>) -> Vec<Branch> {
        let branch = |word: Word| match flow(word) {
            Flow::Call(Some(target)) => Some(Branch { site: word.address, target, is_call: true }),
            Flow::Jump(Some(target)) => Some(Branch { site: word.address, target, is_call: false }),
            _ => None,
        };
        words(image).filter_map(branch).filter(|branch| image.is_executable(branch.target)).collect()
    }

    /// An address is made from a page (ADRP) and a number that is added to it, by one instruction or several, on any
    /// path through the code; or it is near (ADR, LDR); or it is a branch's target.
    fn references(&self, code: &Code<'_>, range: Range<u64>) -> Vec<Reference> {
        /// The distance from the page to the address: objects that share one base are at most this far from it.
        const REACH: u64 = 0x4000;
        let near = range.start.saturating_sub(REACH)..range.end.saturating_add(REACH);
        let pointers = pointers_into(code, &range);
        let mut found = Vec::new();
        for word in words(code.image) {
            let field = word.address;
            let mut add = |target: u64| {
                if range.contains(&target) {
                    found.push(Reference { field, target });
                }
            };
            match (flow(word), operation(word)) {
                (Flow::Call(Some(target)) | Flow::Jump(Some(target)) | Flow::Conditional(target), _) => add(target),
                (_, Operation::Memory(access)) => access.literal.into_iter().for_each(add),
                (_, Operation::Address { value, .. }) => {
                    let is_page = word.bits >> 31 == 1;
                    if !is_page {
                        add(value);
                    }
                    if !near.contains(&value) && !pointers.contains(&value) {
                        continue;
                    }
                    match page::follow(code, field) {
                        Some(made) => found.extend(
                            made.into_iter()
                                .filter(|(target, _)| range.contains(target))
                                .map(|(target, field)| Reference { field, target }),
                        ),
                        // A page that cannot be followed counts as a reference.
                        None => found.push(Reference { field, target: range.start }),
                    }
                }
                _ => {}
            }
        }
        found
    }

    fn refers(&self, code: &Code<'_>, function: &Function) -> BTreeSet<(u64, u64)> {
        let states = values::of_function(code, function);
        let made = |(address, mut state): (u64, values::State)| {
            state.step(code, word_at(code.image, address)?).map(|made| (made, address))
        };
        states.into_iter().filter_map(made).collect()
    }

    fn confirmed(&self, code: &mut Code<'_>, reference: Reference, ends: &BTreeSet<u64>) -> Option<u64> {
        let Reference { field, .. } = reference;
        Some(code.enclosing(field, ends).or_else(|| code.start_before(field)).unwrap_or(field))
    }

    fn follows_an_end(&self, image: &Image<'_>, address: u64) -> bool {
        let before = (1..=16).map_while(|back| word_at(image, address.checked_sub(4 * back)?));
        match before.into_iter().find(|word| !is_padding(*word)) {
            Some(word) => matches!(flow(word), Flow::Return | Flow::Jump(_) | Flow::Trap),
            None => true,
        }
    }

    /// Procedure Call Standard for the Arm 64-bit Architecture, 6.1.1: x0 to x7 are arguments, x8 is where a result
    /// goes, x18 is the platform's. Registers that are saved on the stack may hold anything.
    fn reads_as_entry(&self, code: &Code<'_>, start: u64) -> bool {
        const ARGUMENTS: u32 = 0x6004_01ff;
        let mut known = ARGUMENTS;
        for place in (0..14).map(|index| start + 4 * index) {
            let Some(word) = word_at(code.image, place) else { return false };
            let saves = matches!(operation(word), Operation::Memory(access)
                if access.stores && access.base == word::ZERO);
            if !saves && reads(word) & !known != 0 {
                return false;
            }
            known |= writes(word);
            if matches!(flow(word), Flow::Return | Flow::Jump(_) | Flow::Call(_)) {
                return true;
            }
            if flow(word) == Flow::Trap {
                return word.address != start;
            }
        }
        true
    }

    fn is_part(&self, code: &Code<'_>, start: u64) -> bool {
        frame::is_anothers(code, start)
    }

    /// Neither gcc nor LLVM does so for this architecture.
    fn leaves_by_condition(&self) -> bool {
        false
    }

    fn is_padding(&self, image: &Image<'_>, instruction: &Instruction) -> bool {
        word_at(image, instruction.address).is_some_and(is_padding)
    }

    fn behind_landing_pad(&self, image: &Image<'_>, start: u64) -> u64 {
        if word_at(image, start).is_some_and(is_landing_pad) { start + 4 } else { start }
    }

    fn features(&self, code: &Code<'_>, function: &Function) -> Features {
        features::find(code, function)
    }

    fn marks(&self, code: &Code<'_>) -> BTreeSet<u64> {
        words(code.image).filter(|word| features::is_mark(*word)).map(|word| word.address).collect()
    }

    fn near_argument(&self, code: &Code<'_>, site: u64, index: u32) -> Vec<u64> {
        values::before(code, site, 16).known(index).into_iter().collect()
    }

    fn argument_register(&self, index: u32) -> Option<u32> {
        (index < definition::ARGUMENTS).then_some(index)
    }

    fn argument_of(&self, register: u32) -> Option<u32> {
        (register < definition::ARGUMENTS).then_some(register)
    }

    fn define(&self, code: &Code<'_>, address: u64, location: Location) -> Definition {
        definition::define(code, address, location)
    }

    fn jump_size(&self) -> u64 {
        4
    }

    /// B, BL: 26 bits, in words.
    fn reach(&self) -> u64 {
        1 << 27
    }

    fn jump(&self, site: u64, target: u64, is_call: bool) -> Option<Vec<u8>> {
        let distance = target.wrapping_sub(site).cast_signed();
        let reach = self.reach().cast_signed();
        let reaches = (-reach..reach).contains(&distance) && distance % 4 == 0;
        let opcode: u32 = if is_call { 0x9400_0000 } else { 0x1400_0000 };
        reaches.then(|| (opcode | (distance >> 2) as u32 & 0x3ff_ffff).to_le_bytes().to_vec())
    }

    fn page(&self) -> u64 {
        0x1_0000
    }
}
