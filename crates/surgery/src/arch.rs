//! The architectures that a graft can be made for.

use std::fmt;

/// An architecture with a donor object. All are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// AMD64, in its LP64 form: not x32.
    #[serde(rename = "x86_64")]
    X86_64,
    /// AArch64, little-endian, LP64.
    Aarch64,
    /// RISC-V, LP64 with double-precision floats in registers (lp64d).
    Riscv64,
    /// 32-bit x86.
    I686,
    /// ARMv7 and later, 32-bit, little-endian, EABI with floats in registers.
    Arm,
}

impl Arch {
    /// All of them.
    pub const ALL: [Arch; 5] = [Arch::X86_64, Arch::Aarch64, Arch::Riscv64, Arch::I686, Arch::Arm];

    /// As target triples spell it: `x86_64`, `aarch64`, `riscv64`.
    pub fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
            Arch::Riscv64 => "riscv64",
            Arch::I686 => "i686",
            Arch::Arm => "arm",
        }
    }

    /// The one of this name.
    pub fn from_name(name: &str) -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.name() == name)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}
