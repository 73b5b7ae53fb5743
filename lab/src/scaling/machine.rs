//! The stepping machine: threads with clocks of their own, on cores of a model. The thread with the smallest clock
//! executes the next instruction, so each run is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};
use nix::unistd::Pid;

use super::caches::{CORES, Caches, LINE};
use super::calls::{self, AddressSpace};
use super::counts::{Counts, Inside};
use super::futexes::Futexes;
use super::pages::Pages;
use super::processor::{self, FLAGS, RSP, Registers, Unfit};
use super::symbols::Symbols;
use super::tracee::{self, Stop, Tracee};

/// Cycles of an instruction, beside those of its lines.
const INSTRUCTION: u64 = 1;
/// Cycles that a locked instruction takes longer, on a line of its core. Measured on the page's machine: 9 in a loop.
const LOCKED: u64 = 8;
/// Cycles of PAUSE: 38 to 140, by processor.
const PAUSE: u64 = 40;
/// Bytes that REP MOVS and REP STOS take in a cycle.
const STRING_BYTES: u64 = 32;
/// Bytes of SYSCALL.
const SYSCALL_BYTES: u64 = 2;
/// The most instructions of a measured part: a program that has this many waits for something.
const MOST_STEPS: u64 = 4_000_000_000;

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Ready,
    /// Waits at a futex, or sleeps, until woken or until its clock's time, if that is in the set of ready threads.
    Waiting,
    /// Has done its measured part, and waits for the others.
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
    inside: Option<u64>,
}

/// What a measured part has shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    /// Cycles from the first thread's begin to the last one's end.
    pub(crate) cycles: u64,
    /// Transfers in malloc and free, by function.
    pub(crate) functions: Vec<(String, u64)>,
    /// Those transfers by what was transferred.
    pub(crate) data: Vec<(String, u64)>,
    /// The program's output.
    pub(crate) printed: String,
    /// Instructions that the kernel executed, by name. Not an outcome of the model.
    pub(crate) left_to_kernel: BTreeMap<String, u64>,
}

/// A program that is stepped.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(super) tracee: Tracee,
    pub(super) pages: Pages,
    pub(super) threads: Vec<Thread>,
    /// Threads by the time of their next instruction: those that are ready, and those that wait until then at most.
    pub(super) ready: BTreeSet<(u64, usize)>,
    pub(super) futexes: Futexes,
    pub(super) space: AddressSpace,
    pub(super) caches: Caches,
    pub(super) is_stepping: bool,
    has_yielded: bool,
    /// Threads that have still to end their measured part.
    pub(super) expected: u64,
    pub(super) span: Option<(u64, u64)>,
    symbols: Symbols,
    /// Index of each decoded instruction, by its distance to the begin of the code.
    places: Vec<u32>,
    instructions: Vec<Instruction>,
    by_instruction: BTreeMap<u64, u64>,
    by_line: BTreeMap<u64, u64>,
    left_to_kernel: BTreeMap<String, u64>,
    lines: Vec<(u64, bool)>,
    total: Counts,
    /// Steps that are also taken by the kernel, to compare both.
    checked: u64,
}

impl Machine {
    /// Starts a static program with its arguments. The first `checked` instructions of the measured part are executed
    /// by the processor too, and have to do the same there.
    ///
    /// # Errors
    /// The file is no static program for x86_64 with symbols, or it cannot be traced.
    pub(crate) fn start(program: &Path, arguments: &[String], checked: u64) -> Result<Machine> {
        let symbols = Symbols::read(program)?;
        let tracee = Tracee::start(program, arguments, tempfile::tempfile()?)?;
        let main = tracee.process;
        let mut pages = Pages::new(main.as_raw())?;
        let registers = tracee::registers(main)?;
        calls::fix_start(&mut pages, registers.general[RSP])?;
        let thread = Thread {
            id: main,
            core: 0,
            clock: 0,
            registers,
            state: State::Ready,
            clears: 0,
            counts: None,
            inside: None,
        };
        let length = usize::try_from(symbols.code.end - symbols.code.start)?;
        Ok(Machine {
            tracee,
            pages,
            threads: vec![thread],
            ready: BTreeSet::from([(0, 0)]),
            futexes: Futexes::default(),
            space: AddressSpace::default(),
            caches: Caches::default(),
            is_stepping: false,
            has_yielded: false,
            expected: 0,
            span: None,
            symbols,
            places: vec![0; length],
            instructions: Vec::new(),
            by_instruction: BTreeMap::new(),
            by_line: BTreeMap::new(),
            left_to_kernel: BTreeMap::new(),
            lines: Vec::new(),
            total: Counts::default(),
            checked,
        })
    }

    /// Runs the program to its end, its measured part step by step.
    ///
    /// # Errors
    /// It has no measured part, receives a signal, makes an unknown system call, waits for ever, or fails.
    pub(crate) fn run(mut self) -> Result<Outcome> {
        let code = self.run_to_end()?;
        ensure!(code == 0, "the program ended with exit code {code}");
        let (begin, end) = self.span.context("the program ended without a measured part")?;
        ensure!(self.expected == 0, "the program ended before {} threads had done their part", self.expected);
        let mut data: BTreeMap<String, u64> = BTreeMap::new();
        for (line, count) in &self.by_line {
            *data.entry(self.symbols.data(line * LINE).unwrap_or_else(|| "heap".to_owned())).or_default() += count;
        }
        let mut functions: BTreeMap<String, u64> = BTreeMap::new();
        for (at, count) in &self.by_instruction {
            *functions.entry(self.symbols.function(*at)).or_default() += count;
        }
        let sorted = |counts: BTreeMap<String, u64>| {
            let mut counts: Vec<_> = counts.into_iter().collect();
            counts.sort_by_key(|(name, count)| (u64::MAX - count, name.clone()));
            counts
        };
        Ok(Outcome {
            counts: self.total,
            cycles: end - begin,
            functions: sorted(functions),
            data: sorted(data),
            printed: self.tracee.printed()?,
            left_to_kernel: self.left_to_kernel,
        })
    }

    fn run_to_end(&mut self) -> Result<i32> {
        let mut steps = 0_u64;
        loop {
            let Some((clock, at)) = self.ready.pop_first() else {
                bail!("all threads wait: {}", self.positions());
            };
            self.threads[at].clock = clock;
            if self.threads[at].state == State::Waiting {
                calls::time_out(self, at);
            }
            loop {
                let ended = if self.is_stepping { self.step(at)? } else { self.run_to_call(at)? };
                if let Some(code) = ended {
                    return Ok(code);
                }
                steps += 1;
                ensure!(steps < MOST_STEPS, "the program does not end its measured part: {}", self.positions());
                let thread = &self.threads[at];
                if thread.state != State::Ready {
                    break;
                }
                let next = (thread.clock, at);
                // Unless it is stepped, a thread that has a lock would stop in the middle of its work.
                if !self.is_stepping && !std::mem::take(&mut self.has_yielded) {
                    continue;
                }
                if self.ready.first().is_some_and(|first| *first < next) {
                    self.ready.insert(next);
                    break;
                }
            }
        }
    }

    /// Returns where each thread is, for messages.
    fn positions(&self) -> String {
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
        let clock = self.threads[parent].clock + calls::NEW_THREAD;
        let registers = tracee::registers(id)?;
        let state = State::Ready;
        self.threads.push(Thread { id, core, clock, registers, state, clears, counts: None, inside: None });
        let at = self.threads.len() - 1;
        self.ready.insert((clock, at));
        Ok(at)
    }

    /// Lets a thread run to its next system call. Returns the exit code if the program ends.
    fn run_to_call(&mut self, at: usize) -> Result<Option<i32>> {
        let id = self.threads[at].id;
        self.pages.give_back_all()?;
        tracee::set_registers(id, &self.threads[at].registers)?;
        match self.tracee.run_to_call(id)? {
            Stop::Trap => {
                self.threads[at].registers = tracee::registers(id)?;
                let number = nix::sys::ptrace::getregs(id)?.orig_rax;
                // The stop at the end of the skipped call, which would otherwise come in place of the next step.
                let end = self.tracee.step(id)?;
                let rip = tracee::registers(id)?.rip;
                let same = rip == self.threads[at].registers.rip;
                ensure!(end == Stop::Trap && same, "the kernel does not skip system calls: {end:?}");
                self.threads[at].registers.general[processor::RAX] = number;
                let ended = calls::make(self, at)?;
                self.pages.give_back_all()?;
                Ok(ended)
            }
            Stop::Signal(nix::sys::signal::Signal::SIGSEGV) => {
                let mut registers = tracee::registers(id)?;
                self.threads[at].registers = registers;
                let mut code = [0; 3];
                let found = self.pages.peek(registers.rip, &mut code).is_ok();
                let time = self.threads[at].clock;
                let length = match code {
                    [0x0f, 0x31, _] if found => 2,
                    [0x0f, 0x01, 0xf9] if found => 3,
                    _ => bail!("the program received SIGSEGV in `{}`", self.symbols.function(registers.rip)),
                };
                // RDTSC and RDTSCP, which the kernel refuses.
                (registers.general[0], registers.general[2]) = (time & 0xffff_ffff, time >> 32);
                if length == 3 {
                    registers.general[1] = self.threads[at].core as u64;
                }
                registers.rip += length;
                self.threads[at].registers = registers;
                Ok(None)
            }
            other => self.unexpected(at, other),
        }
    }

    fn unexpected<T>(&mut self, at: usize, stop: Stop) -> Result<T> {
        let id = self.threads[at].id;
        let rip = tracee::registers(id).map_or(self.threads[at].registers.rip, |registers| registers.rip);
        let place = self.symbols.function(rip);
        match stop {
            Stop::Signal(signal) => bail!("the program received {signal} in `{place}`"),
            other => bail!("unexpected stop in `{place}`: {other:?}"),
        }
    }

    fn decode(&mut self, rip: u64) -> Result<Instruction> {
        let offset = usize::try_from(rip.wrapping_sub(self.symbols.code.start))?;
        let place = self.places.get(offset).copied();
        if let Some(found) = place.filter(|place| *place != 0) {
            return Ok(self.instructions[found as usize - 1]);
        }
        let mut bytes = [0; 16];
        let readable = (1..=16).rev().find(|length| self.pages.peek(rip, &mut bytes[..*length]).is_ok());
        let length = readable.with_context(|| format!("the program jumped to {rip:#x}, where it has no code"))?;
        let instruction = Decoder::with_ip(64, &bytes[..length], rip, DecoderOptions::NONE).decode();
        ensure!(!instruction.is_invalid(), "no instruction at {rip:#x} in `{}`", self.symbols.function(rip));
        self.instructions.push(instruction);
        if let Some(place) = self.places.get_mut(offset) {
            *place = u32::try_from(self.instructions.len())?;
        }
        Ok(instruction)
    }

    /// Executes one instruction of a thread. Returns the exit code if the program ends.
    fn step(&mut self, at: usize) -> Result<Option<i32>> {
        let rip = self.threads[at].registers.rip;
        let instruction = self.decode(rip)?;
        self.follow_calls(at, rip);
        if instruction.mnemonic() == Mnemonic::Syscall {
            self.count(at, |counts| &mut counts.instructions, |inside| &mut inside.instructions, 1);
            self.threads[at].clock += INSTRUCTION;
            self.threads[at].registers.rip = instruction.next_ip();
            return calls::make(self, at);
        }
        let thread = &mut self.threads[at];
        let before = thread.registers;
        if self.checked > 0 {
            self.pages.flush()?;
        }
        let done = processor::execute(&mut thread.registers, &instruction, &mut self.pages, thread.clock);
        if done == Err(Unfit) {
            self.step_by_kernel(at, &instruction)?;
        } else if self.checked > 0 {
            self.checked -= 1;
            self.check(at, &before, &instruction)?;
        }
        self.account(at, rip, &instruction);
        Ok(None)
    }

    /// Notes whether the thread is in malloc or free.
    fn follow_calls(&mut self, at: usize, rip: u64) {
        let thread = &mut self.threads[at];
        let top = thread.registers.general[RSP];
        // The return address has been popped.
        if thread.inside.is_some_and(|inside| top > inside) {
            thread.inside = None;
        }
        if thread.inside.is_none() && self.symbols.entries.contains(&rip) {
            thread.inside = Some(top);
            if let Some(counts) = &mut thread.counts {
                if rip == self.symbols.free { counts.frees += 1 } else { counts.mallocs += 1 }
            }
        }
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

    /// Advances the thread's clock by the cost of an instruction and of the lines that it has accessed.
    fn account(&mut self, at: usize, rip: u64, instruction: &Instruction) {
        let mut lines = std::mem::take(&mut self.lines);
        let faults = self.pages.take_accesses(&mut lines);
        let is_locked =
            !lines.is_empty() && (instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg);
        let (core, begin) = (self.threads[at].core, self.threads[at].clock);
        let mut clock = begin + INSTRUCTION;
        for _ in 0..faults {
            clock = self.space.fault(clock);
        }
        self.count_inside(at, |inside| &mut inside.faults, faults);
        let (mut transfers, mut contended) = (0, false);
        for (line, is_write) in &lines {
            let access = self.caches.access(core, *line, *is_write, clock);
            clock += access.cycles;
            contended |= is_locked && access.was_foreign;
            if access.is_transfer {
                transfers += 1;
                let thread = &self.threads[at];
                if thread.counts.is_some() && thread.inside.is_some() {
                    *self.by_instruction.entry(rip).or_default() += 1;
                    *self.by_line.entry(*line).or_default() += 1;
                }
            }
        }
        if is_locked {
            clock += LOCKED;
            self.count_inside(at, |inside| &mut inside.atomics, 1);
            self.count_inside(at, |inside| &mut inside.contended, u64::from(contended));
        }
        if instruction.mnemonic() == Mnemonic::Pause {
            clock += PAUSE;
        }
        if instruction.has_rep_prefix() {
            clock += lines.len() as u64 * LINE / STRING_BYTES;
        }
        self.count(at, |counts| &mut counts.instructions, |inside| &mut inside.instructions, 1);
        self.count(at, |counts| &mut counts.transfers, |inside| &mut inside.transfers, transfers);
        self.threads[at].clock = clock;
        self.lines = lines;
    }

    /// Lets the kernel execute an instruction. Its accesses are those that its operands say.
    fn step_by_kernel(&mut self, at: usize, instruction: &Instruction) -> Result<()> {
        let registers = self.threads[at].registers;
        *self.left_to_kernel.entry(format!("{:?}", instruction.mnemonic())).or_default() += 1;
        let mut operands = Vec::new();
        let mut factory = InstructionInfoFactory::new();
        for used in factory.info(instruction).used_memory() {
            let address = used.virtual_address(0, |register, _, _| match register {
                Register::FS => Some(registers.fs),
                Register::GS => Some(registers.gs),
                register if register.is_segment_register() => Some(0),
                register if register.is_gpr64() => Some(registers.general[register.number()]),
                _ => None,
            });
            let place =
                || format!("the memory of {:?} in `{}`", instruction.mnemonic(), self.symbols.function(registers.rip));
            let address = address.with_context(|| format!("{} is not known", place()))?;
            let size = used.memory_size().size().max(1) as u64;
            if used.access() != OpAccess::NoMemAccess {
                operands.push((address, size, !matches!(used.access(), OpAccess::Read | OpAccess::CondRead)));
            }
        }
        // Touches the lines, so that page faults are counted before the kernel handles them.
        for (address, size, _) in &operands {
            let mut bytes = vec![0; usize::try_from(*size)?];
            // Memory that the model cannot read makes the kernel's step fail, below.
            let _ = processor::Memory::read(&mut self.pages, *address, &mut bytes);
        }
        let mut lines = Vec::new();
        let faults = self.pages.take_accesses(&mut lines);
        self.real_step(at, &operands)?;
        for (address, size, is_write) in operands {
            lines.extend((address / LINE..=(address + size - 1) / LINE).map(|line| (line, is_write)));
        }
        self.pages.restore_accesses(lines, faults);
        Ok(())
    }

    /// Executes the thread's next instruction on the processor.
    fn real_step(&mut self, at: usize, operands: &[(u64, u64, bool)]) -> Result<()> {
        let Thread { id, registers, .. } = self.threads[at];
        for (address, size, _) in operands {
            self.pages.give_back(*address, address.saturating_add(*size))?;
        }
        tracee::set_registers(id, &registers)?;
        match self.tracee.step(id)? {
            Stop::Trap => {
                self.threads[at].registers = tracee::registers(id)?;
                Ok(())
            }
            other => self.unexpected(at, other),
        }
    }

    /// Executes an instruction on the processor, too, from the registers before it, and compares. The program's own
    /// memory is still that from before it.
    fn check(&mut self, at: usize, before: &Registers, instruction: &Instruction) -> Result<()> {
        let Thread { id, registers: after, .. } = self.threads[at];
        tracee::set_registers(id, before)?;
        let mut stop = self.tracee.step(id)?;
        // The kernel stops in each round of a repeated instruction.
        while stop == Stop::Trap && instruction.has_rep_prefix() && tracee::registers(id)?.rip == before.rip {
            stop = self.tracee.step(id)?;
        }
        if stop != Stop::Trap {
            return self.unexpected(at, stop);
        }
        let mut real = tracee::registers(id)?;
        let compared = FLAGS & !undefined(instruction);
        (real.flags, real.gs) = (real.flags & compared, after.gs);
        let ours = Registers { flags: after.flags & compared, ..after };
        let place = self.symbols.function(before.rip);
        let name = instruction.mnemonic();
        ensure!(real == ours, "{name:?} in `{place}`: the processor has {real:x?}, the model {ours:x?}");
        let mut lines = Vec::new();
        let faults = self.pages.take_accesses(&mut lines);
        let differs = lines.iter().find(|(line, _)| !self.pages.is_same(*line));
        ensure!(differs.is_none(), "{name:?} in `{place}`: the processor's memory differs from the model's");
        self.pages.restore_accesses(lines, faults);
        Ok(())
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

/// Returns the flags that an instruction leaves undefined.
fn undefined(instruction: &Instruction) -> u64 {
    use iced_x86::RflagsBits;
    let bits = [
        (RflagsBits::CF, 1),
        (RflagsBits::PF, 4),
        (RflagsBits::ZF, 0x40),
        (RflagsBits::SF, 0x80),
        (RflagsBits::OF, 0x800),
    ];
    bits.iter().filter(|(bit, _)| instruction.rflags_undefined() & bit != 0).map(|(_, flag)| flag).sum()
}
