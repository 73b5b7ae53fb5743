//! Machine code: where functions begin, what branches where, what refers to an address.

mod deeds;
mod function;

pub(crate) use deeds::{Deed, Deeds};
pub(crate) use function::Function;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use crate::image::{Image, STT_FUNC, Symbol};
use crate::relocations::Relocations;

/// `endbr64`, the landing pad of a function that may be called through a pointer.
pub(crate) const LANDING_PAD: &[u8] = b"\xf3\x0f\x1e\xfa";

/// A jump or a call with a 32-bit distance, found at every place of the code where one could be: those that are none stand
/// for chance, and only add to what has to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Branch {
    /// The address of its first byte.
    pub(crate) site: u64,
    pub(crate) target: u64,
    pub(crate) is_call: bool,
}

/// A place in the code that reads as a reference to an address, by its distance or by the address itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reference {
    /// The address of the four bytes.
    pub(crate) field: u64,
    pub(crate) target: u64,
}

/// The code of a program, and what has been found out about it.
#[derive(Debug)]
pub(crate) struct Code<'a> {
    pub(crate) image: &'a Image<'a>,
    pub(crate) relocations: &'a Relocations,
    /// Sorted by target.
    branches: Vec<Branch>,
    /// Where calls lead to.
    called: BTreeSet<u64>,
    /// Where jumps lead to from so far that no function of the family spans it.
    far_jumped: BTreeSet<u64>,
    jumped: BTreeSet<u64>,
    /// Functions by the symbol table: address to end.
    named: HashMap<u64, u64>,
    pub(crate) symbols: Vec<Symbol<'a>>,
    functions: HashMap<u64, Option<Function>>,
}

/// No function of mallocng is longer.
const FAR: u64 = 3000;

impl<'a> Code<'a> {
    /// Finds every branch. With symbols left out, the program counts as stripped.
    pub(crate) fn of(image: &'a Image<'a>, relocations: &'a Relocations, with_symbols: bool) -> Code<'a> {
        let symbols = if with_symbols { image.symbols() } else { Vec::new() };
        let named = symbols
            .iter()
            .filter(|symbol| symbol.kind == STT_FUNC && image.is_executable(symbol.value))
            .map(|symbol| (symbol.value, symbol.value.saturating_add(symbol.size)))
            .collect();
        let mut branches = Vec::new();
        for (address, bytes) in image.executable() {
            for at in memchr::memchr2_iter(0xe8, 0xe9, bytes) {
                let Some(distance) = bytes.get(at + 1..).and_then(|rest| rest.first_chunk()) else { continue };
                let site = address + at as u64;
                let target = (site + 5).wrapping_add_signed(i64::from(i32::from_le_bytes(*distance)));
                if image.is_executable(target) {
                    branches.push(Branch { site, target, is_call: bytes[at] == 0xe8 });
                }
            }
        }
        let called = branches.iter().filter(|branch| branch.is_call).map(|branch| branch.target).collect();
        let jumps = || branches.iter().filter(|branch| !branch.is_call);
        let jumped = jumps().map(|branch| branch.target).collect();
        let far_jumped =
            jumps().filter(|branch| branch.target.abs_diff(branch.site) > FAR).map(|branch| branch.target).collect();
        branches.sort_unstable_by_key(|branch| (branch.target, branch.site));
        Code { image, relocations, branches, called, far_jumped, jumped, named, symbols, functions: HashMap::new() }
    }

    /// The branches with a 32-bit distance to that address.
    pub(crate) fn branches_to(&self, target: u64) -> &[Branch] {
        let from = self.branches.partition_point(|branch| branch.target < target);
        let to = self.branches.partition_point(|branch| branch.target <= target);
        &self.branches[from..to]
    }

    /// Every place that reads as a reference into the range: four bytes that are a distance from the end of their
    /// instruction, which may go on for an operand of 1, 2 or 4 bytes, or an address.
    pub(crate) fn references(&self, range: Range<u64>) -> Vec<Reference> {
        let mut found = Vec::new();
        for (address, bytes) in self.image.executable() {
            for (at, window) in bytes.windows(4).enumerate() {
                let value = i64::from(i32::from_le_bytes([window[0], window[1], window[2], window[3]]));
                let field = address + at as u64;
                for rest in [4, 5, 6, 8] {
                    let target = (field + rest).wrapping_add_signed(value);
                    if range.contains(&target) {
                        found.push(Reference { field, target });
                    }
                }
                // A position-independent program cannot name an address by itself: such a number is something else.
                if !self.image.position_independent && range.contains(&(value as u64)) {
                    found.push(Reference { field, target: value as u64 });
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Every place in the code that holds these bytes.
    pub(crate) fn places(&self, wanted: &[u8]) -> Vec<u64> {
        let mut found = Vec::new();
        for (address, bytes) in self.image.executable() {
            found.extend(memchr::memmem::find_iter(bytes, wanted).map(|at| address + at as u64));
        }
        found
    }

    /// The instruction at an address.
    pub(crate) fn instruction(&self, address: u64) -> Option<Instruction> {
        let bytes = self.image.from(address);
        let bytes = &bytes[..bytes.len().min(15)];
        let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }

    /// Whether a function is known to begin there: something calls it, or a symbol says so.
    pub(crate) fn is_start(&self, address: u64) -> bool {
        self.called.contains(&address) || self.named.contains_key(&address)
    }

    /// The nearest start of a function at or before an address: what something calls, or a symbol names.
    pub(crate) fn start_before(&self, address: u64) -> Option<u64> {
        let called = self.called.range(..=address).next_back().copied();
        let named = self.named.keys().copied().filter(|start| *start <= address).max();
        called.max(named).filter(|start| self.image.is_executable(*start))
    }

    /// Whether a word of the program's data is that address, or becomes it when the program relocates itself.
    pub(crate) fn holds_address(&self, address: u64) -> bool {
        self.relocations.lead_to(address) || !self.image.find(&address.to_le_bytes()).is_empty()
    }

    /// The function that begins at an address, if it reads as one.
    pub(crate) fn function(&mut self, start: u64) -> Option<&Function> {
        if !self.functions.contains_key(&start) {
            let function = self.reads_as_entry(start).then(|| Function::walk(self, start)).flatten();
            self.functions.insert(start, function);
        }
        self.functions[&start].as_ref()
    }

    /// The code that begins at an address, whether or not it reads as a function.
    pub(crate) fn walk(&self, start: u64) -> Option<Function> {
        Function::walk(self, start)
    }

    /// The function that the byte at an address belongs to. By the symbol table where it says so; else the nearest start
    /// before it from which the flow of control gets there. `beyond` are ends of functions, where others may begin that
    /// nothing branches to.
    pub(crate) fn enclosing(&mut self, address: u64, beyond: &BTreeSet<u64>) -> Option<u64> {
        const SPAN: u64 = 4096;
        let low = address.saturating_sub(SPAN);
        let named = self.named.iter().filter(|(start, end)| **start <= address && address < **end);
        if let Some(start) = named.map(|(start, _)| *start).max()
            && self.function(start).is_some_and(|function| function.covers(address))
        {
            return Some(start);
        }
        let near: BTreeSet<u64> =
            self.called.range(low..=address).chain(self.jumped.range(low..=address)).copied().collect();
        let mut weak = None;
        for start in near.into_iter().rev() {
            if !self.function(start).is_some_and(|function| function.covers(address)) {
                continue;
            }
            let sure = self.is_start(start)
                || ((start.is_multiple_of(16) || self.far_jumped.contains(&start)) && self.follows_an_end(start));
            if sure {
                return Some(start);
            }
            weak = Some(start);
        }
        // What nothing branches to: dead code, or called through a pointer, directly behind a function that is known.
        for start in beyond.range(low..=address).rev().copied() {
            if self.function(start).is_some_and(|function| function.covers(address))
                && weak.is_none_or(|weak| self.holds(start, weak))
            {
                return Some(start);
            }
        }
        weak
    }

    /// Whether an instruction of a function that has been walked begins at an address.
    fn holds(&self, start: u64, address: u64) -> bool {
        let function = self.functions.get(&start).and_then(Option::as_ref);
        function.is_some_and(|function| function.instructions.contains_key(&address))
    }

    /// Whether the bytes before an address end a function: a return, a jump, a trap, and padding after it.
    fn follows_an_end(&self, address: u64) -> bool {
        let Some(mut before) = address.checked_sub(40).and_then(|from| self.image.read(from, 40)) else { return true };
        const PADDING: [u8; 5] = [0x90, 0xcc, 0, 0x66, 0x2e];
        const NOPS: [&[u8]; 5] = [b"\x0f\x1f\x84", b"\x0f\x1f\x80", b"\x0f\x1f\x44", b"\x0f\x1f\x40", b"\x0f\x1f"];
        loop {
            let length = before.len();
            while let [rest @ .., last] = before
                && PADDING.contains(last)
            {
                before = rest;
            }
            if let Some(rest) = NOPS.iter().find_map(|nop| before.strip_suffix(*nop)) {
                before = rest;
            }
            if before.len() == length {
                break;
            }
        }
        let byte = |back: usize| before.len().checked_sub(back).map(|at| before[at]);
        before.is_empty()
            || matches!(byte(1), Some(0xc3 | 0xcc | 0xf4))
            || byte(5) == Some(0xe9)
            || byte(2) == Some(0xeb)
            || before.ends_with(b"\x0f\x0b")
    }

    /// Whether the code reads nothing but its arguments before it writes them (System V ABI, 3.2.3), as a function's first
    /// instructions do.
    fn reads_as_entry(&self, start: u64) -> bool {
        if self.named.contains_key(&start) {
            return true;
        }
        if !self.called.contains(&start) && !self.jumped.contains(&start) && !self.follows_an_end(start) {
            return false;
        }
        let mut known = vec![
            Register::RSP,
            Register::RDI,
            Register::RSI,
            Register::RDX,
            Register::RCX,
            Register::R8,
            Register::R9,
            Register::RIP,
        ];
        let mut factory = InstructionInfoFactory::new();
        let mut at = start;
        for _ in 0..14 {
            let Some(instruction) = self.instruction(at) else { return false };
            at = instruction.next_ip();
            if instruction.mnemonic() == Mnemonic::Push {
                continue;
            }
            let cleared = matches!(
                instruction.mnemonic(),
                Mnemonic::Xor | Mnemonic::Pxor | Mnemonic::Xorps | Mnemonic::Sub | Mnemonic::Vpxor | Mnemonic::Vxorps
            ) && instruction.op0_kind() == OpKind::Register
                && (1..instruction.op_count()).all(|op| {
                    instruction.op_kind(op) == OpKind::Register
                        && instruction.op_register(op) == instruction.op_register(1)
                })
                && instruction.op_register(1) == instruction.op_register(instruction.op_count() - 1);
            let info = factory.info(&instruction);
            let general = |register: Register| register.full_register().is_gpr();
            for used in info.used_registers() {
                let register = used.register().full_register();
                let reads = matches!(
                    used.access(),
                    OpAccess::Read | OpAccess::ReadWrite | OpAccess::CondRead | OpAccess::ReadCondWrite
                );
                if general(register) && reads && !cleared && !known.contains(&register) {
                    return false;
                }
            }
            for used in info.used_registers() {
                let register = used.register().full_register();
                if general(register)
                    && !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
                {
                    known.push(register);
                }
            }
            if matches!(instruction.mnemonic(), Mnemonic::Ret | Mnemonic::Jmp | Mnemonic::Call | Mnemonic::Hlt) {
                return true;
            }
        }
        true
    }

    /// The named functions, by name.
    pub(crate) fn named(&self, name: &[u8]) -> Vec<u64> {
        let mut found: Vec<u64> = self
            .symbols
            .iter()
            .filter(|symbol| symbol.name == name && self.image.is_executable(symbol.value))
            .map(|symbol| symbol.value)
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Behind a landing pad, if there is one: where a jump may be written.
    pub(crate) fn behind_landing_pad(&self, start: u64) -> u64 {
        if self.image.read(start, 4) == Some(LANDING_PAD) { start + 4 } else { start }
    }

    /// Where a function leads that does nothing but jump; the function itself, if it does more.
    pub(crate) fn through(&self, start: u64) -> u64 {
        let mut at = start;
        for _ in 0..4 {
            let Some(first) = self.instruction(self.behind_landing_pad(at)) else { return at };
            if first.mnemonic() != Mnemonic::Jmp || first.op0_kind() != OpKind::NearBranch64 {
                return at;
            }
            at = first.near_branch_target();
        }
        at
    }
}
