//! Shifts, products, single bits.

use iced_x86::{Mnemonic, OpKind};

use super::{CARRY, Execution, FLAGS, Memory, OVERFLOW, RAX, RDX, Unfit, ZERO, is_negative, mask, signed};

impl<M: Memory> Execution<'_, M> {
    pub(super) fn shift(&mut self, size: usize) -> Result<(), Unfit> {
        use Mnemonic as N;
        let value = self.get(0)?;
        let bits = 8 * size as u32;
        let by = (self.get(1)? & if size == 8 { 63 } else { 31 }) as u32;
        if by == 0 {
            return self.set(0, value);
        }
        if by >= bits {
            return Err(Unfit);
        }
        let (result, carry) = match self.i.mnemonic() {
            N::Shl | N::Sal => (value << by & mask(size), value >> (bits - by) & 1 == 1),
            N::Shr => (value >> by, value >> (by - 1) & 1 == 1),
            N::Sar => {
                let value = signed(value, size);
                ((value >> by).cast_unsigned() & mask(size), value >> (by - 1) & 1 == 1)
            }
            N::Rol => {
                let result = (value << by | value >> (bits - by)) & mask(size);
                (result, result & 1 == 1)
            }
            _ => {
                let result = (value >> by | value << (bits - by)) & mask(size);
                (result, is_negative(result, size))
            }
        };
        self.flag(CARRY, carry);
        let overflow = match self.i.mnemonic() {
            N::Sar => false,
            N::Ror => is_negative(result ^ result << 1, size),
            N::Shr => is_negative(value, size),
            _ => is_negative(result, size) != carry,
        };
        self.flag(OVERFLOW, overflow);
        if !matches!(self.i.mnemonic(), N::Rol | N::Ror) {
            self.result_flags(result, size);
        }
        self.set(0, result)
    }

    pub(super) fn double_shift(&mut self, size: usize) -> Result<(), Unfit> {
        let (value, other) = (self.get(0)?, self.get(1)?);
        let by = (self.get(2)? & if size == 8 { 63 } else { 31 }) as u32;
        let bits = 8 * size as u32;
        if by == 0 || size < 4 {
            return Err(Unfit);
        }
        let (result, carry) = if self.i.mnemonic() == Mnemonic::Shld {
            (value << by | other >> (bits - by), value >> (bits - by) & 1 == 1)
        } else {
            (value >> by | other << (bits - by), value >> (by - 1) & 1 == 1)
        };
        self.result_flags(result, size);
        self.flag(CARRY, carry);
        self.flag(OVERFLOW, is_negative(result ^ value, size));
        self.set(0, result & mask(size))
    }

    pub(super) fn multiply(&mut self, size: usize) -> Result<(), Unfit> {
        use Mnemonic as N;
        if size < 4 {
            return Err(Unfit);
        }
        let bits = 8 * size as u32;
        if self.i.op_count() > 1 {
            let (a, b) =
                if self.i.op_count() == 3 { (self.get(1)?, self.get(2)?) } else { (self.get(0)?, self.get(1)?) };
            let product = i128::from(signed(a, size)) * i128::from(signed(b, size));
            let result = product as u64 & mask(size);
            self.flag(CARRY | OVERFLOW, i128::from(signed(result, size)) != product);
            return self.set(0, result);
        }
        let source = self.get(0)?;
        let (low, high) = (self.r.general[RAX] & mask(size), self.r.general[RDX] & mask(size));
        let whole = u128::from(high) << bits | u128::from(low);
        let (low, high) = match self.i.mnemonic() {
            N::Mul => {
                let product = u128::from(low) * u128::from(source);
                let high = (product >> bits) as u64;
                self.flag(CARRY | OVERFLOW, high != 0);
                (product as u64 & mask(size), high)
            }
            N::Imul => {
                let product = i128::from(signed(low, size)) * i128::from(signed(source, size));
                let low = product as u64 & mask(size);
                self.flag(CARRY | OVERFLOW, i128::from(signed(low, size)) != product);
                (low, (product >> bits) as u64 & mask(size))
            }
            N::Div => {
                let quotient = whole.checked_div(u128::from(source)).ok_or(Unfit)?;
                if quotient > u128::from(mask(size)) {
                    return Err(Unfit);
                }
                (quotient as u64, (whole % u128::from(source)) as u64)
            }
            _ => return Err(Unfit),
        };
        (self.r.general[RAX], self.r.general[RDX]) = (low, high);
        Ok(())
    }

    pub(super) fn bit(&mut self, size: usize) -> Result<(), Unfit> {
        if self.i.op0_kind() == OpKind::Memory && self.i.op1_kind() == OpKind::Register {
            return Err(Unfit);
        }
        let (value, at) = (self.get(0)?, self.get(1)? % (8 * size as u64));
        self.flag(CARRY, value >> at & 1 == 1);
        match self.i.mnemonic() {
            Mnemonic::Bts => self.set(0, value | 1 << at),
            Mnemonic::Btr => self.set(0, value & !(1 << at)),
            Mnemonic::Btc => self.set(0, value ^ 1 << at),
            _ => Ok(()),
        }
    }

    pub(super) fn count(&mut self, size: usize) -> Result<(), Unfit> {
        use Mnemonic as N;
        let value = self.get(1)?;
        let bits = 8 * size as u64;
        let leading = u64::from(value.leading_zeros()) - (64 - bits);
        let result = match self.i.mnemonic() {
            // Then the result is that of the processor.
            N::Bsf | N::Bsr if value == 0 => return Err(Unfit),
            N::Bsf => u64::from(value.trailing_zeros()),
            N::Bsr => bits - 1 - leading,
            N::Tzcnt => u64::from(value.trailing_zeros()).min(bits),
            N::Lzcnt => leading,
            _ => u64::from(value.count_ones()),
        };
        match self.i.mnemonic() {
            N::Bsf | N::Bsr => self.flag(ZERO, false),
            N::Popcnt => {
                self.flag(FLAGS, false);
                self.flag(ZERO, value == 0);
            }
            _ => {
                self.flag(CARRY, value == 0);
                self.flag(ZERO, result == 0);
            }
        }
        self.set(0, result)
    }
}
