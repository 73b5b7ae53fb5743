//! x86_64: instructions of any length, so bytes in between may read as other instructions.

mod branches;
mod definition;
mod entry;
mod features;
mod keys;
mod musl;
mod references;
mod stack;

use std::collections::BTreeSet;
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction as Decoded, Mnemonic, OpKind, Register};

use super::origin::{Definition, Location};
use super::{Branch, Code, Features, Flow, Function, Instruction, Machine, Reference};
use crate::image::Image;

/// `endbr64`, the landing pad of a function that may be called through a pointer.
const LANDING_PAD: &[u8] = b"\xf3\x0f\x1e\xfa";
const CALL: u8 = 0xe8;
const JUMP: u8 = 0xe9;
/// The size of such an opcode and a distance of 32 bits.
const JUMP_SIZE: u64 = 5;

#[derive(Debug)]
pub(crate) struct X86_64;

fn decode(address: u64, bytes: &[u8]) -> Option<Decoded> {
    let bytes = &bytes[..bytes.len().min(15)];
    let instruction = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// The instruction at an address.
fn instruction_at(image: &Image<'_>, address: u64) -> Option<Decoded> {
    decode(address, image.bytes_from(address))
}

/// A function's instructions, by address.
fn all<'c>(image: &'c Image<'_>, function: &'c Function) -> impl Iterator<Item = Decoded> + 'c {
    function.instructions.keys().filter_map(|address| instruction_at(image, *address))
}

fn flow(instruction: &Decoded) -> Flow {
    let target = (instruction.op0_kind() == OpKind::NearBranch64).then(|| instruction.near_branch_target());
    match instruction.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall => Flow::Call(target),
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => Flow::Jump(target),
        FlowControl::ConditionalBranch => target.map_or(Flow::Jump(None), Flow::Conditional),
        FlowControl::Return => Flow::Return,
        // musl's a_crash is a `hlt`, which the compiler assumes to return. `ud2` is what it knows not to return.
        _ if matches!(instruction.mnemonic(), Mnemonic::Ud2 | Mnemonic::Int3) => Flow::Trap,
        _ => Flow::Next,
    }
}

impl Machine for X86_64 {
    fn instruction(&self, address: u64, bytes: &[u8]) -> Option<Instruction> {
        let decoded = decode(address, bytes)?;
        Some(Instruction { address, next: decoded.next_ip(), flow: flow(&decoded) })
    }

    fn branches(&self, image: &Image<'_>) -> Vec<Branch> {
        let mut branches = Vec::new();
        for (address, bytes) in image.executable() {
            for at in memchr::memchr2_iter(CALL, JUMP, bytes) {
                let Some(distance) = bytes.get(at + 1..).and_then(|rest| rest.first_chunk()) else { continue };
                let site = address + at as u64;
                let target = (site + JUMP_SIZE).wrapping_add_signed(i64::from(i32::from_le_bytes(*distance)));
                if image.is_executable(target) {
                    branches.push(Branch { site, target, is_call: bytes[at] == CALL });
                }
            }
        }
        branches
    }

    fn references(&self, code: &Code<'_>, range: Range<u64>) -> Vec<Reference> {
        references::all(code, range)
    }

    fn refers(&self, code: &Code<'_>, function: &Function) -> BTreeSet<(u64, u64)> {
        references::of_function(code, function)
    }

    fn refers_to(&self, code: &Code<'_>, _: &Function, address: u64, target: u64) -> bool {
        instruction_at(code.image, address).is_some_and(|instruction| references::refers_to(code, &instruction, target))
    }

    fn confirmed(&self, code: &mut Code<'_>, reference: Reference, ends: &BTreeSet<u64>) -> Option<u64> {
        references::confirmed(code, reference, ends)
    }

    fn follows_an_end(&self, image: &Image<'_>, address: u64) -> bool {
        entry::follows_an_end(image, address)
    }

    fn reads_as_entry(&self, code: &Code<'_>, start: u64) -> bool {
        entry::reads_as_entry(code.image, start)
    }

    /// arch/x86_64/atomic_arch.h
    fn crashes(&self, image: &Image<'_>, address: u64) -> bool {
        instruction_at(image, address).is_some_and(|instruction| instruction.mnemonic() == Mnemonic::Hlt)
    }

    fn is_last_system_call(&self, image: &Image<'_>, address: u64) -> bool {
        // mov eax, n and mov rax, n (src/signal/x86_64/restore.s, src/thread/x86_64/__unmapself.s).
        let loads = [60_u8, 231, 15].into_iter().any(|number| {
            let ends = |load: &[u8]| {
                let size = load.len() as u64;
                address.checked_sub(size).and_then(|at| image.read(at, load.len())) == Some(load)
            };
            ends(&[0xb8, number, 0, 0, 0]) || ends(&[0x48, 0xc7, 0xc0, number, 0, 0, 0])
        });
        loads && image.read(address, 2) == Some(b"\x0f\x05")
    }

    fn keeps_stack(&self, code: &Code<'_>, function: &Function) -> bool {
        stack::is_kept(code.image, function)
    }

    /// LLVM does so to save space.
    fn leaves_by_condition(&self) -> bool {
        true
    }

    fn is_padding(&self, image: &Image<'_>, instruction: &Instruction) -> bool {
        let Some(decoded) = instruction_at(image, instruction.address) else { return false };
        matches!(decoded.mnemonic(), Mnemonic::Nop | Mnemonic::Int3 | Mnemonic::Hlt)
            || (decoded.mnemonic() == Mnemonic::Xchg
                && decoded.op0_register() == Register::AX
                && decoded.op1_register() == Register::AX)
    }

    fn behind_landing_pad(&self, image: &Image<'_>, start: u64) -> u64 {
        if image.read(start, 4) == Some(LANDING_PAD) { start + 4 } else { start }
    }

    /// gcc at -O1 writes a thunk as sub rsp, 8; call; add rsp, 8; ret, where others write a jump.
    fn thunk_target(&self, code: &Code<'_>, start: u64) -> Option<u64> {
        let call = code.behind_landing_pad(start).checked_add(4)?;
        let before = code.image.read(call - 4, 5)? == b"\x48\x83\xec\x08\xe8";
        let after = code.image.read(call.checked_add(5)?, 5)? == b"\x48\x83\xc4\x08\xc3";
        let called = instruction_at(code.image, call).filter(|_| before && after)?;
        Some(called.near_branch_target())
    }

    fn features(&self, code: &Code<'_>, function: &Function) -> Features {
        features::find(code.image, function)
    }

    fn marks(&self, code: &Code<'_>) -> BTreeSet<u64> {
        let mut places = BTreeSet::new();
        for threshold in [0x1_ffeb_u32, 0x1_ffec] {
            places.extend(code.places(&threshold.to_le_bytes()));
        }
        // mov byte [register - 3], 255
        places.extend((0x40..0x48).flat_map(|register| code.places(&[0xc6, register, 0xfd, 0xff])).map(|at| at + 2));
        places
    }

    fn near_argument(&self, code: &Code<'_>, site: u64, index: u32) -> Vec<u64> {
        musl::near_argument(code, site, index)
    }

    fn argument_register(&self, index: u32) -> Option<u32> {
        definition::ARGUMENTS.get(index as usize).copied()
    }

    fn argument_of(&self, register: u32) -> Option<u32> {
        definition::ARGUMENTS.iter().position(|own| *own == register).map(|index| index as u32)
    }

    fn define(&self, code: &Code<'_>, address: u64, location: Location) -> Definition {
        definition::define(code, address, location)
    }

    fn other_branches(&self, code: &Code<'_>, functions: &[(u64, Range<u64>)]) -> Vec<(u64, u64)> {
        branches::into(code, functions)
    }

    fn jump_size(&self) -> u64 {
        JUMP_SIZE
    }

    fn reach(&self) -> u64 {
        1 << 31
    }

    fn jump(&self, site: u64, target: u64, is_call: bool) -> Option<Vec<u8>> {
        let distance = i32::try_from(target.wrapping_sub(site + JUMP_SIZE).cast_signed()).ok()?;
        let opcode = if is_call { CALL } else { JUMP };
        Some(std::iter::once(opcode).chain(distance.to_le_bytes()).collect())
    }

    fn page(&self) -> u64 {
        0x1000
    }
}
