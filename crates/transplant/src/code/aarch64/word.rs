//! A64 instructions, one word each, as far as the graft needs them: branches, computations with constants, loads and
//! stores, and the registers that are read and written (Arm Architecture Reference Manual, C4.1).
//!
//! A disassembler shows how an instruction is written, but not which registers it reads and writes. So the encodings
//! are decoded here, group by group.

use super::fields::{Word, bit_mask};

use super::super::Flow;

/// Number 31 in an instruction: the zero register, or the stack pointer.
pub(super) const ZERO: u32 = 31;
/// The frame pointer.
pub(super) const FRAME: u32 = 29;
/// The register with the return address.
pub(super) const LINK: u32 = 30;

/// The operation of an instruction, with its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operation {
    // ADR, ADRP: an address.
    Address { to: u32, value: u64 },
    // MOVZ, MOVN, and ORR of an immediate with the zero register.
    Constant { to: u32, value: u64 },
    // MOVK: 16 bits of a register, the others kept.
    Keep { to: u32, value: u64, mask: u64 },
    // ORR with the zero register.
    Move { to: u32, from: u32 },
    // ADD, SUB with an immediate. `to` is `None` if only flags are set.
    Add { to: Option<u32>, from: u32, value: i64, flags: bool, wide: bool },
    // ADD, SUB of registers, shifted or extended.
    Sum { to: Option<u32>, one: u32, other: u32, subtract: bool, plain: bool },
    // AND, ORR, EOR with an immediate.
    Logic { to: Option<u32>, from: u32, value: u64, and: bool },
    // UBFM, SBFM, BFM: shifts and fields.
    Field { to: u32, from: u32, rotate: u32, last: u32, wide: bool, insert: bool },
    // MUL, MADD, UMULH, UDIV and similar.
    Multiply { to: u32 },
    // MRS of TPIDR_EL0.
    ThreadPointer { to: u32 },
    // SVC.
    SystemCall,
    // A load or a store.
    Memory(Access),
    Other,
}

/// A load or a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Access {
    /// The address of LDR (literal), which has no base register.
    pub(super) literal: Option<u64>,
    pub(super) base: u32,
    /// The number that is added to the base; 0 if a register is added.
    pub(super) offset: i64,
    /// The register that is added.
    pub(super) index: Option<u32>,
    /// The change of the base.
    pub(super) step: Option<i64>,
    /// The size of one element in bytes; a pair has two elements.
    pub(super) size: u32,
    pub(super) loads: bool,
    pub(super) stores: bool,
    /// The register that is loaded or stored first; `None` for a vector register.
    pub(super) register: Option<u32>,
    pub(super) second: Option<u32>,
    /// The register with the result of an exclusive store, or with the operand of an atomic operation.
    pub(super) status: Option<u32>,
}

/// The control flow after an instruction.
pub(super) fn flow(word: Word) -> Flow {
    match () {
        // B, BL
        () if word.is(0xfc00_0000, 0x1400_0000) => Flow::Jump(Some(word.target(0, 26))),
        () if word.is(0xfc00_0000, 0x9400_0000) => Flow::Call(Some(word.target(0, 26))),
        // B.cond, CBZ and CBNZ, TBZ and TBNZ
        () if word.is(0xff00_0000, 0x5400_0000) || word.is(0x7e00_0000, 0x3400_0000) => {
            Flow::Conditional(word.target(5, 19))
        }
        () if word.is(0x7e00_0000, 0x3600_0000) => Flow::Conditional(word.target(5, 14)),
        // BR, BLR, RET, ERET and those with authentication
        () if word.is(0xfe00_0000, 0xd600_0000) => match word.field(21, 4) & 7 {
            0 => Flow::Jump(None),
            1 => Flow::Call(None),
            _ => Flow::Return,
        },
        // BRK, HLT, UDF
        () if word.is(0xffe0_001f, 0xd420_0000) || word.is(0xffe0_001f, 0xd440_0000) || word.bits >> 16 == 0 => {
            Flow::Trap
        }
        // SVC
        () if word.is(0xffe0_001f, 0xd400_0001) => Flow::Call(None),
        () => Flow::Next,
    }
}

/// Whether it is NOP or UDF 0, which fill gaps.
pub(super) fn is_padding(word: Word) -> bool {
    word.bits == 0xd503_201f || word.bits == 0
}

/// Whether it is BTI c, BTI j, BTI jc, PACIASP or PACIBSP: a guarded page may be entered there through a register.
pub(super) fn is_landing_pad(word: Word) -> bool {
    matches!(word.bits, 0xd503_245f | 0xd503_249f | 0xd503_24df)
}

pub(super) fn operation(word: Word) -> Operation {
    let (to, from) = (word.field(0, 5), word.field(5, 5));
    let wide = word.bit(31);
    let mask = if wide { u64::MAX } else { 0xffff_ffff };
    let named = |register: u32| (register != ZERO).then_some(register);
    match () {
        () if word.is(0x1f00_0000, 0x1000_0000) => {
            let distance = word.signed(5, 19) << 2 | i64::from(word.field(29, 2));
            let value = match wide {
                true => (word.address & !0xfff).wrapping_add_signed(distance << 12),
                false => word.address.wrapping_add_signed(distance),
            };
            Operation::Address { to, value }
        }
        () if word.is(0x1f80_0000, 0x1100_0000) => {
            let value = i64::from(word.field(10, 12)) << if word.bit(22) { 12 } else { 0 };
            let value = if word.bit(30) { -value } else { value };
            let flags = word.bit(29);
            let to = if flags { named(to) } else { Some(to) };
            Operation::Add { to, from, value, flags, wide }
        }
        () if word.is(0x1f80_0000, 0x1280_0000) => {
            let shift = word.field(21, 2) * 16;
            let value = u64::from(word.field(5, 16)) << shift;
            match word.field(29, 2) {
                0 => Operation::Constant { to, value: !value & mask },
                2 => Operation::Constant { to, value },
                3 => Operation::Keep { to, value, mask: !(0xffff << shift) & mask },
                _ => Operation::Other,
            }
        }
        () if word.is(0x1f80_0000, 0x1200_0000) => {
            let Some(value) = bit_mask(word.bit(22), word.field(10, 6), word.field(16, 6)) else {
                return Operation::Other;
            };
            let value = value & mask;
            match word.field(29, 2) {
                0 => Operation::Logic { to: Some(to), from, value, and: true },
                1 if from == ZERO => Operation::Constant { to, value },
                3 => Operation::Logic { to: named(to), from, value, and: true },
                _ => Operation::Logic { to: Some(to), from, value, and: false },
            }
        }
        () if word.is(0x1f80_0000, 0x1300_0000) => {
            let (rotate, last) = (word.field(16, 6), word.field(10, 6));
            Operation::Field { to, from, rotate, last, wide, insert: word.field(29, 2) == 1 }
        }
        // ORR (shifted register) by nothing, with the zero register: MOV.
        () if word.is(0x7fe0_ffe0, 0x2a00_03e0) => Operation::Move { to, from: word.field(16, 5) },
        () if word.is(0x1f00_0000, 0x0b00_0000) => {
            let to = if word.bit(29) { named(to) } else { Some(to) };
            let plain = wide && word.field(10, 6) == 0 && !word.bit(21);
            Operation::Sum { to, one: from, other: word.field(16, 5), subtract: word.bit(30), plain }
        }
        // Data processing with three sources; UDIV and SDIV.
        () if word.is(0x1f00_0000, 0x1b00_0000) || word.is(0x7fe0_f800, 0x1ac0_0800) => Operation::Multiply { to },
        () if word.is(0xffff_ffe0, 0xd53b_d040) => Operation::ThreadPointer { to },
        () if word.is(0xffe0_001f, 0xd400_0001) => Operation::SystemCall,
        () if word.is(0x0a00_0000, 0x0800_0000) => access(word).map_or(Operation::Other, Operation::Memory),
        () => Operation::Other,
    }
}

/// Loads and stores (C4.1.94).
fn access(word: Word) -> Option<Access> {
    let vector = word.bit(26);
    let (register, base) = (word.field(0, 5), word.field(5, 5));
    let plain = (!vector).then_some(register);
    let size = 1 << word.field(30, 2);
    let none = Access {
        literal: None,
        base,
        offset: 0,
        index: None,
        step: None,
        size,
        loads: false,
        stores: false,
        register: plain,
        second: None,
        status: None,
    };
    match () {
        // LDR (literal), PRFM
        () if word.is(0x3b00_0000, 0x1800_0000) => {
            let size = if word.field(30, 2) == 1 || vector { 8 } else { 4 };
            Some(Access { literal: Some(word.target(5, 19)), base: ZERO, loads: true, size, ..none })
        }
        // Pairs
        () if word.is(0x3a00_0000, 0x2800_0000) => {
            let size = match (vector, word.field(30, 2)) {
                (true, width) => 4 << width,
                (false, 2) => 8,
                (false, _) => 4,
            };
            let distance = word.signed(15, 7) * i64::from(size);
            let (offset, step) = match word.field(23, 2) {
                1 => (0, Some(distance)),
                3 => (distance, Some(distance)),
                _ => (distance, None),
            };
            let second = (!vector).then_some(word.field(10, 5));
            Some(Access { offset, step, size, second, loads: word.bit(22), stores: !word.bit(22), ..none })
        }
        // Exclusive, ordered, compare and swap
        () if word.is(0x3f00_0000, 0x0800_0000) => {
            let (other, third) = (word.field(16, 5), word.field(10, 5));
            let (ordered, loads, pair) = (word.bit(23), word.bit(22), word.bit(21));
            Some(match (ordered, pair) {
                // CAS: the compared value is in `other`, and the old value is returned in it.
                (true, true) => Access { loads: true, stores: true, status: Some(other), ..none },
                (true, false) => Access { loads, stores: !loads, ..none },
                // CASP, of 32 or 64 bits.
                (false, true) if !word.bit(31) => {
                    Access { loads: true, stores: true, status: Some(other), second: Some(other + 1), ..none }
                }
                (false, true) => {
                    let status = (!loads).then_some(other);
                    Access { loads, stores: !loads, second: Some(third), status, ..none }
                }
                (false, false) => {
                    let status = (!loads).then_some(other);
                    Access { loads, stores: !loads, status, ..none }
                }
            })
        }
        // Vectors by element and as structures
        () if vector && word.is(0x3e00_0000, 0x0c00_0000) => {
            let step = word.bit(23).then_some(0);
            Some(Access { register: None, loads: word.bit(22), stores: !word.bit(22), step, ..none })
        }
        () if word.is(0x3a00_0000, 0x3800_0000) => {
            let size = if vector && word.bit(23) { 16 } else { size };
            let prefetch = !vector && word.field(22, 2) == 2 && word.field(30, 2) == 3;
            let loads = word.field(22, 2) != 0 && !(vector && word.field(22, 2) == 2);
            let one = Access { size, loads, stores: !loads, ..none };
            let one = if prefetch { Access { register: None, ..one } } else { one };
            if word.bit(24) {
                return Some(Access { offset: i64::from(word.field(10, 12)) * i64::from(size), ..one });
            }
            let near = word.signed(12, 9);
            Some(match (word.bit(21), word.field(10, 2)) {
                (false, 0 | 2) => Access { offset: near, ..one },
                (false, 1) => Access { step: Some(near), ..one },
                (false, _) => Access { offset: near, step: Some(near), ..one },
                (true, 2) => Access { index: Some(word.field(16, 5)), ..one },
                // LDADD, SWP and similar: the old value is loaded.
                (true, 0) => Access { loads: true, stores: true, status: Some(word.field(16, 5)), ..none },
                (true, _) => Access { loads: true, step: Some(0), ..none },
            })
        }
        () => None,
    }
}

/// The general registers that it writes, as bits.
pub(super) fn writes(word: Word) -> u32 {
    let one = |register: u32| if register == ZERO { 0 } else { 1 << register };
    let maybe = |register: Option<u32>| register.map_or(0, one);
    match operation(word) {
        Operation::Address { to, .. }
        | Operation::Constant { to, .. }
        | Operation::Keep { to, .. }
        | Operation::Move { to, .. }
        | Operation::Field { to, .. }
        | Operation::Multiply { to }
        | Operation::ThreadPointer { to } => one(to),
        Operation::Add { to, .. } | Operation::Sum { to, .. } | Operation::Logic { to, .. } => maybe(to),
        Operation::SystemCall => 1,
        Operation::Memory(access) => {
            let loaded = if access.loads { maybe(access.register) | maybe(access.second) } else { 0 };
            loaded | maybe(access.status) | access.step.map_or(0, |_| one(access.base))
        }
        Operation::Other => match flow(word) {
            Flow::Call(_) => one(LINK),
            Flow::Next if writes_general(word) => one(word.field(0, 5)),
            _ => 0,
        },
    }
}

/// Whether one of the other instructions has a general register as its result, in the lowest five bits.
fn writes_general(word: Word) -> bool {
    // Data processing with registers, except conditional comparison, which only sets flags.
    let registers = word.is(0x0e00_0000, 0x0a00_0000) && !word.is(0x1fe0_0000, 0x1a40_0000);
    // From a vector register: conversions to integers and FMOV, UMOV and SMOV.
    let converts = word.is(0x5f20_fc00, 0x1e20_0000) && matches!(word.field(16, 3), 0 | 1 | 4 | 5 | 6);
    let element = word.is(0xbfe0_fc00, 0x0e00_3c00) || word.is(0xbfe0_fc00, 0x0e00_2c00);
    registers || converts || element || word.is(0xfff0_0000, 0xd530_0000)
}

/// Whether it is CSEL or similar: the result is one register or the other.
pub(super) fn selects(word: Word) -> bool {
    word.is(0x1fe0_0000, 0x1a80_0000)
}

/// The general registers that it reads, without the stack pointer. For rare instructions the set may be too large.
pub(super) fn reads(word: Word) -> u32 {
    let one = |register: u32| if register == ZERO { 0 } else { 1 << register };
    let maybe = |register: Option<u32>| register.map_or(0, one);
    match operation(word) {
        Operation::Address { .. }
        | Operation::Constant { .. }
        | Operation::ThreadPointer { .. }
        | Operation::SystemCall => 0,
        Operation::Keep { to, .. } => one(to),
        Operation::Move { from, .. } | Operation::Add { from, .. } | Operation::Logic { from, .. } => one(from),
        Operation::Field { to, from, insert, .. } => one(from) | if insert { one(to) } else { 0 },
        Operation::Sum { one: first, other, .. } => one(first) | one(other),
        Operation::Multiply { .. } => one(word.field(5, 5)) | one(word.field(16, 5)) | one(word.field(10, 5)),
        Operation::Memory(access) => {
            let stored = if access.stores { maybe(access.register) | maybe(access.second) } else { 0 };
            stored | one(access.base) | maybe(access.index)
        }
        Operation::Other => match flow(word) {
            Flow::Conditional(_) if !word.is(0xff00_0000, 0x5400_0000) => one(word.field(0, 5)),
            Flow::Jump(None) | Flow::Call(None) => one(word.field(5, 5)),
            Flow::Next if word.is(0x0e00_0000, 0x0a00_0000) => {
                let two = !word.is(0x5fe0_0000, 0x5ac0_0000);
                one(word.field(5, 5)) | if two { one(word.field(16, 5)) } else { 0 }
            }
            _ => 0,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(bits: u32) -> Word {
        Word { address: 0x1000, bits }
    }

    #[test]
    fn constants_are_what_they_say() {
        let operation = |bits| operation(word(bits));
        // As llvm-mc assembles them.
        assert_eq!(operation(0xb000_0008), Operation::Address { to: 8, value: 0x2000 }, "adrp x8, 0x2000");
        assert_eq!(operation(0x10ff_ffe0), Operation::Address { to: 0, value: 0xffc }, "adr x0, #-4");
        assert_eq!(operation(0x529f_fd88), Operation::Constant { to: 8, value: 65516 }, "mov w8, #65516");
        assert_eq!(operation(0x9282_0008), Operation::Constant { to: 8, value: !4096 }, "mov x8, #-4097");
        assert_eq!(operation(0x1280_0009), Operation::Constant { to: 9, value: 0xffff_ffff }, "mov w9, #-1");
        assert_eq!(operation(0xb240_8be8), Operation::Constant { to: 8, value: 0x7_ffff_ffff }, "mov x8, #0x7ffffffff");
        let keep = Operation::Keep { to: 8, value: 0x1_0000, mask: 0xffff };
        assert_eq!(operation(0x72a0_0028), keep, "movk w8, #1, lsl #16");
        let tests = Operation::Logic { to: None, from: 0, value: 15, and: true };
        assert_eq!(operation(0xf240_0c1f), tests, "tst x0, #0xf");
        let page = Operation::Logic { to: Some(8), from: 8, value: !0xfff, and: true };
        assert_eq!(operation(0x9274_cd08), page, "and x8, x8, #0xfffffffffffff000");
        assert_eq!(operation(0xaa1f_03e0), Operation::Move { to: 0, from: ZERO }, "mov x0, xzr");
        let compares = Operation::Add { to: None, from: 9, value: -160, flags: true, wide: false };
        assert_eq!(operation(0x7102_813f), compares, "cmp w9, #160");
        assert_eq!(operation(0xd53b_d048), Operation::ThreadPointer { to: 8 });
    }

    #[test]
    fn accesses_are_what_they_say() {
        let access = |bits| match operation(word(bits)) {
            Operation::Memory(access) => access,
            other => panic!("{bits:#x} is {other:?}"),
        };
        let near = access(0x385f_d289);
        assert_eq!((near.base, near.offset, near.size, near.loads, near.register), (20, -3, 1, true, Some(9)), "ldurb");
        let mark = access(0x381f_d28b);
        assert_eq!((mark.base, mark.offset, mark.size, mark.stores), (20, -3, 1, true), "sturb w11, [x20, #-3]");
        let far = access(0xf942_f1ce);
        assert_eq!((far.base, far.offset, far.size), (14, 1504, 8), "ldr x14, [x14, #1504]");
        let pair = access(0xa9bd_5ffe);
        assert_eq!(
            (pair.base, pair.offset, pair.step, pair.second),
            (31, -48, Some(-48), Some(23)),
            "stp x30, x23, [sp, #-48]!"
        );
        let vectors = access(0xad00_0120);
        assert_eq!(
            (vectors.base, vectors.size, vectors.register, vectors.stores),
            (9, 16, None, true),
            "stp q0, q0, [x9]"
        );
        let exclusive = access(0x880e_fdac);
        assert_eq!((exclusive.status, exclusive.stores, exclusive.base), (Some(14), true, 13), "stlxr w14, w12, [x13]");
        let index = access(0x786a_796a);
        assert_eq!(
            (index.base, index.index, index.size, index.loads),
            (11, Some(10), 2, true),
            "ldrh w10, [x11, x10, lsl #1]"
        );
    }

    #[test]
    fn registers_written_and_read() {
        let set = |registers: &[u32]| registers.iter().fold(0, |all, register| all | 1 << register);
        assert_eq!(reads(word(0xa9bd_5ffe)), set(&[30, 23]), "stp x30, x23, [sp, #-48]!");
        assert_eq!(writes(word(0xa9bd_5ffe)), 0);
        assert_eq!(writes(word(0xf840_8441)), set(&[1, 2]), "ldr x1, [x2], #8");
        assert_eq!(reads(word(0x9b08_2e6b)), set(&[19, 8, 11]), "madd x11, x19, x8, x11");
        assert_eq!(writes(word(0x1e26_0000)), set(&[0]), "fmov w0, s0");
        assert_eq!(writes(word(0x1e27_0000)), 0, "fmov s0, w0");
        assert_eq!(writes(word(0x9400_0000)), set(&[30]), "bl");
        assert_eq!(writes(word(0x9a9f_17e0)), set(&[0]), "cset x0, eq");
        assert!(selects(word(0x9a83_0083)), "csel x3, x4, x3, eq");
        assert!(!selects(word(0x9b08_2e6b)) && !selects(word(0x8b15_0000)), "madd; add x0, x0, x21");
    }

    #[test]
    fn branches_lead_where_they_say() {
        assert_eq!(flow(word(0x17ff_ffff)), Flow::Jump(Some(0xffc)));
        assert_eq!(flow(word(0x9400_0002)), Flow::Call(Some(0x1008)));
        assert_eq!(flow(word(0xb4ff_ffe0)), Flow::Conditional(0xffc), "cbz");
        assert_eq!(flow(word(0x3607_ffe0)), Flow::Conditional(0xffc), "tbz");
        assert_eq!(flow(word(0xd65f_03c0)), Flow::Return);
        assert_eq!(flow(word(0xd61f_0200)), Flow::Jump(None));
        assert_eq!(flow(word(0xd63f_0200)), Flow::Call(None));
        assert_eq!(flow(word(0xd400_0001)), Flow::Call(None), "svc #0");
        assert_eq!(flow(word(0xd420_0000)), Flow::Trap);
    }
}
