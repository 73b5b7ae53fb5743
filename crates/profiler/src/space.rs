//! The address space of a process: its modules, and the walk up a stack in them. It is brought up to date during the
//! recording, since the kernel maps the parts of a program one after the other, and libraries come at run time.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use framehop::{FrameAddress, Unwinder};

use crate::frame_size::{FrameSize, frame_size};
use crate::library::Library;
use crate::memory::Stack;
use crate::module::Module;
use crate::proc::{self, Mapping};
use crate::registers::Registers;

#[cfg(target_arch = "aarch64")]
mod native {
    pub(super) use framehop::aarch64::{
        CacheAarch64 as Cache, UnwindRegsAarch64 as Regs, UnwinderAarch64 as Unwinding,
    };

    pub(super) fn regs(registers: &super::Registers) -> Regs {
        Regs::new(registers.lr.unwrap_or(0), registers.sp, registers.fp.unwrap_or(0))
    }

    pub(super) fn back(regs: &Regs) -> (u64, u64) {
        (regs.sp(), regs.fp())
    }
}

#[cfg(not(target_arch = "aarch64"))]
mod native {
    pub(super) use framehop::x86_64::{CacheX86_64 as Cache, UnwindRegsX86_64 as Regs, UnwinderX86_64 as Unwinding};

    pub(super) fn regs(registers: &super::Registers) -> Regs {
        Regs::new(registers.pc, registers.sp, registers.fp.unwrap_or(0))
    }

    pub(super) fn back(regs: &Regs) -> (u64, u64) {
        (regs.sp(), regs.bp())
    }
}

/// A place in the code: the number of a module, and an address in its file. For a caller it is the return address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct CodeAddress {
    /// `None` outside of all modules; then the address is the one in memory.
    pub(crate) module: Option<u32>,
    pub(crate) address: u64,
}

/// The stack of a sample, the innermost function first.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Walk {
    pub(crate) places: Vec<CodeAddress>,
    /// Whether the walk ended before the thread's first function.
    pub(crate) truncated: bool,
}

/// The most frames of a walk.
const DEEPEST: usize = 192;
/// The part of a stack, in bytes, in which the next return address is searched.
const REACH: u64 = 16 << 10;

/// A module at its address in a process.
struct Placed {
    /// Its number in the library.
    number: u32,
    /// Addresses in memory, from its first mapping to its last.
    range: Range<u64>,
    /// The difference between an address in memory and the one in its file.
    bias: u64,
}

impl Placed {
    /// The address in the file of one in memory.
    fn place(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }
}

/// A module with its address.
type Located<'s> = (&'s Placed, &'s Module);

/// The modules of one process.
pub(crate) struct Space {
    pid: i32,
    modules: Vec<Placed>,
    unwinder: native::Unwinding<Arc<[u8]>>,
    cache: RefCell<native::Cache>,
    /// The sizes of frames that were computed, by the address of the next instruction.
    sizes: RefCell<HashMap<u64, Option<FrameSize>>>,
    /// When the mappings were read.
    read_at: Instant,
    /// The time during which they are not read again.
    pause: Duration,
}

/// The pause between two reads of the mappings, after one with a change. It doubles each time without a change: a
/// process may run code outside of all modules, and reading many mappings takes long.
const LEAST_PAUSE: Duration = Duration::from_millis(1);
/// The longest pause.
const MOST_PAUSE: Duration = Duration::from_millis(250);

impl Space {
    pub(crate) fn open(pid: i32, library: &mut Library) -> Space {
        let mut space = Space {
            pid,
            modules: Vec::new(),
            unwinder: native::Unwinding::new(),
            cache: RefCell::new(native::Cache::new()),
            sizes: RefCell::default(),
            read_at: Instant::now(),
            pause: LEAST_PAUSE,
        };
        space.read(library);
        space
    }

    /// The number of the module with that path.
    pub(crate) fn named(&self, library: &Library, path: &str) -> Option<u32> {
        let mut numbers = self.modules.iter().map(|placed| placed.number);
        numbers.find(|number| library.modules[*number as usize].path == path)
    }

    /// Reads the mappings, unless that was done just now: modules come at run time, the first of them soon after the
    /// start.
    fn read_again(&mut self, library: &mut Library) {
        if self.read_at.elapsed() < self.pause {
            return;
        }
        self.pause = if self.read(library) { LEAST_PAUSE } else { MOST_PAUSE.min(self.pause * 2) };
    }

    /// Reads the mappings. Returns whether they have changed.
    fn read(&mut self, library: &mut Library) -> bool {
        let mut found = false;
        self.read_at = Instant::now();
        let mappings = proc::mappings(self.pid).unwrap_or_default();
        let program = proc::program(self.pid);
        for parts in mappings.chunk_by(Mapping::goes_on) {
            let (Some(first), Some(last)) = (parts.first(), parts.last()) else { continue };
            let Some(code) = parts.iter().find(|mapping| mapping.executable) else { continue };
            let range = first.start..last.end;
            let is_program = program.as_ref().is_some_and(|program| program.as_os_str() == first.file.path.as_str());
            let Some(number) = library.number(self.pid, &first.file, &range, is_program) else { continue };
            if self.modules.iter().any(|placed| placed.range == range && placed.number == number) {
                continue;
            }
            // While the kernel starts a program, its parts are mapped one after the other. And a library may be
            // unloaded.
            for placed in
                self.modules.extract_if(.., |placed| placed.range.start < range.end && range.start < placed.range.end)
            {
                self.unwinder.remove_module(placed.range.start);
            }
            found = true;
            let module = &library.modules[number as usize];
            let bias = module.bias(code.offset, code.start);
            if let Some(unwinding) = module.unwinding(range.clone(), bias) {
                self.unwinder.add_module(unwinding);
            }
            self.modules.push(Placed { number, range, bias });
        }
        found
    }

    /// The module that holds an address in memory.
    fn module<'s>(&'s self, library: &'s Library, address: u64) -> Option<Located<'s>> {
        let placed = self.modules.iter().find(|placed| placed.range.contains(&address))?;
        Some((placed, &library.modules[placed.number as usize]))
    }

    fn place(&self, library: &Library, address: u64) -> CodeAddress {
        match self.module(library, address) {
            Some((placed, _)) => CodeAddress { module: Some(placed.number), address: placed.place(address) },
            None => CodeAddress { module: None, address },
        }
    }

    /// A walk that ends at its beginning.
    pub(crate) fn alone(&mut self, library: &mut Library, pc: u64) -> Walk {
        if self.module(library, pc).is_none() {
            self.read_again(library);
        }
        Walk { places: vec![self.place(library, pc)], truncated: true }
    }

    /// Walks up the stack of a thread.
    pub(crate) fn walk(&mut self, library: &mut Library, registers: Registers, stack: &Stack) -> Walk {
        if self.module(library, registers.pc).is_none() {
            self.read_again(library);
        }
        let library = &*library;
        let mut walk = Walk { places: vec![self.place(library, registers.pc)], truncated: false };
        let mut at = registers;
        let mut innermost = true;
        while walk.places.len() < DEEPEST {
            let lookup = if innermost { at.pc } else { at.pc - 1 };
            let Some(located @ (placed, module)) = self.module(library, lookup) else {
                walk.truncated = true;
                break;
            };
            if is_first(module, placed.place(lookup)) {
                break;
            }
            let by_table = self.by_table(library, located, &at, lookup, innermost, stack);
            // By the tables, this function has no caller.
            if matches!(by_table, Some(None)) {
                break;
            }
            let next = by_table.flatten().or_else(|| {
                // aarch64: a function that calls no other has its return address in a register only.
                let leaf = at.lr.filter(|lr| innermost && self.call(library, *lr).is_some());
                let leaf = leaf.map(|lr| Registers { pc: lr, lr: None, ..at });
                leaf.or_else(|| self.by_code(library, located, &at, stack))
                    .or_else(|| self.by_search(library, &at, lookup, stack))
            });
            match next {
                Some(next) if next.sp > at.sp || (innermost && next.sp >= at.sp) => at = next,
                _ => {
                    // At the top of the stack there is nothing left to find.
                    walk.truncated = stack.cut || stack.end().saturating_sub(at.sp) > REACH;
                    break;
                }
            }
            innermost = false;
            walk.places.push(self.place(library, at.pc));
        }
        walk.truncated |= walk.places.len() == DEEPEST;
        walk
    }

    /// Leaves a frame by the unwind tables. The result has to be a return address; it is `Some(None)` for the function
    /// that a thread begins in.
    fn by_table(
        &self,
        library: &Library,
        (placed, module): Located<'_>,
        at: &Registers,
        lookup: u64,
        innermost: bool,
        stack: &Stack,
    ) -> Option<Option<Registers>> {
        if !module.has_table(placed.place(lookup)) {
            return None;
        }
        let address = match innermost {
            true => FrameAddress::from_instruction_pointer(at.pc),
            false => FrameAddress::from_return_address(at.pc)?,
        };
        // Without the frame pointer, words of the stack that may be one are tried.
        let known = at.fp.into_iter();
        let guesses = (0..64).map(|slot| at.sp.wrapping_sub(8 * 64).wrapping_add(8 * slot));
        let guesses = guesses.filter_map(|slot| stack.word(slot)).filter(|fp| *fp > at.sp && *fp < stack.end());
        for fp in known.chain(std::iter::once(0)).chain(guesses) {
            let mut regs = native::regs(&Registers { fp: Some(fp), ..*at });
            let mut word = |address: u64| stack.word(address).ok_or(());
            let mut cache = self.cache.borrow_mut();
            let back = match self.unwinder.unwind_frame(address, &mut regs, &mut cache, &mut word) {
                Ok(Some(back)) => back,
                Ok(None) if !innermost => return Some(None),
                Ok(None) | Err(_) => continue,
            };
            if self.call(library, back).is_some() {
                let (sp, fp) = native::back(&regs);
                return Some(Some(Registers { pc: back, sp, fp: Some(fp), lr: None, call: None }));
            }
        }
        None
    }

    /// Leaves a frame by the effect of the function's instructions on the stack. The result has to be a return address.
    fn by_code(
        &self,
        library: &Library,
        (placed, module): Located<'_>,
        at: &Registers,
        stack: &Stack,
    ) -> Option<Registers> {
        let place = placed.place(at.pc);
        let function =
            module.symbols.function_at(place.saturating_sub(1)).or_else(|| module.symbols.function_at(place))?;
        let known = self.sizes.borrow().get(&at.pc).copied();
        let frame = known.unwrap_or_else(|| {
            let code = module.code(function.start);
            let length = usize::try_from(function.end.max(place + 1) - function.start).ok()?;
            let frame = frame_size(code.get(..length.min(code.len()))?, function.start, place);
            self.sizes.borrow_mut().insert(at.pc, frame);
            frame
        })?;
        let slot = at.sp.checked_add(frame.size)?;
        let word = stack.word(slot)?;
        self.call(library, word)?;
        let saved = frame.frame_pointer.and_then(|distance| stack.word(slot.checked_sub(distance)?));
        Some(Registers { pc: word, sp: slot + 8, fp: saved.or(at.fp), lr: None, call: None })
    }

    /// Leaves a frame that has no table: searches the stack for a return address behind a call of this very function,
    /// or else behind any call that may reach it.
    fn by_search(&self, library: &Library, at: &Registers, lookup: u64, stack: &Stack) -> Option<Registers> {
        let located @ (placed, module) = self.module(library, lookup)?;
        let place = placed.place(lookup);
        let start = module.symbols.function_at(place).map(|function| function.start);
        let mut second: Option<(u64, u64)> = None;
        let mut slot = at.sp.next_multiple_of(8);
        while slot < at.sp.saturating_add(REACH) {
            let Some(word) = stack.word(slot) else { break };
            if let Some(call) = self.call(library, word) {
                match call {
                    _ if self.leads_by_import(library, word, located) => {
                        return Some(Registers { pc: word, sp: slot + 8, fp: at.fp, lr: None, call: None });
                    }
                    Some(target) if self.leads(library, target, placed, place, start) => {
                        return Some(Registers { pc: word, sp: slot + 8, fp: at.fp, lr: None, call: None });
                    }
                    // The pointer may have pointed here.
                    None if second.is_none() => second = Some((word, slot)),
                    _ => {}
                }
            }
            slot += 8;
        }
        second.map(|(pc, slot)| Registers { pc, sp: slot + 8, fp: at.fp, lr: None, call: None })
    }

    /// Whether the call before an address in memory goes from a different module to a public function of `module`.
    fn leads_by_import(&self, library: &Library, address: u64, (placed, module): Located<'_>) -> bool {
        let Some((calls, caller)) = self.module(library, address) else { return false };
        !std::ptr::eq(calls, placed)
            && caller.imported(calls.place(address)).is_some_and(|name| module.symbols.has(name))
    }

    /// Whether a call of `target` reaches the function around `place` of the module `placed`: directly, or by a
    /// function that only jumps there.
    fn leads(&self, library: &Library, target: u64, placed: &Placed, place: u64, start: Option<u64>) -> bool {
        let mut target = target;
        for _ in 0..3 {
            let Some((there, called)) = self.module(library, target) else { return false };
            let address = there.place(target);
            if std::ptr::eq(there, placed) {
                let near = match start {
                    Some(start) => address == start,
                    // It is unknown where the function begins.
                    None => {
                        address <= place && place - address < 16 << 10 && called.symbols.function_at(address).is_none()
                    }
                };
                if near {
                    return true;
                }
            }
            match jump(called.code(address), target) {
                Some(next) => target = next,
                None => return false,
            }
        }
        false
    }

    /// Whether an address in memory follows a call instruction. Returns the target of a direct call.
    pub(crate) fn call(&self, library: &Library, address: u64) -> Option<Option<u64>> {
        let (placed, module) = self.module(library, address)?;
        call_before(module.code_before(placed.place(address), 8), address)
    }
}

/// Whether a thread begins in this function, so that it has no caller.
fn is_first(module: &Module, address: u64) -> bool {
    const FIRST: [&str; 8] =
        ["_start", "_start_c", "_dlstart", "__clone", "clone", "clone3", "__clone3", "__libc_start_main"];
    let function = module.symbols.function_at(address);
    function.and_then(|function| function.name.as_deref()).is_some_and(|name| FIRST.contains(&name))
}

/// The call instruction that ends where `before` ends, which is at `address`. Returns the target of a direct call.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn call_before(before: &[u8], address: u64) -> Option<Option<u64>> {
    let length = before.len();
    // e8: call rel32.
    if let Some([0xe8, distance @ ..]) = before.get(length.checked_sub(5)?..) {
        let distance = i32::from_le_bytes(distance.try_into().ok()?);
        return Some(Some(address.wrapping_add_signed(distance.into())));
    }
    // ff /2: call through a register or memory. The operand's form gives the length (Intel SDM, volume 2, table 2-2).
    for size in [2, 3, 4, 6, 7] {
        let Some([0xff, form, rest @ ..]) = length.checked_sub(size).and_then(|at| before.get(at..)) else { continue };
        if form >> 3 & 7 != 2 {
            continue;
        }
        let sib = usize::from(form >> 6 != 3 && form & 7 == 4);
        let displacement = match (form >> 6, form & 7) {
            (0, 5) => 4,
            (0, 4) if rest.first().is_some_and(|sib| sib & 7 == 5) => 4,
            (0 | 3, _) => 0,
            (1, _) => 1,
            _ => 4,
        };
        if size == 2 + sib + displacement {
            return Some(None);
        }
    }
    None
}

/// The place from which the call instruction that ends where `before` ends, at `address`, takes its target: `ff 15`, a
/// call through memory at a distance from the next instruction.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn slot_called(before: &[u8], address: u64) -> Option<u64> {
    match before.get(before.len().checked_sub(6)?..)? {
        [0xff, 0x15, distance @ ..] => Some(address.wrapping_add_signed(word(distance)?)),
        _ => None,
    }
}

/// The place from which the code at `address` takes the target of its jump: `ff 25`, as in a procedure linkage table.
#[cfg(not(target_arch = "aarch64"))]
pub(crate) fn slot_jumped(code: &[u8], address: u64) -> Option<u64> {
    let (code, mut address) = match code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        Some(rest) => (rest, address.wrapping_add(4)),
        None => (code, address),
    };
    // bnd.
    let code = code.strip_prefix(&[0xf2]).inspect(|_| address = address.wrapping_add(1)).unwrap_or(code);
    match code.strip_prefix(&[0xff, 0x25]) {
        Some(rest) => Some(address.wrapping_add(6).wrapping_add_signed(word(rest.get(..4)?)?)),
        None => None,
    }
}

#[cfg(not(target_arch = "aarch64"))]
fn word(bytes: &[u8]) -> Option<i64> {
    Some(i32::from_le_bytes(bytes.try_into().ok()?).into())
}

/// Not read yet: there, adrp, ldr and br make a jump.
#[cfg(target_arch = "aarch64")]
pub(crate) fn slot_called(_: &[u8], _: u64) -> Option<u64> {
    None
}

/// Not read yet, see [`slot_called`].
#[cfg(target_arch = "aarch64")]
pub(crate) fn slot_jumped(_: &[u8], _: u64) -> Option<u64> {
    None
}

/// The target of an unconditional jump at the start of a function.
#[cfg(not(target_arch = "aarch64"))]
fn jump(code: &[u8], address: u64) -> Option<u64> {
    // endbr64.
    let (code, address) = match code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        Some(rest) => (rest, address + 4),
        None => (code, address),
    };
    match *code {
        [0xe9, a, b, c, d, ..] => Some((address + 5).wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into())),
        [0xeb, distance, ..] => Some((address + 2).wrapping_add_signed(i64::from(distance.cast_signed()))),
        _ => None,
    }
}

/// The call instruction that ends where `before` ends, which is at `address`. Returns the target of a direct call.
#[cfg(target_arch = "aarch64")]
pub(crate) fn call_before(before: &[u8], address: u64) -> Option<Option<u64>> {
    let word = u32::from_le_bytes(before.get(before.len().checked_sub(4)?..)?.try_into().ok()?);
    match word {
        // bl
        _ if word >> 26 == 0b10_0101 => Some(Some((address - 4).wrapping_add_signed(distance(word)))),
        // blr
        _ if word & 0xffff_fc1f == 0xd63f_0000 => Some(None),
        _ => None,
    }
}

/// The target of an unconditional jump at the start of a function.
#[cfg(target_arch = "aarch64")]
fn jump(code: &[u8], address: u64) -> Option<u64> {
    let word = u32::from_le_bytes(code.get(..4)?.try_into().ok()?);
    (word >> 26 == 0b00_0101).then(|| address.wrapping_add_signed(distance(word)))
}

/// The distance in bytes of a branch with 26 bits.
#[cfg(target_arch = "aarch64")]
fn distance(word: u32) -> i64 {
    i64::from((word << 6).cast_signed() >> 6) * 4
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests;
