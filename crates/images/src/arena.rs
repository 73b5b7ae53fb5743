//! Memory that grows in blocks: nothing moves when it grows, so that its peak is its size.

use std::num::NonZeroU32;

use crate::error::{Checked, Problem};

/// The number of elements in a block.
const BLOCK: usize = 1 << 12;

/// A list that grows by whole blocks.
#[derive(Debug)]
pub(crate) struct List<T>(Vec<Vec<T>>);

impl<T> List<T> {
    pub(crate) fn new() -> List<T> {
        List(Vec::new())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.last().map_or(0, |last| (self.0.len() - 1) * BLOCK + last.len())
    }

    pub(crate) fn push(&mut self, element: T) {
        match self.0.last_mut() {
            Some(last) if last.len() < BLOCK => last.push(element),
            _ => {
                // The first block starts small: most images have few entries.
                let mut block = if self.0.is_empty() { Vec::new() } else { Vec::with_capacity(BLOCK) };
                block.push(element);
                self.0.push(block);
            }
        }
    }

    /// Returns the element of that number, which must exist.
    pub(crate) fn at(&self, number: u32) -> &T {
        &self.0[number as usize / BLOCK][number as usize % BLOCK]
    }

    /// Returns the element of that number, which must exist.
    pub(crate) fn at_mut(&mut self, number: u32) -> &mut T {
        &mut self.0[number as usize / BLOCK][number as usize % BLOCK]
    }

    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        let number = usize::try_from(number).ok()?;
        self.0.get(number / BLOCK)?.get(number % BLOCK)
    }
}

/// The size of a block of texts in bytes. A longer text has a block of its own.
const TEXTS: usize = 1 << OFFSET_BITS;
/// The low bits of a text's place: its offset in its block.
const OFFSET_BITS: u32 = 16;

/// The place of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(NonZeroU32);

impl Place {
    /// Returns the place as a number.
    pub(crate) fn number(self) -> u32 {
        self.0.get()
    }

    /// Returns the place of that number.
    pub(crate) fn of_number(number: u32) -> Option<Place> {
        NonZeroU32::new(number).map(Place)
    }
}

/// Texts, one behind the other, each with its length before it.
#[derive(Debug)]
pub(crate) struct Texts(Vec<Vec<u8>>);

impl Texts {
    pub(crate) fn new() -> Texts {
        Texts(Vec::new())
    }

    /// Adds a text.
    ///
    /// # Errors
    /// There are 4 GiB of them.
    pub(crate) fn push(&mut self, text: &[u8]) -> Checked<Place> {
        let mut length = [0; 10];
        let digits = leb128(text.len() as u64, &mut length);
        let size = digits + text.len();
        let fits = |block: &Vec<u8>| block.len() + size <= TEXTS;
        if !self.0.last().is_some_and(fits) {
            let room = if self.0.is_empty() { size } else { size.max(TEXTS) };
            self.0.push(Vec::with_capacity(room));
        }
        // A place is never 0.
        let number = self.0.len();
        Problem::at_most("its table of names", number as u64, "blocks", (1 << (32 - OFFSET_BITS)) - 1)?;
        let block = &mut self.0[number - 1];
        let place = Place::of_number((number as u32) << OFFSET_BITS | block.len() as u32);
        let place = place.ok_or_else(|| Problem::Damaged("a name without a place".to_owned()))?;
        block.extend_from_slice(&length[..digits]);
        block.extend_from_slice(text);
        Ok(place)
    }

    /// Returns the text at a place that [`Texts::push`] returned.
    pub(crate) fn at(&self, place: Place) -> &[u8] {
        let number = place.number() as usize;
        let mut rest = &self.0[(number >> OFFSET_BITS) - 1][number % TEXTS..];
        taken(&mut rest).unwrap_or_default()
    }
}

/// Writes a number as LEB128, and returns the number of bytes.
fn leb128(mut number: u64, into: &mut [u8; 10]) -> usize {
    for (at, digit) in into.iter_mut().enumerate() {
        *digit = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            return at + 1;
        }
        *digit |= 0x80;
    }
    into.len()
}

/// Adds a text with its length before it.
pub(crate) fn put(text: &[u8], into: &mut Vec<u8>) {
    let mut length = [0; 10];
    let digits = leb128(text.len() as u64, &mut length);
    into.extend_from_slice(&length[..digits]);
    into.extend_from_slice(text);
}

/// Takes a text from the start of `rest`. `None` at the end.
pub(crate) fn taken<'t>(rest: &mut &'t [u8]) -> Option<&'t [u8]> {
    let mut length = 0;
    for (at, digit) in rest.iter().enumerate().take(10) {
        length |= usize::from(digit & 0x7f) << (7 * at);
        if digit & 0x80 == 0 {
            let (text, after) = rest[at + 1..].split_at_checked(length)?;
            *rest = after;
            return Some(text);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_any_length() {
        let mut texts = Texts::new();
        let lengths = [0, 1, 127, 128, 5000, TEXTS - 3, TEXTS - 2, TEXTS, 3 * TEXTS, 7];
        let all: Vec<Vec<u8>> = lengths.iter().cycle().take(40).map(|length| vec![*length as u8; *length]).collect();
        let places: Vec<Place> = all.iter().map(|text| texts.push(text).unwrap()).collect();
        for (text, place) in all.iter().zip(places) {
            assert!(texts.at(place) == text, "{}", text.len());
        }
    }

    #[test]
    fn a_list_over_blocks() {
        let mut list = List::new();
        for number in 0..3 * BLOCK + 1 {
            assert_eq!(list.len(), number);
            list.push(number);
        }
        assert_eq!((*list.at(0), *list.at(BLOCK as u32), list.get(3 * BLOCK as u64)), (0, BLOCK, Some(&(3 * BLOCK))));
        assert_eq!(list.get(3 * BLOCK as u64 + 1), None);
        *list.at_mut(5) += 1;
        assert_eq!(*list.at(5), 6);
    }
}
