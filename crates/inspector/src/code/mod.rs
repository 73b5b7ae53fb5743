//! Analyses a program's machine code to find what serves `malloc` where there are no symbols.
//!
//! docs/inspect.md says what the code looks for and why that is proof.

mod aarch64;
pub(crate) mod messages;
pub(crate) mod oldmalloc;
mod x86;

use std::collections::{HashMap, HashSet};

use crate::elf::Elf;
use crate::report::Arch;

/// The most instructions that are followed from the start of a function: musl's `free` has some 250.
const MOST_INSTRUCTIONS: usize = 1_500;
/// The most places that look like the one in musl's `free`, and the most jumps to them. With more, nothing is proven.
const MOST_CANDIDATES: usize = 4_096;
/// The most jump targets near a mark: each is followed.
const MOST_TARGETS: usize = 8_192;
/// The most jumps to functions that free as mallocng does.
const MOST_JUMPS: usize = 24;
/// The most bytes between the start of `free` and its mark: some 500 in fact.
const REACH: u64 = 0x1000;

/// The executable parts of a file and their addresses in memory.
#[derive(Debug)]
pub(crate) struct Code<'a> {
    arch: Arch,
    parts: Vec<(u64, &'a [u8])>,
}

/// One instruction, as far as control flow and `free` need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Decoded {
    /// Bytes.
    length: u64,
    /// Whether control may reach the next instruction in memory. A call counts as returning.
    falls_through: bool,
    /// The target of a direct jump. `None` for calls and indirect jumps.
    target: Option<u64>,
    /// Its store to the block that `free` is given, if any.
    store: Option<Store>,
}

/// A store at a fixed distance before an address in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Store {
    /// A store of 0xff to the byte at -3: mallocng's mark of a free slot.
    Mark { base: u32 },
    /// A store to the 16 bits at -2, which clears the offset of the group.
    Offset { base: u32 },
}

/// A call or a jump that leaves a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// To this address.
    To(u64),
    /// To the address in the pointer at this address.
    Slot(u64),
    /// To an address in a register, or the code cannot be read.
    Unknown,
}

/// mallocng's `free`, and the public function that jumps to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FreeOfMallocng {
    /// musl's `free`, which only jumps to `__libc_free` (musl src/malloc/free.c).
    pub(crate) public: u64,
    /// `__libc_free`.
    pub(crate) internal: u64,
}

impl<'a> Code<'a> {
    pub(crate) fn new(elf: &Elf<'a>) -> Option<Self> {
        let known = match elf.arch {
            Arch::X86_64 | Arch::Aarch64 => elf.bytes.little && elf.bytes.wide,
            Arch::I686 => elf.bytes.little && !elf.bytes.wide,
            _ => false,
        };
        known.then(|| Code { arch: elf.arch, parts: elf.executable() })
    }

    fn is_x86(&self) -> bool {
        matches!(self.arch, Arch::X86_64 | Arch::I686)
    }

    /// Returns the bytes from an address to the end of its part.
    pub(crate) fn bytes_at(&self, address: u64) -> Option<&'a [u8]> {
        self.parts.iter().find_map(|(start, data)| {
            let inside = usize::try_from(address.checked_sub(*start)?).ok()?;
            data.get(inside..).filter(|rest| !rest.is_empty())
        })
    }

    fn step(&self, address: u64) -> Option<Decoded> {
        let bytes = self.bytes_at(address)?;
        match self.arch {
            Arch::X86_64 => x86::step(64, address, bytes),
            Arch::I686 => x86::step(32, address, bytes),
            _ => aarch64::step(address, bytes),
        }
    }

    /// Returns every instruction that can be reached from `start` without a return or a jump through a register,
    /// ordered by address. `None` if there are too many.
    fn reachable(&self, start: u64) -> Option<Vec<(u64, Decoded)>> {
        let mut seen = HashSet::new();
        let mut waiting = vec![start];
        let mut steps = Vec::new();
        while let Some(address) = waiting.pop() {
            if !seen.insert(address) {
                continue;
            }
            if seen.len() > MOST_INSTRUCTIONS {
                return None;
            }
            let Some(step) = self.step(address) else { continue };
            waiting.extend(step.falls_through.then(|| address.wrapping_add(step.length)));
            waiting.extend(step.target);
            steps.push((address, step));
        }
        steps.sort_unstable_by_key(|(address, _)| *address);
        Some(steps)
    }

    /// Whether the function at `start` treats a block as only mallocng's `free` does in musl: it marks the slot before
    /// it as free and clears the offset (musl src/malloc/mallocng/free.c).
    fn frees_as_mallocng(&self, start: u64) -> bool {
        let Some(steps) = self.reachable(start) else { return false };
        let stores: Vec<(u64, Store)> =
            steps.iter().filter_map(|(address, step)| Some((*address, step.store?))).collect();
        stores.iter().any(|(at, store)| {
            let Store::Mark { base } = store else { return false };
            let mut offsets = stores.iter().filter(|(_, other)| *other == Store::Offset { base: *base });
            offsets.any(|(other, _)| other.abs_diff(*at) <= 64)
        })
    }

    /// Finds musl's own `free` in a program without symbols. `is_named` says whether a pointer or a symbol outside the
    /// code names an address.
    pub(crate) fn free_of_mallocng(&self, is_named: impl Fn(u64) -> bool) -> Option<FreeOfMallocng> {
        let marks = if self.is_x86() { x86::marks } else { aarch64::marks };
        let mut marks = marks(&self.parts, MOST_CANDIDATES);
        if marks.len() >= MOST_CANDIDATES {
            return None;
        }
        marks.sort_unstable();
        // `free` begins less than this before its mark, or after it where gcc has split the function.
        let near = |target: u64| {
            let after = marks.partition_point(|&mark| mark < target.saturating_sub(REACH));
            marks.get(after).is_some_and(|mark| mark.abs_diff(target) <= REACH)
        };
        // Other functions may consist of a jump to `free` without being it. Many more places jump to somewhere near a
        // mark.
        let mut frees: HashMap<u64, bool> = HashMap::new();
        let mut leads_to_free = |target: u64| {
            near(target)
                && match frees.get(&target) {
                    Some(known) => *known,
                    None if frees.len() == MOST_TARGETS => false,
                    None => {
                        let is_free = self.step(target).is_some_and(|first| first.falls_through)
                            && self.frees_as_mallocng(target);
                        frees.insert(target, is_free);
                        is_free
                    }
                }
        };
        let jumps = match self.is_x86() {
            true => x86::jumps(&self.parts, &mut leads_to_free, MOST_CANDIDATES),
            false => aarch64::jumps(&self.parts, &mut leads_to_free, MOST_CANDIDATES),
        };
        if jumps.len() >= MOST_CANDIDATES || frees.len() == MOST_TARGETS {
            return None;
        }
        let mut candidates: Vec<FreeOfMallocng> =
            jumps.into_iter().map(|(public, internal)| FreeOfMallocng { public, internal }).collect();
        // Each candidate costs a scan of the whole file; musl has few functions that end in a jump to `free`.
        if candidates.len() > MOST_JUMPS {
            return None;
        }
        candidates.retain(|free| self.is_called(free.public) || is_named(free.public));
        // One program has one libc. With two candidates it is unknown which one is right.
        match candidates.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    /// Whether a call, or the last jump of a function, targets `address`.
    fn is_called(&self, address: u64) -> bool {
        (if self.is_x86() { x86::is_called } else { aarch64::is_called })(&self.parts, address)
    }

    /// Returns the `length` bytes at `start`, at most 16 KiB of them.
    fn of_function(&self, start: u64, length: u64) -> Option<&[u8]> {
        let bytes = self.bytes_at(start)?;
        Some(&bytes[..usize::try_from(length.min(0x4000)).unwrap_or(usize::MAX).min(bytes.len())])
    }

    /// Returns the calls and jumps that leave the `length` bytes of code at `start`. Code that cannot be read, or is
    /// longer than 16 KiB, may leave to anywhere.
    pub(crate) fn exits(&self, start: u64, length: u64) -> Vec<Exit> {
        let whole = self.of_function(start, length).filter(|bytes| bytes.len() as u64 == length);
        let Some(bytes) = whole else { return vec![Exit::Unknown] };
        match self.arch {
            Arch::Aarch64 => aarch64::exits(start, bytes),
            arch => x86::exits(if arch == Arch::I686 { 32 } else { 64 }, start, bytes),
        }
    }

    /// Returns the functions that the code in `length` bytes at `start` calls or jumps to, without itself.
    pub(crate) fn callees(&self, start: u64, length: u64) -> Vec<u64> {
        let end = start.saturating_add(length.min(0x4000));
        let Some(bytes) = self.of_function(start, length) else { return Vec::new() };
        let mut found = (if self.is_x86() { x86::callees } else { aarch64::callees })(start, bytes);
        found.retain(|target| !(start..end).contains(target));
        found.sort_unstable();
        found.dedup();
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression test: GNU ld's programs for aarch64 were not recognised, because every branch within a function near
    /// a mark counted.
    #[test]
    fn branches_near_a_mark_that_lead_to_no_free_are_left_out() {
        const RETURN: u32 = 0xd65f_03c0;
        let found = |areas: usize| {
            // bl 1; b 2; then the function: sturb w2, [x6, #-3]; sturh wzr, [x6, #-2]; ret
            let mut words: Vec<u32> = vec![0x9400_0001, 0x1400_0001, 0x381f_d0c2, 0x781f_e0df, RETURN];
            for _ in 0..areas {
                // A byte and 16 bits at the same distances, in code that ends differently, and loops around them.
                words.extend([0x1400_0000; 900]);
                words.extend([0x381f_d0c2, 0x781f_e0df, RETURN]);
            }
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            Code { arch: Arch::Aarch64, parts: vec![(0x1000, &bytes)] }.free_of_mallocng(|_| false)
        };
        const { assert!(900 * 6 > MOST_CANDIDATES) };
        assert_eq!(found(6), Some(FreeOfMallocng { public: 0x1004, internal: 0x1008 }));
        // There are too many of them to look at each.
        const { assert!(900 * 10 > MOST_TARGETS) };
        assert_eq!(found(10), None);
    }
}
