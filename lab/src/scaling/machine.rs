//! The stepping machine: threads with clocks of their own, on cores of a model. The thread with the smallest clock
//! executes the next instruction, so each run is the same.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register};

use super::caches::{Caches, LINE};
use super::calls;
use super::counts::Counts;
use super::pages::Pages;
use super::processor::{self, FLAGS, RSP, Registers, Unfit};
use super::program::{Program, State, Thread};
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
/// The most instructions of a measured part: a program that has this many waits for something.
const MOST_STEPS: u64 = 4_000_000_000;

/// The figures of a measured part.
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
    program: Program,
    caches: Caches,
    /// Index of each decoded instruction, by its distance to the begin of the code.
    places: Vec<u32>,
    instructions: Vec<Instruction>,
    by_instruction: BTreeMap<u64, u64>,
    by_line: BTreeMap<u64, u64>,
    left_to_kernel: BTreeMap<String, u64>,
    lines: Vec<(u64, bool)>,
    /// Steps that are also taken by the kernel, to compare both.
    checked: u64,
}

impl Machine {
    /// Starts a static program with its arguments. The first `checked` instructions of the measured part are executed
    /// by the processor too, and have to do the same there.
    ///
    /// # Errors
    /// The file is not a static program for x86_64 with symbols, or it cannot be traced.
    pub(crate) fn start(program: &Path, arguments: &[String], checked: u64) -> Result<Machine> {
        let symbols = Symbols::read(program)?;
        let tracee = Tracee::start(program, arguments, tempfile::tempfile()?)?;
        let main = tracee.process;
        let mut pages = Pages::new(main.as_raw())?;
        let registers = tracee::registers(main)?;
        calls::fix_start(&mut pages, registers.general[RSP])?;
        let length = usize::try_from(symbols.code.end - symbols.code.start)?;
        Ok(Machine {
            program: Program::new(tracee, pages, symbols, registers),
            caches: Caches::default(),
            places: vec![0; length],
            instructions: Vec::new(),
            by_instruction: BTreeMap::new(),
            by_line: BTreeMap::new(),
            left_to_kernel: BTreeMap::new(),
            lines: Vec::new(),
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
        let (begin, end) = self.program.span.context("the program ended without a measured part")?;
        ensure!(
            self.program.expected == 0,
            "the program ended before {} threads had done their part",
            self.program.expected
        );
        let mut data: BTreeMap<String, u64> = BTreeMap::new();
        for (line, count) in &self.by_line {
            *data.entry(self.program.symbols.data(line * LINE).unwrap_or_else(|| "heap".to_owned())).or_default() +=
                count;
        }
        let mut functions: BTreeMap<String, u64> = BTreeMap::new();
        for (at, count) in &self.by_instruction {
            *functions.entry(self.program.symbols.function(*at)).or_default() += count;
        }
        let sorted = |counts: BTreeMap<String, u64>| {
            let mut counts: Vec<_> = counts.into_iter().collect();
            counts.sort_by_key(|(name, count)| (u64::MAX - count, name.clone()));
            counts
        };
        Ok(Outcome {
            counts: self.program.total,
            cycles: end - begin,
            functions: sorted(functions),
            data: sorted(data),
            printed: self.program.tracee.printed()?,
            left_to_kernel: self.left_to_kernel,
        })
    }

    fn run_to_end(&mut self) -> Result<i32> {
        let mut steps = 0_u64;
        loop {
            let Some((clock, at)) = self.program.ready.pop_first() else {
                bail!("all threads wait: {}", self.program.positions());
            };
            self.program.threads[at].clock = clock;
            if self.program.threads[at].state == State::Waiting {
                calls::time_out(&mut self.program, at);
            }
            loop {
                let ended = if self.program.is_stepping { self.step(at)? } else { self.run_to_call(at)? };
                if let Some(code) = ended {
                    return Ok(code);
                }
                steps += 1;
                ensure!(steps < MOST_STEPS, "the program does not end its measured part: {}", self.program.positions());
                let thread = &self.program.threads[at];
                if thread.state != State::Ready {
                    break;
                }
                let next = (thread.clock, at);
                // Unless it is stepped, a thread that has a lock would stop in the middle of its work.
                if !self.program.is_stepping && !std::mem::take(&mut self.program.has_yielded) {
                    continue;
                }
                if self.program.ready.first().is_some_and(|first| *first < next) {
                    self.program.ready.insert(next);
                    break;
                }
            }
        }
    }

    /// Lets a thread run to its next system call. Returns the exit code if the program ends.
    fn run_to_call(&mut self, at: usize) -> Result<Option<i32>> {
        let id = self.program.threads[at].id;
        self.program.pages.give_back_all()?;
        tracee::set_registers(id, &self.program.threads[at].registers)?;
        match self.program.tracee.run_to_call(id)? {
            Stop::Trap => {
                self.program.threads[at].registers = tracee::registers(id)?;
                let number = nix::sys::ptrace::getregs(id)?.orig_rax;
                // The stop at the end of the skipped call, which would otherwise come in place of the next step.
                let end = self.program.tracee.step(id)?;
                let rip = tracee::registers(id)?.rip;
                let same = rip == self.program.threads[at].registers.rip;
                ensure!(end == Stop::Trap && same, "the kernel does not skip system calls: {end:?}");
                self.program.threads[at].registers.general[processor::RAX] = number;
                let ended = calls::make(&mut self.program, at)?;
                self.program.pages.give_back_all()?;
                Ok(ended)
            }
            Stop::Signal(nix::sys::signal::Signal::SIGSEGV) => {
                let mut registers = tracee::registers(id)?;
                self.program.threads[at].registers = registers;
                let mut code = [0; 3];
                let found = self.program.pages.peek(registers.rip, &mut code).is_ok();
                let time = self.program.threads[at].clock;
                let length = match code {
                    [0x0f, 0x31, _] if found => 2,
                    [0x0f, 0x01, 0xf9] if found => 3,
                    _ => bail!("the program received SIGSEGV in `{}`", self.program.symbols.function(registers.rip)),
                };
                // RDTSC and RDTSCP, which the kernel refuses.
                (registers.general[0], registers.general[2]) = (time & 0xffff_ffff, time >> 32);
                if length == 3 {
                    registers.general[1] = self.program.threads[at].core as u64;
                }
                registers.rip += length;
                self.program.threads[at].registers = registers;
                Ok(None)
            }
            other => self.unexpected(at, other),
        }
    }

    fn unexpected<T>(&mut self, at: usize, stop: Stop) -> Result<T> {
        let id = self.program.threads[at].id;
        let rip = tracee::registers(id).map_or(self.program.threads[at].registers.rip, |registers| registers.rip);
        let place = self.program.symbols.function(rip);
        match stop {
            Stop::Signal(signal) => bail!("the program received {signal} in `{place}`"),
            other => bail!("unexpected stop in `{place}`: {other:?}"),
        }
    }

    fn decode(&mut self, rip: u64) -> Result<Instruction> {
        let offset = usize::try_from(rip.wrapping_sub(self.program.symbols.code.start))?;
        let place = self.places.get(offset).copied();
        if let Some(found) = place.filter(|place| *place != 0) {
            return Ok(self.instructions[found as usize - 1]);
        }
        let mut bytes = [0; 16];
        let readable = (1..=16).rev().find(|length| self.program.pages.peek(rip, &mut bytes[..*length]).is_ok());
        let length = readable.with_context(|| format!("the program jumped to {rip:#x}, where it has no code"))?;
        let instruction = Decoder::with_ip(64, &bytes[..length], rip, DecoderOptions::NONE).decode();
        ensure!(!instruction.is_invalid(), "no instruction at {rip:#x} in `{}`", self.program.symbols.function(rip));
        self.instructions.push(instruction);
        if let Some(place) = self.places.get_mut(offset) {
            *place = u32::try_from(self.instructions.len())?;
        }
        Ok(instruction)
    }

    /// Executes one instruction of a thread. Returns the exit code if the program ends.
    fn step(&mut self, at: usize) -> Result<Option<i32>> {
        let rip = self.program.threads[at].registers.rip;
        let instruction = self.decode(rip)?;
        self.follow_calls(at, rip);
        if instruction.mnemonic() == Mnemonic::Syscall {
            self.program.count(at, |counts| &mut counts.instructions, |inside| &mut inside.instructions, 1);
            self.program.threads[at].clock += INSTRUCTION;
            self.program.threads[at].registers.rip = instruction.next_ip();
            return calls::make(&mut self.program, at);
        }
        let thread = &mut self.program.threads[at];
        let before = thread.registers;
        if self.checked > 0 {
            self.program.pages.flush()?;
        }
        let done = processor::execute(&mut thread.registers, &instruction, &mut self.program.pages, thread.clock);
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
        let thread = &mut self.program.threads[at];
        let top = thread.registers.general[RSP];
        // The return address has been popped.
        if thread.inside.is_some_and(|inside| top > inside) {
            thread.inside = None;
        }
        if thread.inside.is_none() && self.program.symbols.entries.contains(&rip) {
            thread.inside = Some(top);
            if let Some(counts) = &mut thread.counts {
                if rip == self.program.symbols.free { counts.frees += 1 } else { counts.mallocs += 1 }
            }
        }
    }

    /// Advances the thread's clock by the cost of an instruction and of the lines that it has accessed.
    fn account(&mut self, at: usize, rip: u64, instruction: &Instruction) {
        let mut lines = std::mem::take(&mut self.lines);
        let faults = self.program.pages.take_accesses(&mut lines);
        let is_locked =
            !lines.is_empty() && (instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg);
        let (core, begin) = (self.program.threads[at].core, self.program.threads[at].clock);
        let mut clock = begin + INSTRUCTION;
        for _ in 0..faults {
            clock = self.program.space.fault(clock);
        }
        self.program.count_inside(at, |inside| &mut inside.faults, faults);
        let (mut transfers, mut contended) = (0, false);
        for (line, is_write) in &lines {
            let access = self.caches.access(core, *line, *is_write, clock);
            clock += access.cycles;
            contended |= is_locked && access.was_foreign;
            if access.is_transfer {
                transfers += 1;
                let thread = &self.program.threads[at];
                if thread.counts.is_some() && thread.inside.is_some() {
                    *self.by_instruction.entry(rip).or_default() += 1;
                    *self.by_line.entry(*line).or_default() += 1;
                }
            }
        }
        if is_locked {
            clock += LOCKED;
            self.program.count_inside(at, |inside| &mut inside.atomics, 1);
            self.program.count_inside(at, |inside| &mut inside.contended, u64::from(contended));
        }
        if instruction.mnemonic() == Mnemonic::Pause {
            clock += PAUSE;
        }
        if instruction.has_rep_prefix() {
            clock += lines.len() as u64 * LINE / STRING_BYTES;
        }
        self.program.count(at, |counts| &mut counts.instructions, |inside| &mut inside.instructions, 1);
        self.program.count(at, |counts| &mut counts.transfers, |inside| &mut inside.transfers, transfers);
        self.program.threads[at].clock = clock;
        self.lines = lines;
    }

    /// Lets the kernel execute an instruction. Its accesses are those that its operands say.
    fn step_by_kernel(&mut self, at: usize, instruction: &Instruction) -> Result<()> {
        let registers = self.program.threads[at].registers;
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
            let place = || {
                format!(
                    "the memory of {:?} in `{}`",
                    instruction.mnemonic(),
                    self.program.symbols.function(registers.rip)
                )
            };
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
            let _ = processor::Memory::read(&mut self.program.pages, *address, &mut bytes);
        }
        let mut lines = Vec::new();
        let faults = self.program.pages.take_accesses(&mut lines);
        self.real_step(at, &operands)?;
        for (address, size, is_write) in operands {
            lines.extend((address / LINE..=(address + size - 1) / LINE).map(|line| (line, is_write)));
        }
        self.program.pages.restore_accesses(lines, faults);
        Ok(())
    }

    /// Executes the thread's next instruction on the processor.
    fn real_step(&mut self, at: usize, operands: &[(u64, u64, bool)]) -> Result<()> {
        let Thread { id, registers, .. } = self.program.threads[at];
        for (address, size, _) in operands {
            self.program.pages.give_back(*address, address.saturating_add(*size))?;
        }
        tracee::set_registers(id, &registers)?;
        match self.program.tracee.step(id)? {
            Stop::Trap => {
                self.program.threads[at].registers = tracee::registers(id)?;
                Ok(())
            }
            other => self.unexpected(at, other),
        }
    }

    /// Executes an instruction on the processor, too, from the registers before it, and compares. The program's own
    /// memory is still that from before it.
    fn check(&mut self, at: usize, before: &Registers, instruction: &Instruction) -> Result<()> {
        let Thread { id, registers: after, .. } = self.program.threads[at];
        tracee::set_registers(id, before)?;
        let mut stop = self.program.tracee.step(id)?;
        // The kernel stops in each round of a repeated instruction.
        while stop == Stop::Trap && instruction.has_rep_prefix() && tracee::registers(id)?.rip == before.rip {
            stop = self.program.tracee.step(id)?;
        }
        if stop != Stop::Trap {
            return self.unexpected(at, stop);
        }
        let mut real = tracee::registers(id)?;
        let compared = FLAGS & !undefined(instruction);
        (real.flags, real.gs) = (real.flags & compared, after.gs);
        let ours = Registers { flags: after.flags & compared, ..after };
        let place = self.program.symbols.function(before.rip);
        let name = instruction.mnemonic();
        ensure!(real == ours, "{name:?} in `{place}`: the processor has {real:x?}, the model {ours:x?}");
        let mut lines = Vec::new();
        let faults = self.program.pages.take_accesses(&mut lines);
        let differs = lines.iter().find(|(line, _)| !self.program.pages.is_same(*line));
        ensure!(differs.is_none(), "{name:?} in `{place}`: the processor's memory differs from the model's");
        self.program.pages.restore_accesses(lines, faults);
        Ok(())
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
