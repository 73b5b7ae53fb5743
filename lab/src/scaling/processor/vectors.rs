//! Instructions on SSE registers, and on strings.

use iced_x86::{Mnemonic, OpKind};

use super::{DIRECTION, Execution, Memory, RAX, RCX, RDI, RSI, Unfit, mask};

impl<M: Memory> Execution<'_, M> {
    fn wide(&mut self, operand: u32, size: usize) -> Result<u128, Unfit> {
        match self.i.op_kind(operand) {
            OpKind::Register if self.i.op_register(operand).is_xmm() => {
                let value = self.r.vectors.get(self.i.op_register(operand).number()).ok_or(Unfit)?;
                Ok(if size == 16 { *value } else { value & u128::from(mask(size)) })
            }
            OpKind::Register => self.get(operand).map(u128::from),
            OpKind::Memory => {
                let address = self.address()?;
                let mut bytes = [0; 16];
                self.m.read(address, &mut bytes[..size])?;
                Ok(u128::from_le_bytes(bytes))
            }
            _ => Err(Unfit),
        }
    }

    fn set_wide(&mut self, operand: u32, value: u128, size: usize) -> Result<(), Unfit> {
        match self.i.op_kind(operand) {
            OpKind::Register if self.i.op_register(operand).is_xmm() => {
                *self.r.vectors.get_mut(self.i.op_register(operand).number()).ok_or(Unfit)? = value;
                Ok(())
            }
            OpKind::Memory => {
                let address = self.address()?;
                self.m.write(address, &value.to_le_bytes()[..size])
            }
            _ => self.set(operand, value as u64),
        }
    }

    /// Moves and logic of SSE registers. The kernel executes AVX.
    pub(super) fn vector(&mut self) -> Result<(), Unfit> {
        use Mnemonic as N;
        const LOW: u128 = u64::MAX as u128;
        match self.i.mnemonic() {
            N::Movups | N::Movaps | N::Movupd | N::Movapd | N::Movdqu | N::Movdqa | N::Movntdq | N::Movntps => {
                let value = self.wide(1, 16)?;
                self.set_wide(0, value, 16)
            }
            N::Movq => {
                let value = self.wide(1, 8)?;
                self.set_wide(0, value, 8)
            }
            N::Movd => {
                let value = self.wide(1, 4)?;
                self.set_wide(0, value, 4)
            }
            N::Pxor | N::Xorps | N::Xorpd | N::Por | N::Orps | N::Pand | N::Andps => {
                let (a, b) = (self.wide(0, 16)?, self.wide(1, 16)?);
                let value = match self.i.mnemonic() {
                    N::Por | N::Orps => a | b,
                    N::Pand | N::Andps => a & b,
                    _ => a ^ b,
                };
                self.set_wide(0, value, 16)
            }
            N::Pshufd => {
                let value = self.wide(1, 16)?;
                let order = u32::from(self.i.immediate8());
                let part = |at: u32| value >> (32 * (order >> (2 * at) & 3)) & 0xffff_ffff;
                self.set_wide(0, (0..4).fold(0, |all, at| all | part(at) << (32 * at)), 16)
            }
            N::Punpcklqdq | N::Movlhps => {
                let (a, b) = (self.wide(0, 16)?, self.wide(1, 16)?);
                self.set_wide(0, a & LOW | b << 64, 16)
            }
            N::Movhps | N::Movhpd if self.i.op0_kind() == OpKind::Memory => {
                let value = self.wide(1, 16)? >> 64;
                self.set_wide(0, value, 8)
            }
            N::Movhps | N::Movhpd => {
                let (a, b) = (self.wide(0, 16)?, self.wide(1, 8)?);
                self.set_wide(0, a & LOW | b << 64, 16)
            }
            N::Movlps | N::Movlpd if self.i.op0_kind() == OpKind::Memory => {
                let value = self.wide(1, 8)?;
                self.set_wide(0, value, 8)
            }
            _ => Err(Unfit),
        }
    }

    /// REP STOS and REP MOVS, to their end.
    pub(super) fn repeated(&mut self) -> Result<(), Unfit> {
        use Mnemonic as N;
        let (size, is_move) = match self.i.mnemonic() {
            N::Stosb => (1, false),
            N::Stosd => (4, false),
            N::Stosq => (8, false),
            N::Movsb => (1, true),
            N::Movsd if self.i.is_string_instruction() => (4, true),
            N::Movsq => (8, true),
            _ => return Err(Unfit),
        };
        if self.r.flags & DIRECTION != 0 || self.i.has_repne_prefix() {
            return Err(Unfit);
        }
        let is_repeated = self.i.has_rep_prefix();
        let count = if is_repeated { self.r.general[RCX] } else { 1 };
        let (mut from, mut to) = (self.r.general[RSI], self.r.general[RDI]);
        for _ in 0..count {
            let value = if is_move { self.load(from, size)? } else { self.r.general[RAX] };
            self.store(to, size, value)?;
            from = from.wrapping_add(size as u64);
            to = to.wrapping_add(size as u64);
        }
        self.r.general[RDI] = to;
        if is_move {
            self.r.general[RSI] = from;
        }
        if is_repeated {
            self.r.general[RCX] = 0;
        }
        Ok(())
    }
}
