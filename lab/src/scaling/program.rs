//! A stepped program: its threads, with their clocks and cores.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use nix::unistd::Pid;

use super::caches::CORES;
use super::counts::{Counts, Inside};
use super::futexes::Futexes;
use super::pages::Pages;
use super::processor::Registers;
use super::space::AddressSpace;
use super::symbols::Symbols;
use super::tracee::{self, Stop, Tracee};

/// Bytes of SYSCALL.
const SYSCALL_BYTES: u64 = 2;
/// From clone(2) until the new thread's first instruction.
const NEW_THREAD: u64 = 20_000;

/// The state of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// Waits at a futex, or sleeps, until woken or until its clock's time, if that is in the set of ready threads.
    Waiting,
    /// Waits for the others, before its measured part or after it.
    Parked,
    Ended,
}

/// A traced thread.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) id: Pid,
    pub(super) core: usize,
    pub(super) clock: u64,
    pub(super) registers: Registers,
    pub(super) state: State,
    /// The word that the kernel clears when it ends.
    pub(super) clears: u64,
    pub(super) counts: Option<Counts>,
    /// The stack pointer at the entry of malloc or free, while in it.
    pub(super) inside: Option<u64>,
}

/// A program under ptrace.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) tracee: Tracee,
    pub(super) pages: Pages,
    pub(super) threads: Vec<Thread>,
    /// The threads that are ready, and those that wait with a time limit, by the time of their next instruction.
    pub(super) ready: BTreeSet<(u64, usize)>,
    pub(super) futexes: Futexes,
    pub(super) space: AddressSpace,
    pub(super) is_stepping: bool,
    pub(super) has_yielded: bool,
    /// Threads that have still to end their measured part.
    pub(super) expected: u64,
    pub(super) span: Option<(u64, u64)>,
    pub(super) symbols: Symbols,
    pub(super) total: Counts,
}

impl Program {
    /// Returns a program that has stopped before its first instruction.
    pub(super) fn new(tracee: Tracee, pages: Pages, symbols: Symbols, registers: Registers) -> Program {
        let thread = Thread {
            id: tracee.process,
            core: 0,
            clock: 0,
            registers,
            state: State::Ready,
            clears: 0,
            counts: None,
            inside: None,
        };
        Program {
            tracee,
            pages,
            threads: vec![thread],
            ready: BTreeSet::from([(0, 0)]),
            futexes: Futexes::default(),
            space: AddressSpace::default(),
            is_stepping: false,
            has_yielded: false,
            expected: 0,
            span: None,
            symbols,
            total: Counts::default(),
        }
    }

    /// Returns where each thread is, for messages.
    pub(super) fn positions(&self) -> String {
        let alive = self.threads.iter().enumerate().filter(|(_, thread)| thread.state != State::Ended);
        let places = alive.map(|(number, thread)| {
            let place = self.symbols.function(thread.registers.rip);
            format!("thread {number} in `{place}` ({:?})", thread.state)
        });
        places.take(8).collect::<Vec<_>>().join(", ")
    }

    /// Adds a thread on the lowest free core.
    ///
    /// # Errors
    /// All cores are taken.
    pub(super) fn add_thread(&mut self, parent: usize, id: Pid, clears: u64) -> Result<usize> {
        let taken: BTreeSet<usize> =
            self.threads.iter().filter(|thread| thread.state != State::Ended).map(|thread| thread.core).collect();
        let core = (0..CORES).find(|core| !taken.contains(core));
        let core = core.with_context(|| format!("the program has more than {CORES} threads"))?;
        let clock = self.threads[parent].clock + NEW_THREAD;
        let registers = tracee::registers(id)?;
        let state = State::Ready;
        self.threads.push(Thread { id, core, clock, registers, state, clears, counts: None, inside: None });
        let at = self.threads.len() - 1;
        self.ready.insert((clock, at));
        Ok(at)
    }

    /// Adds to a count of a thread's measured part, and to that of malloc and free if it is in these.
    pub(super) fn count(
        &mut self,
        at: usize,
        all: fn(&mut Counts) -> &mut u64,
        inside: fn(&mut Inside) -> &mut u64,
        by: u64,
    ) {
        let thread = &mut self.threads[at];
        if let Some(counts) = &mut thread.counts {
            *all(counts) += by;
            if thread.inside.is_some() {
                *inside(&mut counts.inside) += by;
            }
        }
    }

    /// Adds to a count that only malloc and free have.
    pub(super) fn count_inside(&mut self, at: usize, inside: fn(&mut Inside) -> &mut u64, by: u64) {
        let thread = &mut self.threads[at];
        if let (Some(counts), Some(_)) = (&mut thread.counts, thread.inside) {
            *inside(&mut counts.inside) += by;
        }
    }

    /// Returns the name of the function that a thread executes.
    pub(super) fn place(&self, at: usize) -> String {
        self.symbols.function(self.threads[at].registers.rip)
    }

    /// Lets the kernel make the call that a thread has just reached.
    pub(super) fn step_call(&mut self, at: usize) -> Result<Stop> {
        let Thread { id, .. } = self.threads[at];
        self.set_before_call(at)?;
        self.tracee.step(id)
    }

    /// Lets the kernel begin the call, without waiting for a stop.
    pub(super) fn begin_call(&mut self, at: usize) -> Result<()> {
        self.set_before_call(at)?;
        Ok(nix::sys::ptrace::step(self.threads[at].id, None)?)
    }

    fn set_before_call(&self, at: usize) -> Result<()> {
        let thread = &self.threads[at];
        let mut registers = thread.registers;
        registers.rip -= SYSCALL_BYTES;
        tracee::set_registers(thread.id, &registers)
    }

    /// Lets a different thread run, if the program is not stepped: then each thread has a core, and keeps it.
    pub(super) fn yields(&mut self, at: usize) {
        if !self.is_stepping {
            let ready = self.ready.iter().filter(|(_, thread)| self.threads[*thread].state == State::Ready);
            let last = ready.map(|(clock, _)| *clock).max();
            let thread = &mut self.threads[at];
            thread.clock = last.map_or(thread.clock, |last| thread.clock.max(last + 1));
            self.has_yielded = true;
        }
    }

    /// Lets a thread wait for the begin of its measured part, which is that of all others, too: threads that wait for a
    /// barrier are woken one after the other, and the last ones would begin when the first ones have ended.
    pub(super) fn begin_part(&mut self, at: usize) {
        self.threads[at].state = State::Parked;
        let parked = self.threads.iter().filter(|thread| thread.state == State::Parked);
        if (parked.clone().count() as u64) < self.expected {
            return;
        }
        let now = parked.map(|thread| thread.clock).max().unwrap_or_default();
        let threads = self.threads.iter_mut().enumerate().filter(|(_, thread)| thread.state == State::Parked);
        for (number, thread) in threads {
            thread.state = State::Ready;
            thread.clock = now;
            thread.counts = Some(Counts::default());
            if number != at {
                self.ready.insert((now, number));
            }
        }
        self.span = Some((now, now));
    }

    /// Ends a thread's measured part. With the last one's, the program runs on by itself.
    pub(super) fn end_part(&mut self, at: usize) {
        let thread = &mut self.threads[at];
        let counts = thread.counts.take().unwrap_or_default();
        thread.state = State::Parked;
        let clock = thread.clock;
        self.total.add(&counts);
        self.span = self.span.map(|(begin, end)| (begin, end.max(clock)));
        self.expected = self.expected.saturating_sub(1);
        if self.expected == 0 {
            self.is_stepping = false;
            let parked = self.threads.iter_mut().enumerate().filter(|(_, thread)| thread.state == State::Parked);
            for (number, thread) in parked {
                thread.state = State::Ready;
                if number != at {
                    self.ready.insert((thread.clock, number));
                }
            }
        }
    }
}
