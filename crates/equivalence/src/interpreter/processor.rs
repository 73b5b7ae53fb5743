//! The parts that all processors have in common: running a function.

use std::fmt;

use super::body::{Body, Decoded, Flow};
use super::{Argument, Interpreter, Memory, Outcome};
use crate::{Program, Unproven};

/// The number of instructions that a run has taken, and the limit.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Budget {
    pub(super) steps: u64,
    limit: u64,
}

impl Budget {
    pub(super) fn spend(&mut self) -> Result<(), Unproven> {
        self.steps += 1;
        if self.steps > self.limit { Err(Unproven::Endless) } else { Ok(()) }
    }
}

/// An instruction that can be executed.
pub(super) trait Instruction: Copy + fmt::Debug {
    /// Decodes the instruction at an address. An error if it cannot be executed here.
    fn decode(program: &dyn Program, address: u64) -> Result<Decoded<Self>, Unproven>;

    /// A number that an instruction compares with or subtracts.
    fn number(&self) -> Option<u64>;

    /// Whether an instruction touches memory other than the stack.
    fn touches_memory(&self) -> bool;
}

/// The state that an architecture's instructions work on.
pub(super) trait Processor<'a>: fmt::Debug {
    type Instruction: Instruction;

    fn new(memory: Memory<'a>) -> Self;

    fn memory(&mut self) -> &mut Memory<'a>;

    fn budget(&mut self) -> &mut Budget;

    /// Sets the registers as a caller leaves them: arguments, the stack, and in all others numbers that are not an
    /// address or length in use.
    fn begin(&mut self, arguments: &[Argument]);

    /// The result, and which of its bytes have been set. An error if stack and registers are not as the caller expects
    /// them.
    fn end(&self) -> Result<(u64, u8), Unproven>;

    fn execute(&mut self, instruction: &Self::Instruction) -> Result<(), Unproven>;

    /// Whether a conditional branch is taken, and whether that depends only on the alignment of the arguments.
    fn decide(&self, instruction: &Self::Instruction) -> Result<(bool, bool), Unproven>;

    /// Executes a call except for its jump. Returns the address to which it has to return.
    fn enter(&mut self, instruction: &Self::Instruction) -> Result<u64, Unproven>;

    /// Executes a return. `expected` is the address that [`enter`](Self::enter) returned; `None` at the end of the run.
    fn leave(&mut self, instruction: &Self::Instruction, expected: Option<u64>) -> Result<(), Unproven>;
}

/// A function on a processor.
#[derive(Debug)]
pub(super) struct Run<'a, P: Processor<'a>> {
    program: &'a dyn Program,
    processor: P,
    body: Body<P::Instruction>,
}

impl<'a, P: Processor<'a>> Run<'a, P> {
    pub(super) fn new(program: &'a dyn Program) -> Self {
        Run { program, processor: P::new(Memory::new(program)), body: Body { steps: Vec::new() } }
    }

    fn run(&mut self) -> Result<(), Unproven> {
        const DEEPEST: usize = 8;
        let (processor, body) = (&mut self.processor, &mut self.body);
        let mut calls: Vec<(u64, usize)> = Vec::new();
        let mut at = 0;
        loop {
            processor.budget().spend()?;
            body.note(at);
            let step = &body.steps[at];
            let (instruction, target, next) = (step.instruction, step.target, step.next);
            at = match step.flow {
                Flow::Next => {
                    processor.execute(&instruction)?;
                    next
                }
                Flow::Jump(_) => target,
                Flow::Conditional(_) => {
                    let (taken, of_alignment) = processor.decide(&instruction)?;
                    body.note_way(at, taken, of_alignment);
                    if taken { target } else { next }
                }
                Flow::Call(_) => {
                    calls.push((processor.enter(&instruction)?, next));
                    if calls.len() > DEEPEST {
                        return Err(Unproven::Endless);
                    }
                    target
                }
                Flow::Return => {
                    let call = calls.pop();
                    processor.leave(&instruction, call.map(|(expected, _)| expected))?;
                    match call {
                        Some((_, next)) => next,
                        None => return Ok(()),
                    }
                }
            };
        }
    }
}

impl<'a, P: Processor<'a>> Interpreter<'a> for Run<'a, P> {
    fn read(&mut self, start: u64) -> Result<(), Unproven> {
        self.body = Body::read(start, |address| P::Instruction::decode(self.program, address))?;
        Ok(())
    }

    fn memory(&mut self) -> &mut Memory<'a> {
        self.processor.memory()
    }

    fn call(&mut self, arguments: &[Argument], limit: u64) -> Result<Outcome, Unproven> {
        self.processor.begin(arguments);
        *self.processor.budget() = Budget { steps: 0, limit };
        self.processor.memory().clear_stack();
        self.run()?;
        let (result, known) = self.processor.end()?;
        Ok(Outcome { result, known, steps: self.processor.budget().steps })
    }

    fn forget(&mut self) {
        self.body.forget();
    }

    fn untested(&self) -> Option<u64> {
        self.body.untested()
    }

    fn numbers(&self) -> Vec<u64> {
        let mut found: Vec<u64> = self.body.steps.iter().filter_map(|step| step.instruction.number()).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn touches_memory(&self) -> bool {
        self.body.steps.iter().any(|step| step.instruction.touches_memory())
    }
}
