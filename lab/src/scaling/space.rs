//! The lock of a program's address space.

use super::caches::TRANSFER;

/// Cycles of a page fault of new memory, which the kernel clears; measured like the costs of system calls.
const FAULT: u64 = 3600;

/// The lock of a program's address space (`mmap_lock`). Newer kernels take page faults of different mappings past it,
/// but still change shared counters for each.
#[derive(Debug, Default)]
pub(crate) struct AddressSpace {
    /// The time until which one thread has it alone.
    alone: u64,
    /// The time until which some thread shares it, and until which the counter of these is on its way.
    shared: u64,
    counter: u64,
}

impl AddressSpace {
    /// Takes the lock alone for some cycles. Returns the time of its release.
    pub(crate) fn change(&mut self, now: u64, cycles: u64) -> u64 {
        self.alone = now.max(self.alone).max(self.shared) + cycles;
        self.alone
    }

    /// Shares the lock for some cycles. Returns the time of its release.
    pub(crate) fn share(&mut self, now: u64, cycles: u64) -> u64 {
        let begin = now.max(self.alone).max(self.counter);
        self.counter = begin + TRANSFER;
        self.shared = self.shared.max(begin + cycles);
        begin + cycles
    }

    /// Handles a page fault. Returns the time of its end.
    pub(crate) fn fault(&mut self, now: u64) -> u64 {
        self.share(now, FAULT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_the_address_space_wait_for_each_other_and_faults_only_for_them() {
        let mut space = AddressSpace::default();
        assert_eq!(space.change(100, 50), 150);
        assert_eq!(space.change(100, 50), 200);
        // Faults run at once; only their counter goes from one to the next.
        assert_eq!(space.share(0, 1000), 1200);
        assert_eq!(space.share(0, 1000), 1200 + TRANSFER);
        assert_eq!(space.change(0, 10), 1210 + TRANSFER);
    }
}
