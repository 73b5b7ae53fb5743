//! The proof that a function's code is a string function, and nothing else. The code is run on inputs of every kind,
//! and its results are compared with a byte-by-byte reference.
//!
//! A function is proven if every run ends as expected and touches nothing else, and if in the end each of its
//! instructions has been executed and each of its conditional branches has gone both ways. Then it holds no code that
//! only other inputs reach. (`inputs_blocks` and `inputs_texts` have the inputs.)

use std::ops::Range;

use crate::inputs_blocks as blocks;
use crate::inputs_texts as texts;
use crate::interpreter::{self, Argument, Interpreter, Outcome, PAGE};
use crate::{Program, Unproven};
use format::StringFunction;

/// The required result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strictness {
    /// The result that C requires: the sign.
    Sign,
    /// The result that musl gives: the difference of the bytes. Callers of a function without a name may depend on it.
    Difference,
}

/// Limits on executed instructions, for each byte and for all else. No string function takes as many.
const STEPS_PER_BYTE: u64 = 40;
const STEPS: u64 = 3000;

/// Every length up to this one is tried.
pub(crate) const SHORT: usize = 80;

/// Whether every pair of alignments is tried for a length.
fn is_square(n: usize) -> bool {
    matches!(n, 1 | 9 | 17 | 33)
}

/// The alignments to try for a block of `n` bytes: all, or a selection that differs from length to length.
pub(crate) fn aligned(n: usize) -> Vec<u64> {
    match n {
        _ if is_square(n) => (0..16).collect(),
        0..=SHORT => (0..6).map(|index| (index * 3 + n as u64) % 16).collect(),
        _ => vec![0, 3, 9, 15],
    }
}

/// Pairs of alignments for two blocks of `n` bytes.
pub(crate) fn alignments(n: usize) -> Vec<(u64, u64)> {
    match n {
        _ if is_square(n) => (0..16).flat_map(|one| (0..16).map(move |other| (one, other))).collect(),
        0..=SHORT => aligned(n).into_iter().flat_map(|one| [(one, (one * 5 + n as u64) % 16), (one, one)]).collect(),
        _ => vec![(0, 0), (3, 8), (9, 1), (7, 15)],
    }
}

/// A pair of bytes that differ in one bit, are neighbours, are complements, or have some other distance: 12 turns for
/// each byte.
pub(crate) fn neighbours(turn: usize) -> (u8, u8) {
    let byte = (turn / 12) as u8;
    let other = match turn % 12 {
        bit @ 0..8 => byte ^ 1 << bit,
        8 => byte.wrapping_add(1),
        9 => !byte,
        10 => byte.wrapping_add(0x47),
        _ => byte.wrapping_sub(0x11),
    };
    (byte, other)
}

/// A byte as a comparison takes it.
pub(crate) type Letter = fn(u8) -> u8;

pub(crate) fn exact(byte: u8) -> u8 {
    byte
}

/// Without regard to case, as musl's tolower: only ASCII's letters have a case.
pub(crate) fn lower(byte: u8) -> u8 {
    byte.to_ascii_lowercase()
}

/// The number of bytes around a block that are filled and must not matter.
const MARGIN: usize = 160;

/// Two fillings.
static AROUND: [[u8; MARGIN]; 2] = {
    let mut around = [[0; MARGIN]; 2];
    let mut at = 0;
    while at < MARGIN {
        around[0][at] = [0x80, 0xff, 0x01, 0x7f, 0][at % 5];
        around[1][at] = (at as u8).wrapping_mul(37) ^ 0xa5;
        at += 1;
    }
    around
};

/// Proves functions of a program, one after the other.
#[derive(Debug)]
pub struct Prover<'a> {
    interpreter: Box<dyn Interpreter<'a> + 'a>,
    pub(crate) strictness: Strictness,
}

impl<'a> Prover<'a> {
    /// Returns a prover for functions of a program; `None` if there is no interpreter for its architecture.
    pub fn new(program: &'a dyn Program, strictness: Strictness) -> Option<Prover<'a>> {
        Some(Prover { interpreter: interpreter::for_program(program)?, strictness })
    }

    /// Reads the function at an address. Later calls run this function.
    ///
    /// # Errors
    /// The code cannot be followed.
    pub fn read(&mut self, start: u64) -> Result<(), Unproven> {
        self.interpreter.read(start)
    }

    /// Whether the function touches memory other than the stack, as every string function does.
    pub fn touches_memory(&self) -> bool {
        self.interpreter.touches_memory()
    }

    /// Proves that the function is `function`.
    ///
    /// # Errors
    /// The reason that it is not proven.
    pub fn prove(&mut self, function: StringFunction) -> Result<(), Unproven> {
        use StringFunction as F;
        self.interpreter.forget();
        match function {
            F::Memcpy => blocks::copies(self, false),
            F::Memmove => blocks::copies(self, true),
            F::Memset => blocks::fills(self),
            F::Memcmp => blocks::compares(self, true),
            F::Bcmp => blocks::compares(self, false),
            F::Memchr => blocks::finds(self, false),
            F::Memrchr => blocks::finds(self, true),
            F::Strlen => texts::lengths(self, false),
            F::Strnlen => texts::lengths(self, true),
            F::Strchr | F::Strchrnul | F::Strrchr => texts::finds(self, function),
            F::Strcmp => texts::compares(self, false, exact),
            F::Strncmp => texts::compares(self, true, exact),
            F::Strcasecmp => texts::compares(self, false, lower),
            F::Strncasecmp => texts::compares(self, true, lower),
            F::Strcspn => texts::spans(self, true),
            F::Strspn => texts::spans(self, false),
            F::Stpcpy | F::Strcpy | F::Stpncpy | F::Strncpy => texts::copies(self, function),
            F::Strcat | F::Strncat => texts::appends(self, function == F::Strncat),
        }?;
        match self.interpreter.untested() {
            Some(address) => Err(Unproven::Untested(address)),
            None => Ok(()),
        }
    }

    /// Lengths of blocks beyond every threshold in the code. Short lengths are tried one by one.
    pub(crate) fn long_lengths(&self) -> Vec<usize> {
        let mut lengths = vec![96, 100, 127, 128, 129, 160, 191, 200, 255, 256, 257, 300, 511, 513, 1025, 4099];
        // Any number in the code may be a threshold.
        let numbers = self.interpreter.numbers().into_iter().filter(|number| (81..20_000).contains(number));
        for number in numbers.take(16) {
            let number = number as usize;
            lengths.extend([number - 1, number, number + 1, number + 19, 2 * number + 5]);
        }
        lengths.sort_unstable();
        lengths.dedup();
        lengths
    }

    /// The number of bytes beyond a block to fill; a different number on each turn.
    pub(crate) fn far(&self, turn: usize) -> usize {
        let lengths = self.long_lengths();
        lengths[turn % lengths.len()]
    }

    /// The address of a block of `n` bytes in a region: `align` behind a multiple of 64, in the middle of a page, or
    /// with `at_end` so that it ends where a page ends.
    pub(crate) fn place(&mut self, region: usize, n: usize, align: u64, at_end: bool) -> u64 {
        let base = self.interpreter.memory().base(region) + PAGE;
        match at_end {
            true => base + (n as u64 + 256).next_multiple_of(PAGE) - n as u64,
            false => base + 1984 + align,
        }
    }

    /// A region's bytes.
    pub(crate) fn bytes(&mut self, region: usize, range: Range<u64>) -> &mut [u8] {
        self.interpreter.memory().bytes(region, range)
    }

    /// Fills the bytes around a block, which must not matter, in one of four ways. Some contain `special`.
    pub(crate) fn surround(&mut self, region: usize, block: Range<u64>, kind: usize, special: u8) {
        let fill = |bytes: &mut [u8]| match kind % 4 {
            0 => bytes.fill(0),
            1 => bytes.fill(special),
            2 => bytes.copy_from_slice(&AROUND[0]),
            _ => bytes.copy_from_slice(&AROUND[1]),
        };
        fill(self.bytes(region, block.start - MARGIN as u64..block.start));
        fill(self.bytes(region, block.end..block.end + MARGIN as u64));
    }

    pub(crate) fn allow(&mut self, region: usize, read: Range<u64>, write: Range<u64>) {
        self.interpreter.memory().allow(region, read, write);
    }

    /// Runs the function. `bytes` is the number of bytes that it has to examine.
    pub(crate) fn call(&mut self, arguments: &[Argument], bytes: usize) -> Result<Outcome, Unproven> {
        self.interpreter.call(arguments, STEPS + STEPS_PER_BYTE * bytes as u64)
    }

    /// Runs the function, and expects it to return a word.
    pub(crate) fn returns(&mut self, arguments: &[Argument], bytes: usize, expected: u64) -> Result<u64, Unproven> {
        let outcome = self.call(arguments, bytes)?;
        if outcome.word() == Some(expected) { Ok(outcome.steps) } else { Err(Unproven::Result) }
    }

    /// Runs the function, and expects the result of a comparison of these two bytes.
    pub(crate) fn orders(&mut self, arguments: &[Argument], bytes: usize, one: u8, other: u8) -> Result<u64, Unproven> {
        self.compares(arguments, bytes, (one, other), true)
    }

    /// Runs the function, and expects the result of a comparison. Without `order`, only a result of 0 or not 0 matters.
    pub(crate) fn compares(
        &mut self,
        arguments: &[Argument],
        bytes: usize,
        (one, other): (u8, u8),
        order: bool,
    ) -> Result<u64, Unproven> {
        let outcome = self.call(arguments, bytes)?;
        let (found, expected) = (outcome.int().ok_or(Unproven::Result)?, i32::from(one) - i32::from(other));
        let agrees = match self.strictness {
            _ if !order => (found == 0) == (expected == 0),
            Strictness::Difference => found == expected,
            Strictness::Sign => found.signum() == expected.signum(),
        };
        if agrees { Ok(outcome.steps) } else { Err(Unproven::Result) }
    }

    /// Compares the byte at `one` with that at `other`, in the two regions: every value with every other.
    pub(crate) fn every_pair(
        &mut self,
        one: u64,
        other: u64,
        limit: Option<u64>,
        order: bool,
        letter: Letter,
    ) -> Result<(), Unproven> {
        let mut arguments = vec![Argument::Address(one), Argument::Address(other)];
        arguments.extend(limit.map(Argument::Word));
        for (a, b) in (0..=255).flat_map(|a| (0..=255).map(move |b| (a, b))) {
            self.bytes(0, one..one + 1)[0] = a;
            self.bytes(1, other..other + 1)[0] = b;
            self.compares(&arguments, 2, (letter(a), letter(b)), order)?;
        }
        Ok(())
    }

    /// Runs the function with a length that is larger than the blocks, and nothing that ends it earlier. If it uses all
    /// 64 bits it leaves the blocks; if it uses fewer it returns.
    pub(crate) fn runs_out(&mut self, arguments: &[Argument], bytes: usize) -> Result<(), Unproven> {
        match self.call(arguments, bytes) {
            Err(Unproven::Memory) => Ok(()),
            Ok(_) => Err(Unproven::ShortLength),
            Err(other) => Err(other),
        }
    }
}
