//! Features of the code that distinguish the functions of mallocng. The numbers are musl's (src/malloc/mallocng/meta.h
//! and the functions' own files), not a compiler's.

use std::collections::BTreeSet;

/// A feature of the code of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Feature {
    /// Reads the byte before a block's last two: its slot's index and the bits of its reserved size.
    ReadsIndexByte,
    /// Reads the two bytes before a block: its offset in the group, in units of 16.
    ReadsOffset,
    /// Writes 255 over the index, as free() does against double frees.
    WritesFreed,
    /// Compares with or loads MMAP_THRESHOLD, 131052, or one less.
    Threshold,
    /// Compares with 48, the number of size classes, or one less.
    CountsClasses,
    /// Compares with 5 or its neighbours, in the upper three bits of a byte or alone: the reserved size that is stored
    /// elsewhere.
    Reserved,
    /// Tests the low four bits: a block's alignment.
    TestsAlignment,
    /// Compares with 2^35 or one less, or shifts by 35: the greatest alignment.
    GreatestAlignment,
    /// Makes a system call.
    SystemCall,
    /// Multiplies, or uses the upper half of a product.
    Multiplies,
}

/// All features of a function.
#[derive(Debug, Clone, Default)]
pub(crate) struct Features {
    pub(crate) set: BTreeSet<Feature>,
    /// Instructions that write to memory other than the stack.
    pub(crate) stores: usize,
}

impl Features {
    pub(crate) fn has(&self, feature: Feature) -> bool {
        self.set.contains(&feature)
    }

    /// Whether it has the features of get_meta(), which finds a block's group from the bytes before it.
    pub(crate) fn finds_group(&self) -> bool {
        [Feature::TestsAlignment, Feature::ReadsOffset, Feature::ReadsIndexByte]
            .iter()
            .all(|feature| self.has(*feature))
    }
}
