//! Machine code: starts of functions, branches, and references to an address.

mod aarch64;
mod features;
mod function;
mod instruction;
mod machine;
pub(crate) mod origin;
mod returning;
mod x86_64;

pub(crate) use features::{Feature, Features};
pub(crate) use function::Function;
pub(crate) use instruction::{Flow, Instruction};
pub(crate) use machine::{Edit, Machine, MainCall, Musl};

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

use format::Arch;

use crate::image::{Image, STT_FUNC, Symbol};
use crate::relocations::Relocations;

/// The code of an architecture; `None` if this crate cannot read it.
pub(crate) fn machine(arch: Arch) -> Option<&'static dyn Machine> {
    match arch {
        Arch::X86_64 => Some(&x86_64::X86_64),
        Arch::Aarch64 => Some(&aarch64::Aarch64),
        _ => None,
    }
}

/// A jump or a call, found at every place of the code that reads as one. False positives only cost extra checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Branch {
    /// The address of its first byte.
    pub(crate) site: u64,
    pub(crate) target: u64,
    pub(crate) is_call: bool,
}

/// A place in the code that reads as a reference to an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Reference {
    /// The address of the bytes that hold the reference, within an instruction.
    pub(crate) field: u64,
    pub(crate) target: u64,
}

/// The code of a program, and the results of its analysis.
#[derive(Debug)]
pub(crate) struct Code<'a> {
    pub(crate) machine: &'static dyn Machine,
    pub(crate) image: &'a Image<'a>,
    pub(crate) relocations: &'a Relocations,
    /// Sorted by target.
    branches: Vec<Branch>,
    /// Targets of calls.
    called: BTreeSet<u64>,
    /// Targets of jumps from so far away that no function of the family spans the distance.
    far_jumped: BTreeSet<u64>,
    jumped: BTreeSet<u64>,
    /// Functions by the symbol table: address to end.
    named: HashMap<u64, u64>,
    pub(crate) symbols: Vec<Symbol<'a>>,
    /// Jumps through a slot that the dynamic loader fills in, by the addresses of their first instructions: the
    /// function of this file that the slot is for. Only the loader itself has some.
    stubs: HashMap<u64, u64>,
    functions: HashMap<u64, Option<Function>>,
    /// Starts of functions that nothing refers to, directly behind other functions.
    laid: BTreeSet<u64>,
    /// Addresses already tested for being parts of functions.
    parts: RefCell<HashMap<u64, bool>>,
    /// Functions already tested for whether they return.
    returning: RefCell<HashMap<u64, bool>>,
    /// The steps left for following addresses: damaged files must not take forever.
    pub(crate) steps_left: Cell<u64>,
}

/// The limit on steps. An address that cannot be followed within it counts as a reference, so that the program is
/// refused.
const MOST_STEPS: u64 = 30_000_000;
/// A distance that no function of mallocng spans.
const FAR: u64 = 3000;
/// How far before an address the start of its function is searched.
const SPAN: u64 = 4096;

impl<'a> Code<'a> {
    /// Finds every branch. Without symbols, the program counts as stripped.
    pub(crate) fn new(
        machine: &'static dyn Machine,
        image: &'a Image<'a>,
        relocations: &'a Relocations,
        with_symbols: bool,
    ) -> Code<'a> {
        let symbols = if with_symbols { image.symbols() } else { Vec::new() };
        Code::with(machine, image, relocations, symbols, HashMap::new())
    }

    /// Reads the code with these symbols and stubs.
    pub(crate) fn with(
        machine: &'static dyn Machine,
        image: &'a Image<'a>,
        relocations: &'a Relocations,
        symbols: Vec<Symbol<'a>>,
        stubs: HashMap<u64, u64>,
    ) -> Code<'a> {
        let named = symbols
            .iter()
            .filter(|symbol| symbol.kind == STT_FUNC && image.is_executable(symbol.value))
            .map(|symbol| (symbol.value, symbol.value.saturating_add(symbol.size)))
            .collect();
        let mut branches = machine.branches(image);
        let called = branches.iter().filter(|branch| branch.is_call).map(|branch| branch.target).collect();
        let jumps = || branches.iter().filter(|branch| !branch.is_call);
        let jumped = jumps().map(|branch| branch.target).collect();
        let far_jumped =
            jumps().filter(|branch| branch.target.abs_diff(branch.site) > FAR).map(|branch| branch.target).collect();
        branches.sort_unstable_by_key(|branch| (branch.target, branch.site));
        Code {
            machine,
            image,
            relocations,
            branches,
            called,
            far_jumped,
            jumped,
            named,
            symbols,
            stubs,
            functions: HashMap::new(),
            laid: BTreeSet::new(),
            parts: RefCell::default(),
            returning: RefCell::default(),
            steps_left: Cell::new(MOST_STEPS),
        }
    }

    /// The branches to this address.
    pub(crate) fn branches_to(&self, target: u64) -> &[Branch] {
        let from = self.branches.partition_point(|branch| branch.target < target);
        let to = self.branches.partition_point(|branch| branch.target <= target);
        &self.branches[from..to]
    }

    /// The branches into a range.
    pub(crate) fn branches_into(&self, range: Range<u64>) -> impl Iterator<Item = &Branch> {
        let from = self.branches.partition_point(|branch| branch.target < range.start);
        self.branches[from..].iter().take_while(move |branch| branch.target < range.end)
    }

    /// The targets of calls and jumps.
    pub(crate) fn led_to(&self) -> BTreeSet<u64> {
        self.called.union(&self.jumped).copied().collect()
    }

    /// The targets within a range, and the starts of functions that symbols name.
    pub(crate) fn starts_within(&self, range: Range<u64>) -> BTreeSet<u64> {
        let led_to = self.called.range(range.clone()).chain(self.jumped.range(range.clone())).copied();
        led_to.chain(self.named.keys().copied().filter(|start| range.contains(start))).collect()
    }

    /// Every place that reads as a reference into the range.
    pub(crate) fn references(&self, range: Range<u64>) -> Vec<Reference> {
        let mut found = self.machine.references(self, range);
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Every place in the code with these bytes.
    pub(crate) fn places(&self, wanted: &[u8]) -> Vec<u64> {
        let mut found = Vec::new();
        for (address, bytes) in self.image.executable() {
            found.extend(memchr::memmem::find_iter(bytes, wanted).map(|at| address + at as u64));
        }
        found
    }

    /// The instruction at an address.
    pub(crate) fn instruction(&self, address: u64) -> Option<Instruction> {
        self.machine.instruction(address, self.image.bytes_from(address))
    }

    /// Whether a function is known to begin there: something calls it, or a symbol names it. Bytes that only look like
    /// a call may point to the middle of a function.
    pub(crate) fn is_start(&self, address: u64) -> bool {
        self.is_named(address) || self.called.contains(&address) && !self.is_part(address)
    }

    /// Whether a symbol names a function there.
    pub(crate) fn is_named(&self, address: u64) -> bool {
        self.named.contains_key(&address)
    }

    /// Whether the code there cannot be a function of its own, by its instructions.
    pub(crate) fn is_part(&self, address: u64) -> bool {
        if self.is_named(address) {
            return false;
        }
        let known = self.parts.borrow().get(&address).copied();
        known.unwrap_or_else(|| {
            let is_part = self.machine.is_part(self, address);
            self.parts.borrow_mut().insert(address, is_part);
            is_part
        })
    }

    /// The nearest start of a function at or before an address: the target of a call, or a place that a symbol names.
    pub(crate) fn start_before(&self, address: u64) -> Option<u64> {
        let called = self.called.range(..=address).next_back().copied();
        let named = self.named.keys().copied().filter(|start| *start <= address).max();
        called.max(named).filter(|start| self.image.is_executable(*start))
    }

    /// Whether a word of the program's data is this address, or becomes it when the program relocates itself.
    pub(crate) fn holds_address(&self, address: u64) -> bool {
        self.relocations.lead_to(address) || !self.image.find(&address.to_le_bytes()).is_empty()
    }

    /// The function that begins at an address; `None` if the code does not read as a function.
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

    /// The start of the function that contains the byte at an address: by the symbol table, if it names one; else the
    /// nearest start before it from which control reaches the address. `beyond` are ends of functions, where others may
    /// begin that nothing branches to.
    pub(crate) fn enclosing(&mut self, address: u64, beyond: &BTreeSet<u64>) -> Option<u64> {
        let nearest = self.nearest(address, beyond)?;
        Some(self.around(nearest, address))
    }

    /// Corrects `start` if it is inside another function: returns the start of the function that covers `address` and
    /// takes in `start`, or `start` itself. Such a start was found only by bytes that read as a branch.
    fn around(&mut self, mut start: u64, address: u64) -> u64 {
        if self.machine.leaves_by_condition() || self.is_named(start) {
            return start;
        }
        let before: Vec<u64> = self.called.range(address.saturating_sub(SPAN)..start).rev().copied().collect();
        for outer in before {
            if self.is_start(outer)
                && self.machine.follows_an_end(self.image, outer)
                && let Some(function) = self.function(outer).filter(|function| function.covers(address)).cloned()
                && function.takes_in(self, start)
            {
                start = outer;
            }
        }
        start
    }

    fn nearest(&mut self, address: u64, beyond: &BTreeSet<u64>) -> Option<u64> {
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
        // Bytes that read as a call may be something else: then their target may be in the middle of a function.
        let mut inside = None;
        let mut passed = Vec::new();
        for start in near.into_iter().rev() {
            let Some(function) = self.function(start).filter(|function| function.covers(address)).cloned() else {
                continue;
            };
            if let Some(own) = passed.iter().copied().find(|place| function.runs_into(self, *place)) {
                return Some(own);
            }
            passed.push(start);
            let after_an_end = self.machine.follows_an_end(self.image, start);
            let sure = self.is_start(start)
                || ((start.is_multiple_of(16) || self.far_jumped.contains(&start))
                    && after_an_end
                    && !self.is_part(start));
            match inside {
                // Control falls into it from the function here.
                Some(place) if sure && after_an_end && function.covers(place) => return Some(start),
                None if sure && (after_an_end || self.named.contains_key(&start)) => return Some(start),
                None if sure => inside = Some(start),
                Some(_) => {}
                None => weak = Some(start),
            }
        }
        // Code that nothing branches to: unreachable, or called through a pointer, directly behind a known function.
        for start in beyond.range(low..=address).rev().copied() {
            let Some(function) = self.function(start).filter(|function| function.covers(address)) else { continue };
            let around = match inside {
                Some(place) => function.covers(place),
                None => weak.is_none_or(|weak| function.instructions.contains_key(&weak)),
            };
            if around {
                return Some(start);
            }
        }
        if inside.is_some() {
            return inside;
        }
        // Something jumps to `weak`, perhaps the function around it only.
        let laid = self.laid_behind(address);
        laid.filter(|start| weak.is_none_or(|weak| self.function(*start).is_some_and(|it| it.covers(weak)))).or(weak)
    }

    /// The start of a function that nothing branches to and that covers an address: unreachable, or called through a
    /// pointer. Linkers lay functions end to end in any order. So it is sought from the nearest known function on, or
    /// from the start of the code, and each function between is followed to its end.
    fn laid_behind(&mut self, address: u64) -> Option<u64> {
        let low = address.saturating_sub(SPAN);
        let known: Vec<u64> = self.starts_within(low..address.saturating_add(1)).into_iter().rev().collect();
        let known = known.into_iter().find(|start| self.is_start(*start) && self.function(*start).is_some());
        let mut start = match known {
            Some(known) => self.behind(known)?,
            None => self.image.executable().map(|(start, _)| start).find(|start| (low..=address).contains(start))?,
        };
        while start <= address {
            if self.machine.reads_as_entry(self, start) && self.laid.insert(start) {
                self.functions.remove(&start);
            }
            let function = self.function(start)?.clone();
            if !self.machine.keeps_stack(self, &function) {
                self.laid.remove(&start);
                return None;
            }
            if function.covers(address) {
                return function.may_return().then_some(start);
            }
            start = self.behind(start)?;
        }
        None
    }

    /// The address behind a function and the padding that follows it.
    fn behind(&mut self, start: u64) -> Option<u64> {
        let function = self.function(start)?.clone();
        Some(self.behind_padding(function.first_end(self)))
    }

    /// The address behind the padding between two functions.
    pub(crate) fn behind_padding(&self, end: u64) -> u64 {
        const MOST: usize = 16;
        let mut at = end;
        for _ in 0..MOST {
            match self.instruction(at) {
                Some(instruction) if self.machine.is_padding(self.image, &instruction) => at = instruction.next,
                _ => break,
            }
        }
        self.behind_zeros(at)
    }

    /// The address behind zeros up to a multiple of 16: mold fills gaps with them. They may read as an instruction,
    /// together with the code behind them.
    fn behind_zeros(&self, end: u64) -> u64 {
        let aligned = end.next_multiple_of(16);
        let between = self.image.read(end, (aligned - end) as usize);
        if between.is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0)) { aligned } else { end }
    }

    /// Whether a call of `target` that ends at an address is the last instruction of a function: `target` does not
    /// return, or it may not, and bytes that look like a branch point behind the call.
    fn is_last_call(&self, target: u64, end: u64) -> bool {
        let (behind, zeros) = (self.behind_padding(end), self.behind_zeros(end));
        let led_to = self.is_start(behind) || (zeros != end && self.jumped.contains(&zeros));
        !self.returns(target) || (led_to && !self.returns_at_once(target))
    }

    /// Places that something jumps to among the instructions of a function.
    pub(crate) fn jumped_within(&self, function: &Function) -> impl Iterator<Item = u64> + '_ {
        let instructions: Vec<u64> = function.instructions.keys().copied().collect();
        instructions.into_iter().filter(|address| self.jumped.contains(address) || self.called.contains(address))
    }

    /// Places in the middle of a function that read as the start of one, because some bytes read as a call of them.
    /// Empty on an architecture where a function ends before such places.
    pub(crate) fn starts_amid(&self, function: &Function) -> BTreeSet<u64> {
        if self.machine.leaves_by_condition() {
            return BTreeSet::new();
        }
        let start = function.start;
        self.jumped_within(function).filter(|place| *place != start && self.is_start(*place)).collect()
    }

    /// Whether something refers, or may refer, to a place, and the code there begins like a function.
    fn reads_as_entry(&self, start: u64) -> bool {
        if self.named.contains_key(&start) {
            return true;
        }
        let led_to = self.called.contains(&start) || self.jumped.contains(&start);
        (led_to || self.follows_an_end(start)) && self.machine.reads_as_entry(self, start)
    }

    /// Whether a function ends before an address, padding left out.
    pub(crate) fn follows_an_end(&self, address: u64) -> bool {
        self.laid.contains(&address) || self.machine.follows_an_end(self.image, address)
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

    /// The address behind the landing pad, if there is one: the place to write a jump.
    pub(crate) fn behind_landing_pad(&self, start: u64) -> u64 {
        self.machine.behind_landing_pad(self.image, start)
    }

    /// The function that a thunk calls; `None` if it does more.
    pub(crate) fn thunk_target(&self, start: u64) -> Option<u64> {
        self.machine.thunk_target(self, start)
    }

    /// The function behind thunks that only jump or call; the function itself if it does more.
    pub(crate) fn through(&self, start: u64) -> u64 {
        let mut at = start;
        for _ in 0..4 {
            let place = self.behind_landing_pad(at);
            let jumps_to = || match self.instruction(place) {
                Some(Instruction { flow: Flow::Jump(target), .. }) => target,
                _ => None,
            };
            match self.stubs.get(&place).copied().or_else(jumps_to).or_else(|| self.thunk_target(at)) {
                Some(target) => at = target,
                None => return at,
            }
        }
        at
    }
}
