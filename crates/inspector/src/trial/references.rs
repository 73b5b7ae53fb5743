//! Makes the smallest relocatable object that asks for given symbols, so that a linker has to find them.

/// An ELF64 object without code, with one undefined symbol for each name.
pub(super) fn object(arch: conformance::Arch, names: &[&str]) -> Vec<u8> {
    const HEADER: usize = 64;
    const SYMBOL: usize = 24;
    let (machine, flags): (u16, u32) = match arch {
        conformance::Arch::X86_64 => (62, 0),
        conformance::Arch::Aarch64 => (183, 0),
        // Doubles in registers: what does not say so does not link with what does.
        conformance::Arch::Riscv64 => (243, 4),
    };
    let mut strings = vec![0u8];
    let mut symbols = vec![0u8; SYMBOL];
    for name in names {
        symbols.extend((strings.len() as u32).to_le_bytes());
        // STB_GLOBAL, STT_NOTYPE, default visibility, SHN_UNDEF, value 0, size 0.
        symbols.push(1 << 4);
        symbols.extend([0; 19]);
        strings.extend(name.as_bytes());
        strings.push(0);
    }
    let strings_at = HEADER + symbols.len();
    let section_names = b"\0.symtab\0.strtab\0.note.GNU-stack\0";
    let names_at = strings_at + strings.len();
    let table_at = (names_at + section_names.len()).next_multiple_of(8);

    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    for number in [1u16, machine] {
        file.extend(number.to_le_bytes());
    }
    file.extend(1u32.to_le_bytes());
    file.extend([0; 16]);
    file.extend((table_at as u64).to_le_bytes());
    file.extend(flags.to_le_bytes());
    // Sizes and counts of headers; four sections, the names in the third.
    for number in [HEADER as u16, 0, 0, 64, 5, 3] {
        file.extend(number.to_le_bytes());
    }
    file.extend(&symbols);
    file.extend(&strings);
    file.extend(section_names);
    file.resize(table_at, 0);
    let mut section = |fields: [u64; 10]| {
        let [name, kind, flags, address, offset, size, link, info, align, entry] = fields;
        for number in [name as u32, kind as u32] {
            file.extend(number.to_le_bytes());
        }
        for number in [flags, address, offset, size] {
            file.extend(number.to_le_bytes());
        }
        for number in [link as u32, info as u32] {
            file.extend(number.to_le_bytes());
        }
        for number in [align, entry] {
            file.extend(number.to_le_bytes());
        }
    };
    section([0; 10]);
    // SHT_SYMTAB, its strings in section 2, the first global symbol at 1.
    section([1, 2, 0, 0, HEADER as u64, symbols.len() as u64, 2, 1, 8, SYMBOL as u64]);
    section([9, 3, 0, 0, strings_at as u64, strings.len() as u64, 0, 0, 1, 0]);
    section([9, 3, 0, 0, names_at as u64, section_names.len() as u64, 0, 0, 1, 0]);
    // Without this one a GNU ld takes the stack for executable, and warns.
    section([17, 1, 0, 0, names_at as u64, 0, 0, 0, 1, 0]);
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Elf;

    #[test]
    fn the_object_asks_for_what_it_was_told() {
        let object = object(conformance::Arch::Aarch64, &["wcsdup", "strdup"]);
        let elf = Elf::parse(&object).unwrap();
        assert_eq!((elf.file_type, elf.arch.name().as_ref(), elf.damage.as_deref()), (1, "aarch64", None));
        let names: Vec<_> = elf.symbols.iter().filter(|symbol| symbol.is_needed()).map(|symbol| symbol.name).collect();
        assert_eq!(names, [&b"wcsdup"[..], b"strdup"]);
        assert_eq!(elf.sections[4].name, b".note.GNU-stack");
    }
}
