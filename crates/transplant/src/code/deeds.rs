//! What a function does, as far as it tells one function of mallocng from another. The numbers are musl's
//! (src/malloc/mallocng/meta.h and the functions' own files), not a compiler's.

use std::collections::BTreeSet;

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::Function;
use super::function::is_immediate;

/// Something that a function does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deed {
    /// Reads the byte before a block's last two: its slot's index and the bits of its reserved size.
    ReadsIndexByte,
    /// Reads the two bytes before a block: its offset in the group, in units of 16.
    ReadsOffset,
    /// Writes 255 over the index: free() does, against double frees.
    WritesFreed,
    /// Compares with or loads MMAP_THRESHOLD, 131052, or one less.
    Threshold,
    /// Compares with 48, the number of size classes, or one less.
    CountsClasses,
    /// Compares with 5 or its neighbours, in the upper three bits of a byte or alone: the reserved size that is stored elsewhere.
    Reserved,
    /// Tests the low four bits: a block's alignment.
    TestsAlignment,
    /// Compares with 2^35 or one less, or shifts by 35: the greatest alignment.
    GreatestAlignment,
    /// Makes a system call.
    SystemCall,
    /// Multiplies, or asks for the upper half of a product.
    Multiplies,
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Deeds {
    pub(crate) set: BTreeSet<Deed>,
    /// Instructions that write to memory other than the stack.
    pub(crate) stores: usize,
}

impl Deeds {
    pub(crate) fn of(function: &Function) -> Deeds {
        let mut deeds = Deeds::default();
        for instruction in function.instructions.values() {
            deeds.note_memory(instruction);
            deeds.note_numbers(instruction);
        }
        deeds
    }

    pub(crate) fn has(&self, deed: Deed) -> bool {
        self.set.contains(&deed)
    }

    /// What get_meta() does, which finds a block's group from the bytes before it.
    pub(crate) fn finds_group(&self) -> bool {
        [Deed::TestsAlignment, Deed::ReadsOffset, Deed::ReadsIndexByte].iter().all(|deed| self.has(*deed))
    }

    fn note_memory(&mut self, instruction: &Instruction) {
        let mnemonic = instruction.mnemonic();
        let first = instruction.op0_kind() == OpKind::Memory;
        let any = (0..instruction.op_count()).any(|op| instruction.op_kind(op) == OpKind::Memory);
        if !any {
            return;
        }
        let base = instruction.memory_base();
        let writes = matches!(
            mnemonic,
            Mnemonic::Mov
                | Mnemonic::Add
                | Mnemonic::Sub
                | Mnemonic::Or
                | Mnemonic::And
                | Mnemonic::Xor
                | Mnemonic::Inc
                | Mnemonic::Dec
                | Mnemonic::Xchg
                | Mnemonic::Cmpxchg
        );
        if first && writes && !matches!(base, Register::RSP | Register::RBP) {
            self.stores += 1;
        }
        if matches!(base, Register::None | Register::RIP | Register::EIP | Register::RSP) {
            return;
        }
        let displacement = instruction.memory_displacement64() as i64;
        let size = instruction.memory_size().size();
        match (size, displacement, mnemonic) {
            (1, -3, Mnemonic::Movzx | Mnemonic::Cmp | Mnemonic::Test) => {
                self.set.insert(Deed::ReadsIndexByte);
            }
            (1, -3, Mnemonic::Mov | Mnemonic::And) if !first => {
                self.set.insert(Deed::ReadsIndexByte);
            }
            (2, -2, Mnemonic::Movzx | Mnemonic::Mov) if !first => {
                self.set.insert(Deed::ReadsOffset);
            }
            _ => {}
        }
        if (size, displacement, mnemonic) == (1, -3, Mnemonic::Mov)
            && first
            && is_immediate(instruction.op1_kind())
            && instruction.immediate(1) & 0xff == 0xff
        {
            self.set.insert(Deed::WritesFreed);
        }
    }

    fn note_numbers(&mut self, instruction: &Instruction) {
        let mnemonic = instruction.mnemonic();
        match mnemonic {
            Mnemonic::Syscall => {
                self.set.insert(Deed::SystemCall);
            }
            Mnemonic::Mul | Mnemonic::Mulx | Mnemonic::Imul | Mnemonic::Div => {
                self.set.insert(Deed::Multiplies);
            }
            _ => {}
        }
        let Some(last) = instruction.op_count().checked_sub(1) else { return };
        if !is_immediate(instruction.op_kind(last)) {
            return;
        }
        let value = instruction.immediate(last);
        let deed = match (mnemonic, value) {
            (Mnemonic::Cmp | Mnemonic::Mov, 0x1ffeb | 0x1ffec) => Deed::Threshold,
            (Mnemonic::Cmp, 0x2f | 0x30) => Deed::CountsClasses,
            (Mnemonic::Cmp, 4..=6) => Deed::Reserved,
            (Mnemonic::Cmp, _) if matches!(value & 0xff, 0x9f | 0xa0 | 0xbf | 0xc0) && is_byte_sized(value) => {
                Deed::Reserved
            }
            (Mnemonic::Test, 0xf) => Deed::TestsAlignment,
            (Mnemonic::Shr, 35) | (_, 0x7_ffff_ffff) => Deed::GreatestAlignment,
            _ => return,
        };
        self.set.insert(deed);
    }
}

/// A byte as it is, or as its sign extends it.
fn is_byte_sized(value: u64) -> bool {
    value <= 0xff || value >= 0xffff_ff00
}
