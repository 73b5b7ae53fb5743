//! A minimal relocatable object that refers to given symbols, so that a linker has to find them.

use format::Arch;
use object::write::{Error, Object, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, FileFlags, SectionKind, SymbolFlags, SymbolKind, SymbolScope, elf,
};

/// Returns an ELF object without code, with one undefined symbol for each name.
pub(crate) fn object(arch: Arch, names: &[&str]) -> Result<Vec<u8>, Error> {
    let none = elf::FileFlags::default();
    let (architecture, e_flags) = match arch {
        Arch::X86_64 => (Architecture::X86_64, none),
        Arch::Aarch64 => (Architecture::Aarch64, none),
        // Floating-point arguments in registers: objects with and without this flag do not link with each other.
        Arch::Riscv64 => (Architecture::Riscv64, elf::EF_RISCV_FLOAT_ABI_DOUBLE),
        Arch::I686 => (Architecture::I386, none),
        Arch::Arm => (Architecture::Arm, elf::EF_ARM_EABI_VER5),
    };
    let mut object = Object::new(BinaryFormat::Elf, architecture, Endianness::Little);
    object.flags = FileFlags::Elf { os_abi: elf::ELFOSABI_NONE, abi_version: 0, e_flags };
    // Without this section a GNU ld makes the stack executable, and warns.
    object.add_section(Vec::new(), b".note.GNU-stack".to_vec(), SectionKind::Other);
    for name in names {
        object.add_symbol(Symbol {
            name: name.as_bytes().to_vec(),
            value: 0,
            size: 0,
            kind: SymbolKind::Unknown,
            scope: SymbolScope::Dynamic,
            weak: false,
            section: SymbolSection::Undefined,
            flags: SymbolFlags::None,
        });
    }
    object.write()
}

#[cfg(test)]
mod tests {
    use object::{Object, ObjectSection, ObjectSymbol};

    use super::*;

    #[test]
    fn the_object_asks_for_what_it_was_told() {
        for arch in Arch::ALL {
            let bytes = object(arch, &["wcsdup", "strdup"]).unwrap();
            let object = object::File::parse(&*bytes).unwrap();
            let machine = format!("{:?}", object.architecture()).to_lowercase();
            assert_eq!(machine, if arch == Arch::I686 { "i386" } else { arch.name() });
            assert_eq!(object.kind(), object::ObjectKind::Relocatable);
            let needed = object.symbols().filter(|symbol| symbol.is_undefined() && symbol.is_global());
            let names: Vec<_> = needed.map(|symbol| symbol.name().unwrap().to_owned()).collect();
            assert_eq!(names, ["wcsdup", "strdup"]);
            assert!(object.sections().any(|section| section.name() == Ok(".note.GNU-stack")));
        }
    }
}
