//! The stack pointer in x86_64's functions: it tells a function from a part of one.

use std::collections::HashMap;

use iced_x86::{Instruction, Mnemonic, OpKind, Register};

use super::instruction_at;
use crate::code::{Flow, Function};
use crate::image::Image;

/// How far registers are below the stack pointer's value at the function's start; `None` if that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Depths {
    stack: Option<i64>,
    frame: Option<i64>,
}

/// Whether the stack pointer has its value from the function's start wherever the function returns or jumps to another
/// function.
pub(super) fn is_kept(image: &Image<'_>, function: &Function) -> bool {
    let mut seen: HashMap<u64, Depths> = HashMap::new();
    let mut open = vec![(function.start, Depths { stack: Some(0), frame: None })];
    while let Some((address, depths)) = open.pop() {
        match seen.insert(address, depths) {
            None => {}
            Some(before) if before.stack == depths.stack => continue,
            Some(_) => return false,
        }
        let at_start = depths.stack == Some(0);
        let Some((instruction, decoded)) = function.instructions.get(&address).zip(instruction_at(image, address))
        else {
            // A branch to another function.
            if !at_start {
                return false;
            }
            continue;
        };
        let after = depths.after(&decoded);
        match instruction.flow {
            Flow::Return if !at_start => return false,
            // By a jump to another function, or within this one by a table.
            Flow::Return | Flow::Jump(None) | Flow::Trap => {}
            Flow::Jump(Some(target)) => open.push((target, after)),
            Flow::Conditional(target) => open.extend([(target, after), (instruction.next, after)]),
            Flow::Next | Flow::Call(_) if function.instructions.contains_key(&instruction.next) => {
                open.push((instruction.next, after));
            }
            // Nothing comes behind a call that does not return.
            Flow::Next | Flow::Call(_) => {}
        }
    }
    true
}

impl Depths {
    fn after(self, instruction: &Instruction) -> Depths {
        use Register::{RBP, RSP};
        let Depths { stack, frame } = self;
        let (first, second) = (register(instruction, 0), register(instruction, 1));
        let number = || instruction.try_immediate(1).ok().map(u64::cast_signed);
        let beside = |base: Option<i64>| Some(base? - instruction.memory_displacement64().cast_signed());
        match (instruction.mnemonic(), first, second) {
            (Mnemonic::Mov, Some(RBP), Some(RSP)) => Depths { stack, frame: stack },
            (Mnemonic::Mov, Some(RSP), Some(RBP)) => Depths { stack: frame, frame },
            (Mnemonic::Lea, Some(RSP), _) if instruction.memory_index() == Register::None => {
                let base = match instruction.memory_base() {
                    RSP => stack,
                    RBP => frame,
                    _ => None,
                };
                Depths { stack: beside(base), frame }
            }
            (Mnemonic::Add, Some(RSP), _) => Depths { stack: stack.zip(number()).map(|(at, by)| at - by), frame },
            (Mnemonic::Sub, Some(RSP), _) => Depths { stack: stack.zip(number()).map(|(at, by)| at + by), frame },
            (Mnemonic::Leave, ..) => Depths { stack: frame.map(|at| at - 8), frame: None },
            // A call restores the stack pointer.
            (Mnemonic::Call, ..) => self,
            (Mnemonic::Pop, Some(RBP), _) => Depths { stack: stack.map(|at| at - 8), frame: None },
            (Mnemonic::Cmp | Mnemonic::Test, ..) => self,
            (_, Some(RSP), _) if !matches!(instruction.mnemonic(), Mnemonic::Push | Mnemonic::Pop) => {
                Depths { stack: None, frame }
            }
            (_, Some(RBP), _) if instruction.mnemonic() != Mnemonic::Push => Depths { stack, frame: None },
            _ => Depths { stack: stack.map(|at| at - i64::from(instruction.stack_pointer_increment())), frame },
        }
    }
}

/// The general register that is an operand.
fn register(instruction: &Instruction, operand: u32) -> Option<Register> {
    let is_register = operand < instruction.op_count() && instruction.op_kind(operand) == OpKind::Register;
    is_register.then(|| instruction.op_register(operand).full_register())
}
