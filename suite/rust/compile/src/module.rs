//! A valid module, generated from a fixed seed: functions with locals, arithmetic, memory, branches, loops and calls.
//! As in real programs, most are short and some are long.

use fastrand::Rng;
use wasm_encoder::{
    BlockType, CodeSection, ExportKind, ExportSection, Function, FunctionSection, Instruction, InstructionSink, MemArg,
    MemorySection, MemoryType, Module, TypeSection, ValType,
};

const SEED: u64 = 48;
/// The number of locals of each type besides the two parameters.
const LOCALS: u32 = 6;
/// One in this many functions is long.
const LONG: usize = 24;

/// The types of functions. The first parameter and the result have that type.
const TYPES: [ValType; 3] = [ValType::I32, ValType::I64, ValType::F64];

/// Returns the bytes of a module with this many functions.
pub(crate) fn make(functions: usize) -> Vec<u8> {
    let mut types = TypeSection::new();
    for value in TYPES {
        types.ty().function([value, ValType::I32], [value]);
    }
    let (mut declared, mut code, mut exports) = (FunctionSection::new(), CodeSection::new(), ExportSection::new());
    for index in 0..functions {
        declared.function(u32::try_from(kind(index)).expect("a few types"));
        code.function(&Body::new(index).function());
    }
    exports.export("memory", ExportKind::Memory, 0);
    if functions > 0 {
        exports.export("last", ExportKind::Func, u32::try_from(functions - 1).expect("less than 2^32 functions"));
    }
    let mut memories = MemorySection::new();
    memories.memory(MemoryType { minimum: 16, maximum: None, memory64: false, shared: false, page_size_log2: None });
    let mut module = Module::new();
    module.section(&types).section(&declared).section(&memories).section(&exports).section(&code);
    module.finish()
}

/// Returns the index of a function's type.
fn kind(index: usize) -> usize {
    index % TYPES.len()
}

struct Body {
    index: usize,
    random: Rng,
    function: Function,
}

impl Body {
    fn new(index: usize) -> Body {
        let random = Rng::with_seed(SEED ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        Body { index, random, function: Function::new(TYPES.map(|value| (LOCALS, value))) }
    }

    fn function(mut self) -> Function {
        let statements = match self.random.usize(..LONG) {
            0 => self.random.usize(60..400),
            _ => self.random.usize(4..40),
        };
        for _ in 0..statements {
            self.statement(3);
        }
        self.expression(kind(self.index), 3);
        self.put().end();
        self.function
    }

    fn put(&mut self) -> InstructionSink<'_> {
        self.function.instructions()
    }

    /// Returns one of the locals of that type, other than the parameters.
    fn local(&mut self, kind: usize) -> u32 {
        let first = 2 + LOCALS * u32::try_from(kind).expect("a few types");
        first + self.random.u32(..LOCALS)
    }

    fn statement(&mut self, depth: usize) {
        match self.random.usize(..if depth == 0 { 6 } else { 10 }) {
            0..=3 => {
                let kind = self.random.usize(..TYPES.len());
                self.expression(kind, 3);
                let local = self.local(kind);
                self.put().local_set(local);
            }
            4 | 5 => self.store(),
            6 | 7 => {
                self.expression(0, 2);
                self.put().if_(BlockType::Empty);
                self.statements(depth - 1);
                if self.random.bool() {
                    self.put().else_();
                    self.statements(depth - 1);
                }
                self.put().end();
            }
            8 => {
                // Loops while a local counts down.
                let local = self.local(0);
                self.put().loop_(BlockType::Empty);
                self.statements(depth - 1);
                self.put().local_get(local).i32_const(1).i32_sub().local_tee(local).i32_const(0).i32_gt_s().br_if(0);
                self.put().end();
            }
            _ => {
                // A switch of three cases.
                for _ in 0..3 {
                    self.put().block(BlockType::Empty);
                }
                self.expression(0, 1);
                self.put().br_table([0, 1], 2);
                for _ in 0..2 {
                    self.put().end();
                    self.statements(depth - 1);
                }
                self.put().end();
            }
        }
    }

    fn statements(&mut self, depth: usize) {
        for _ in 0..self.random.usize(1..4) {
            self.statement(depth);
        }
    }

    fn store(&mut self) {
        let kind = self.random.usize(..TYPES.len());
        self.expression(0, 1);
        self.expression(kind, 2);
        let at = self.memory(kind);
        let mut put = self.put();
        match kind {
            0 => put.i32_store(at),
            1 => put.i64_store(at),
            _ => put.f64_store(at),
        };
    }

    fn memory(&mut self, kind: usize) -> MemArg {
        MemArg { offset: u64::from(self.random.u32(..65_536)), align: if kind == 0 { 2 } else { 3 }, memory_index: 0 }
    }

    /// Emits a value of that type onto the stack.
    fn expression(&mut self, kind: usize, depth: usize) {
        let choice = self.random.usize(..if depth == 0 { 2 } else { 10 });
        match choice {
            0 => {
                let number = self.random.i32(..);
                match kind {
                    0 => self.put().i32_const(number),
                    1 => self.put().i64_const(i64::from(number) << 7),
                    _ => self.put().f64_const((f64::from(number) / 8.0).into()),
                };
            }
            1 | 2 => {
                let local = self.local(kind);
                self.put().local_get(local);
            }
            3 => {
                self.expression(0, depth - 1);
                let at = self.memory(kind);
                let mut put = self.put();
                match kind {
                    0 => put.i32_load(at),
                    1 => put.i64_load(at),
                    _ => put.f64_load(at),
                };
            }
            4 if self.index >= TYPES.len() => {
                // Calls a function before this one.
                let before = self.random.usize(..self.index / TYPES.len()) * TYPES.len() + kind;
                self.expression(kind, depth - 1);
                self.expression(0, depth - 1);
                self.put().call(u32::try_from(before).expect("less than 2^32 functions"));
            }
            5 => {
                // Converts from a different type.
                let from = (kind + 1) % TYPES.len();
                self.expression(from, depth - 1);
                let mut put = self.put();
                match kind {
                    0 => put.i32_wrap_i64(),
                    1 => put.i64_trunc_sat_f64_s(),
                    _ => put.f64_convert_i32_s(),
                };
            }
            _ => {
                self.expression(kind, depth - 1);
                self.expression(kind, depth - 1);
                let operator = self.operator(kind);
                self.function.instruction(&operator);
            }
        }
    }

    fn operator(&mut self, kind: usize) -> Instruction<'static> {
        use Instruction as I;
        let choice = self.random.usize(..6);
        match kind {
            0 => [I::I32Add, I::I32Sub, I::I32Mul, I::I32Xor, I::I32Shl, I::I32LtS][choice].clone(),
            1 => [I::I64Add, I::I64Sub, I::I64Mul, I::I64And, I::I64ShrU, I::I64Rotl][choice].clone(),
            _ => [I::F64Add, I::F64Sub, I::F64Mul, I::F64Div, I::F64Min, I::F64Copysign][choice].clone(),
        }
    }
}
