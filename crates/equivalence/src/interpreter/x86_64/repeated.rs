//! String instructions with their prefixes: `rep movsb` and similar.

use iced_x86::{Instruction, Mnemonic};

use super::flags::{ALL, Flags, ZERO, mask};
use super::processor::{Processor, RAX, RCX, RDI, RSI, WHOLE, mask_of_bytes};
use crate::interpreter::Stop;

/// Whether a string instruction of that name can be executed here. Some names are also those of other instructions.
pub(super) fn knows(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Cmpsb, Lodsb, Movsb, Movsd, Movsq, Movsw, Scasb, Stosb, Stosd, Stosq, Stosw};
    matches!(mnemonic, Cmpsb | Lodsb | Movsb | Movsd | Movsq | Movsw | Scasb | Stosb | Stosd | Stosq | Stosw)
}

pub(super) fn execute(p: &mut Processor<'_>, i: &Instruction) -> Result<(), Stop> {
    let unset = Stop::Unset { address: i.ip() };
    p.flags_of_alignment = false;
    let repeats = i.has_rep_prefix() || i.has_repne_prefix();
    let size = match i.mnemonic() {
        Mnemonic::Movsq | Mnemonic::Stosq => 8,
        Mnemonic::Movsd | Mnemonic::Stosd => 4,
        Mnemonic::Movsw | Mnemonic::Stosw => 2,
        _ => 1,
    };
    let step = if p.down { 0u64.wrapping_sub(size as u64) } else { size as u64 };
    let compares = matches!(i.mnemonic(), Mnemonic::Cmpsb | Mnemonic::Scasb);
    let needs = |p: &Processor<'_>, register: usize, bytes: u8| p.known[register] & bytes == bytes;
    if repeats && !needs(p, RCX, WHOLE) {
        return Err(unset);
    }
    loop {
        if repeats {
            if p.general[RCX] == 0 {
                return Ok(());
            }
            p.budget.spend()?;
        }
        let (from, to) = (p.general[RSI], p.general[RDI]);
        let whole = mask_of_bytes(size);
        let mut moves = (true, true);
        match i.mnemonic() {
            Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq => {
                if !needs(p, RDI, WHOLE) || !needs(p, RAX, whole) {
                    return Err(unset);
                }
                p.memory.write(to, size, u128::from(p.general[RAX]), u16::MAX)?;
                moves.0 = false;
            }
            Mnemonic::Scasb => {
                if !needs(p, RDI, WHOLE) || !needs(p, RAX, 1) {
                    return Err(unset);
                }
                let (byte, _) = p.memory.read(to, 1)?;
                p.flags.set(ALL, Flags::of_difference(p.general[RAX], byte as u64, false, 1).1);
                moves.0 = false;
            }
            Mnemonic::Lodsb => {
                if !needs(p, RSI, WHOLE) {
                    return Err(unset);
                }
                let (byte, known) = p.memory.read(from, 1)?;
                p.set_register(iced_x86::Register::AL, byte as u64, known as u8);
                moves.1 = false;
            }
            _ => {
                if !needs(p, RSI, WHOLE) || !needs(p, RDI, WHOLE) {
                    return Err(unset);
                }
                let (value, known) = p.memory.read(from, size)?;
                if compares {
                    let (other, _) = p.memory.read(to, 1)?;
                    p.flags.set(ALL, Flags::of_difference(value as u64, other as u64, false, 1).1);
                } else {
                    p.memory.write(to, size, value & u128::from(mask(size)), known)?;
                }
            }
        }
        if moves.0 {
            p.of_alignment[RSI] = false;
            p.general[RSI] = from.wrapping_add(step);
        }
        if moves.1 {
            p.of_alignment[RDI] = false;
            p.general[RDI] = to.wrapping_add(step);
        }
        if !repeats {
            return Ok(());
        }
        p.general[RCX] -= 1;
        // `repe` continues while they are equal, `repne` while they are not.
        if compares && p.flags.get(ZERO) == Some(i.has_repne_prefix()) {
            return Ok(());
        }
    }
}
