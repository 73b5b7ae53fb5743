//! x86 instructions, of 32 and of 64 bits.

use iced_x86::{Code as Opcode, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use memchr::{memchr_iter, memchr2_iter};

use super::{Decoded, Exit, Store};

/// Decodes the instruction at the start of `bytes`; `None` if the bytes are not an instruction.
pub(super) fn decoded(bits: u32, address: u64, bytes: &[u8]) -> Option<Instruction> {
    let mut decoder = Decoder::with_ip(bits, bytes.get(..15).unwrap_or(bytes), address, DecoderOptions::NONE);
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then_some(instruction)
}

pub(super) fn step(bits: u32, address: u64, bytes: &[u8]) -> Option<Decoded> {
    let instruction = decoded(bits, address, bytes)?;
    let falls_through = matches!(
        instruction.flow_control(),
        FlowControl::Next | FlowControl::ConditionalBranch | FlowControl::Call | FlowControl::IndirectCall
    );
    let branches =
        matches!(instruction.flow_control(), FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch);
    let near = matches!(instruction.op0_kind(), OpKind::NearBranch32 | OpKind::NearBranch64);
    let target = (branches && near).then(|| instruction.near_branch_target());
    Some(Decoded { length: instruction.len() as u64, falls_through, target, store: store(&instruction) })
}

fn store(instruction: &Instruction) -> Option<Store> {
    let plain = instruction.op0_kind() == OpKind::Memory
        && instruction.memory_index() == Register::None
        && (instruction.memory_base().is_gpr64() || instruction.memory_base().is_gpr32());
    if !plain {
        return None;
    }
    let base = instruction.memory_base() as u32;
    match (instruction.code(), instruction.memory_displacement32() as i32) {
        (Opcode::Mov_rm8_imm8, -3) if instruction.immediate8() == 0xff => Some(Store::Mark { base }),
        (Opcode::Mov_rm16_imm16, -2) if instruction.immediate16() == 0 => Some(Store::Offset { base }),
        (Opcode::Mov_rm16_r16, -2) => Some(Store::Offset { base }),
        _ => None,
    }
}

/// Returns the addresses of stores of 0xff to a byte at -3: `c6 /0`, a register and a displacement of 8 bits, the
/// constant.
pub(super) fn marks(parts: &[(u64, &[u8])], most: usize) -> Vec<u64> {
    let mut found = Vec::new();
    for (start, data) in parts {
        let places = memchr_iter(0xfd, data).filter(|&at| {
            let before = at.checked_sub(2).and_then(|from| data.get(from..at));
            let register = |byte: u8| byte & 0xf8 == 0x40 && byte & 7 != 4;
            data.get(at + 1) == Some(&0xff) && matches!(before, Some(&[0xc6, modrm]) if register(modrm))
        });
        found.extend(places.map(|at| start.wrapping_add(at as u64 - 2)).take(most - found.len()));
    }
    found
}

/// Returns the target of the 32-bit displacement at `at`. It is the last field of its instruction and counts from the
/// instruction's end.
fn target(start: u64, data: &[u8], at: usize) -> Option<u64> {
    let raw = data.get(at..at.checked_add(4)?)?;
    let displacement = i32::from_le_bytes(raw.try_into().ok()?);
    Some(start.wrapping_add(at as u64 + 4).wrapping_add_signed(displacement.into()))
}

/// Returns the functions that consist of one jump, each with its target: `e9` and a displacement, after `endbr64` if
/// there is one.
pub(super) fn jumps(parts: &[(u64, &[u8])], mut wanted: impl FnMut(u64) -> bool, most: usize) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    for (start, data) in parts {
        for at in memchr_iter(0xe9, data) {
            let Some(target) = target(*start, data, at + 1).filter(|&target| wanted(target)) else { continue };
            if found.len() >= most {
                return found;
            }
            found.push((start.wrapping_add(at as u64), target));
            if data[..at].ends_with(b"\xf3\x0f\x1e\xfa") {
                found.push((start.wrapping_add(at as u64 - 4), target));
            }
        }
    }
    found
}

pub(super) fn is_called(parts: &[(u64, &[u8])], address: u64) -> bool {
    // Of the bytes that are looked at together, few have any field with the right distance.
    const BLOCK: usize = 1024;
    parts.iter().any(|(start, data)| {
        (1..data.len()).step_by(BLOCK).any(|from| {
            let bytes = &data[from..data.len().min(from + BLOCK + 3)];
            let wanted = address.wrapping_sub(*start).wrapping_sub(from as u64 + 4) as u32;
            has_distance(bytes, wanted)
                && (from..data.len().min(from + BLOCK))
                    .any(|at| data[at - 1] == 0xe8 && target(*start, data, at) == Some(address))
        })
    })
}

/// Whether four of these bytes are the distance `wanted` less their place. Compilers make this loop one over many
/// places at a time.
fn has_distance(bytes: &[u8], wanted: u32) -> bool {
    let mut found = false;
    for phase in 0..4 {
        let fields = bytes.get(phase..).unwrap_or_default().chunks_exact(4);
        for (number, field) in (0_u32..).zip(fields) {
            let value = u32::from_le_bytes([field[0], field[1], field[2], field[3]]);
            found |= value.wrapping_add(phase as u32 + 4 * number) == wanted;
        }
    }
    found
}

/// Returns the calls and jumps that leave the function.
pub(super) fn exits(bits: u32, start: u64, data: &[u8]) -> Vec<Exit> {
    let inside = start..start.saturating_add(data.len() as u64);
    let (mut exits, mut before) = (Vec::new(), Instruction::default());
    for instruction in &mut Decoder::with_ip(bits, data, start, DecoderOptions::NONE) {
        exits.extend(match instruction.flow_control() {
            FlowControl::IndirectBranch if is_by_table(&before, &instruction) => None,
            FlowControl::IndirectBranch | FlowControl::IndirectCall if instruction.is_ip_rel_memory_operand() => {
                Some(Exit::Slot(instruction.ip_rel_memory_address()))
            }
            FlowControl::IndirectBranch | FlowControl::IndirectCall => Some(Exit::Unknown),
            FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                let target = instruction.near_branch_target();
                (!inside.contains(&target)).then_some(Exit::To(target))
            }
            _ if instruction.is_invalid() => Some(Exit::Unknown),
            _ => None,
        });
        before = instruction;
    }
    exits
}

/// Whether a jump goes to an entry of a table of the function's own places: the address of the table was added to the
/// entry just before.
fn is_by_table(before: &Instruction, jump: &Instruction) -> bool {
    before.mnemonic() == Mnemonic::Add
        && before.op1_kind() == OpKind::Register
        && jump.op0_kind() == OpKind::Register
        && before.op0_register() == jump.op0_register()
}

pub(super) fn callees(start: u64, data: &[u8]) -> Vec<u64> {
    memchr2_iter(0xe8, 0xe9, data).filter_map(|at| target(start, data, at + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_free_does_to_a_slot_is_seen() {
        // mov byte [r15-3], 0xff; mov word [r15-2], 0; mov word [rdi-2], ax
        let code = b"\x41\xc6\x47\xfd\xff\x66\x41\xc7\x47\xfe\x00\x00\x66\x89\x47\xfe";
        let r15 = Register::R15 as u32;
        assert_eq!(step(64, 0, code).unwrap().store, Some(Store::Mark { base: r15 }));
        assert_eq!(step(64, 5, &code[5..]).unwrap().store, Some(Store::Offset { base: r15 }));
        assert_eq!(step(64, 12, &code[12..]).unwrap().store, Some(Store::Offset { base: Register::RDI as u32 }));
        assert_eq!(marks(&[(0x1000, code)], 9), [0x1001]);
        let edi = Register::EDI as u32;
        assert_eq!(step(32, 12, &code[12..]).unwrap().store, Some(Store::Offset { base: edi }));
        assert_eq!(step(32, 0, b"\xc6\x47\xfd\xff").unwrap().store, Some(Store::Mark { base: edi }));
        assert!(marks(&[(0x1000, code)], 0).is_empty());
    }

    #[test]
    fn calls_and_jumps_leave_a_function() {
        let of = |code: &[u8]| exits(64, 0x10, code);
        // call [rip+0]; jmp [rip+0]; then call rax; no instruction
        assert_eq!(of(b"\xff\x15\x00\x00\x00\x00"), [Exit::Slot(0x16)]);
        assert_eq!(of(b"\xff\x25\x00\x00\x00\x00"), [Exit::Slot(0x16)]);
        assert_eq!(of(b"\x90\xff\xd0"), [Exit::Unknown]);
        assert_eq!(of(b"\x06"), [Exit::Unknown]);
        // add rax, rdx; jmp rax: a table. jmp rax
        assert_eq!(of(b"\x48\x01\xd0\xff\xe0"), []);
        assert_eq!(of(b"\xff\xe0"), [Exit::Unknown]);
        // call +0x100; jmp +0; ret
        assert_eq!(of(b"\xe8\x00\x01\x00\x00\xeb\x00\xc3"), [Exit::To(0x115)]);
    }

    #[test]
    fn jumps_lead_where_they_say() {
        // endbr64; jmp +0; jne -2; call +0; ret
        let code = b"\xf3\x0f\x1e\xfa\xe9\x00\x00\x00\x00\x75\xfe\xe8\x00\x00\x00\x00\xc3";
        assert_eq!(jumps(&[(0x10, code)], |target| target == 0x19, 9), [(0x14, 0x19), (0x10, 0x19)]);
        let jump = step(64, 0x14, &code[4..]).unwrap();
        assert_eq!((jump.falls_through, jump.target), (false, Some(0x19)));
        let branch = step(64, 0x19, &code[9..]).unwrap();
        assert_eq!((branch.falls_through, branch.target), (true, Some(0x19)));
        assert!(is_called(&[(0x10, code)], 0x20) && !is_called(&[(0x10, code)], 0x21));
        for at in [0, 1, 1018, 1019, 1020, 1021, 1022, 1023, 1024, 2047, 3000] {
            let mut code = vec![0xe8; at];
            code.extend(b"\xe8\xf0\xff\xff\xff");
            let called = 0x10_0000 + at as u64 + 5 - 16;
            assert!(is_called(&[(0x10_0000, &code)], called) && !is_called(&[(0x10_0000, &code)], called + 1), "{at}");
        }
        let call = step(64, 0x1b, &code[11..]).unwrap();
        assert_eq!((call.falls_through, call.target), (true, None));
        assert!(!step(64, 0x20, &code[16..]).unwrap().falls_through);
    }
}
