//! String instructions with their prefixes: `rep movsb` and similar.

use iced_x86::{Instruction, Mnemonic};

use super::flags::{ALL, Flags, ZERO, mask};
use super::processor::{Processor, RAX, RCX, RDI, RSI};
use crate::Unproven;

/// Whether a string instruction of that name can be executed here. Some other instructions have these names too.
pub(super) fn knows(mnemonic: Mnemonic) -> bool {
    use Mnemonic::{Cmpsb, Lodsb, Movsb, Movsd, Movsq, Movsw, Scasb, Stosb, Stosd, Stosq, Stosw};
    matches!(mnemonic, Cmpsb | Lodsb | Movsb | Movsd | Movsq | Movsw | Scasb | Stosb | Stosd | Stosq | Stosw)
}

pub(super) fn execute(p: &mut Processor<'_>, i: &Instruction) -> Result<(), Unproven> {
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
    if repeats {
        p.set_part(i, RCX, 8)?;
    }
    loop {
        if repeats {
            if p.general[RCX] == 0 {
                return Ok(());
            }
            p.budget.spend()?;
        }
        let mut moves = (true, true);
        match i.mnemonic() {
            Mnemonic::Stosb | Mnemonic::Stosw | Mnemonic::Stosd | Mnemonic::Stosq => {
                let (to, value) = (p.set_part(i, RDI, 8)?, p.set_part(i, RAX, size)?);
                p.memory.write(to, size, u128::from(value), u16::MAX)?;
                moves.0 = false;
            }
            Mnemonic::Scasb => {
                let (to, value) = (p.set_part(i, RDI, 8)?, p.set_part(i, RAX, 1)?);
                let (byte, _) = p.memory.read(to, 1)?;
                p.flags.set(ALL, Flags::of_difference(value, byte as u64, false, 1).1);
                moves.0 = false;
            }
            Mnemonic::Lodsb => {
                let (byte, known) = p.memory.read(p.set_part(i, RSI, 8)?, 1)?;
                p.set_register(iced_x86::Register::AL, byte as u64, known as u8);
                moves.1 = false;
            }
            _ => {
                let (from, to) = (p.set_part(i, RSI, 8)?, p.set_part(i, RDI, 8)?);
                let (value, known) = p.memory.read(from, size)?;
                if compares {
                    let (other, _) = p.memory.read(to, 1)?;
                    p.flags.set(ALL, Flags::of_difference(value as u64, other as u64, false, 1).1);
                } else {
                    p.memory.write(to, size, value & u128::from(mask(size)), known)?;
                }
            }
        }
        for register in [(moves.0, RSI), (moves.1, RDI)].into_iter().filter_map(|(moves, it)| moves.then_some(it)) {
            p.of_alignment[register] = false;
            p.general[register] = p.general[register].wrapping_add(step);
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
