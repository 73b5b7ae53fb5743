//! Figures of threads.

/// Figures of one thread's measured part, or of all threads. Those of `inside` are counted in malloc and free only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) mallocs: u64,
    pub(crate) frees: u64,
    pub(crate) instructions: u64,
    /// All lines that came from different cores, with those of the program's own data.
    pub(crate) transfers: u64,
    pub(crate) inside: Inside,
}

/// Figures of malloc and free.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Inside {
    pub(crate) instructions: u64,
    pub(crate) transfers: u64,
    /// Locked instructions, and those on a line that a different core had changed.
    pub(crate) atomics: u64,
    pub(crate) contended: u64,
    /// Waits at a futex.
    pub(crate) waits: u64,
    pub(crate) calls: u64,
    pub(crate) faults: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Counts) {
        self.mallocs += other.mallocs;
        self.frees += other.frees;
        self.instructions += other.instructions;
        self.transfers += other.transfers;
        let (inside, others) = (&mut self.inside, &other.inside);
        inside.instructions += others.instructions;
        inside.transfers += others.transfers;
        inside.atomics += others.atomics;
        inside.contended += others.contended;
        inside.waits += others.waits;
        inside.calls += others.calls;
        inside.faults += others.faults;
    }
}
