//! Runs instructions of every known kind with random operands, by the interpreter and by a processor (or QEMU).

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use fixtures::Arch;

use super::decode::{Operation, take_apart};
use super::flags::Flags;
use super::processor::{Processor, Value, WHOLE};
use crate::Program;
use crate::interpreter::body::Flow;
use crate::interpreter::memory::Memory;
use crate::interpreter::processor::Processor as _;

/// A program without code: instructions are given to the interpreter one by one.
#[derive(Debug)]
struct Nothing;

impl Program for Nothing {
    fn arch(&self) -> Arch {
        Arch::Aarch64
    }

    fn code(&self, _: u64) -> &[u8] {
        &[]
    }

    fn constant(&self, _: u64, _: usize) -> Option<&[u8]> {
        None
    }
}

/// Registers x0 to x7 are free; x8 has the flags, x9 points into the middle of a block, x10 is a small index.
const FREE: usize = 8;
const BLOCK: usize = 512;
/// The size of the record of one instruction: x0 to x7, flags, x9 without the block's address, the block.
const RECORD: usize = 8 * (FREE + 2) + BLOCK;

struct Random(u64);

impl Random {
    /// xorshift64
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u32) -> u32 {
        (self.next() >> 32) as u32 % limit
    }

    /// A number like those that functions compute with: small, all ones, few bits, a part of a word.
    fn operand(&mut self) -> u64 {
        let value = self.next();
        match self.below(6) {
            0 => value % 80,
            1 => (value % 80).wrapping_neg(),
            2 => 1 << (value % 64),
            3 => value & 0xffff_ffff,
            4 => 0x8000_0000_7fff_ffff ^ (value % 3),
            _ => value,
        }
    }
}

/// The fixed bits of each group of instructions, and the bits that may have any value. Registers are filled in
/// afterwards.
const GROUPS: [(u32, u32); 19] = [
    (0x1100_0000, 0xe07f_fc00), // ADD, SUB (immediate)
    (0x1200_0000, 0xe07f_fc00), // AND, ORR, EOR (immediate)
    (0x1280_0000, 0xe07f_ffe0), // MOVN, MOVZ, MOVK
    (0x1300_0000, 0xe07f_fc00), // SBFM, BFM, UBFM
    (0x1380_0000, 0x8040_fc00), // EXTR
    (0x0a00_0000, 0xe0e0_fc00), // AND, BIC, ORR, ORN, EOR, EON (shifted register)
    (0x0b00_0000, 0xe0c0_fc00), // ADD, SUB (shifted register)
    (0x0b20_0000, 0xe000_fc00), // ADD, SUB (extended register)
    (0x3a40_0000, 0xc01f_f80f), // CCMN, CCMP
    (0x1a80_0000, 0xc000_f400), // CSEL, CSINC, CSINV, CSNEG
    (0x1ac0_2000, 0x8000_0c00), // LSLV, LSRV, ASRV, RORV
    (0x5ac0_0000, 0x8000_1c00), // RBIT, REV16, REV32, REV, CLZ, CLS
    (0x1b00_0000, 0x80e0_fc00), // MADD, MSUB and their kin
    (0x3900_0000, 0xc0c0_3c00), // loads and stores, unsigned offset
    (0x3800_0000, 0xc0c0_0c00), // unscaled, post-indexed, pre-indexed
    (0x3820_0800, 0xc0c0_f000), // register offset
    (0x2880_0000, 0xc040_0000), // pairs, post-indexed
    (0x2900_0000, 0xc040_0000), // pairs, offset
    (0x2980_0000, 0xc040_0000), // pairs, pre-indexed
];

/// A random instruction that the interpreter knows.
fn instruction(random: &mut Random) -> (u32, Operation) {
    loop {
        let (fixed, free) = GROUPS[random.below(GROUPS.len() as u32) as usize];
        let mut bits = fixed | random.next() as u32 & free;
        let register = |random: &mut Random| if random.below(8) == 0 { 31 } else { random.below(FREE as u32) };
        let is_memory = bits >> 27 & 1 == 1 && bits >> 25 & 1 == 0;
        bits |= register(random);
        bits |= if is_memory { 9 } else { register(random) } << 5;
        let put = |bits: u32, register: u32, low: u32| bits & !(0x1f << low) | register << low;
        match fixed {
            0x3820_0800 => bits = put(bits, 10, 16),
            0x3800_0000 => bits |= ((random.below(481) + 512 - 240) % 512) << 12,
            0x2880_0000 | 0x2900_0000 | 0x2980_0000 => {
                // The architecture leaves undefined what loading both into one register does.
                let second = random.below(FREE as u32);
                if second == bits & 31 {
                    continue;
                }
                bits = put(bits, second, 10) | ((random.below(32) + 112) % 128) << 15;
            }
            0x3a40_0000 if bits >> 11 & 1 == 1 => {}
            // SMULH and UMULH add nothing.
            0x1b00_0000 => {
                bits = put(put(bits, register(random), 16), [register(random), 31][bits as usize >> 22 & 1], 10)
            }
            0x0a00_0000 | 0x0b00_0000 | 0x0b20_0000 | 0x1380_0000 | 0x1a80_0000 | 0x1ac0_2000 | 0x3a40_0000 => {
                bits = put(bits, register(random), 16);
            }
            _ => {}
        }
        let Ok(decoded) = take_apart(0x1000, bits) else { continue };
        // The stack pointer is the test's own.
        let operation = decoded.instruction.operation;
        let plain_sum = matches!(operation, Operation::Add { to, from, .. } if to == 31 || from == 31)
            || matches!(operation, Operation::Logic { to: 31, .. });
        if decoded.flow == Flow::Next && !plain_sum {
            return (bits, operation);
        }
    }
}

/// The result of an instruction by the interpreter.
fn interpreted(bits: u32, input: &[u64], block: &[u8]) -> Vec<u8> {
    let mut processor = Processor::new(Memory::new(&Nothing));
    let base = processor.memory().base(0) + 4096;
    let range = base..base + BLOCK as u64;
    processor.memory().bytes(0, range.clone()).copy_from_slice(block);
    processor.memory().allow(0, range.clone(), range.clone());
    processor.begin(&[]);
    for (register, value) in (0..).zip(&input[..FREE]) {
        processor.set(register, Value::of(*value, WHOLE), true);
    }
    processor.set(9, Value::of(base + BLOCK as u64 / 2, WHOLE), true);
    processor.set(10, Value::of(input[FREE + 1], WHOLE), true);
    processor.flags = Some(Flags::of_bits((input[FREE] >> 28) as u32));
    let step = take_apart(0x1000, bits).unwrap().instruction;
    processor.execute(&step).unwrap_or_else(|stop| panic!("{bits:#x} {step:?}: {stop:?}"));
    let mut record: Vec<u8> = Vec::new();
    for register in 0..FREE as u32 {
        let value = processor.get(register, true);
        assert_eq!(value.known, WHOLE, "{bits:#x} {step:?}");
        record.extend(value.bits.to_le_bytes());
    }
    let flags = processor.flags.unwrap();
    let bits = [flags.overflow, flags.carry, flags.zero, flags.negative];
    let bits = bits.iter().zip(28..).fold(0u64, |all, (flag, bit)| all | u64::from(*flag) << bit);
    record.extend(bits.to_le_bytes());
    record.extend(processor.get(9, true).bits.wrapping_sub(base).to_le_bytes());
    record.extend(processor.memory().bytes(0, range).iter());
    record
}

#[test]
fn instructions_do_what_a_processor_does() {
    const INSTRUCTIONS: usize = 6000;
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let mut text = String::from(
        ".globl _start\n_start: adrp x19, inputs\n add x19, x19, :lo12:inputs\n adrp x21, block\n \
         add x21, x21, :lo12:block\n adrp x22, pattern\n add x22, x22, :lo12:pattern\n",
    );
    let mut inputs = String::from(".data\n.balign 16\ninputs:\n");
    let pattern: Vec<u8> = (0..BLOCK).map(|at| (at * 37 + at / 7) as u8).collect();
    let mut tests = Vec::new();
    for _ in 0..INSTRUCTIONS {
        let (bits, operation) = instruction(&mut random);
        let mut input: Vec<u64> = (0..FREE).map(|_| random.operand()).collect();
        input.extend([u64::from(random.below(16)) << 28, u64::from(random.below(16))]);
        let _ = writeln!(inputs, ".quad {}", input.iter().map(u64::to_string).collect::<Vec<_>>().join(","));
        let _ = write!(
            text,
            " bl lay_out\n ldp x0, x1, [x19]\n ldp x2, x3, [x19, #16]\n ldp x4, x5, [x19, #32]\n \
             ldp x6, x7, [x19, #48]\n ldp x8, x10, [x19, #64]\n msr nzcv, x8\n add x9, x21, #256\n \
             .inst {bits:#x}\n bl put\n add x19, x19, #80\n"
        );
        tests.push((bits, operation, input));
    }
    text += " mov x0, #0\n mov x8, #93\n svc #0\n\
             lay_out: mov x11, #0\n1: ldr x12, [x22, x11]\n str x12, [x21, x11]\n add x11, x11, #8\n \
             cmp x11, #512\n b.ne 1b\n ret\n\
             put: mrs x8, nzcv\n sub x9, x9, x21\n adrp x13, record\n add x13, x13, :lo12:record\n \
             stp x0, x1, [x13]\n stp x2, x3, [x13, #16]\n stp x4, x5, [x13, #32]\n stp x6, x7, [x13, #48]\n \
             stp x8, x9, [x13, #64]\n mov x11, #0\n add x14, x13, #80\n2: ldr x12, [x21, x11]\n \
             str x12, [x14, x11]\n add x11, x11, #8\n cmp x11, #512\n b.ne 2b\n \
             mov x0, #1\n mov x1, x13\n mov x2, #592\n mov x8, #64\n svc #0\n ret\n";
    inputs += "pattern: .byte ";
    inputs += &pattern.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
    inputs += "\n.bss\n.balign 16\nblock: .skip 512\nrecord: .skip 592\n";
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("all.s"), text + &inputs).unwrap();
    let line = ["cc", "-target", "aarch64-linux-musl", "-c"].map(std::ffi::OsString::from);
    let line = line.into_iter().chain([at("all.s").into(), "-o".into(), at("all.o").into()]);
    fixtures::zig().run(line).unwrap();
    let mut link = Command::new(fixtures::lld_folder().join("ld.lld"));
    assert!(link.arg("-static").arg("-o").arg(at("all")).arg(at("all.o")).status().unwrap().success());
    let output = fixtures::run(Arch::Aarch64, &at("all")).output().unwrap();
    assert!(output.status.success(), "{}, {} of them", output.status, output.stdout.len() / RECORD);
    let mut kinds = std::collections::BTreeSet::new();
    for ((bits, operation, input), real) in tests.iter().zip(output.stdout.chunks(RECORD)) {
        let found = interpreted(*bits, input, &pattern);
        assert!(found == real, "{bits:#x} {operation:?} {input:x?}\n{:x?}\n{:x?}", &found[..80], &real[..80]);
        kinds.insert(format!("{operation:?}").split([' ', '(']).next().unwrap_or_default().to_owned());
    }
    assert!(kinds.len() >= 12, "{kinds:?}");
}
