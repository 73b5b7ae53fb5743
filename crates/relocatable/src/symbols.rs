//! The machine of an object, and the symbols that it defines and refers to.

use std::fmt;

use format::Arch;
use object::elf;
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, LittleEndian};

use crate::{ObjectError, Sections};

/// The machine that an ELF object is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Machine {
    /// `e_machine`.
    pub number: u16,
    /// 32 or 64.
    pub bits: u8,
    /// Whether the most significant byte comes first.
    pub big_endian: bool,
    /// Whether it passes floats differently from the architecture's usual convention, by `e_flags`: lp64 and lp64f on
    /// RISC-V.
    pub other_floats: bool,
}

impl Machine {
    /// The architecture; `None` if no graft can be made for it. On ARM the whole archive's attributes have to agree as
    /// well.
    pub fn arch(self) -> Option<Arch> {
        match (elf::Machine(self.number), self.bits, self.big_endian, self.other_floats) {
            (elf::EM_X86_64, 64, false, _) => Some(Arch::X86_64),
            (elf::EM_AARCH64, 64, false, _) => Some(Arch::Aarch64),
            (elf::EM_RISCV, 64, false, false) => Some(Arch::Riscv64),
            (elf::EM_386, 32, false, _) => Some(Arch::I686),
            (elf::EM_ARM, 32, false, _) => Some(Arch::Arm),
            _ => None,
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(arch) = self.arch() {
            return arch.fmt(formatter);
        }
        let name = match elf::Machine(self.number) {
            elf::EM_386 => "i386",
            elf::EM_ARM => "arm",
            elf::EM_X86_64 => "x86_64",
            elf::EM_AARCH64 => "aarch64",
            elf::EM_RISCV => "riscv",
            elf::EM_PPC => "powerpc",
            elf::EM_PPC64 => "powerpc64",
            elf::EM_MIPS => "mips",
            elf::EM_S390 => "s390",
            elf::EM_LOONGARCH => "loongarch",
            _ => return write!(formatter, "machine {} ({}-bit)", self.number, self.bits),
        };
        let (endian, floats) =
            (if self.big_endian { "big" } else { "little" }, if self.other_floats { ", soft-float" } else { "" });
        write!(formatter, "{name}, {}-bit, {endian}-endian{floats}", self.bits)
    }
}

/// The binding of a symbol to symbols of the same name in other objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binding {
    /// It does not bind to them.
    Local,
    /// There may be only one definition. GNU's unique symbols count as global.
    Global,
    /// It gives way to a global one.
    Weak,
}

/// The visibility of a symbol outside the linked file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Visibility {
    /// Visible.
    Default,
    /// Not visible, with the meaning that the processor's supplement gives it.
    Internal,
    /// Not visible.
    Hidden,
    /// Visible, and nothing can replace it.
    Protected,
}

impl Visibility {
    /// Whether the symbol cannot be referred to from outside the linked file.
    pub fn is_private(self) -> bool {
        matches!(self, Visibility::Internal | Visibility::Hidden)
    }
}

/// A symbol of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Its index in the symbol table.
    pub index: usize,
    /// Its name; empty for sections.
    pub name: &'a [u8],
    /// Local, global or weak.
    pub binding: Binding,
    /// Its visibility.
    pub visibility: Visibility,
    /// Whether this object defines it. A common symbol counts as defined.
    pub defined: bool,
}

impl Symbol<'_> {
    /// Whether other objects can refer to it or define it.
    pub fn is_shared(&self) -> bool {
        self.binding != Binding::Local && !self.name.is_empty()
    }
}

/// A relocatable object, of any machine.
#[derive(Debug, Clone, Copy)]
pub struct Object<'a> {
    /// The machine that it is made for.
    pub machine: Machine,
    data: &'a [u8],
}

impl<'a> Object<'a> {
    /// Recognises an object by its header alone. `None` if it is not a relocatable ELF object: LLVM bitcode, for
    /// example.
    pub fn recognise(data: &'a [u8]) -> Option<Object<'a>> {
        Object::of_type(data, elf::ET_REL)
    }

    /// Recognises a shared object. Its sections can be read.
    pub fn recognise_library(data: &'a [u8]) -> Option<Object<'a>> {
        Object::of_type(data, elf::ET_DYN)
    }

    fn of_type(data: &'a [u8], wanted: elf::FileType) -> Option<Object<'a>> {
        // EI_CLASS at 4, EI_DATA at 5, e_type at 16, e_machine at 18 for both classes; e_flags at 36 or 48.
        let header = data.get(..52).filter(|header| header.starts_with(&elf::ELFMAG))?;
        let bits = match header[4] {
            1 => 32,
            2 => 64,
            _ => return None,
        };
        let big_endian = match header[5] {
            1 => false,
            2 => true,
            _ => return None,
        };
        let number = |at: usize| {
            let bytes = [header[at], header[at + 1]];
            if big_endian { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
        };
        let as_wanted = elf::FileType(number(16)) == wanted;
        let machine = number(18);
        let flags = &header[if bits == 64 { 48..52 } else { 36..40 }];
        let floats = u32::from(if big_endian { flags[3] } else { flags[0] }) & elf::EF_RISCV_FLOAT_ABI;
        let other_floats = elf::Machine(machine) == elf::EM_RISCV && floats != elf::EF_RISCV_FLOAT_ABI_DOUBLE.0;
        as_wanted.then_some(Object { machine: Machine { number: machine, bits, big_endian, other_floats }, data })
    }

    /// All symbols except the empty first one, in the order of the table; empty if there is no table.
    ///
    /// # Errors
    /// A table is damaged.
    pub fn symbols(&self) -> Result<Vec<Symbol<'a>>, ObjectError> {
        match (self.machine.bits, self.machine.big_endian) {
            (64, false) => read_symbols::<elf::FileHeader64<LittleEndian>>(self.data),
            (64, true) => read_symbols::<elf::FileHeader64<Endianness>>(self.data),
            _ => read_symbols::<elf::FileHeader32<Endianness>>(self.data),
        }
    }

    /// All section headers.
    ///
    /// # Errors
    /// The headers are damaged.
    pub fn sections(&self) -> Result<Sections<'a>, ObjectError> {
        match (self.machine.bits, self.machine.big_endian) {
            (64, false) => Sections::read::<elf::FileHeader64<LittleEndian>>(self.data),
            (64, true) => Sections::read::<elf::FileHeader64<Endianness>>(self.data),
            _ => Sections::read::<elf::FileHeader32<Endianness>>(self.data),
        }
    }
}

/// The symbols of a relocatable ELF object except the empty first one, in the order of its table.
///
/// # Errors
/// `data` is not a relocatable ELF object, or a table is damaged.
pub fn symbols(data: &[u8]) -> Result<Vec<Symbol<'_>>, ObjectError> {
    Object::recognise(data).ok_or(ObjectError::NotAnObject)?.symbols()
}

fn read_symbols<Elf: FileHeader>(data: &[u8]) -> Result<Vec<Symbol<'_>>, ObjectError> {
    let damaged = ObjectError::reading("the symbol table");
    let header = Elf::parse(data).map_err(ObjectError::reading("the header"))?;
    let endian = header.endian().map_err(ObjectError::reading("the header"))?;
    let sections = header.sections(endian, data).map_err(ObjectError::reading("the section headers"))?;
    let table = sections.symbols(endian, data, elf::SHT_SYMTAB).map_err(damaged)?;
    let mut symbols = Vec::with_capacity(table.len());
    for (index, symbol) in table.iter().enumerate().skip(1) {
        let name = symbol.name(endian, table.strings()).map_err(|_| ObjectError::Name { index })?;
        symbols.push(Symbol {
            index,
            name,
            binding: match symbol.st_bind() {
                elf::STB_LOCAL => Binding::Local,
                elf::STB_WEAK => Binding::Weak,
                _ => Binding::Global,
            },
            visibility: match symbol.st_visibility() {
                elf::STV_INTERNAL => Visibility::Internal,
                elf::STV_HIDDEN => Visibility::Hidden,
                elf::STV_PROTECTED => Visibility::Protected,
                _ => Visibility::Default,
            },
            defined: !symbol.is_undefined(endian),
        });
    }
    Ok(symbols)
}
