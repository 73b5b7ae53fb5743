//! Executes instructions of x86_64 on a thread's registers: those that allocators and small programs use most. The
//! kernel executes the others, by a single step.
//!
//! Why not all by single steps: one costs two changes of context, so that a program runs at some 25,000 instructions a
//! second, and a table of the page would take a day. [`Machine`](super::machine::Machine) compares both if asked.

mod arithmetic;
mod vectors;

use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind, Register};

pub(crate) const CARRY: u64 = 1;
const PARITY: u64 = 1 << 2;
const ZERO: u64 = 1 << 6;
const SIGN: u64 = 1 << 7;
const DIRECTION: u64 = 1 << 10;
const OVERFLOW: u64 = 1 << 11;
/// The flags that are computed. No instruction of this module reads the auxiliary carry.
pub(crate) const FLAGS: u64 = CARRY | PARITY | ZERO | SIGN | OVERFLOW;

pub(crate) const RAX: usize = 0;
pub(crate) const RCX: usize = 1;
pub(crate) const RDX: usize = 2;
pub(crate) const RBX: usize = 3;
pub(crate) const RSP: usize = 4;
const RBP: usize = 5;
pub(crate) const RSI: usize = 6;
pub(crate) const RDI: usize = 7;

/// A thread's registers. The general ones are in the order of their numbers in instructions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    pub(crate) general: [u64; 16],
    pub(crate) rip: u64,
    pub(crate) flags: u64,
    pub(crate) fs: u64,
    pub(crate) gs: u64,
    pub(crate) vectors: [u128; 16],
}

/// An instruction that is left to the kernel: it is not implemented, or faults. Nothing was changed by it, except that
/// a copy of several bytes may have begun.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unfit;

/// A program's memory.
pub(crate) trait Memory {
    /// # Errors
    /// The program may not read there.
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Unfit>;

    /// # Errors
    /// The program may not write there.
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Unfit>;
}

/// Executes one instruction. `time` is what RDTSC reads.
///
/// # Errors
/// The instruction is left to the kernel; then the registers are unchanged.
pub(crate) fn execute<M: Memory>(
    registers: &mut Registers,
    instruction: &Instruction,
    memory: &mut M,
    time: u64,
) -> Result<(), Unfit> {
    let before = (registers.general, registers.flags, registers.rip);
    registers.rip = instruction.next_ip();
    let done = Execution { r: registers, i: instruction, m: memory }.run(time);
    if done.is_err() {
        (registers.general, registers.flags, registers.rip) = before;
    }
    done
}

fn mask(size: usize) -> u64 {
    if size >= 8 { u64::MAX } else { (1 << (8 * size)) - 1 }
}

fn is_negative(value: u64, size: usize) -> bool {
    value >> (8 * size - 1) & 1 == 1
}

/// Returns the value with the sign of its `size` bytes.
fn signed(value: u64, size: usize) -> i64 {
    let unused = 64 - 8 * size;
    (value << unused).cast_signed() >> unused
}

struct Execution<'e, M> {
    r: &'e mut Registers,
    i: &'e Instruction,
    m: &'e mut M,
}

impl<M: Memory> Execution<'_, M> {
    fn address(&self) -> Result<u64, Unfit> {
        let segment = match self.i.memory_segment() {
            Register::FS => self.r.fs,
            Register::GS => self.r.gs,
            _ => 0,
        };
        self.effective().map(|address| address.wrapping_add(segment))
    }

    /// Returns the address without that of the segment, as LEA does.
    fn effective(&self) -> Result<u64, Unfit> {
        if self.i.is_ip_rel_memory_operand() {
            return Ok(self.i.ip_rel_memory_address());
        }
        let part = |register: Register| match register {
            Register::None => Ok(0),
            register if register.is_gpr64() => Ok(self.r.general[register.number()]),
            _ => Err(Unfit),
        };
        let index = part(self.i.memory_index())?.wrapping_mul(u64::from(self.i.memory_index_scale()));
        Ok(part(self.i.memory_base())?.wrapping_add(index).wrapping_add(self.i.memory_displacement64()))
    }

    fn size(&self, operand: u32) -> usize {
        match self.i.op_kind(operand) {
            OpKind::Register => self.i.op_register(operand).size(),
            OpKind::Memory => self.i.memory_size().size(),
            // An immediate operand, which has the size of the first one, or a target.
            _ if operand > 0 => self.size(0),
            _ => 8,
        }
    }

    fn load(&mut self, address: u64, size: usize) -> Result<u64, Unfit> {
        let mut bytes = [0; 8];
        self.m.read(address, bytes.get_mut(..size).ok_or(Unfit)?)?;
        Ok(u64::from_le_bytes(bytes))
    }

    fn store(&mut self, address: u64, size: usize, value: u64) -> Result<(), Unfit> {
        self.m.write(address, value.to_le_bytes().get(..size).ok_or(Unfit)?)
    }

    fn get(&mut self, operand: u32) -> Result<u64, Unfit> {
        match self.i.op_kind(operand) {
            OpKind::Register => {
                let register = self.i.op_register(operand);
                let shift = if is_high(register) { 8 } else { 0 };
                if !register.is_gpr() {
                    return Err(Unfit);
                }
                Ok(self.r.general[index(register)] >> shift & mask(register.size()))
            }
            OpKind::Memory => {
                let address = self.address()?;
                self.load(address, self.i.memory_size().size())
            }
            OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => Ok(self.i.near_branch_target()),
            _ => self.i.try_immediate(operand).map(|value| value & mask(self.size(0))).map_err(|_| Unfit),
        }
    }

    fn set(&mut self, operand: u32, value: u64) -> Result<(), Unfit> {
        match self.i.op_kind(operand) {
            OpKind::Register => {
                let register = self.i.op_register(operand);
                if !register.is_gpr() {
                    return Err(Unfit);
                }
                let place = &mut self.r.general[index(register)];
                *place = match register.size() {
                    8 => value,
                    // Writes of 32 bits clear the upper half.
                    4 => value & mask(4),
                    size => {
                        let shift = if is_high(register) { 8 } else { 0 };
                        *place & !(mask(size) << shift) | (value & mask(size)) << shift
                    }
                };
                Ok(())
            }
            OpKind::Memory => {
                let address = self.address()?;
                self.store(address, self.i.memory_size().size(), value)
            }
            _ => Err(Unfit),
        }
    }

    fn flag(&mut self, flag: u64, is_set: bool) {
        self.r.flags = self.r.flags & !flag | if is_set { flag } else { 0 };
    }

    fn result_flags(&mut self, value: u64, size: usize) {
        let value = value & mask(size);
        self.flag(ZERO, value == 0);
        self.flag(SIGN, is_negative(value, size));
        self.flag(PARITY, (value as u8).count_ones().is_multiple_of(2));
    }

    fn logic(&mut self, value: u64, size: usize) {
        self.result_flags(value, size);
        self.flag(CARRY | OVERFLOW, false);
    }

    fn add(&mut self, a: u64, b: u64, carry: u64, size: usize) -> u64 {
        let sum = a.wrapping_add(b).wrapping_add(carry) & mask(size);
        self.result_flags(sum, size);
        self.flag(CARRY, u128::from(a) + u128::from(b) + u128::from(carry) > u128::from(mask(size)));
        self.flag(OVERFLOW, is_negative((a ^ sum) & (b ^ sum), size));
        sum
    }

    fn subtract(&mut self, a: u64, b: u64, borrow: u64, size: usize) -> u64 {
        let rest = a.wrapping_sub(b).wrapping_sub(borrow) & mask(size);
        self.result_flags(rest, size);
        self.flag(CARRY, u128::from(a) < u128::from(b) + u128::from(borrow));
        self.flag(OVERFLOW, is_negative((a ^ b) & (a ^ rest), size));
        rest
    }

    fn holds(&self, condition: ConditionCode) -> bool {
        let flag = |flag| self.r.flags & flag != 0;
        let less = flag(SIGN) != flag(OVERFLOW);
        match condition {
            ConditionCode::None => true,
            ConditionCode::o => flag(OVERFLOW),
            ConditionCode::no => !flag(OVERFLOW),
            ConditionCode::b => flag(CARRY),
            ConditionCode::ae => !flag(CARRY),
            ConditionCode::e => flag(ZERO),
            ConditionCode::ne => !flag(ZERO),
            ConditionCode::be => flag(CARRY | ZERO),
            ConditionCode::a => !flag(CARRY | ZERO),
            ConditionCode::s => flag(SIGN),
            ConditionCode::ns => !flag(SIGN),
            ConditionCode::p => flag(PARITY),
            ConditionCode::np => !flag(PARITY),
            ConditionCode::l => less,
            ConditionCode::ge => !less,
            ConditionCode::le => less || flag(ZERO),
            ConditionCode::g => !less && !flag(ZERO),
        }
    }

    fn push(&mut self, value: u64) -> Result<(), Unfit> {
        let top = self.r.general[RSP].wrapping_sub(8);
        self.store(top, 8, value)?;
        self.r.general[RSP] = top;
        Ok(())
    }

    fn pop(&mut self) -> Result<u64, Unfit> {
        let value = self.load(self.r.general[RSP], 8)?;
        self.r.general[RSP] = self.r.general[RSP].wrapping_add(8);
        Ok(value)
    }

    fn run(mut self, time: u64) -> Result<(), Unfit> {
        use Mnemonic as N;
        if self.i.is_jcc_short_or_near() {
            if self.holds(self.i.condition_code()) {
                self.r.rip = self.i.near_branch_target();
            }
            return Ok(());
        }
        let size = self.size(0);
        match self.i.mnemonic() {
            N::Mov | N::Movzx => {
                let value = self.get(1)?;
                self.set(0, value)
            }
            N::Movsx | N::Movsxd => {
                let value = signed(self.get(1)?, self.size(1)).cast_unsigned();
                self.set(0, value)
            }
            N::Lea => {
                let address = self.effective()?;
                self.set(0, address)
            }
            N::Push if self.i.stack_pointer_increment() == -8 => {
                let value = match self.i.op_kind(0) {
                    OpKind::Register | OpKind::Memory => self.get(0)?,
                    _ => self.i.try_immediate(0).map_err(|_| Unfit)?,
                };
                self.push(value)
            }
            N::Pop if size == 8 => {
                let value = self.pop()?;
                self.set(0, value)
            }
            N::Leave if self.i.stack_pointer_increment() == 0 => {
                self.r.general[RSP] = self.r.general[RBP];
                self.r.general[RBP] = self.pop()?;
                Ok(())
            }
            N::Call => {
                let target = self.get(0)?;
                self.push(self.i.next_ip())?;
                self.r.rip = target;
                Ok(())
            }
            N::Jmp => {
                self.r.rip = self.get(0)?;
                Ok(())
            }
            N::Ret => {
                self.r.rip = self.pop()?;
                if self.i.op_count() == 1 {
                    self.r.general[RSP] = self.r.general[RSP].wrapping_add(u64::from(self.i.immediate16()));
                }
                Ok(())
            }
            N::Nop | N::Endbr64 | N::Pause | N::Mfence | N::Lfence | N::Sfence => Ok(()),
            N::Prefetcht0 | N::Prefetcht1 | N::Prefetcht2 | N::Prefetchnta | N::Prefetchw => Ok(()),
            N::Rdtsc => {
                self.r.general[RAX] = time & mask(4);
                self.r.general[RDX] = time >> 32;
                Ok(())
            }
            N::Cld => {
                self.flag(DIRECTION, false);
                Ok(())
            }
            N::Cwde => self.widen(2, 4),
            N::Cdqe => self.widen(4, 8),
            N::Cdq => self.sign_into_rdx(4),
            N::Cqo => self.sign_into_rdx(8),
            _ if self.i.condition_code() != ConditionCode::None => self.conditional(),
            _ if matches!(self.i.op0_kind(), OpKind::Register | OpKind::Memory) => self.arithmetic(size),
            _ => self.repeated(),
        }
    }

    fn widen(&mut self, from: usize, to: usize) -> Result<(), Unfit> {
        let value = signed(self.r.general[RAX] & mask(from), from).cast_unsigned();
        self.r.general[RAX] = value & mask(to);
        Ok(())
    }

    fn sign_into_rdx(&mut self, size: usize) -> Result<(), Unfit> {
        self.r.general[RDX] = if is_negative(self.r.general[RAX], size) { mask(size) } else { 0 };
        Ok(())
    }

    /// CMOVcc, SETcc.
    fn conditional(&mut self) -> Result<(), Unfit> {
        let holds = self.holds(self.i.condition_code());
        if self.i.op_count() == 1 {
            return self.set(0, u64::from(holds));
        }
        if self.i.op_count() != 2 {
            return Err(Unfit);
        }
        // The source is read in both cases, and the upper half of a register is cleared in both.
        let (source, old) = (self.get(1)?, self.get(0)?);
        self.set(0, if holds { source } else { old })
    }

    fn arithmetic(&mut self, size: usize) -> Result<(), Unfit> {
        use Mnemonic as N;
        let carry = self.r.flags & CARRY;
        match self.i.mnemonic() {
            N::Add | N::Adc => {
                let (a, b) = (self.get(0)?, self.get(1)?);
                let sum = self.add(a, b, if self.i.mnemonic() == N::Adc { carry } else { 0 }, size);
                self.set(0, sum)
            }
            N::Sub | N::Sbb => {
                let (a, b) = (self.get(0)?, self.get(1)?);
                let rest = self.subtract(a, b, if self.i.mnemonic() == N::Sbb { carry } else { 0 }, size);
                self.set(0, rest)
            }
            N::Cmp => {
                let (a, b) = (self.get(0)?, self.get(1)?);
                self.subtract(a, b, 0, size);
                Ok(())
            }
            N::Test => {
                let value = self.get(0)? & self.get(1)?;
                self.logic(value, size);
                Ok(())
            }
            N::And | N::Or | N::Xor => {
                let (a, b) = (self.get(0)?, self.get(1)?);
                let value = match self.i.mnemonic() {
                    N::And => a & b,
                    N::Or => a | b,
                    _ => a ^ b,
                };
                self.logic(value, size);
                self.set(0, value)
            }
            N::Not => {
                let value = !self.get(0)?;
                self.set(0, value)
            }
            N::Neg => {
                let value = self.get(0)?;
                let negative = self.subtract(0, value, 0, size);
                self.set(0, negative)
            }
            N::Inc | N::Dec => {
                let value = self.get(0)?;
                let next = if self.i.mnemonic() == N::Inc {
                    self.add(value, 1, 0, size)
                } else {
                    self.subtract(value, 1, 0, size)
                };
                self.flag(CARRY, carry != 0);
                self.set(0, next)
            }
            N::Shl | N::Sal | N::Shr | N::Sar | N::Rol | N::Ror => self.shift(size),
            N::Shld | N::Shrd => self.double_shift(size),
            N::Imul | N::Mul | N::Div | N::Idiv => self.multiply(size),
            N::Bt | N::Bts | N::Btr | N::Btc => self.bit(size),
            N::Bsf | N::Bsr | N::Tzcnt | N::Lzcnt | N::Popcnt => self.count(size),
            N::Bswap if size >= 4 => {
                let value = self.get(0)?;
                self.set(0, if size == 8 { value.swap_bytes() } else { u64::from((value as u32).swap_bytes()) })
            }
            N::Xchg => {
                let (a, b) = (self.get(0)?, self.get(1)?);
                self.set(0, b)?;
                self.set(1, a)
            }
            N::Xadd => {
                let (a, b) = (self.get(0)?, self.get(1)?);
                let sum = self.add(a, b, 0, size);
                if self.i.op0_kind() == OpKind::Memory {
                    self.set(0, sum)?;
                    return self.set(1, a);
                }
                self.set(1, a)?;
                self.set(0, sum)
            }
            N::Cmpxchg => {
                let (found, new) = (self.get(0)?, self.get(1)?);
                let expected = self.r.general[RAX] & mask(size);
                self.subtract(expected, found, 0, size);
                if found == expected {
                    return self.set(0, new);
                }
                // The processor writes the old value back, so the line becomes its own in this case too.
                if self.i.op0_kind() == OpKind::Memory {
                    self.set(0, found)?;
                }
                let kept = if size >= 4 { 0 } else { self.r.general[RAX] & !mask(size) };
                self.r.general[RAX] = kept | found;
                Ok(())
            }
            N::Cmpxchg16b => {
                let address = self.address()?;
                let (low, high) = (self.load(address, 8)?, self.load(address.wrapping_add(8), 8)?);
                let is_same = (low, high) == (self.r.general[RAX], self.r.general[RDX]);
                let (new_low, new_high) =
                    if is_same { (self.r.general[RBX], self.r.general[RCX]) } else { (low, high) };
                self.store(address, 8, new_low)?;
                self.store(address.wrapping_add(8), 8, new_high)?;
                (self.r.general[RAX], self.r.general[RDX]) = (low, high);
                self.flag(ZERO, is_same);
                Ok(())
            }
            _ if self.i.op_count() == 2 || self.i.mnemonic() == N::Pshufd => {
                self.vector().or_else(|Unfit| self.repeated())
            }
            _ => self.repeated(),
        }
    }
}

fn is_high(register: Register) -> bool {
    matches!(register, Register::AH | Register::CH | Register::DH | Register::BH)
}

fn index(register: Register) -> usize {
    register.full_register().number()
}
