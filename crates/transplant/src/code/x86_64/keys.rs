//! How x86_64's musl keeps a thread's values of pthread keys.

use std::collections::BTreeSet;

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::super::{Code, Function};
use super::{all, instruction_at, musl};
use crate::image::Image;

/// `jmp [rip + distance]`, perhaps with a prefix that older processors ignore (BND).
pub(super) fn indirect_jumps(image: &Image<'_>) -> Vec<(u64, u64)> {
    const JUMP: &[u8] = b"\xff\x25";
    const BOUND: u8 = 0xf2;
    let mut found = Vec::new();
    for (address, bytes) in image.executable() {
        for site in memchr::memmem::find_iter(bytes, JUMP) {
            let Some(distance) = bytes.get(site + 2..).and_then(|rest| rest.first_chunk()) else { continue };
            let end = address + site as u64 + 6;
            let word = end.wrapping_add_signed(i64::from(i32::from_le_bytes(*distance)));
            found.push((address + site as u64, word));
            if let Some(before) = site.checked_sub(1).filter(|before| bytes[*before] == BOUND) {
                found.push((address + before as u64, word));
            }
        }
    }
    found
}

/// `mov a, fs:0; mov b, [a + offset]; mov key, key; mov rax, [b + 8 * key]; ret`, in any order that works, with or
/// without a frame.
pub(super) fn values(code: &Code<'_>, start: u64) -> Option<i64> {
    let (mut address, mut pointer, mut values, mut value) = (code.behind_landing_pad(start), None, None, false);
    let mut key = Register::RDI;
    for _ in 0..12 {
        let instruction = instruction_at(code.image, address)?;
        address = instruction.next_ip();
        let to = instruction.op0_register();
        let loads =
            instruction.mnemonic() == Mnemonic::Mov && instruction.op1_kind() == OpKind::Memory && to.is_gpr64();
        let index = instruction.memory_index().full_register();
        match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Pop => {}
            _ if loads && musl::loads_thread_pointer(&instruction) && pointer.is_none() => pointer = Some(to),
            _ if loads && Some(instruction.memory_base()) == values.map(|(register, _)| register) && !value => {
                let whole = to == Register::RAX && instruction.memory_displacement64() == 0;
                if !whole || instruction.memory_index_scale() != 8 || index != key {
                    return None;
                }
                value = true;
            }
            _ if loads && Some(instruction.memory_base()) == pointer && index == Register::None && values.is_none() => {
                values = Some((to, instruction.memory_displacement64() as i64));
            }
            // The upper half of the key is cleared.
            Mnemonic::Mov if instruction.op1_register() == Register::EDI && to.is_gpr32() => key = to.full_register(),
            Mnemonic::Mov if to == Register::RBP && instruction.op1_register() == Register::RSP => {}
            Mnemonic::Ret if value => return values.map(|(_, offset)| offset),
            _ => return None,
        }
    }
    None
}

/// `lea a, [rip + distance]`, later `mov [b + offset], a`.
pub(super) fn stored(code: &Code<'_>, function: &Function, offset: i64) -> BTreeSet<u64> {
    let instructions: Vec<Instruction> = all(code.image, function).collect();
    let mut found = BTreeSet::new();
    for (index, store) in instructions.iter().enumerate() {
        let stores = store.mnemonic() == Mnemonic::Mov
            && store.op0_kind() == OpKind::Memory
            && store.op1_kind() == OpKind::Register
            && store.op1_register().is_gpr64()
            && store.memory_base().is_gpr64()
            && store.memory_index() == Register::None
            && store.memory_displacement64() as i64 == offset;
        let writes = |before: &&Instruction| {
            before.op0_kind() == OpKind::Register && before.op0_register().full_register() == store.op1_register()
        };
        let last = stores.then(|| instructions[..index].iter().rev().find(writes)).flatten();
        if let Some(load) = last.filter(|it| it.mnemonic() == Mnemonic::Lea && it.is_ip_rel_memory_operand()) {
            found.insert(load.ip_rel_memory_address());
        }
    }
    found
}
