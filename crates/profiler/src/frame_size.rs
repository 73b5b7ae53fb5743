//! The size of a stack frame without unwind tables, from the instructions of the function: musl's objects have none.

/// How far the stack pointer is below the return address, and where the caller's frame pointer is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameSize {
    /// The distance in bytes from the stack pointer up to the return address.
    pub(crate) size: u64,
    /// The distance from the return address down to the saved frame pointer; `None` if the function does not save it.
    pub(crate) frame_pointer: Option<u64>,
}

/// The most instructions of a function that are followed.
#[cfg(target_arch = "x86_64")]
const MOST: usize = 4000;

/// Follows the instructions of a function from its start to `wanted`, which is an address in it. `code` begins at the
/// function's start, which is at `start`. `None` if `wanted` is not reached, or if the stack pointer changes by an
/// amount that is not a constant.
#[cfg(target_arch = "x86_64")]
pub(crate) fn frame_size(code: &[u8], start: u64, wanted: u64) -> Option<FrameSize> {
    use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

    let end = start + code.len() as u64;
    let mut seen: std::collections::HashSet<u64> = std::collections::HashSet::new();
    let mut open = vec![(start, FrameSize { size: 0, frame_pointer: None })];
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    while let Some((mut at, mut frame)) = open.pop() {
        while (start..end).contains(&at) {
            if at == wanted {
                return Some(frame);
            }
            if !seen.insert(at) || seen.len() > MOST {
                break;
            }
            decoder.set_position(usize::try_from(at - start).ok()?).ok()?;
            decoder.set_ip(at);
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                break;
            }
            let on_stack = instruction.op_count() > 0
                && instruction.op0_kind() == OpKind::Register
                && instruction.op0_register() == Register::RSP;
            match instruction.mnemonic() {
                Mnemonic::Push => {
                    frame.size = frame.size.wrapping_add(8);
                    let pointer =
                        instruction.op0_kind() == OpKind::Register && instruction.op0_register() == Register::RBP;
                    if pointer && frame.frame_pointer.is_none() {
                        frame.frame_pointer = Some(frame.size);
                    }
                }
                Mnemonic::Pop => frame.size = frame.size.checked_sub(8)?,
                Mnemonic::Sub if on_stack => frame.size = frame.size.wrapping_add(instruction.try_immediate(1).ok()?),
                Mnemonic::Add if on_stack => frame.size = frame.size.wrapping_sub(instruction.try_immediate(1).ok()?),
                Mnemonic::Lea if on_stack => {
                    let plain =
                        instruction.memory_base() == Register::RSP && instruction.memory_index() == Register::None;
                    if !plain {
                        return None;
                    }
                    frame.size = frame.size.wrapping_sub(instruction.memory_displacement64());
                }
                Mnemonic::And | Mnemonic::Mov | Mnemonic::Xchg if on_stack => return None,
                Mnemonic::Leave => break,
                _ => {}
            }
            match instruction.flow_control() {
                FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => {}
                FlowControl::ConditionalBranch => open.push((instruction.near_branch_target(), frame)),
                FlowControl::UnconditionalBranch => {
                    at = instruction.near_branch_target();
                    continue;
                }
                _ if instruction.mnemonic() == Mnemonic::Syscall => {}
                _ => break,
            }
            at = instruction.next_ip();
        }
    }
    None
}

#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn frame_size(_: &[u8], _: u64, _: u64) -> Option<FrameSize> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn pushes_and_subtractions_count() {
        // test edi, edi; je +9 (to the ret); push rbp; push rbx; sub rsp, 24; nop; add rsp, 24; ret
        let code = [0x85, 0xff, 0x74, 0x0b, 0x55, 0x53, 0x48, 0x83, 0xec, 0x18, 0x90, 0x48, 0x83, 0xc4, 0x18, 0xc3];
        let size = |at: u64| frame_size(&code, 0x1000, 0x1000 + at);
        assert_eq!(size(4), Some(FrameSize { size: 0, frame_pointer: None }));
        assert_eq!(size(10), Some(FrameSize { size: 40, frame_pointer: Some(8) }));
        assert_eq!(size(5).unwrap().size, 8);
        // In the middle of an instruction.
        assert_eq!(size(8), None);
    }

    #[test]
    fn what_moves_the_stack_by_no_number_is_unknown() {
        // and rsp, -16; nop
        assert_eq!(frame_size(&[0x48, 0x83, 0xe4, 0xf0, 0x90], 0, 4), None);
    }
}
