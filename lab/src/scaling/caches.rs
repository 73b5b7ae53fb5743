//! The model of private caches with a directory: who has which line of 64 bytes. The caches have no limit of size.

use std::collections::HashMap;

use foldhash::fast::FixedState;

/// Bytes of a line.
pub(crate) const LINE: u64 = 64;
/// The most cores.
pub(crate) const CORES: usize = 256;

/// Cycles until a line arrives that a different core has changed, or in which copies of different cores are made
/// invalid. Cores of one package take 100 to 200 cycles.
pub(crate) const TRANSFER: u64 = 150;
/// Cycles until a line arrives from the shared cache or from memory.
pub(crate) const SHARED: u64 = 45;

/// A set of cores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Cores([u64; CORES / 64]);

impl Cores {
    fn only(core: usize) -> Cores {
        let mut cores = Cores::default();
        cores.add(core);
        cores
    }

    fn add(&mut self, core: usize) {
        self.0[core / 64] |= 1 << (core % 64);
    }

    fn contains(self, core: usize) -> bool {
        self.0[core / 64] >> (core % 64) & 1 == 1
    }
}

/// A line: the cores that have it, and the one that has changed it.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    cores: Cores,
    owner: Option<usize>,
    /// The time until which the line is on its way. Cores get it one after the other.
    busy: u64,
}

/// The cost of an access.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Access {
    /// Cycles, with those of waiting for accesses of different cores.
    pub(crate) cycles: u64,
    /// Whether the line came from a different core, or was taken from it.
    pub(crate) is_transfer: bool,
    /// Whether a different core had changed the line last.
    pub(crate) was_foreign: bool,
}

/// All caches.
#[derive(Debug, Default)]
pub(crate) struct Caches {
    lines: HashMap<u64, Line, FixedState>,
}

impl Caches {
    /// Accesses a line at time `now`. A read-modify-write is one write.
    pub(crate) fn access(&mut self, core: usize, line: u64, is_write: bool, now: u64) -> Access {
        let line = self.lines.entry(line).or_default();
        let is_here = line.cores.contains(core);
        if line.owner == Some(core) || is_here && !is_write {
            return Access::default();
        }
        let was_foreign = line.owner.is_some();
        let is_elsewhere = line.cores != Cores::default() && line.cores != Cores::only(core);
        if is_write {
            *line = Line { cores: Cores::only(core), owner: Some(core), busy: line.busy };
        } else {
            line.cores.add(core);
            line.owner = None;
        }
        // The only copy, unchanged, becomes the core's own without a message.
        if is_here && !is_elsewhere {
            return Access::default();
        }
        let is_transfer = was_foreign || is_write && is_elsewhere;
        if !is_transfer {
            return Access { cycles: SHARED, is_transfer, was_foreign };
        }
        line.busy = now.max(line.busy) + TRANSFER;
        Access { cycles: line.busy - now, is_transfer, was_foreign }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIT: Access = Access { cycles: 0, is_transfer: false, was_foreign: false };

    #[test]
    fn a_line_of_one_core_stays_there() {
        let mut caches = Caches::default();
        assert_eq!(caches.access(3, 7, false, 0), Access { cycles: SHARED, ..HIT });
        for is_write in [false, true, true, false] {
            assert_eq!(caches.access(3, 7, is_write, 0), HIT);
        }
    }

    #[test]
    fn a_written_line_goes_from_core_to_core() {
        let mut caches = Caches::default();
        caches.access(0, 7, true, 0);
        for turn in 1..10 {
            let moved = caches.access(turn % 2, 7, true, 1000 * turn as u64);
            assert_eq!(moved, Access { cycles: TRANSFER, is_transfer: true, was_foreign: true });
        }
        assert_eq!(caches.access(0, 8, true, 0), Access { cycles: SHARED, ..HIT }, "a different line");
    }

    #[test]
    fn cores_share_what_they_read_until_one_writes() {
        let mut caches = Caches::default();
        caches.access(0, 7, true, 0);
        let first = caches.access(255, 7, false, 1000);
        assert_eq!(first, Access { cycles: TRANSFER, is_transfer: true, was_foreign: true });
        assert_eq!(caches.access(2, 7, false, 2000), Access { cycles: SHARED, ..HIT });
        for core in [0, 2, 255] {
            assert_eq!(caches.access(core, 7, false, 3000), HIT);
        }
        let write = caches.access(2, 7, true, 4000);
        assert_eq!(write, Access { cycles: TRANSFER, is_transfer: true, was_foreign: false });
        assert!(caches.access(0, 7, false, 5000).is_transfer);
    }

    #[test]
    fn cores_that_want_a_line_at_once_wait_for_each_other() {
        let mut caches = Caches::default();
        caches.access(0, 7, true, 0);
        for core in 1..=4 {
            assert_eq!(caches.access(core, 7, true, 100).cycles, TRANSFER * core as u64);
        }
    }
}
