//! The architectures that a graft can be made for. The crate `inspector` has its own list, since it also names other
//! architectures.

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

    /// The name in target triples: `x86_64`, `aarch64`, `riscv64`, `i686`, `arm`.
    pub fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
            Arch::Riscv64 => "riscv64",
            Arch::I686 => "i686",
            Arch::Arm => "arm",
        }
    }

    /// The architecture whose [`Arch::name`] is `name`.
    pub fn from_name(name: &str) -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.name() == name)
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_found_by_name() {
        assert_eq!(Arch::from_name("aarch64"), Some(Arch::Aarch64));
        assert_eq!(Arch::from_name("x86_64"), Some(Arch::X86_64));
        assert_eq!(Arch::from_name("mips"), None);
    }
}
