//! Memory that a function may touch: two blocks with their pages, its stack, and the program's constants.

use std::ops::Range;

use crate::{Program, Unproven};

/// The smallest page that the kernel protects.
pub(crate) const PAGE: u64 = 4096;
/// The addresses of the regions for blocks. They have no more alignment in common than they must.
const BASES: [u64; 2] = [0x7a31_2c00_0000, 0x7b52_ed00_0000];
/// The size of a region: the longest block, and a page before and behind.
const REGION: usize = 160 * 1024;
const STACK: u64 = 0x7ffc_1230_0000;
/// The size of the stack: the bytes that a function may push, and those above its return address.
const STACK_SIZE: usize = 512;

/// A range of addresses with its bytes.
#[derive(Debug)]
struct Region {
    base: u64,
    bytes: Vec<u8>,
    readable: Range<u64>,
    writable: Range<u64>,
}

impl Region {
    fn place(&self, at: u64, size: usize, within: &Range<u64>) -> Option<usize> {
        let fits = at >= within.start && at.checked_add(size as u64)? <= within.end;
        usize::try_from(at.checked_sub(self.base)?).ok().filter(|_| fits)
    }
}

/// All memory that a run can access.
#[derive(Debug)]
pub(crate) struct Memory<'a> {
    program: &'a dyn Program,
    regions: [Region; 2],
    stack: Vec<u8>,
    /// The bytes of the stack that the function has written.
    set: Vec<bool>,
}

impl<'a> Memory<'a> {
    pub(crate) fn new(program: &'a dyn Program) -> Memory<'a> {
        let region = |base| Region { base, bytes: vec![0; REGION], readable: base..base, writable: base..base };
        Memory { program, regions: BASES.map(region), stack: vec![0; STACK_SIZE], set: vec![false; STACK_SIZE] }
    }

    /// The first address of a region.
    pub(crate) fn base(&self, region: usize) -> u64 {
        self.regions[region].base
    }

    /// A region's bytes, to be prepared and compared.
    pub(crate) fn bytes(&mut self, region: usize, range: Range<u64>) -> &mut [u8] {
        let Region { base, bytes, .. } = &mut self.regions[region];
        &mut bytes[(range.start - *base) as usize..(range.end - *base) as usize]
    }

    /// Allows reads from the pages that hold a byte of `read`, and writes only to `write`.
    pub(crate) fn allow(&mut self, region: usize, read: Range<u64>, write: Range<u64>) {
        let region = &mut self.regions[region];
        region.readable = match read.is_empty() {
            true => region.base..region.base,
            false => read.start / PAGE * PAGE..read.end.next_multiple_of(PAGE),
        };
        region.writable = write;
    }

    /// The address of the return address when a function begins. The address behind it is a multiple of 16.
    pub(super) fn stack_top() -> u64 {
        STACK + STACK_SIZE as u64 - 8
    }

    pub(super) fn clear_stack(&mut self) {
        self.set.fill(false);
    }

    fn on_stack(at: u64, size: usize) -> Option<usize> {
        let end = at.checked_add(size as u64)?;
        (at >= STACK && end <= Memory::stack_top()).then(|| (at - STACK) as usize)
    }

    /// Up to 16 bytes, and which of them have been set, as bits.
    pub(super) fn read(&self, at: u64, size: usize) -> Result<(u128, u16), Unproven> {
        let mut bytes = [0; 16];
        for region in &self.regions {
            if let Some(place) = region.place(at, size, &region.readable) {
                bytes[..size].copy_from_slice(&region.bytes[place..place + size]);
                return Ok((u128::from_le_bytes(bytes), u16::MAX));
            }
        }
        let Some(place) = Memory::on_stack(at, size) else { return Err(Unproven::Memory) };
        bytes[..size].copy_from_slice(&self.stack[place..place + size]);
        let set = self.set[place..place + size].iter().enumerate();
        let known = set.fold(0, |known, (index, set)| known | u16::from(*set) << index);
        Ok((u128::from_le_bytes(bytes), known))
    }

    /// A constant of the program, at an address that the instruction contains.
    pub(super) fn constant(&self, at: u64, size: usize) -> Result<u128, Unproven> {
        let mut bytes = [0; 16];
        bytes[..size].copy_from_slice(self.program.constant(at, size).ok_or(Unproven::Memory)?);
        Ok(u128::from_le_bytes(bytes))
    }

    pub(super) fn write(&mut self, at: u64, size: usize, value: u128, known: u16) -> Result<(), Unproven> {
        let bytes = value.to_le_bytes();
        for region in &mut self.regions {
            if let Some(place) = region.place(at, size, &region.writable) {
                region.bytes[place..place + size].copy_from_slice(&bytes[..size]);
                let all = known | u16::MAX.checked_shl(size as u32).unwrap_or(0) == u16::MAX;
                return if all { Ok(()) } else { Err(Unproven::Unset(at)) };
            }
        }
        let Some(place) = Memory::on_stack(at, size) else { return Err(Unproven::Memory) };
        self.stack[place..place + size].copy_from_slice(&bytes[..size]);
        self.set[place..place + size].iter_mut().enumerate().for_each(|(index, set)| *set = known >> index & 1 == 1);
        Ok(())
    }
}
